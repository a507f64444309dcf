"""Table schemas: types, comparison with a stream, changes."""
