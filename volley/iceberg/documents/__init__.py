"""Settings of tables, sinks and sources as YAML, JSON and environment variables have them."""
