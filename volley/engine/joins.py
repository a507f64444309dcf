"""The tables that a job joins: an epoch has one version of each, whose rows are in the checkpoint before its tasks."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar, cast

import pyarrow as pa

from volley.columns.join_index import JoinBuckets, JoinIndex
from volley.contracts.dimension import Dimension, DimensionReader, Version
from volley.engine.indices import NotApplicableError, changed_indices, parts, read_indices
from volley.errors import PlanError, SnapshotExpiredError, SnapshotNotFoundError
from volley.plan import graph, nodes
from volley.plan.joins import JoinedRows, TableJoin
from volley.plan.places import naming
from volley.spark.log import usable
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.state_formats import JOIN_LIST, JOIN_PIN, JOIN_ROWS
from volley.store.files import new_file
from volley.store.rows import on_disk
from volley.task.failpoints import BUCKET_POINT, reach
from volley.task.joined_rows import (
    EpochRows,
    LoadedRows,
    TableFile,
    bucket_file,
    digest,
    list_file,
    pin_file,
    read_index,
    read_list,
    read_pin,
)

__all__ = ["JoinFiles", "JoinedTables", "sizes_in", "with_rows", "with_schemas"]

_log = logging.getLogger(__name__)

# Spark repeats the last planned epoch; a repair of the checkpoint may step back once more.
_EPOCHS = 3

N = TypeVar("N", bound=nodes.Node)


@dataclass(frozen=True)
class _OpenTable:
    """A table in this process whose rows are not read yet."""

    reader: DimensionReader

    @property
    def schema(self) -> pa.Schema:
        return self.reader.schema

    def buckets(self) -> JoinBuckets:
        raise AssertionError("the rows are not read yet: with_rows")


@dataclass(frozen=True)
class _JoinedTable:
    """A table of a job, with the joins that use it.

    Args:
        joins: The joins, and what reads the rows and columns of each, by the digest of their keys, columns and
            `max_bytes`.
    """

    reader: DimensionReader
    folder: str
    joins: dict[str, tuple[TableJoin, DimensionReader]] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinedTables:
    """The tables that a job joins.

    Args:
        folder: The URL of the folder for their rows, below the checkpoint.
    """

    job: str
    folder: str
    _tables: dict[str, _JoinedTable] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def open(self, roots: Sequence[N]) -> list[N]:
        """Open the tables of a graph and return the graph with them.

        Raises:
            VolleyError: If a table can't be read.
        """
        return _with(roots, lambda node: self._opened(node.join))

    def pin(self, epoch: int) -> None:
        """Give an epoch the current version of each table, unless an earlier attempt has given it one.

        The version's rows are in the checkpoint first: whatever becomes of the table, the epoch can be repeated.

        Raises:
            VolleyError: If a table can't be read, or has too many rows.
        """
        for table in self._tables.values():
            files, path = filesystem(pin_file(table.folder, epoch), {})
            with usable(self.folder):
                sizes = sizes_in(table.folder)
            if posixpath.basename(path) not in sizes:
                version = self._write_current(table, epoch, sizes)
                reach("before-pin", epoch)
                with usable(self.folder):
                    create_durably(files, path, JOIN_PIN.dump(version))
            with usable(self.folder):
                pinned = read_pin(table.folder, epoch)
            # Another driver may have been first; a changed join needs other columns.
            self._write(table, pinned, epoch, sizes)
            self._clean(table, epoch)
            reach("after-pin", epoch)

    def _opened(self, join: TableJoin) -> JoinedRows:
        name, reader = digest(join.table.identity), _reader(join)
        table = self._tables.get(name) or _JoinedTable(reader, self._folder_of(join.table))
        self._tables[name] = table
        if reader.is_fixed and reader.version() != table.reader.version():
            raise PlanError(
                f"the job joins two tables of other rows that it can't tell apart: both are {join.table.identity}",
                hint='give each a name: MemorySource(rows, name="customers")',
            )
        layout = digest(join.table.selection, *parts(join, reader.schema), join.by_history, join.max_bytes)
        table.joins[layout] = join, reader
        return EpochRows(reader.schema, table.folder, layout, join.max_bytes)

    def _folder_of(self, table: Dimension) -> str:
        """Return the folder for a table's rows: that of an earlier version, if the checkpoint has one."""
        earlier = table.earlier_identity
        if earlier is not None:
            folder = f"{self.folder}/{digest(earlier)}"
            with usable(self.folder):
                # It had one such table.
                if sizes_in(folder) and all(other.folder != folder for other in self._tables.values()):
                    return folder
        return f"{self.folder}/{digest(table.identity)}"

    def _write_current(self, table: _JoinedTable, epoch: int, sizes: dict[str, int]) -> Version:
        """Write the rows of the current version; once more if the table, like a file, changed while it was read."""
        version = table.reader.version()
        try:
            self._write(table, version, epoch, sizes)
        except SnapshotExpiredError:
            before, version = version, table.reader.version()
            if version == before:
                raise
            self._write(table, version, epoch, sizes)
        return version

    def _write(self, table: _JoinedTable, version: Version, epoch: int, sizes: dict[str, int]) -> None:
        """Write the rows of a version for each join, unless they are there.

        Args:
            sizes: The names of the files in its folder, and their bytes; those that are written are added.
        """
        for layout, (join, reader) in table.joins.items():
            files = JoinFiles(reader, join, table.folder, layout, sizes, lambda: reach(BUCKET_POINT, epoch))
            try:
                written = files.write(version, epoch)
            except SnapshotNotFoundError as error:
                raise SnapshotExpiredError(
                    f"epoch {epoch} joins {join.table!r} as of {version}, which the table does not have any more, and "
                    f"a copy of its rows in {table.folder} is gone: {error.message}",
                    hint="restore the checkpoint, or start over: fresh=True",
                ) from error
            if written:
                text = "%s: epoch %d joins %r as of %s: %d files were written (%d bytes)"
                size = sum(file.size for file in written)
                _log.info(text, self.job, epoch, join.table, version, len(written), size)

    def _clean(self, table: _JoinedTable, epoch: int) -> None:
        """Delete what no epoch needs any more that may be repeated."""
        files, folder = filesystem(table.folder, {})
        with usable(self.folder):
            names = sizes_in(table.folder).keys()
            pins = {int(name.removesuffix(".json")) for name in names if name.endswith(".json")}
            recent = [number for number in pins if number > epoch - _EPOCHS]
            versions = [read_pin(table.folder, number) for number in recent]
            lists = {list_file(table.folder, layout, version) for layout in table.joins for version in versions}
            lists = {url for url in lists if posixpath.basename(url) in names}
            kept = {f"{number}.json" for number in recent} | {posixpath.basename(url) for url in lists}
            kept |= {file.name for url in lists for file in read_list(url)}
            for name in names - kept:
                files.rm_file(f"{folder}/{name}")


