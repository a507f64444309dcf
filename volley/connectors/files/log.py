"""The file log: the files that a FileSource has listed, in reading order; offsets count its entries and prove them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from volley.connectors.files.logged import LoggedFile
from volley.connectors.files.names import Names
from volley.connectors.files.parts import (
    BLOCK,
    Part,
    farthest,
    files_of,
    named,
    open_blocks,
    read_listing,
    rows_of,
    write_blocks,
    write_listing,
)
from volley.contracts.source import Offset
from volley.errors import StorageError
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed
from volley.task.failpoints import reach

__all__ = ["FileLog"]

_FAN_IN = 10
"""The number of files of one level that are merged into one of the next."""


@dataclass
class FileLog:
    """An append-only log in a folder beside the checkpoint: a file per listing that had new files, merged by tens.

    Ten files of listings are merged into one file of level 1, ten of these into one of level 2, and so on: after a
    million listings there are at most 60 files, and an entry was written at most seven times. No entry is ever dropped,
    because a file that is listed again must be known. In memory are the entries of the latest listings, a block, and,
    where files are listed, sixteen bytes for each entry.

    An entry is logged before an offset counts it, so that the same offsets mean the same files after a crash. Beside
    the count an offset has a hash of all files up to it: after an old copy of the checkpoint was put back, the same
    number of files may be other files. Offsets of Volley 0.2 have the count alone.

    Only the copy of the reader that Spark's query asks for offsets writes the log; others read the new entries when an
    offset needs them.

    Args:
        folder: The fsspec URL of the log's folder; it may not exist yet.
    """

    folder: str
    _parts: list[Part] | None = field(default=None, repr=False)
    _names: Names | None = field(default=None, repr=False)
    # What a process left behind that died before it could delete it.
    _replaced: list[str] = field(default_factory=list, repr=False)
    _block: tuple[str, int, pa.RecordBatch] | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[type[FileLog], tuple[str]]:
        # Executors don't need the entries, and the query's reader reads them again: keep what is sent with tasks small.
        return FileLog, (self.folder,)

    def __len__(self) -> int:
        parts = self._listed()
        return parts[-1].end if parts else 0

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and path in self._known()

    def files(self, first: int = 0, end: int | None = None) -> list[LoggedFile]:
        """Return the logged files from one entry to another; None = to the last."""
        return [file for rows in self._read(first, len(self) if end is None else end) for file in files_of(rows)]

    def offset(self, count: int) -> Offset:
        """Return the offset behind the first `count` entries."""
        return {"files": count, "hash": self._hash(count).hex()} if count else {"files": 0}

    def count(self, offset: Offset) -> int:
        """Return the number of entries before an offset.

        Raises:
            StorageError: If the log has fewer entries, because one of its files is missing, or if they are not those
                that the offset stands for.
        """
        count = int(offset["files"])
        if count > len(self):
            self._list()
        if count > len(self):
            raise self._ended(f"the checkpoint has read {count} files, its log of files has {len(self)}")
        if "hash" in offset and self.offset(count) != offset:
            raise damaged(self._root, f"has other files than the {count} that the checkpoint has read")
        return count

    def append(self, listed: Sequence[LoggedFile]) -> None:
        """Log the new files of a listing, in its order."""
        self._merge()
        known = self._known()
        if new := known.unknown(listed):
            count = len(self)
            rows = rows_of(new, self._hash(count))
            self._listed().append(write_listing(*filesystem(self.folder, {}), count, new, rows))
            known.add(rows.column("name"))

    def _merge(self) -> None:
        """Merge the last files as long as ten or more have the same level; the levels of all never rise."""
        while parts := self._listed():
            last = [part for part in parts if part.level == parts[-1].level]
            if len(last) < _FAN_IN:
                return
            whole = replace(last[0], end=last[-1].end, level=last[0].level + 1)
            rows = (rows for part in last for rows in self._blocks(part))
            parts[-len(last) :] = [write_blocks(*filesystem(self.folder, {}), whole, rows)]
            reach("after-merged-log", whole.end)
            self._delete([*self._replaced, *(part.path for part in last)], whole.end)

    def _delete(self, paths: Sequence[str], count: int) -> None:
        """Delete files that a merged one has replaced; what is left over does no harm, and the next start finds it."""
        files, _ = filesystem(self.folder, {})
        self._replaced = []
        for path in paths:
            with suppress(OSError):
                files.rm_file(path)
            reach("in-deletion-of-log", count)

    def _known(self) -> Names:
        """Return the names of all entries."""
        if self._names is None:
            names = Names()
            names.load(rows.column("name") for part in self._listed() for rows in self._blocks(part))
            self._names = names
        return self._names

    def _hash(self, count: int) -> bytes:
        """Return the hash of the first `count` entries."""
        return bytes(self._read(count - 1, count)[0].column("hash")[0].as_py()) if count else b""

    def _read(self, first: int, end: int) -> list[pa.RecordBatch]:
        """Return the rows of entries, from one number to another."""
        with suppress(FileNotFoundError):
            return [*self._rows(first, end)]
        # Another copy of the reader has merged files since they were listed.
        self._list()
        if end > len(self):
            raise self._ended(f"the log of files had {end} files, and has {len(self)}")
        return [*self._rows(first, end)]

    def _rows(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        for part in self._listed():
            if part.first < end and first < part.end:
                yield from self._rows_of(part, max(first - part.first, 0), min(end, part.end) - part.first)

    def _rows_of(self, part: Part, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield rows of a part, from one of its entries to another."""
        block = 0 if part.rows is not None else first // BLOCK
        for number, rows in enumerate(self._blocks(part, block, (end - 1) // BLOCK + 1), block):
            begin = max(first - number * BLOCK, 0)
            yield rows.slice(begin, end - number * BLOCK - begin)

    def _blocks(self, part: Part, first: int = 0, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield blocks of a part, from one number to another; None = to the last. Keep the last one for next time."""
        if part.rows is not None:
            yield part.rows
        elif self._block is not None and end == first + 1 and self._block[:2] == (part.path, first):
            yield self._block[2]
        else:
            files, _ = filesystem(self.folder, {})
            with _whole(part.path), open_blocks(files, part.path) as blocks:
                for number in range(first, len(blocks) if end is None else end):
                    self._block = part.path, number, blocks.batch(number)
                    yield self._block[2]

    def _listed(self) -> list[Part]:
        """Return all parts, in order."""
        return self._list() if self._parts is None else self._parts

    def _list(self) -> list[Part]:
        """List the folder, and return all parts, in order; the query's reader may merge some while others list them."""
        try:
            self._parts = self._chain()
        except FileNotFoundError:
            self._parts = self._chain()
        return self._parts

    def _chain(self) -> list[Part]:
        """Return the parts that together have all entries.

        Raises:
            StorageError: If a file is missing or damaged.
        """
        files, root = filesystem(self.folder, {})
        files.invalidate_cache()
        paths = files.ls(root, detail=False) if files.exists(root) else []
        begins = farthest(listed := [part for part in map(named, paths) if part is not None])
        read = {part.path: part for part in self._parts or []}
        parts: list[Part] = []
        while part := begins.pop(parts[-1].end if parts else 0, None):
            part = read.get(part.path, part)
            parts.append(part if part.level or part.end > part.first else self._with_rows(files, part, parts))
        used = {part.path for part in parts}
        self._replaced = [part.path for part in listed if part.path not in used]
        end = parts[-1].end if parts else 0
        if later := [part.path for part in listed if part.first > end]:
            raise _missing(root, end, f"{min(later)} comes behind it")
        return parts

    def _with_rows(self, files: Any, part: Part, before: Sequence[Part]) -> Part:
        """Return the part of a listing with its entries."""
        with _whole(part.path):
            listed = read_listing(files.cat_file(part.path), part.path)
            rows = rows_of(listed, self._last_hash(before))
        return replace(part, end=part.first + len(listed), rows=rows)

    def _last_hash(self, parts: Sequence[Part]) -> bytes:
        """Return the hash of all entries of parts."""
        if not parts:
            return b""
        (rows,) = self._rows_of(parts[-1], (size := parts[-1].end - parts[-1].first) - 1, size)
        return bytes(rows.column("hash")[0].as_py())

    def _ended(self, reason: str) -> StorageError:
        return _missing(self._root, len(self), reason)

    @property
    def _root(self) -> str:
        return filesystem(self.folder, {})[1]


def _missing(root: str, first: int, reason: str) -> StorageError:
    return damaged(f"{root}/{first:012}.json", f"is missing, and so is {first:012}-*.arrow: {reason}")


@contextmanager
def _whole(path: str) -> Iterator[None]:
    """Turn what a damaged file raises into a StorageError."""
    try:
        yield
    except MALFORMED as error:
        raise malformed(path, error) from error
