"""The changes that an upsert by sequence remembers, in a branch of the table that its queries don't read.

A file of tombstones has remembered changes as rows of the table's columns: of a deletion the keys and the sequence.
Which other changes are remembered, and how their rows are told apart, `Settling` says.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate, chain, groupby, takewhile
from operator import itemgetter

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from volley.errors import ConfigError
from volley.iceberg.modes import KeyedMode
from volley.iceberg.read.entries import PlannedFile
from volley.iceberg.read.history import ancestors_of
from volley.iceberg.read.planning import partition_of, plan

__all__ = [
    *("REMEMBERED_BY", "TOMBSTONES", "VERSIONS_OF", "Housekeeping", "check_remembered", "check_versions"),
    *("concerns_all", "file_name", "mark_in", "remembered_by", "remembers", "tombstone_branch", "tombstones_of"),
    *("tombstones_start", "with_required_values"),
]

TOMBSTONES = "volley.tombstones"
"""In the summary of a snapshot: it has the tombstones of this branch."""
REMEMBERED_BY = "volley.tombstones-by"
"""In the same summary: see `remembered_by`."""
VERSIONS_OF = "volley.versions-of"
"""In the properties of a table with the versions of a history: see `remembered_by`."""

_BRANCH = "volley-tombstones-"
_OF_ALL_KEYS = "-truncates"
_WRITTEN_AT = re.compile(r"-tombstones-(\d+)-")
# More files than so many are merged, and of many partitions more than so many of each; those of this size together.
_MOST_FILES, _MOST_OF_MANY, _MERGED_BYTES = 32, 8, 64 << 20
# Merged files have tombstones of so large a part of the retention, so that each is forgotten soon after it may be.
_PARTS_OF_RETENTION = 8
_ZEROS = pa.py_buffer(bytes(32))


def tombstone_branch(branch: str) -> str:
    """Return the branch that remembers changes of a branch.

    Example:
        >>> tombstone_branch("main")
        'volley-tombstones-main'
    """
    return _BRANCH + branch


def tombstones_of(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot with the tombstones of a branch, main's if it has none yet; None if there are none."""
    name = tombstones_start(table.metadata, branch)
    return table.metadata.snapshot_by_name(name) if name else None


def tombstones_start(metadata: TableMetadata, branch: str) -> str | None:
    """Return the branch with the tombstones that hold for a branch: its own, else main's, as it has main's rows.

    Raises:
        ConfigError: If a branch or tag of this name has something else.
    """
    for each in (branch, MAIN_BRANCH):
        if (name := tombstone_branch(each)) in metadata.refs:
            if remembers(metadata, each):
                return name
            raise ConfigError(
                f"{metadata.refs[name].snapshot_ref_type} {name!r} has no deletions: branch {each!r} needs a branch of "
                "this name to remember them",
                hint="keep it under another name, and drop it",
            )
    return None


def remembers(metadata: TableMetadata, branch: str) -> bool:
    """Return True if a branch has tombstones of its own."""
    ref = metadata.refs.get(tombstone_branch(branch))
    if ref is None or ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        return False
    head = metadata.snapshot_by_id(ref.snapshot_id)
    return any(
        each.summary and TOMBSTONES in each.summary.additional_properties for each in ancestors_of(head, metadata)
    )


def remembered_by(mode: KeyedMode, schema: Schema) -> str:
    """Return what all jobs have in common that use the same tombstones: by the ids of columns, which renames leave."""
    keys, sequence = (
        [schema.find_field(name).field_id for name in names] for names in (mode.keys, mode.sequence_fields)
    )
    return f"{type(mode).__name__} by {sorted(keys)} in the order of {sequence}"


def check_remembered(table: Table, branch: str, mode: KeyedMode) -> None:
    """Raise ConfigError if a branch remembers the deletions of other keys, or by another sequence."""
    head = tombstones_of(table, branch)
    summary = head.summary.additional_properties if head and head.summary else {}
    before, now = summary.get(REMEMBERED_BY), remembered_by(mode, table.schema())
    if before in (None, now) or summary.get("total-records") == "0":
        return
    raise ConfigError(
        f"table {'.'.join(table.name())} remembers deletions of branch {branch!r} for an "
        f"{_named(before, table)}, not for an {_named(now, table)}",
        hint="keep keys and sequence; or forget these deletions, so that rows which come late can bring rows back: "
        f"SnapshotManager(table).drop_branch({tombstones_start(table.metadata, branch)!r})",
    )


def check_versions(table: Table, mode: KeyedMode) -> None:
    """Raise ConfigError if a table has the versions of a history, which another mode would replace."""
    before, now = table.properties.get(VERSIONS_OF), remembered_by(mode, table.schema())
    if before not in (None, now):
        raise ConfigError(
            f"table {'.'.join(table.name())} has the versions of {_named(before, table)}, which "
            f"{_named(now, table)} would replace",
            hint="write with that history, or to another table; if the versions are not needed any more, remove the "
            f"table property {VERSIONS_OF!r}",
        )


def _named(remembered: str, table: Table) -> str:
    """Return what `remembered_by` tells, with the columns' names of today."""
    return re.sub(r"\d+", lambda match: repr(table.schema().find_column_name(int(match[0]))), remembered)


def file_name(number: int, written_at: float, concerns_all: bool = False) -> str:
    """Return the beginning of a file's name.

    Args:
        written_at: When the newest of its changes was written, in seconds since 1970.
        concerns_all: True if its changes concern all keys.
    """
    return f"{number:05}-tombstones-{round(written_at * 1000)}{_OF_ALL_KEYS if concerns_all else ''}"