def with_schemas(roots: Sequence[N]) -> list[N]:
    """Return a graph whose tables are open in this process, so that its steps can be checked.

    Raises:
        VolleyError: If a table can't be read.
    """
    return _with(roots, lambda node: _OpenTable(_reader(node.join)))


def with_rows(roots: Sequence[N]) -> list[N]:
    """Return a graph with the current rows of its tables, which are read into this process.

    Args:
        roots: The nodes in which it ends, of `with_schemas`; its joins fit the schemas.

    Raises:
        VolleyError: If a table can't be read, or has too many rows.
    """

    def loaded(node: nodes.Join) -> JoinedRows:
        assert isinstance(node.rows, _OpenTable)
        reader = node.rows.reader
        indices = read_indices(reader, node.join, reader.version())
        mapped = (on_disk(index) if indices.bits else index for index in indices.batches)
        return LoadedRows(reader.schema, [JoinIndex.of(index) for index in mapped])

    return _with(roots, loaded)


def _reader(join: TableJoin) -> DimensionReader:
    """Return the reader of a join's table."""
    reader = join.table.open()
    if join.by_history and not reader.has_history:
        raise PlanError(
            f"{join.table!r} has rows of one time only",
            hint="an Iceberg table has a history, but not in Nessie; rows with a column that says since when they are "
            'valid: as_of=("at", "valid_from")',
        )
    return reader


