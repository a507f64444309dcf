"""Converts bytes to Arrow batches and back: JSON, CSV, Parquet, Avro."""
