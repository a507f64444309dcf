"""Rows and entries on disk that are read again: with checksums where they outlast the process."""