def concerns_all(file: PlannedFile) -> bool:
    """Return True if the changes of a file concern all keys."""
    return _OF_ALL_KEYS in file.file.path.rpartition("/")[2]


def mark_in(path: str) -> str:
    """Return the part of a file's name that tells of its tombstones, for a file with some of its rows.

    Example:
        >>> mark_in("data/00000-tombstones-1700000000000-5f0c.parquet"), mark_in("data/00000-5f0c.parquet")
        ('-tombstones-1700000000000-', '')
    """
    match = _WRITTEN_AT.search(path.rpartition("/")[2])
    return match[0] if match else ""


def _written_at(file: PlannedFile, now: float) -> float:
    """Return when the newest tombstone of a file was written; one that Volley has not named counts as new."""
    match = _WRITTEN_AT.search(file.file.path)
    return int(match[1]) / 1000 if match else now


@dataclass(frozen=True)
class Housekeeping:
    """What becomes of remembered changes with an epoch.

    Args:
        now: The time of it, in seconds since 1970.
        kept: Files whose changes still count, also those to merge.
        forgotten: Files whose changes are older than the retention.
        merged: Groups of files to merge, each with the time of its newest change.
    """

    now: float
    kept: Sequence[PlannedFile] = ()
    forgotten: Sequence[PlannedFile] = ()
    merged: Sequence[tuple[tuple[PlannedFile, ...], float]] = ()

    @property
    def of_keys(self) -> list[PlannedFile]:
        """The files that count for some keys."""
        return [file for file in self.kept if not concerns_all(file)]

    @property
    def of_all_keys(self) -> list[PlannedFile]:
        """The files that count for all keys."""
        return [PlannedFile(file.file.without_statistics(), file.deletes) for file in self.kept if concerns_all(file)]

    @property
    def removed(self) -> list[PlannedFile]:
        """All files that the branch no longer needs."""
        return [*self.forgotten, *chain.from_iterable(files for files, _ in self.merged)]

    @property
    def rows_forgotten(self) -> int:
        """The number of changes that are forgotten."""
        return sum(planned.file.rows for planned in self.forgotten)

    @staticmethod
    def of(
        table: Table, branch: str, retention: timedelta | None, statistics: frozenset[int] = frozenset()
    ) -> Housekeeping:
        """Return what is due.

        Args:
            retention: How long a change is remembered; None = for ever.
            statistics: The fields whose bounds the files have.
        """
        now, head = time.time(), tombstones_of(table, branch)
        if head is None:
            return Housekeeping(now)
        files = plan(table.io, table.metadata, head, statistics=statistics).files
        dated = sorted(((_written_at(file, now), file) for file in files), key=itemgetter(0))
        seconds = None if retention is None else retention.total_seconds()
        first = 0.0 if seconds is None else now - seconds
        kept = [(at, file) for at, file in dated if at >= first]
        forgotten = [file for at, file in dated if at < first]
        return Housekeeping(now, [file for _, file in kept], forgotten, tuple(_groups(kept, seconds)))


def _groups(
    dated: Sequence[tuple[float, PlannedFile]], retention: float | None
) -> Iterator[tuple[tuple[PlannedFile, ...], float]]:
    """Yield files that are merged into one, by partition and the part of the retention in which they were written."""
    part = float("inf") if retention is None else retention / _PARTS_OF_RETENTION
    by_partition = defaultdict[Hashable, list[tuple[float, PlannedFile]]](list)
    for at, planned in dated:
        by_partition[concerns_all(planned), partition_of(planned.file)].append((at, planned))
    most = max(_MOST_OF_MANY, _MOST_FILES // max(1, len(by_partition)))
    for files in by_partition.values():
        if len(files) > most:
            for _, group in groupby(files, key=lambda each: each[0] // part):
                yield from _merged([*group])


def _merged(dated: Sequence[tuple[float, PlannedFile]]) -> Iterator[tuple[tuple[PlannedFile, ...], float]]:
    """Yield the small ones of some files, if there are several."""
    small = sorted(dated, key=lambda each: each[1].file.size)
    sizes = accumulate(file.file.size for _, file in small)
    chosen = small[: sum(1 for _ in takewhile(lambda size: size <= _MERGED_BYTES, sizes))]
    if len(chosen) > 1:
        yield tuple(file for _, file in chosen), max(at for at, _ in chosen)


def with_required_values(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with some value in each column that the table requires.

    Args:
        schema: The table's columns; the rows have them, some without values.
    """
    columns = (
        _filled(rows.column(field.name), field.type)
        if not field.nullable and rows.column(field.name).null_count
        else rows.column(field.name)
        for field in schema
    )
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _filled(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    places = pa.array(range(len(values)), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
    return pa.concat_arrays([values, _some_value(data_type)]).take(places.fill_null(len(values)))


def _some_value(data_type: pa.DataType) -> pa.Array:
    """Return an array with one value of a type: of zeros, or empty."""
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, _some_value(data_type.storage_type))
    fields = [data_type.field(number) for number in range(data_type.num_fields)]
    if pa.types.is_struct(data_type):
        return pa.StructArray.from_arrays([_some_value(field.type) for field in fields], fields=fields)
    buffers = [None, _ZEROS, _ZEROS][: data_type.num_buffers]
    return pa.Array.from_buffers(data_type, 1, buffers, children=[pa.nulls(0, field.type) for field in fields])
