"""Pipelines in YAML: a file becomes the very values that Python would build."""
