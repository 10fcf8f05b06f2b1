"""Single steps from a model to what a library is made of, each looked up in the cache; they know no stage."""
