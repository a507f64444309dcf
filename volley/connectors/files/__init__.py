"""File source and file sink."""
