"""The same pipeline over every pair of a catalog and a storage that the servers allow; the matrix is printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from tests.servers.fixtures import Place, warehouse
from tests.services import lakes
from tests.tiers import nightly
from volley import EOF, Environment, IcebergSink, IcebergSinkConfig, MemorySource, col, lit
from volley.iceberg.catalogs.config import CatalogConfig

# These take a table to wherever the client says; a REST catalog decides that itself, and has one storage here.
ANYWHERE = {"sqlite": lakes.sqlite, "memory": lakes.memory, "postgres": lakes.postgres, "glue": lakes.glue}
OWN = {"rest": ("local", lakes.rest), "seaweed": ("s3", lakes.seaweed), "hive": ("local", lakes.hive)}
STORAGES = ["local", "s3", "azure", "gcs"]


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> Iterator[set[tuple[str, str]]]:
    """The pairs that have passed; printed when all are through."""
    passed: set[tuple[str, str]] = set()
    yield passed
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        # A process that pytest-xdist starts has no standard output.
        print("\n" + table(passed), file=sys.stderr)


def table(passed: set[tuple[str, str]]) -> str:
    """The matrix as text."""
    head = f"{'':10}" + "".join(f"{storage:>8}" for storage in STORAGES)
    lines = [
        f"{catalog:10}" + "".join(f"{'ok' if (catalog, storage) in passed else '-':>8}" for storage in STORAGES)
        for catalog in (*ANYWHERE, *OWN)
    ]
    return "\n".join([head, *lines])


def check(spark: SparkSession, folder: Path, config: IcebergSinkConfig) -> None:
    """Two runs of a job with a filter; then the table's ids, as the catalog gives them."""
    environment = Environment(spark=spark, checkpoint_dir=str(folder / "checkpoints"))
    source = MemorySource([{"id": 1}, {"id": 2}, EOF, {"id": 3}], rows_per_epoch=2)
    # Executors write what a function of the user's returns.
    rows = environment.from_source(source).filter_expr(col("id").ne(lit(2))).map(dict)
    stream = rows.to_sink(IcebergSink(config))
    stream.execute("job")
    stream.execute("job")
    table = config.ref.load_catalog().load_table(config.identifier)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    ("catalog", "storage"),
    [
        ("sqlite", "local"),
        *(pytest.param("sqlite", storage, marks=pytest.mark.services) for storage in STORAGES[1:]),
        *(nightly(catalog, storage) for catalog in ANYWHERE for storage in STORAGES if catalog != "sqlite"),
    ],
)
def test_a_catalog_with_any_storage(
    catalog: str,
    storage: str,
    spark: SparkSession,
    tmp_path: Path,
    matrix: set[tuple[str, str]],
    request: pytest.FixtureRequest,
) -> None:
    place: Place = request.getfixturevalue(storage)
    lake = ANYWHERE[catalog](request)
    # A namespace of its own: some catalogs keep the place of its tables.
    namespace = f"on_{storage}"
    given = cast(CatalogConfig, lake.config().ref.catalog)
    config = replace(lake.config(), catalog_uri=None, catalog=given, namespace=[namespace])
    config = replace(config, storage=place.storage, warehouse=warehouse(tmp_path)).with_properties(place.properties)
    check(spark, tmp_path, config)
    matrix.add((catalog, storage))


@pytest.mark.nightly
@pytest.mark.parametrize("catalog", OWN)
def test_a_catalog_with_the_storage_it_has(
    catalog: str,
    spark: SparkSession,
    tmp_path: Path,
    matrix: set[tuple[str, str]],
    request: pytest.FixtureRequest,
) -> None:
    storage, open_lake = OWN[catalog]
    check(spark, tmp_path, open_lake(request).config())
    matrix.add((catalog, storage))
