"""Single steps from generated code to what a library is made of; they know no stage before or after them."""
