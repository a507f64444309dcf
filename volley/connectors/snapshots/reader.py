"""Runs a SnapshotSource: an epoch reads one extract, and offsets tell which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.snapshots import (
    BAD,
    MARK,
    MOST_AGAIN,
    PRESENT,
    ROWS,
    clock,
    given_version,
    of_versions,
    version_text,
    version_values,
)
from volley.contracts.extracts import Extract, Extracts
from volley.contracts.rows import BadRow, PositionedBatch
from volley.contracts.source import Offset, Reader, Split, SplitReader
from volley.errors import ConfigError, SourceError

__all__ = ["SnapshotReader", "declared", "open_reader"]

EXTRACT = "_volley_extract"
"""The column with the clock of a row's extract: see `volley.columns.snapshots`."""

_REMEMBERED = 64
"""How many extracts before the last an offset tells, to notice one that was changed, or that comes too late."""

_SHORT = 16


def open_reader(extracts: Extracts, may_be_empty: bool, max_deleted: float | None) -> SnapshotReader:
    """Return the reader of a SnapshotSource; arguments as of `SnapshotReader`.

    Raises:
        ConfigError: If the extracts have a column of a name that is added, or no version.
        SourceError: If there is no extract that tells the type of its version.
    """
    schema = _with_version(extracts.schema, pa.field(extracts.version, extracts.version_type))
    content = pa.schema([schema.field(number) for number in range(len(schema) - 2)])
    return SnapshotReader(extracts, content, schema, may_be_empty, max_deleted)


def declared(schema: pa.Schema, version: str | int | date | None) -> pa.Schema | None:
    """Return the schema of extracts whose rows have a declared one; None = the type of the version is not declared.

    Args:
        version: Where the version stands, as of `SnapshotSource`.
    """
    if version is None:
        return _with_version(schema, PRESENT)
    if not isinstance(version, str):
        return _with_version(schema, pa.field(PRESENT.name, given_version(version)[1]))
    data_type = of_versions(schema.field(version).type) if version in schema.names else None
    return None if data_type is None else _with_version(schema, pa.field(version, data_type))


def _with_version(schema: pa.Schema, version: pa.Field) -> pa.Schema:
    content = [field for field in schema if field.name != version.name]
    if EXTRACT in schema.names:
        raise ConfigError(f"the source has a column {EXTRACT!r}, which comparing adds", hint="rename it")
    return pa.schema([*content, version, pa.field(EXTRACT, pa.int64())])


