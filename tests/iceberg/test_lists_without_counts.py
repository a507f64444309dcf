"""Manifest lists of format version 1 without the counts of files and rows, which are optional there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.manifest import clear_manifest_cache

from volley import IcebergStorage, SnapshotExpiredError
from volley.iceberg import IcebergTable, SnapshotManager, TableRef, changes_between, remove_orphan_files

_COUNTS = {504, 505, 506, 512, 513, 514}


@pytest.fixture
def ref(tmp_path: Path) -> TableRef:
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        rows = pa.table({"id": [0, 1]})
        table = catalog.create_table("db.events", rows.schema, properties={"format-version": "1"})
        for number in range(3):
            table.append(pa.table({"id": [2 * number, 2 * number + 1]}))
        table.delete("id = 3")
    for snapshot in table.metadata.snapshots:
        strip(Path(snapshot.manifest_list.removeprefix("file://")))
    clear_manifest_cache()
    return made


def strip(path: Path) -> None:
    """Write a list anew without the counts, as Iceberg before 0.12 and other writers did."""
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        records: list[Any] = list(reader)
        schema = reader.writer_schema
    assert isinstance(schema, dict)
    removed = {field["name"] for field in schema["fields"] if field["field-id"] in _COUNTS}
    assert len(removed) == len(_COUNTS)
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in removed]
    with path.open("wb") as stream:
        kept = [{name: value for name, value in record.items() if name not in removed} for record in records]
        fastavro.writer(stream, schema, kept)


ROWS = [0, 1, 2, 4, 5]


def rows_of(ref: TableRef) -> list[int]:
    return sorted(IcebergTable(ref).to_arrow()["id"].to_pylist())


def test_rows_and_changes_are_read(ref: TableRef) -> None:
    assert rows_of(ref) == ROWS
    changes = changes_between(ref, None).to_arrow()
    kinds = list(zip(changes["id"].to_pylist(), changes["_change"].to_pylist(), strict=True))
    assert sorted(kinds) == sorted([*((i, "insert") for i in range(6)), (3, "delete")])


def test_a_snapshot_that_is_left_is_not_taken_for_the_tables_first(ref: TableRef) -> None:
    """Its manifests are its own, but have files of earlier snapshots, though no count says so."""
    IcebergTable(ref).rewrite_manifests()
    table = ref.load()
    head = table.metadata.snapshots[-1]
    strip(Path(head.manifest_list.removeprefix("file://")))
    clear_manifest_cache()
    before = [snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(before).commit()
    with pytest.raises(SnapshotExpiredError):
        changes_between(ref, None)


USES: dict[str, Callable[[TableRef], Any]] = {
    "compaction": lambda ref: IcebergTable(ref).compact(),
    "manifests": lambda ref: IcebergTable(ref).rewrite_manifests(),
    "expiry": lambda ref: SnapshotManager(ref).expire_snapshots("0s"),
    "orphans": lambda ref: remove_orphan_files(ref, 0),
    "statistics": lambda ref: IcebergTable(ref).compute_statistics(),
    "append": lambda ref: ref.load().append(pa.table({"id": pa.array([], pa.int64())})),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_maintenance_keeps_the_rows(use: Callable[[TableRef], Any], ref: TableRef) -> None:
    use(ref)
    assert rows_of(ref) == ROWS
    assert sorted(ref.load().scan().to_arrow()["id"].to_pylist()) == ROWS
