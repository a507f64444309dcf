"""Function sink: calls a Python function with the rows of a stream."""
