"""Statistics of columns: distinct values, as Theta sketches in a Puffin file."""
