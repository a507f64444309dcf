"""Reads mutated files: each must be refused with a VolleyError, or give values that are right."""
