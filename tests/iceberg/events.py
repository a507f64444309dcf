"""A local partitioned table whose writers leave many manifests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    LongType,
    NestedField,
)

from tests.duck import query
from tests.iceberg.manifests import data_file
from volley.iceberg import (
    IcebergStorage,
    IcebergTable,
    TableRef,
)
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.entries import FileEntry, read_manifest

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "key", LongType()))
BY_KEY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))


class Events:
    """A local table whose writers leave many manifests."""

    def __init__(
        self, folder: Path, spec: PartitionSpec = BY_KEY, schema: Schema = SCHEMA, version: str = "2", **properties: str
    ) -> None:
        self.ref = TableRef("db", "events", IcebergStorage.Local(str(folder / "lake")))
        self.events = IcebergTable(self.ref)
        self.catalog: Any = self.ref.load_catalog()
        self.catalog.create_namespace("db")
        values = {"format-version": version, **{name.replace("_", "."): value for name, value in properties.items()}}
        self.catalog.create_table("db.events", schema, partition_spec=spec, properties=values)

    def table(self) -> Table:
        table: Table = self.catalog.load_table("db.events")
        return table

    def append(self, *rows: tuple[int, int | None], branch: str = "main") -> None:
        """One snapshot with one manifest: the ids and keys."""
        columns = {"id": pa.array([row[0] for row in rows], pa.int64()), "key": [row[1] for row in rows]}
        self.table().append(pa.table(columns, pa.schema({"id": pa.int64(), "key": pa.int64()})), branch=branch)

    def name_files(self, partitions: Sequence[Sequence[Any]]) -> None:
        """One snapshot of files that only manifests know, one for each partition."""
        table = self.table()
        number = len(table.snapshots())
        files = [
            data_file(f"{table.location()}/data/{number:03}-{index:05}.parquet", table.spec(), Record(*partition))
            for index, partition in enumerate(partitions)
        ]
        with table.transaction() as transaction:
            add_snapshot(
                transaction,
                added=files,
                deletes=(),
                removed=(),
                snapshot_id=number + 1,
                summary={},
                branch="main",
            )

    def snapshot(self, branch: str = "main") -> Snapshot:
        snapshot = self.table().snapshot_by_name(branch)
        assert snapshot is not None
        return snapshot

    def manifests(self, branch: str = "main") -> list[ManifestFile]:
        return self.snapshot(branch).manifests(self.table().io)

    def entries(self, branch: str = "main") -> list[FileEntry]:
        """The live entries, with all that they say but their status."""
        read = (entry for manifest in self.manifests(branch) for entry in read_manifest(self.table().io, manifest))
        return sorted((entry._replace(status=0) for entry in read if entry.is_live), key=lambda entry: entry.path)

    def rows(self) -> list[tuple[int, int | None]]:
        """As pyiceberg reads them."""
        read = self.table().scan().to_arrow()
        return sorted(zip(read["id"].to_pylist(), read["key"].to_pylist(), strict=True), key=repr)

    def duckdb_rows(self) -> list[tuple[int, int | None]]:
        rows = query(f"select id, key from iceberg_scan('{self.table().metadata_location}')").fetchall()
        return sorted(rows, key=repr)

    def avro_files(self) -> set[str]:
        folder = Path(self.table().location().removeprefix("file://"))
        return {path.name for path in folder.rglob("*.avro")}

    def planned_manifests(self, key: int) -> int:
        """The number of manifests that pyiceberg reads for one key."""
        read: list[str] = []
        fetch = ManifestFile.fetch_manifest_entry

        def counted(manifest: ManifestFile, *args: Any, **kwargs: Any) -> list[ManifestEntry]:
            read.append(manifest.manifest_path)
            return fetch(manifest, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ManifestFile, "fetch_manifest_entry", counted)
            list(self.table().scan(row_filter=f"key = {key}").plan_files())
        return len(read)
