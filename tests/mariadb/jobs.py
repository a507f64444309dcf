"""The job that mirrors tables of MariaDB in Iceberg tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.mariadb.shops import Shop
from tests.postgres.jobs import config
from volley import Environment, IcebergSink, Job, MariaDbSource, Pipeline
from volley.iceberg import Upsert

__all__ = ["append", "differences", "mirror", "mirror_all", "start_all"]


def mirror(folder: Path, source: MariaDbSource, job: str = "mirror") -> Job:
    """One run of a bounded source of one table."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_commit_mode(Upsert()).with_schema_evolution("full").with_flush_interval("1s")
    return environment.from_source(source).to_sink(IcebergSink(lake)).execute(job)


def append(folder: Path, source: MariaDbSource) -> Job:
    """One run of a bounded source whose rows are appended as they are."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    sink = IcebergSink(config(folder).with_schema_evolution("full").with_flush_interval("1s"))
    return environment.from_source(source).to_sink(sink).execute("changelog")


def _all(folder: Path, source: MariaDbSource, master: str = "local[2]") -> Pipeline:
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_commit_mode(Upsert()).with_schema_evolution("full").with_flush_interval("1s")
    return environment.from_source(source).to_sink(IcebergSink(lake).routed("db.{table}", rows="rows"))


def mirror_all(folder: Path, source: MariaDbSource) -> Job:
    """One run of a bounded source of several tables."""
    return _all(folder, source).execute("mirror")


def start_all(folder: Path, source: MariaDbSource) -> Job:
    """An endless run of it, which tries tasks again whose worker has died."""
    return _all(folder, source, "local[2,4]").start("mirror")


def differences(shop: Shop, folder: Path) -> dict[str, list[Any]]:
    """For each table, the rows that only MariaDB or only its Iceberg table has."""
    tables = shop.rows(f"select table_name from information_schema.tables where table_schema = '{shop.name}'")
    return {name: _difference(shop, folder, name) for (name,) in sorted(tables)}


def _difference(shop: Shop, folder: Path, name: str) -> list[Any]:
    columns = [
        column
        for (column,) in shop.rows(
            f"select column_name from information_schema.columns where table_schema = '{shop.name}' "
            f"and table_name = '{name}' order by ordinal_position"
        )
    ]
    table = IcebergSink(replace(config(folder), table=name)).table()
    ours = [tuple(row.get(column) for column in columns) for row in table.scan().to_arrow().to_pylist()]
    theirs = shop.rows(f"select {', '.join(f'`{column}`' for column in columns)} from `{name}`")
    assert len(set(ours)) == len(ours), f"rows of {name} are doubled"
    return sorted(set(ours) ^ set(theirs), key=repr)
