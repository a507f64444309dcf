"""Changes from full extracts."""
