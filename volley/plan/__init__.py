"""A job's plan as frozen values: nodes and expressions."""
