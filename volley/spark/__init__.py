"""Runs plans on Spark: session, compilation, data source, tasks, errors."""
