"""Rows on disk that are read again, each batch with a checksum."""
