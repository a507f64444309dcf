"""What a job is to do, as frozen values: nodes, expressions, types."""
