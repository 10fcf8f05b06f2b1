"""What printer and parser are made of."""
