"""Jobs over fronts that behave as vendors' catalogs do: rows by value, refusals by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog as load_plain
from pyspark.sql import SparkSession

from tests.recovery.lake import write
from tests.servers.rest_fixture import RestFixture
from tests.servers.vendors import KEY, SECRET, VENDORS, Front
from tests.services.documented import documented
from tests.services.fault_proxy import with_config
from tests.services.lakes import driver
from tests.tiers import nightly
from tests.unit.test_vendor_catalogs import front_of, of
from volley import (
    CatalogError,
    ConfigError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    IcebergTable,
    Maintenance,
    MemorySink,
    MemorySource,
    SnapshotManager,
)

WRITERS = [
    pytest.param(name, marks=pytest.mark.services) if name in ("polaris", "unity", "s3_tables") else nightly(name)
    for name in VENDORS
    if name != "onelake"
]


@dataclass(frozen=True)
class Behind:
    """A table behind a vendor's front."""

    front: Front
    config: IcebergSinkConfig
    fixture: RestFixture

    def rows(self) -> list[int]:
        """The rows as plain pyiceberg sees them, past the front."""
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(self.config.identifier)
        return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def behind(
    request: pytest.FixtureRequest, rest_fixture: RestFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Behind]:
    # The keys for S3 Tables, whose storage is a folder here.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with front_of(request.param, tmp_path, rest_fixture.uri) as front:
        config = IcebergSinkConfig(
            namespace=["db"],
            table=f"t{uuid.uuid4().hex}",
            storage=IcebergStorage.Local(rest_fixture.lake),
            catalog=of(request.param, front, tmp_path),
        )
        yield Behind(front, config, rest_fixture)
        assert front.broken == []


@pytest.mark.parametrize("behind", WRITERS, indirect=True)
def test_a_table_is_made_written_followed_and_maintained(behind: Behind, spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    rows = MemorySource([{"id": number} for number in range(6)], rows_per_epoch=2)
    environment.from_source(rows).to_sink(IcebergSink(behind.config)).execute("job")
    assert behind.rows() == [0, 1, 2, 3, 4, 5]
    assert sorted(IcebergTable(behind.config.ref).to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]
    kept = MemorySink()
    followed = IcebergSource(IcebergSourceConfig(behind.config.ref).with_changes("follow"))
    environment.from_source(followed).to_sink(kept).execute("follow", once=True)
    assert sorted(row["id"] for row in kept.rows()) == [0, 1, 2, 3, 4, 5]
    assert IcebergTable(behind.config.ref).compact().files_before > 1
    manager = SnapshotManager(behind.config)
    if behind.config.ref.capabilities.expiry is False:
        with pytest.raises(ConfigError, match="S3 Tables says that a table's files may not be deleted"):
            behind.config.with_maintenance(Maintenance())
    else:
        manager.expire_snapshots(retain_last=1, older_than="2999-01-01")
        assert len(manager.list_snapshots()) == 1
    assert behind.rows() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("behind", WRITERS, indirect=True)
def test_nested_namespaces(behind: Behind) -> None:
    nested = [f"n{uuid.uuid4().hex}", "inner"]
    if not behind.front.vendor.has_levels:
        with pytest.raises(ConfigError, match="has one level of namespaces"):
            replace(behind.config, namespace=nested)
        return
    config = replace(behind.config, namespace=nested)
    ours = driver(config)
    ours.commit(*write(ours, 0, [1]))
    assert replace(behind, config=config).rows() == [1]


@pytest.mark.parametrize("behind", [pytest.param("onelake", marks=pytest.mark.services)], indirect=True)
def test_tables_of_onelake_are_read_and_not_made(behind: Behind) -> None:
    with pytest.raises(CatalogError, match="Requested Api is not found"):
        driver(behind.config)
    there = replace(behind.config, catalog=None, catalog_uri=behind.fixture.uri)
    theirs = driver(there)
    theirs.commit(*write(theirs, 0, [1, 2]))
    assert IcebergTable(behind.config.ref).to_arrow()["id"].to_pylist() == [1, 2]
    ours = driver(behind.config)
    written = write(ours, 1, [3])
    with pytest.raises(CatalogError, match="Requested Api is not found"):
        ours.commit(*written)
    assert behind.rows() == [1, 2]


@pytest.mark.parametrize("behind", [pytest.param("databricks", marks=pytest.mark.services)], indirect=True)
def test_a_property_that_databricks_refuses(behind: Behind) -> None:
    asked = behind.config.with_table_properties({"write.parquet.compression-codec": "zstd"})
    with pytest.raises(CatalogError, match="Table properties contain prohibited keys") as caught:
        driver(asked)
    assert "leave out table_properties that it refuses" in str(caught.value.hint)
    # The catalog takes the properties that Volley sets itself.
    ours = driver(behind.config)
    ours.commit(*write(ours, 0, [1]))
    assert behind.rows() == [1]
    assert ours._table.properties["write.metadata.previous-versions-max"] == "100"


HEADINGS = ["Polaris", "Snowflake Open Catalog", "Gravitino", "Lakekeeper", "Unity Catalog", "S3 Tables", "BigLake"]


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_documents_build(heading: str) -> None:
    config = documented(heading)
    assert config.ref.address.startswith("http")
    assert "secret" not in repr(config)


@pytest.mark.parametrize("behind", [pytest.param("polaris", marks=pytest.mark.services)], indirect=True)
def test_two_tables_with_a_token_each(behind: Behind) -> None:
    configs = [replace(behind.config, table=f"{behind.config.table}_{name}") for name in "ab"]
    for config in configs:
        driver(config)
    front = behind.front
    for config, token in zip(configs, "AB", strict=True):
        front.given.append(token)
        front.arm(with_config({"token": token}), "GET", f"/tables/{config.table}", times=None)
    catalog = configs[0].ref.load_catalog()
    tables = [catalog.load_table(config.identifier) for config in configs]
    front.signed.clear()
    rows = pa.table({"id": [1]})
    for _ in range(2):
        for table in tables:
            table.append(rows)
    catalog.load_table(configs[1].identifier)
    # Reports are sent whenever their thread gets to it.
    signed = [(method, path[-1], header) for method, path, header in front.signed if not path.endswith("/metrics")]
    ours = signed[-1][2]
    assert ours.startswith("Bearer token-")
    assert [said for said in signed if said[0] == "POST"] == [("POST", "a", "Bearer A"), ("POST", "b", "Bearer B")] * 2
    assert {header for method, _, header in signed if method == "GET"} == {ours}
    assert [replace(behind, config=config).rows() for config in configs] == [[1, 1], [1, 1]]
