"""The job that mirrors a table of PostgreSQL in an Iceberg table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.captured import Database
from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, Pipeline, PostgresSource
from volley.iceberg import Upsert

__all__ = [
    *("append", "config", "difference", "differences", "mirror", "mirror_all"),
    *("start", "start_all", "start_appending"),
]


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
    folder: Path,
    source: PostgresSource,
    keys: Any,
    interval: Any = "1s",
    evolution: Any = "full",
) -> Pipeline:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_commit_mode(Upsert(keys)).with_schema_evolution(evolution).with_flush_interval(interval)
    return environment.from_source(source).to_sink(IcebergSink(lake))


def mirror(folder: Path, source: PostgresSource, keys: Any = None) -> Job:
    """One run of a bounded source."""
    return _pipeline(folder, source, keys).execute("mirror")


def _appending(folder: Path, source: PostgresSource, interval: Any = "1s") -> Pipeline:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_schema_evolution("full").with_flush_interval(interval)
    return environment.from_source(source).to_sink(IcebergSink(lake))


def append(folder: Path, source: PostgresSource) -> Job:
    """One run of a bounded source whose rows are appended as they are."""
    return _appending(folder, source).execute("changelog")


def start_appending(folder: Path, source: PostgresSource, interval: Any = "1s") -> Job:
    """An endless run of it."""
    return _appending(folder, source, interval).start("changelog")


def start(folder: Path, source: PostgresSource, keys: Any = None, **settings: Any) -> Job:
    """An endless run."""
    return _pipeline(folder, source, keys, **settings).start("mirror")


def _all(folder: Path, source: PostgresSource, interval: Any = "1s") -> Pipeline:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_commit_mode(Upsert()).with_schema_evolution("full").with_flush_interval(interval)
    return environment.from_source(source).to_sink(IcebergSink(lake).routed("db.{namespace}_{table}", rows="rows"))


def mirror_all(folder: Path, source: PostgresSource) -> Job:
    """One run of a bounded source of a whole database."""
    return _all(folder, source).execute("mirror")


def start_all(folder: Path, source: PostgresSource, interval: Any = "1s") -> Job:
    """An endless run of it."""
    return _all(folder, source, interval).start("mirror")


def differences(shop: Database, folder: Path, schema: str = "public") -> dict[str, list[Any]]:
    """For each table of a schema, the rows that only PostgreSQL or only its Iceberg table has."""
    tables = shop.rows(f"select tablename from pg_tables where schemaname = '{schema}' order by tablename")
    return {name: _differences(shop, folder, schema, name) for (name,) in tables}


def _differences(shop: Database, folder: Path, schema: str, name: str) -> list[Any]:
    columns = [
        column
        for (column,) in shop.rows(
            "select column_name from information_schema.columns "
            f"where table_schema = '{schema}' and table_name = '{name}' order by ordinal_position"
        )
    ]
    table = IcebergSink(replace(config(folder), table=f"{schema}_{name}")).table()
    ours = [tuple(row[column] for column in columns) for row in table.scan().to_arrow().to_pylist()]
    names = ", ".join(f'"{column}"' for column in columns)
    theirs = [tuple(map(_plain, row)) for row in shop.rows(f'select {names} from {schema}."{name}"')]
    assert len(set(ours)) == len(ours), f"rows of {name} are doubled"
    return sorted(set(ours) ^ set(theirs), key=repr)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def difference(shop: Database, folder: Path, query: str = "select * from orders") -> list[Any]:
    """Rows that only PostgreSQL or only the Iceberg table has."""
    table = IcebergSink(config(folder)).table().scan().to_arrow()
    ours = [tuple(row.values()) for row in table.to_pylist()]
    theirs = [tuple(map(_plain, row)) for row in shop.rows(query)]
    assert len(set(ours)) == len(ours), "rows are doubled"
    return sorted(set(ours) ^ set(theirs), key=repr)
