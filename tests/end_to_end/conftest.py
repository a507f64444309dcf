"""What the end-to-end tests share: an environment on the one session, a local lake, a reader we did not write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from volley import Environment, IcebergSinkConfig, IcebergStorage


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    """An environment on the one session."""
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


@pytest.fixture
def native(spark: SparkSession, tmp_path: Path) -> Environment:
    """An environment on one path, for what does not depend on it."""
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


@pytest.fixture
def config(tmp_path: Path) -> IcebergSinkConfig:
    """The embedded default: a local warehouse with a SQLite catalog beside it."""
    return IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))


@pytest.fixture
def load(tmp_path: Path) -> Callable[[], Table]:
    """Opens the table by plain pyiceberg."""

    def open_table() -> Table:
        catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
        try:
            return catalog.load_table("db.events")
        finally:
            catalog.close()

    return open_table


@pytest.fixture
def rows(load: Callable[[], Table]) -> Callable[[], list[dict[str, Any]]]:
    """The table's rows, ordered by id."""
    return lambda: load().scan().to_arrow().sort_by("id").to_pylist()
