"""A script for ``spark-submit``: it names no cluster, as the command line does.

``spark-submit --master spark://host:7077 --py-files volley.zip examples/spark_submit.py FOLDER``, or alone:
``python -m examples.spark_submit FOLDER``. The folder has Parquet files in ``in``; all machines reach it.
"""

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
