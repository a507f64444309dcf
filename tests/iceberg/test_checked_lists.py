"""Manifest lists are checked before pyiceberg reads them: their lengths, counts and sizes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.manifest import clear_manifest_cache

from tests.avro import avro_file
from volley import IcebergStorage
from volley.errors import StorageError
from volley.iceberg import IcebergTable, TableRef

Write = Callable[[int], None]


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.events", pa.schema({"id": pa.int64()}))
        for number in range(3):
            table.append(pa.table({"id": [number]}))
    return made


@pytest.fixture
def write(ref: TableRef) -> Write:
    """Writes the list anew, in one block that says to have so many manifests."""
    snapshot = ref.load().metadata.snapshots[-1]
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    with path.open("rb") as stream:
        reader: Any = fastavro.reader(stream)
        records, schema, block = list(reader), reader.writer_schema, io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(block, fastavro.parse_schema(schema), record)

    def written(count: int) -> None:
        path.write_bytes(avro_file(schema, count, block.getvalue()))
        clear_manifest_cache()

    return written


def ids(ref: TableRef) -> list[int]:
    return sorted(IcebergTable(ref).to_arrow()["id"].to_pylist())


def test_a_whole_list_is_read(ref: TableRef, write: Write) -> None:
    write(3)
    assert ids(ref) == [0, 1, 2]


@pytest.mark.parametrize("count", [0, 2])
def test_a_list_with_more_manifests_than_it_says_is_damaged(count: int, ref: TableRef, write: Write) -> None:
    write(count)
    with pytest.raises(StorageError, match=r"manifest list .* can't be read: .*bytes left over"):
        ids(ref)


def test_a_value_of_a_list_has_a_limit(ref: TableRef, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(3)
    monkeypatch.setattr("volley.formats.avro_bounds.LARGEST_VALUE", 50)
    with pytest.raises(StorageError, match=r"manifest list .* can't be read: field 'manifest_path' takes more than"):
        ids(ref)


def test_a_block_of_a_list_has_a_limit(ref: TableRef, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(3)
    monkeypatch.setattr("volley.formats.avro_blocks.LARGEST_BLOCK", 100)
    with pytest.raises(StorageError, match=r"manifest list .* can't be read: .*block 1: a block of more than"):
        ids(ref)
