"""A local table with numbered snapshots, and what must be true of it after each expiry."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.duck import query
from volley.iceberg import IcebergStorage, SnapshotManager, TableRef, orphan_files, remove_orphan_files

AT_ONCE = timedelta(0)

Commit = Callable[[], Any]


class History:
    """A local table, its writer, and the manager of its snapshots.

    Args:
        folder: Where it is.
        properties: Properties of the table.
    """

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.ref = TableRef("db", "events", IcebergStorage.Local(str(folder / "lake")))
        self.manager = SnapshotManager(self.ref)
        self.catalog: Any = self.ref.load_catalog()
        self.catalog.create_namespace("db")
        named = {name.replace("_", "."): value for name, value in properties.items()}
        self.catalog.create_table("db.events", pa.schema([("id", pa.int64())]), properties=named)

    def table(self) -> Table:
        return plain(self.catalog).load_table("db.events")

    def append(self, *ids: int, branch: str = "main") -> int:
        """One snapshot that adds rows; its id."""
        self.table().append(pa.table({"id": list(ids)}), branch=branch)
        return self._written(branch)

    def overwrite(self, *ids: int) -> int:
        """A snapshot that deletes all rows, and one that adds rows; the id of the latter."""
        self.table().overwrite(pa.table({"id": list(ids)}))
        return self._written("main")

    def delete(self, row_filter: str) -> int:
        self.table().delete(row_filter)
        return self._written("main")

    def _written(self, branch: str) -> int:
        # pyiceberg leaves manifests behind that it has merged within a commit.
        remove_orphan_files(self.ref, AT_ONCE)
        # Commits of one millisecond would have one time.
        time.sleep(0.002)
        return self.table().refs()[branch].snapshot_id

    def rows(self, snapshot_id: int | None = None) -> list[int]:
        """The ids in a snapshot, as pyiceberg reads them."""
        return sorted(self.table().scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())

    def duckdb_rows(self, snapshot_id: int | None = None) -> list[int]:
        """The ids in a snapshot, as DuckDB reads them."""
        version = f", snapshot_from_id => {snapshot_id}::UBIGINT" if snapshot_id else ""
        rows = query(f"select id from iceberg_scan('{self.table().metadata_location}'{version})").fetchall()
        return sorted(row[0] for row in rows)

    def everything(self) -> dict[int, list[int]]:
        """The rows of each snapshot."""
        return {snapshot.snapshot_id: self.rows(snapshot.snapshot_id) for snapshot in self.table().snapshots()}

    def check(self, before: dict[int, list[int]]) -> None:
        """Check that each snapshot that is left has its rows for two readers, and that no file is left or missing."""
        left = self.everything()
        assert left == {snapshot_id: before[snapshot_id] for snapshot_id in left}
        assert {snapshot_id: self.duckdb_rows(snapshot_id) for snapshot_id in left} == left
        assert orphan_files(self.ref, AT_ONCE) == []

    def files(self) -> set[str]:
        """The names of the data files and manifests on disk."""
        folder = Path(self.table().location().removeprefix("file://"))
        return {path.name for path in folder.rglob("*") if path.suffix in (".parquet", ".avro")}

    def close(self) -> None:
        self.catalog.close()


def plain(catalog: Any) -> Catalog:
    made: Catalog = catalog
    return made


def disturb(monkeypatch: pytest.MonkeyPatch, *faults: Callable[[Commit], Any]) -> list[str]:
    """Each commit of a manager meets the next fault, which is given the real commit; then commits are real again."""
    left, calls, opened = list(faults), [], TableRef.load_catalog

    def load_catalog(ref: TableRef) -> Catalog:
        catalog = opened(ref)
        real = catalog.commit_table

        def commit_table(*args: Any) -> Any:
            calls.append("commit")
            return left.pop(0)(lambda: real(*args)) if left else real(*args)

        monkeypatch.setattr(catalog, "commit_table", commit_table)
        return catalog

    monkeypatch.setattr(TableRef, "load_catalog", load_catalog)
    return calls


def lost(commit: Commit) -> Any:
    """The commit lands, and its answer is lost."""
    commit()
    raise ConnectionError("connection reset after the commit")


def never_sent(commit: Commit) -> Any:
    raise ConnectionError("connection reset before the commit")
