"""Storage of table files: settings, permissions, uploads, listings."""
