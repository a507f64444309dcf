"""The tables that a job joins: opens them, and gives each epoch one version of each, written down before its tasks."""

from __future__ import annotations

import json
import logging
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

import pyarrow as pa

from volley.arrow.batches import conform
from volley.arrow.join_history import GONE, SINCE, WEIGHT, versions
from volley.arrow.join_index import JoinIndex, build_index, known_since
from volley.dimension import DimensionReader, Version
from volley.errors import PlanError, SnapshotExpiredError, SnapshotNotFoundError
from volley.plan import graph, nodes
from volley.plan.joins import JoinedRows, TableJoin
from volley.spark.log import usable
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.task.failpoints import reach
from volley.task.joined_rows import EpochRows, LoadedRows, digest, index_file, pin_file

__all__ = ["JoinedTables", "with_rows", "with_schemas"]

_log = logging.getLogger(__name__)

# Spark repeats the last planned epoch; a repair of the checkpoint may step back once more.
_EPOCHS = 3

N = TypeVar("N", bound=nodes.Node)


@dataclass(frozen=True)
class _Table:
    """A table of a job, with the joins that use it.

    Args:
        reader: Reads it.
        folder: The URL of its folder.
        joins: The joins, by the digest of their keys and columns.
    """

    reader: DimensionReader
    folder: str
    joins: dict[str, TableJoin] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinedTables:
    """The tables that a job joins.

    Args:
        job: The job's name.
        folder: The URL of the folder for their rows, below the checkpoint.
    """

    job: str
    folder: str
    _tables: dict[str, _Table] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def open(self, roots: Sequence[N]) -> list[N]:
        """Open the tables of a graph and return the graph with them.

        Args:
            roots: The nodes in which it ends.

        Raises:
            VolleyError: If a table can't be read.
        """
        return _with(roots, self._opened)

    def pin(self, epoch: int) -> None:
        """Give an epoch the current version of each table, unless an earlier attempt has given it one.

        The version's rows are in the checkpoint first: whatever becomes of the table, the epoch can be repeated.

        Args:
            epoch: The epoch's number.

        Raises:
            VolleyError: If a table can't be read, or has too many rows.
        """
        for table in self._tables.values():
            files, path = filesystem(pin_file(table.folder, epoch), {})
            with usable(self.folder):
                is_new = not files.exists(path)
            if is_new:
                version = table.reader.version()
                self._write(table, version, epoch)
                reach("before-pin", epoch)
                with usable(self.folder):
                    create_durably(files, path, json.dumps(version).encode())
            with usable(self.folder):
                pinned: Version = json.loads(files.cat_file(path))
            # Another driver may have been first; a changed join needs other columns.
            self._write(table, pinned, epoch)
            self._clean(table, epoch)
            reach("after-pin", epoch)

    def _opened(self, join: TableJoin) -> JoinedRows:
        name = digest(join.table.identity)
        if name not in self._tables:
            self._tables[name] = _Table(join.table.open(), f"{self.folder}/{name}")
        table = self._tables[name]
        schema = table.reader.schema
        layout = digest(repr(join.table), *_parts(join, schema), join.by_history)
        table.joins[layout] = join
        return EpochRows(schema, table.folder, layout)

    def _write(self, table: _Table, version: Version, epoch: int) -> None:
        """Write the rows of a version for each join, unless they are there."""
        for layout, join in table.joins.items():
            files, path = filesystem(index_file(table.folder, layout, version), {})
            with usable(self.folder):
                if files.exists(path):
                    continue
            try:
                index = _indexed(table.reader, join, version)
            except SnapshotNotFoundError as error:
                raise SnapshotExpiredError(
                    f"epoch {epoch} joins {join.table!r} as of {version}, which the table does not have any more, and "
                    f"the copy {path} is gone: {error.message}",
                    hint="restore the checkpoint, or start over: fresh=True",
                ) from error
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, index.schema) as file:
                file.write_batch(index)
            data = sink.getvalue().to_pybytes()
            with usable(self.folder):
                create_durably(files, path, data)
            text = "%s: epoch %d joins %d rows (%d bytes) of %r as of %s"
            _log.info(text, self.job, epoch, index.num_rows, len(data), join.table, version)

    def _clean(self, table: _Table, epoch: int) -> None:
        """Delete what no epoch needs any more that may be repeated."""
        files, folder = filesystem(table.folder, {})
        with usable(self.folder):
            names = {posixpath.basename(path) for path in files.find(folder, maxdepth=1)}
            pins = {int(name.removesuffix(".json")) for name in names if name.endswith(".json")}
            recent = [number for number in pins if number > epoch - _EPOCHS]
            versions = [json.loads(files.cat_file(f"{folder}/{number}.json")) for number in recent]
            kept = {f"{number}.json" for number in recent} | {
                posixpath.basename(index_file(table.folder, layout, version))
                for layout in table.joins
                for version in versions
            }
            for name in names - kept:
                files.rm_file(f"{folder}/{name}")


