"""A script as a user submits it: no word of any cluster in it."""

from __future__ import annotations

import sys

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col

folder = sys.argv[1]
config = IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(f"{folder}/lake"))
job = (
    Environment(checkpoint_dir=f"{folder}/checkpoints")
    .from_source(FileSource(f"{folder}/in", format="parquet", max_files_per_epoch=1))
    .filter_expr(col("id") % 7 != 0)
    .with_column("twice", col("id") * 2)
    .to_sink(IcebergSink(config))
    .execute("submitted")
)
