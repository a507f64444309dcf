"""Makes tables for tests of planning: manifests and a manifest list, without the data files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile, write_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from tests.iceberg.manifests import IO, data_file, write_manifest
from volley.iceberg.read.planning import Plan, plan
from volley.iceberg.schema.types import PATH_ID

SNAPSHOT_ID = 70
POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES


@dataclass
class PlannedTable:
    """A table with one snapshot.

    Args:
        folder: Where its manifests are.
        schema: Its schema.
        specs: Its partition specs; the last is the current one.
    """

    folder: Path
    schema: Schema
    specs: Sequence[PartitionSpec] = (PartitionSpec(),)
    manifests: list[ManifestFile] = field(default_factory=list)

    def add(self, *entries: ManifestEntry) -> None:
        """Add a manifest of entries of one spec."""
        spec_id = entries[0].data_file.spec_id
        spec = next(spec for spec in self.specs if spec.spec_id == spec_id)
        deletes = entries[0].data_file.content != DataFileContent.DATA
        path = self.folder / f"manifest-{len(self.manifests)}.avro"
        self.manifests.append(write_manifest(path, spec, self.schema, entries, deletes=deletes))

    def entry(
        self, path: str, partition: Iterable[Any] = (), number: int = 1, spec_id: int | None = None, **attributes: Any
    ) -> ManifestEntry:
        """A live file that was added with a sequence number."""
        spec = self.specs[-1] if spec_id is None else next(spec for spec in self.specs if spec.spec_id == spec_id)
        return ManifestEntry.from_args(
            status=attributes.pop("status", ManifestEntryStatus.EXISTING),
            snapshot_id=number,
            sequence_number=number,
            file_sequence_number=number,
            data_file=data_file(path, spec, Record(*partition), **attributes),
        )

    def positions(
        self, path: str, bounds: tuple[str, str] | None, partition: Iterable[Any] = (), **attributes: Any
    ) -> ManifestEntry:
        """A position-delete file with bounds of the paths in it."""
        if bounds:
            low, high = bounds
            attributes["lower_bounds"], attributes["upper_bounds"] = {PATH_ID: low.encode()}, {PATH_ID: high.encode()}
        return self.entry(path, partition, content=POSITIONS, **attributes)

    @cached_property
    def metadata(self) -> TableMetadata:
        new = new_table_metadata(self.schema, PartitionSpec(), UNSORTED_SORT_ORDER, str(self.folder))
        return new.model_copy(
            update={
                **{"schemas": [self.schema], "current_schema_id": self.schema.schema_id},
                **{"partition_specs": list(self.specs), "default_spec_id": self.specs[-1].spec_id},
                **{"snapshots": [self.snapshot], "current_snapshot_id": SNAPSHOT_ID},
            }
        )

    @cached_property
    def snapshot(self) -> Snapshot:
        path = str(self.folder / "snapshot.avro")
        with write_manifest_list(2, IO.new_output(path), SNAPSHOT_ID, None, 50, "deflate") as manifests:
            manifests.add_manifests(self.manifests)
        values: dict[str, Any] = {"snapshot-id": SNAPSHOT_ID, "manifest-list": path, "timestamp-ms": 0}
        return Snapshot(**values, summary=Summary(Operation.APPEND))

    def plan(self, row_filter: str | BooleanExpression = "true", schema: Schema | None = None) -> Plan:
        return plan(IO, self.metadata, self.snapshot, _parsed(row_filter), schema)

    def planned(self, row_filter: str | BooleanExpression = "true") -> dict[str, set[str]]:
        """The delete files of each data file that the plan has."""
        return {file.file.path: {delete.path for delete in file.deletes} for file in self.plan(row_filter).files}

    def by_pyiceberg(self, row_filter: BooleanExpression) -> dict[str, set[str]] | None:
        """As pyiceberg plans it; None if it fails because a partition is null, which it compares with a number."""
        table = Table(("db", "t"), self.metadata, f"{self.folder}/metadata.json", IO, NoopCatalog("none"))
        try:
            tasks = list(table.scan(row_filter=row_filter).plan_files())
        except TypeError as error:
            if "'NoneType'" not in str(error):
                raise
            return None
        return {
            task.file.file_path: {delete.file_path for delete in task.delete_files}
            for task in tasks
            if isinstance(task, FileScanTask)
        }


def _parsed(row_filter: str | BooleanExpression) -> BooleanExpression:
    return parse(row_filter) if isinstance(row_filter, str) else row_filter
