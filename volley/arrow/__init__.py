"""Steps and expressions on Arrow batches."""
