"""What a commit keeps of the lists and manifests before it: the same bytes as if it were worked out anew."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField

import volley.iceberg.pyiceberg_private.lists as lists
from volley.iceberg.pyiceberg_private.lists import write_list
from volley.iceberg.pyiceberg_private.sql import CachedSqlCatalog
from volley.iceberg.schema.types import per_schema


def manifest(path: str, sequence_number: int, snapshot_id: int = 7, rows: int = 10) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=100,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=sequence_number,
        min_sequence_number=sequence_number,
        added_snapshot_id=snapshot_id,
        added_files_count=1,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=rows,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=[],
    )


def listed(path: Path, snapshot_id: int, *files: ManifestFile, version: Any = 2) -> list[dict[str, Any]]:
    """Write a list, and read it by another library."""
    output = PyArrowFileIO().new_output(str(path))
    values: dict[str, Any] = {"snapshot_id": snapshot_id, "manifest_list": str(path), "sequence_number": snapshot_id}
    write_list(output, version, Snapshot(**values), files, "deflate")
    with path.open("rb") as file:
        return [dict(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


def test_a_list_repeats_the_records_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = manifest("old.avro", 1), manifest("new.avro", -1, snapshot_id=8)
    (first,) = listed(tmp_path / "1.avro", 7, old)
    second = listed(tmp_path / "2.avro", 8, new, old)
    assert [record["manifest_path"] for record in second] == ["new.avro", "old.avro"]
    assert second[1] == first
    # The commit numbers its own manifest; the next one finds another number there.
    assert [second[0][name] for name in ("sequence_number", "min_sequence_number")] == [8, 8]
    monkeypatch.setattr(lists, "_records", {})
    assert listed(tmp_path / "3.avro", 8, new, old) == second


def test_a_manifest_of_the_same_path_and_other_counts_is_another_record(tmp_path: Path) -> None:
    listed(tmp_path / "1.avro", 7, manifest("same.avro", 1))
    (record,) = listed(tmp_path / "2.avro", 8, manifest("same.avro", 1, rows=11))
    assert record["added_rows_count"] == 11


def test_few_records_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "_records", {})
    monkeypatch.setattr(lists, "_MOST_RECORDS", 3)
    files = [manifest(f"{number}.avro", 1) for number in range(10)]
    assert len(listed(tmp_path / "1.avro", 7, *files)) == 10
    assert len(lists._records) <= 3


def test_a_list_of_version_1_has_its_own_records(tmp_path: Path) -> None:
    (record,) = listed(tmp_path / "1.avro", 7, manifest("one.avro", 1), version=1)
    assert (record["manifest_path"], record["added_rows_count"]) == ("one.avro", 10)
    assert "sequence_number" not in record


def test_a_table_is_loaded_as_it_is_now(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}"
    ours = CachedSqlCatalog("lake", uri=uri, warehouse=warehouse)
    ours.create_namespace("db")
    ours.create_table("db.t", schema)
    with closing(SqlCatalog("lake", uri=uri, warehouse=warehouse)) as theirs:
        for number in range(3):
            theirs.load_table("db.t").transaction().set_properties(number=str(number)).commit_transaction()
            seen = [ours.load_table(name) for name in ("db.t", ("db", "t"), ("db", "t"))]
            assert [table.properties["number"] for table in seen] == [str(number)] * 3
            # What was read is not read again.
            assert seen[1].metadata is seen[2].metadata
        theirs.drop_table("db.t")
    with pytest.raises(NoSuchTableError):
        ours.load_table("db.t")
    ours.close()


def test_what_follows_from_a_schema_is_worked_out_once_for_each() -> None:
    calls: list[str] = []

    @per_schema
    def names(schema: Schema) -> str:
        calls.append(",".join(schema.column_names))
        return calls[-1]

    one, two = (Schema(NestedField(1, name, LongType())) for name in "ab")
    assert [names(schema) for schema in (one, two, one, two)] == ["a", "b", "a", "b"]
    assert calls == ["a", "b"]
    # Another object may get the address of one that is gone, not of one that is kept.
    assert [names(Schema(NestedField(1, f"c{number}", LongType()))) for number in range(200)] == [
        f"c{number}" for number in range(200)
    ]
