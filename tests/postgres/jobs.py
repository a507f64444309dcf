"""The job that mirrors a table of PostgreSQL in an Iceberg table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.captured import Database
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, Pipeline, PostgresSource
from volley.iceberg import Upsert

__all__ = ["append", "config", "difference", "mirror", "start"]


def config(folder: Path) -> IcebergSinkConfig:
    uri = f"sqlite:///{folder}/catalog.db"
    return IcebergSinkConfig(
        catalog_uri=uri,
        warehouse="lake",
        namespace=["db"],
        table="orders",
        storage=IcebergStorage.Local(str(folder / "lake")),
    )


def _pipeline(
    folder: Path, source: PostgresSource, keys: Any, arrow_native: bool = True, interval: Any = "1s"
) -> Pipeline:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"), arrow_native=arrow_native)
    sink = IcebergSink(config(folder).with_commit_mode(Upsert(keys)).with_flush_interval(interval))
    return environment.from_source(source).to_sink(sink)


def mirror(folder: Path, source: PostgresSource, keys: Any = None, arrow_native: bool = True) -> Job:
    """One run of a bounded source."""
    return _pipeline(folder, source, keys, arrow_native).execute("mirror")


def append(folder: Path, source: PostgresSource) -> Job:
    """One run of a bounded source whose rows are appended as they are."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    return environment.from_source(source).to_sink(IcebergSink(config(folder))).execute("changelog")


def start(folder: Path, source: PostgresSource, keys: Any = None, interval: Any = "1s") -> Job:
    """An endless run."""
    return _pipeline(folder, source, keys, interval=interval).start("mirror")


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def difference(shop: Database, folder: Path, query: str = "select * from orders") -> list[Any]:
    """Rows that only PostgreSQL or only the Iceberg table has."""
    table = IcebergSink(config(folder)).table().scan().to_arrow()
    ours = [tuple(row.values()) for row in table.to_pylist()]
    theirs = [tuple(map(_plain, row)) for row in shop.rows(query)]
    assert len(set(ours)) == len(ours), "rows are doubled"
    return sorted(set(ours) ^ set(theirs), key=repr)
