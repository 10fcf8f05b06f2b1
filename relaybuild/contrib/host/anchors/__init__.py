"""The operators that the host lowers by templates, found by file."""
