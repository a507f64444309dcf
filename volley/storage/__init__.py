"""Files on any fsspec storage: paths, durable writes, remembered values."""
