"""Console sink: prints the first rows of each epoch."""
