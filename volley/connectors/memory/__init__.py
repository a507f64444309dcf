"""Memory source and sink: rows of this process."""