@dataclass(frozen=True)
class SnapshotReader(Reader):
    """Reads extracts, one after the other.

    Args:
        content: The columns of the rows, but the version's.
        may_be_empty: True if an extract without rows deletes all; else it is an error.
        max_deleted: An extract that is smaller than the one before by more than this share is an error; None, or a
            number of rows = it is none.
    """

    extracts: Extracts
    content: pa.Schema
    schema: pa.Schema
    may_be_empty: bool
    max_deleted: float | None
    limit: int | None = 1

    def initial_offset(self) -> Offset:
        return {"extracts": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if target is not None and (limit is None or start["extracts"] >= target["extracts"]):
            return target if limit is None else start
        listed = self.extracts.listed(start.get("version"))
        offset = start
        while (following := self._following(offset, listed)) is not None:
            offset = following
            if limit is not None:
                break
        return offset

    def splits(self, start: Offset, end: Offset) -> list[Split]:
        if start == end:
            return []
        moment = clock(end["version"], end["again"])
        splits = self.extracts.splits(end["version"], end["proof"], end["place"])
        # An extract without rows must be told of, too.
        marks = [(moment | MARK, None)] if end["is_empty"] else []
        return [*marks, *((moment | ROWS, split) for split in splits)]

    def nothing(self) -> SourceError:
        return SourceError("there is no extract", hint="check the source's path, or its table")

    def size(self, split: Split) -> int | None:
        return 0 if split[1] is None else self.extracts.size(split[1])

    def split_reader(self) -> SplitReader:
        return _Splits(self.extracts.split_reader(), self.content, self.schema)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        return self.split_reader().read(split)

    def _following(self, offset: Offset, listed: Sequence[Extract]) -> Offset | None:
        """Return the offset behind the next extract; None if there is none."""
        last = offset.get("version")
        if not self.extracts.keeps_versions and listed and last is not None:
            (state,) = listed
            listed = [] if state.proof == offset["proof"] else [replace(state, version=max(state.version, last + 1))]
        for extract in listed:
            if last is None or extract.version > last:
                return self._behind(offset, extract)
            if self._was_written_again(offset, extract):
                # Only its rows tell whether it has other content.
                return {**offset, "extracts": offset["extracts"] + 1, "again": offset["again"] + 1} | _times(extract)
        return None

    def _was_written_again(self, offset: Offset, extract: Extract) -> bool:
        """Return True for the last extract, if it has the same names and sizes, and was written after it was read.

        Raises:
            SourceError: If an extract has changed, or comes after one of a later version was read.
        """
        recent, name = offset["recent"], self._name(extract)
        known = recent.get(str(extract.version))
        # Of one before all that are remembered, nobody knows whether it was read.
        if known is None and (len(recent) < _REMEMBERED or extract.version > min(map(int, recent))):
            raise SourceError(
                f"{name} comes after a later one was read, {self._text(offset['version'])}",
                hint="extracts are compared in the order of their versions: take it away, or start over: fresh=True",
            )
        if known is not None and known != extract.proof[:_SHORT]:
            raise SourceError(
                f"{name} has other files, or files of other sizes, than when it was read",
                hint="put it back as it was, and give what is new a version of its own; or, if it was put right, start "
                'over: fresh=True, into="append" reads the extracts that are there',
            )
        is_other = extract.version == offset["version"] and extract.modified != offset.get("modified")
        return is_other and offset["again"] < MOST_AGAIN

    def _behind(self, offset: Offset, extract: Extract) -> Offset:
        """Return the offset behind an extract.

        Raises:
            SourceError: If it is empty, or much smaller than the one before, where that is not wanted.
        """
        clock(extract.version, again=0)
        is_empty = self._is_empty(extract)
        if is_empty and offset["extracts"] and not self.may_be_empty:
            raise SourceError(
                f"{self._name(extract)} has no rows: all rows would be deleted",
                hint='put the whole extract there, or take it away; on_empty="delete_all" deletes them',
            )
        self._check_size(offset, extract, is_empty)
        recent = {**offset.get("recent", {}), str(extract.version): extract.proof[:_SHORT]}
        return {
            "extracts": offset["extracts"] + 1,
            "version": extract.version,
            "again": 0,
            "proof": extract.proof,
            "bytes": extract.bytes,
            "is_empty": is_empty,
            "place": extract.place,
            "recent": dict([*recent.items()][-_REMEMBERED:]),
        } | _times(extract)

    def _check_size(self, offset: Offset, extract: Extract, is_empty: bool) -> None:
        before, most = offset.get("bytes"), self.max_deleted
        if before is None or extract.bytes is None or not isinstance(most, float) or is_empty:
            return
        if extract.bytes < (1 - most) * before:
            raise SourceError(
                f"{self._name(extract)} has {extract.bytes:,} bytes, the one before had {before:,}: it seems cut",
                hint=f"put the whole extract there; or allow more deletions than max_deleted={most:g}",
            )

    def _is_empty(self, extract: Extract) -> bool:
        """Return True if an extract has no row; a row that can't be read is one."""
        reader = self.extracts.split_reader()
        for split in self.extracts.splits(extract.version, extract.proof, extract.place):
            for rows in reader.read_tolerant(split):
                if isinstance(rows, BadRow) or rows.batch.num_rows:
                    return False
        return True

    def _name(self, extract: Extract) -> str:
        return f"extract {self._text(extract.version)} ({extract.name})"

    def _text(self, version: int) -> str:
        return version_text(version, self.extracts.version_type)


def _times(extract: Extract) -> dict[str, Any]:
    return {} if extract.modified is None else {"modified": extract.modified}


@dataclass(frozen=True)
class _Splits(SplitReader):
    """Reads splits of an extract, each with its clock; see `volley.columns.snapshots`."""

    reader: SplitReader
    content: pa.Schema
    schema: pa.Schema

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        moment, own = split
        if own is None:
            yield self._mark(moment)
            return
        for batch in self.reader.read(own):
            yield self._with_version(batch, moment)

    def read_tolerant(self, split: Split) -> Iterator[PositionedBatch | BadRow]:
        moment, own = split
        if own is None:
            yield self._positioned(self._mark(moment))
            return
        is_whole = True
        for rows in self.reader.read_tolerant(own):
            if isinstance(rows, BadRow):
                is_whole = False
                yield rows
            else:
                yield replace(rows, batch=self._with_version(rows.batch, moment))
        if not is_whole:
            yield self._positioned(self._mark(moment | BAD | MARK))

    def _mark(self, moment: int) -> pa.RecordBatch:
        """Return a row that only tells the clock."""
        nulls = [pa.nulls(1, field.type) for field in self.content]
        return self._with_version(pa.RecordBatch.from_arrays(nulls, schema=self.content), moment)

    def _positioned(self, mark: pa.RecordBatch) -> PositionedBatch:
        return PositionedBatch(mark, lambda row: "the end of an extract")

    def _with_version(self, batch: pa.RecordBatch, moment: int) -> pa.RecordBatch:
        field = self.schema.field(len(self.content))
        versions = version_values(moment, field.type, batch.num_rows)
        if field.name in batch.schema.names:
            _check_versions(batch.column(field.name), versions, field.name)
        columns = [batch.column(name) for name in self.content.names]
        clocks = pa.repeat(pa.scalar(moment, pa.int64()), batch.num_rows)
        return pa.RecordBatch.from_arrays([*columns, versions, clocks], schema=self.schema)


def _check_versions(own: pa.Array, versions: pa.Array, name: str) -> None:
    """Raise SourceError if rows have another version than their extract."""
    differs = pc.or_kleene(pc.not_equal(own.cast(versions.type), versions), own.is_null())
    if pc.any(differs).as_py():
        other = own.filter(differs)[0].as_py()
        raise SourceError(
            f"{name} is {other} in a row of extract {versions[0].as_py()}",
            hint="all rows of a file must have the version of its first one",
        )
