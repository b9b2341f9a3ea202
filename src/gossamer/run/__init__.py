"""[4] Run: a Program becomes results, on a GPU, in the interpreter, or nowhere (the null device)."""
