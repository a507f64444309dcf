"""The main job against a real REST catalog and real S3 storage, which check the credentials they are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from examples import rest_and_s3
from tests.servers.seaweed import Seaweed
from volley import (
    EOF,
    CatalogAuthError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    MemorySource,
    StorageAccessError,
    TableNotFoundError,
)
from volley.iceberg import IcebergTable, RestCatalog, TableRef


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


def rows(server: Seaweed, table: str) -> list[int]:
    """The ids in a table, read by plain pyiceberg."""
    catalog = load_catalog(
        "other",
        **{
            "type": "rest",
            "uri": server.rest_uri,
            "oauth2-server-uri": f"{server.rest_uri}/v1/oauth/tokens",
            "warehouse": "s3://lake",
            "credential": f"{server.key}:{server.secret}",
            "s3.endpoint": server.s3_endpoint,
            "s3.region": "us-east-1",
            "s3.access-key-id": server.key,
            "s3.secret-access-key": server.secret,
        },
    )
    return sorted(catalog.load_table(f"db.{table}").scan().to_arrow()["id"].to_pylist())


def test_files_go_to_s3_and_snapshots_to_the_catalog(environment: Environment, seaweed: Seaweed) -> None:
    table = "events_rest"
    source = MemorySource([*({"id": i} for i in range(10)), EOF, *({"id": i} for i in range(10, 15))], rows_per_epoch=4)
    # Executors write what a function of the user's returns.
    stream = environment.from_source(source).map(dict).to_sink(IcebergSink(seaweed.config(table)))
    assert stream.execute("rest").progress.epochs == 3
    assert rows(seaweed, table) == list(range(10))
    stream.execute("rest")
    assert rows(seaweed, table) == list(range(15))


def run(environment: Environment, config: IcebergSinkConfig) -> None:
    environment.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("bad")


@pytest.mark.usefixtures("spark")
def test_the_example_takes_addresses_and_secrets_from_the_environment(seaweed: Seaweed, tmp_path: Path) -> None:
    env = {
        "CATALOG": seaweed.rest_uri,
        "WAREHOUSE": "s3://lake",
        "CREDENTIAL": f"{seaweed.key}:{seaweed.secret}",
        "BUCKET": "lake",
        "REGION": "us-east-1",
        "S3_ENDPOINT": seaweed.s3_endpoint,
        "ACCESS_KEY": seaweed.key,
        "SECRET_KEY": seaweed.secret,
    }
    assert rest_and_s3.main(env, str(tmp_path)) == [0, 1, 2] == rows(seaweed, "orders")


def test_wrong_credentials_of_the_catalog(environment: Environment, seaweed: Seaweed) -> None:
    with pytest.raises(CatalogAuthError, match=seaweed.rest_uri) as caught:
        run(environment, seaweed.config("any").with_credential("svcid:wrong-secret"))
    assert "with_credential" in str(caught.value.hint)
    assert "wrong-secret" not in repr(caught.value)


def test_wrong_keys_of_the_storage(environment: Environment, seaweed: Seaweed) -> None:
    good = seaweed.config("denied")
    bad = IcebergSinkConfig(
        catalog_uri=seaweed.rest_uri,
        warehouse="s3://lake",
        namespace=["db"],
        table="denied",
        storage=seaweed.storage(secret="wrong-secret"),
    ).with_credential(f"{seaweed.key}:{seaweed.secret}")
    run(environment, good)
    before = rows(seaweed, "denied")
    with pytest.raises(StorageAccessError, match="s3://lake") as caught:
        environment.from_source(MemorySource([{"id": 2}])).to_sink(IcebergSink(bad)).execute("denied")
    assert "wrong-secret" not in repr(caught.value)
    assert rows(seaweed, "denied") == before


def test_missing_table(environment: Environment, seaweed: Seaweed) -> None:
    with pytest.raises(TableNotFoundError, match=r"db\.nowhere"):
        run(environment, seaweed.config("nowhere").with_create_table(False))


def test_requests_to_the_catalog_that_are_signed(seaweed: Seaweed) -> None:
    """By SigV4, as Glue's and S3 Tables' own REST catalogs need it."""
    signing = {
        **{"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1", "rest.signing-name": "s3tables"},
        **{"client.access-key-id": seaweed.key, "client.secret-access-key": seaweed.secret},
    }
    catalog = RestCatalog(seaweed.rest_uri, warehouse="s3://lake", properties=signing)
    ref = TableRef("signed", "t", seaweed.storage(), catalog=catalog)
    client = ref.load_catalog()
    client.create_namespace("signed")
    client.create_table("signed.t", schema=pa.schema({"id": pa.int64()})).append(pa.table({"id": [1, 2]}))
    assert IcebergTable(ref).to_arrow()["id"].to_pylist() == [1, 2]
    wrong = replace(catalog, properties={**signing, "client.secret-access-key": "wrong"})
    with pytest.raises(CatalogAuthError, match="signature"):
        IcebergTable(replace(ref, catalog=wrong)).to_arrow()
