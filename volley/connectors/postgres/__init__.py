"""PostgreSQL change capture: logical replication from a slot, and an initial load."""
