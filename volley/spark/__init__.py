"""Runs plans on Spark: session, data source, compilation, errors."""
