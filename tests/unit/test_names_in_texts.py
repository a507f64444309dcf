"""Modules and classes that Volley names in texts, which no type checker follows, are there, and are what they say."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import PY_IO_IMPL, load_file_io

import volley
from volley import IcebergStorage, Sink, Source
from volley.formats.files import FORMATS, FormatReader
from volley.iceberg import GlueCatalog, HiveCatalog, MemoryCatalog, TableRef
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.pyiceberg_private.signing import FILE_IO
from volley.registry import connectors_with, load

PARTS: dict[Any, type] = {"source": Source, "sink": Sink}
CONNECTORS = [(part, name) for part in PARTS for name in connectors_with(part)]
STORAGES = {
    "file": IcebergStorage.Local("/tmp/lake"),
    "s3": IcebergStorage.S3(region="eu-west-1", bucket="lake", access_key_id="a", secret_access_key="b"),
    "abfss": IcebergStorage.Azure(storage_account="account", container="lake", access_key="a2V5"),
    "gs": IcebergStorage.Gcs(project_id="project", bucket="lake", service_account_key="anon"),
}


@pytest.mark.parametrize(("part", "name"), CONNECTORS, ids=map(" ".join, CONNECTORS))
def test_each_part_of_a_connector_is_a_public_class(part: Any, name: str) -> None:
    connector = load(part, name)
    assert issubclass(connector, PARTS[part])
    assert getattr(volley, connector.__name__) is connector


@pytest.mark.parametrize("name", connectors_with("rows"))
def test_what_reads_rows_here_can_be_called(name: str) -> None:
    assert callable(load("rows", name))


@pytest.mark.parametrize(("part", "name"), CONNECTORS, ids=map(" ".join, CONNECTORS))
def test_what_workers_import_before_their_first_task_is_there(part: Any, name: str) -> None:
    for module in load(part, name).worker_modules:
        assert importlib.import_module(module).__name__ == module


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_has_its_reader(name: str) -> None:
    assert isinstance(FORMATS[name].reader, FormatReader)


@pytest.mark.parametrize("module", ["volley.spark.daemon", "volley.task.task"])
def test_what_spark_starts_is_there(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("scheme", STORAGES)
@pytest.mark.parametrize("implementation", [None, FILE_IO])
def test_each_storage_opens_its_file_system(scheme: str, implementation: str | None) -> None:
    storage = STORAGES[scheme]
    properties = storage.properties() | ({} if implementation is None else {PY_IO_IMPL: implementation})
    io: Any = load_file_io(properties, storage.root)
    assert scheme in (io.get_fs(scheme, "account" if scheme == "abfss" else None).protocol)


@pytest.mark.parametrize(
    "catalog",
    [GlueCatalog("us-east-1"), HiveCatalog("thrift://127.0.0.1:1"), MemoryCatalog(), None],
    ids=lambda catalog: type(catalog).__name__,
)
def test_each_catalog_that_asks_no_server_at_once_opens_its_client(
    catalog: CatalogConfig | None, tmp_path: Path
) -> None:
    ref = TableRef(
        "db", "t", IcebergStorage.Local(tmp_path / "lake"), catalog=catalog, warehouse=str(tmp_path / "lake")
    )
    assert isinstance(ref.load_catalog(), Catalog)
