"""Maintains tables: orphan files and branches."""
