"""The job that fault tests run against real servers: files of numbered rows into a table in a REST catalog and S3."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.recovery.remote import RemoteLake
from tests.services.conftest import Seaweed
from volley import Environment, FileSource, IcebergSink, col


def main(folder: Path, lake: RemoteLake) -> None:
    """One run: an epoch is one file."""
    (
        Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
        .from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
        .with_column("twice", col("id") * 2)
        .to_sink(IcebergSink(lake.config))
        .execute("remote")
    )


if __name__ == "__main__":
    folder, s3_endpoint, catalog_uri, table = sys.argv[1:]
    main(Path(folder), RemoteLake(Seaweed(catalog_uri, s3_endpoint), catalog_uri, table))
