"""Cases that several runners share: the numpy semantics, scalar rules, generated code, the text round trip."""