def with_rows(roots: Sequence[N]) -> list[N]:
    """Return a graph with the current rows of its tables, which are read into this process.

    Args:
        roots: The nodes in which it ends.

    Raises:
        VolleyError: If a table can't be read, or has too many rows.
    """

    def loaded(join: TableJoin) -> JoinedRows:
        reader = join.table.open()
        return LoadedRows(reader.schema, JoinIndex.of(_indexed(reader, join, reader.version())))

    return _with(roots, loaded)


def with_schemas(roots: Sequence[N]) -> list[N]:
    """Return a graph with the columns of its tables; arguments and errors as of `with_rows`."""
    return _with(roots, lambda join: LoadedRows(join.table.open().schema))


def _with(roots: Sequence[N], rows: Callable[[TableJoin], JoinedRows]) -> list[N]:
    def opened(node: nodes.Node) -> nodes.Node:
        return replace(node, rows=rows(node.join)) if isinstance(node, nodes.Join) else node

    return cast("list[N]", graph.rebuilt(roots, opened))


def _parts(join: TableJoin, schema: pa.Schema) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """Return the keys, the validity column and the added columns of a join's rows."""
    return join.right_keys, join.valid_from, join.added(schema.names)


def _indexed(reader: DimensionReader, join: TableJoin, version: Version) -> pa.RecordBatch:
    """Read the rows of a version that a join needs, indexed by key.

    Raises:
        PlanError: If the rows take too many bytes.
        VolleyError: If the table can't be read.
    """
    if join.by_history:
        return _history(reader, join, version)
    keys, time, columns = _parts(join, reader.schema)
    needed = list(dict.fromkeys([*keys, *([time] if time else []), *columns]))
    schema = pa.schema([reader.schema.field(name) for name in needed])
    batches, size = [], 0
    for batch in reader.read(version, needed):
        batches.append(conform(batch, schema))
        size += batches[-1].nbytes
        _check_size(join, size)
    return build_index(pa.Table.from_batches(batches, schema), keys, time, columns)


def _history(reader: DimensionReader, join: TableJoin, version: Version) -> pa.RecordBatch:
    """Read the rows up to a version that a join needs, each with its times, indexed by key. Raises like `_indexed`."""
    keys, _, columns = _parts(join, reader.schema)
    needed = list(dict.fromkeys([*keys, *columns]))
    schema, history = pa.schema([reader.schema.field(name) for name in needed]), reader.history(version, needed)
    marked = pa.schema([*schema, pa.field(SINCE, pa.int64()), pa.field(WEIGHT, pa.int64())])
    parts, size = [], 0
    for weight, time, batch in history.events:
        marks = (pa.repeat(pa.scalar(value, pa.int64()), len(batch)) for value in (time, weight))
        parts.append(pa.Table.from_arrays([*conform(batch, schema).columns, *marks], schema=marked))
        size += parts[-1].nbytes
        _check_size(join, size)
    rows = versions(pa.concat_tables([marked.empty_table(), *parts]), keys)
    return known_since(build_index(rows, keys, SINCE, [*columns, GONE], break_ties=False), history.since)


def _check_size(join: TableJoin, size: int) -> None:
    """Raise PlanError if rows take too many bytes."""
    if size > join.max_bytes:
        raise PlanError(
            f"the rows of {join.table!r} that the job joins take more than {join.max_bytes:,} bytes in memory",
            hint='join fewer columns: columns=["…"]; or rows: IcebergTable(…).rows.filter("…"); or allow more, up '
            "to 2 GiB: max_bytes=…",
        )