def _with(roots: Sequence[N], rows: Callable[[nodes.Join], JoinedRows]) -> list[N]:
    def opened(node: nodes.Node) -> nodes.Node:
        if not isinstance(node, nodes.Join):
            return node
        with naming(node):
            return replace(node, rows=rows(node))

    return cast("list[N]", graph.rebuilt(roots, opened))


def sizes_in(folder: str) -> dict[str, int]:
    """Return the names of the files in a folder, to which another driver may write, too, and their bytes."""
    files, path = filesystem(folder, {})
    files.invalidate_cache()
    return {posixpath.basename(file): info["size"] for file, info in files.find(path, maxdepth=1, detail=True).items()}


@dataclass(frozen=True)
class JoinFiles:
    """The files of one join.

    Args:
        reader: Reads the table.
        folder: The URL of the table's folder.
        layout: The digest of the join's keys, columns and `max_bytes`.
        sizes: The names of the files in the folder, and their bytes; those that are written are added.
    """

    reader: DimensionReader
    join: TableJoin
    folder: str
    layout: str
    sizes: dict[str, int]
    after_file: Callable[[], None]

    def write(self, version: Version, epoch: int) -> list[TableFile]:
        """Write the rows of a version, unless they are there; return the files that were written.

        Raises:
            PlanError: If the rows of one key take too many bytes.
            VolleyError: If the table can't be read.
        """
        url = list_file(self.folder, self.layout, version)
        if self._whole(url):
            return []
        written: list[TableFile] = []
        try:
            files = self._change(version, epoch, written)
        except NotApplicableError:
            self._remove([file.name for file in written])
            files = written = self._read(version)
        data = JOIN_LIST.dump([asdict(file) for file in files])
        with usable(self.folder):
            create_durably(*filesystem(url, {}), data)
        self.sizes[posixpath.basename(url)] = len(data)
        return written

    def _whole(self, url: str) -> list[TableFile]:
        """Return the files of a version; none if one of them is not there, or cut off."""
        if posixpath.basename(url) not in self.sizes:
            return []
        with usable(self.folder):
            listed = read_list(url)
        damaged = [file.name for file in listed if self.sizes.get(file.name) != file.size]
        if not damaged:
            return listed
        self._remove([posixpath.basename(url), *(name for name in damaged if name in self.sizes)])
        return []

    def _read(self, version: Version) -> list[TableFile]:
        indices = read_indices(self.reader, self.join, version)
        return [self._write(version, indices.bits, *index) for index in enumerate(indices.batches)]

    def _change(self, version: Version, epoch: int, written: list[TableFile]) -> list[TableFile]:
        """Write the files that have changed since the epoch before, and return all files of the version.

        Raises:
            NotApplicableError: If the table has to be read; the files that were written are of no use.
        """
        epochs = [int(name.removesuffix(".json")) for name in self.sizes if name.endswith(".json")]
        last = max((number for number in epochs if number < epoch), default=None)
        if last is None:
            raise NotApplicableError
        with usable(self.folder):
            before = read_pin(self.folder, last)
        files = self._whole(list_file(self.folder, self.layout, before))
        if not files:
            raise NotApplicableError
        bits = len(files).bit_length() - 1
        changed = list(files)

        def load(bucket: int) -> JoinIndex:
            with usable(self.folder):
                return read_index(f"{self.folder}/{files[bucket].name}")

        for bucket, index in changed_indices(self.reader, self.join, before, version, JoinBuckets(bits, load)):
            changed[bucket] = self._write(version, bits, bucket, index)
            written.append(changed[bucket])
        return changed

    def _write(self, version: Version, bits: int, bucket: int, index: pa.RecordBatch) -> TableFile:
        url = bucket_file(self.folder, self.layout, version, bits, bucket)
        name = posixpath.basename(url)
        # One that another driver has written is the same.
        if name not in self.sizes:
            with new_file(url, JOIN_ROWS) as file:
                file.write_batch(index)
            self.sizes[name] = file.size
        self.after_file()
        return TableFile(name, self.sizes[name])

    def _remove(self, names: Iterable[str]) -> None:
        files, folder = filesystem(self.folder, {})
        with usable(self.folder):
            for name in names:
                files.rm_file(f"{folder}/{name}")
                del self.sizes[name]
