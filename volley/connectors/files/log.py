"""The file log: the files that a FileSource has listed, in reading order; offsets count its entries and prove them.

The names of its files tell which entries they have: ``000000000030.json`` those of one listing after the first 30
entries, ``000000000010-000000000030-1.arrow`` the entries from 10 to 30, merged once, in blocks each of which is read
alone. A merged file is written before those that it replaces are deleted, so that several files may begin with one
entry: the one that reaches farthest counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from volley.connectors.files.entries import (
    BLOCK,
    Names,
    blocks_of,
    files_of,
    names_of,
    rows_of,
    version_of,
    versions_of,
)
from volley.connectors.files.listing import LoggedFile
from volley.contracts.source import Offset
from volley.errors import StorageError
from volley.storage.paths import filesystem
from volley.storage.remembered import Record, damaged
from volley.storage.state_formats import FILE_LOG, MERGED_FILE_LOG
from volley.store.files import OpenFile, new_file, open_file
from volley.task.failpoints import reach

__all__ = ["FileLog", "Part", "farthest", "number_of_entries"]

_FAN_IN = 10
"""The number of files of one level that are merged into one of the next."""

_MOST_TOLD = 100
"""How many files that were written again a run tells of."""

_ADDED = 16 * BLOCK
"""How many entries are read at once where many are only added up."""

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_LISTING = re.compile(r"(\d{12})\.json")
_MERGED = re.compile(r"(\d{12})-(\d{12})-(\d+)\.arrow")
_UNFINISHED = ".tmp"


@dataclass(frozen=True)
class Part:
    """A file of the log."""

    url: str
    first: int  # the number of entries before it
    end: int  # the number of entries up to its end; of a listing, `first` until it is read
    level: int = 0  # how often its entries were merged
    rows: pa.RecordBatch | None = field(default=None, repr=False)  # the entries of a listing of JSON that was read

    @classmethod
    def named(cls, folder: str, name: str) -> Part | None:
        """Return the part that a file's name tells of; None = the file is none of the log's."""
        if match := _LISTING.fullmatch(name):
            return cls(f"{folder}/{name}", int(match[1]), int(match[1]))
        if match := _MERGED.fullmatch(name):
            return cls(f"{folder}/{name}", int(match[1]), int(match[2]), int(match[3]))
        return None

    @property
    def listing(self) -> Record[list[LoggedFile]]:
        """The listing in its file."""
        return Record(self.url, FILE_LOG, lambda values: [LoggedFile(**entry) for entry in values])

    @property
    def blocks(self) -> OpenFile:
        """The blocks in its file."""
        return open_file(self.url, MERGED_FILE_LOG, damaged)


def farthest(folder: str, names: Iterable[str]) -> dict[int, Part]:
    """Return of the parts that begin with the same entry the one that reaches farthest, by that entry's number."""
    parts = filter(None, (Part.named(folder, name) for name in names))
    return {part.first: part for part in sorted(parts, key=lambda part: (part.first, part.end))}


def number_of_entries(part: Part) -> int:
    """Return the number of entries in a part; read all of them."""
    if part.end == part.first:
        return len(part.listing.read() or ())
    blocks = part.blocks
    return sum(blocks.batch(number).num_rows for number in range(len(blocks)))


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
    """

    folder: str  # the fsspec URL of the log's folder; it may not exist yet
    _parts: list[Part] | None = field(default=None, repr=False)
    _names: Names | None = field(default=None, repr=False)
    # Those of files with their sizes and times; known where files are read again.
    _versions: Names | None = field(default=None, repr=False)
    # When the newest file that was ever listed was written, and which files were told to have changed.
    _newest: float = field(default=0.0, repr=False)
    _told: set[str] = field(default_factory=set, repr=False)
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

    def size(self, first: int, end: int) -> int:
        """Return the bytes of the logged files from one entry to another."""
        parts = ((start, min(start + _ADDED, end)) for start in range(first, end, _ADDED))
        return sum(pc.sum(rows.column("size")).as_py() or 0 for part in parts for rows in self._read(*part))

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

    def append(self, listed: Sequence[LoggedFile], again: bool = False) -> None:
        """Log the new files of a listing, in its order.

        Args:
            again: True: also those that were written again.
        """
        self._merge()
        known = self._known()
        new = known.unknown(listed)
        if again and (replaced := {file.path for file in self.replaced(listed)}):
            paths = replaced | {file.path for file in new}
            new = [file for file in listed if file.path in paths]
        if new:
            count = len(self)
            rows = rows_of(new, self._hash(count))
            self._listed().append(self._written(count, new, rows))
            known.add(rows.column("name"))
            if self._versions is not None:
                self._versions.add(versions_of(new))

    def replaced(self, listed: Sequence[LoggedFile]) -> list[LoggedFile]:
        """Return logged files of which no entry has the size and the time that they have in a listing."""
        known = {file.path for file in self._known().unknown(listed)}
        listed = [file for file in listed if file.path not in known]
        other = self._known_versions().unknown(listed, version_of)
        # What does not tell its time, as entries of Volley 0.2, is known by its size.
        return self._known_versions().unknown(other, lambda file: version_of(replace(file, modified=None)))

    def _known_versions(self) -> Names:
        """Return the versions of all entries."""
        if self._versions is None:
            self._versions = Names()
            self._versions.load(versions_of(files_of(rows)) for part in self._listed() for rows in self._blocks(part))
        return self._versions

    def changed(self, listed: Sequence[LoggedFile]) -> list[tuple[LoggedFile, LoggedFile]]:
        """Return logged files that were written again, as they are logged and as they are listed: the first hundred.

        Whoever writes one leaves a later time on it than all files had before, so that no time of each need be kept.
        """
        known = self._known()
        later = [file for file in listed if (file.modified or 0.0) > self._newest]
        self._newest = max((file.modified or 0.0 for file in later), default=self._newest)
        new = {file.path for file in known.unknown(later)} | self._told
        again = {file.path: file for file in later if file.path not in new} if len(self._told) < _MOST_TOLD else {}
        # The last entry of each: one that was read again has several.
        last = {file.path: (file, again[file.path]) for file in self._entries([*again])}
        pairs = [(file, now) for file, now in last.values() if file not in (now, replace(now, modified=None))]
        self._told.update(file.path for file, _ in pairs)
        return pairs

    def _entries(self, paths: Sequence[str]) -> Iterator[LoggedFile]:
        """Yield the entries of some files."""
        names = names_of(paths)
        for part in self._listed() if paths else ():
            for rows in self._blocks(part):
                yield from files_of(rows.filter(pc.is_in(rows.column("name"), names)))

    def _written(self, first: int, listed: list[LoggedFile], rows: pa.RecordBatch) -> Part:
        """Write the new files of a listing, and return their part; a long listing is written in blocks."""
        end = first + len(listed)
        if len(listed) > BLOCK:
            return self._with_blocks(first, end, 0, [rows])
        part = Part(f"{self.folder}/{first:012}.json", first, end, rows=rows)
        part.listing.write([asdict(file) for file in listed])
        return part

    def _with_blocks(self, first: int, end: int, level: int, rows: Iterable[pa.RecordBatch]) -> Part:
        """Write entries in blocks, and return their part."""
        part = Part(f"{self.folder}/{first:012}-{end:012}-{level}.arrow", first, end, level)
        with new_file(part.url, MERGED_FILE_LOG, options=_COMPRESSED) as file:
            for block in blocks_of(rows):
                file.write_batch(block)
            reach("before-merged-log", end)
        return part

    def _merge(self) -> None:
        """Merge the last files as long as ten or more have the same level; the levels of all never rise."""
        while parts := self._listed():
            last = [part for part in parts if part.level == parts[-1].level]
            if len(last) < _FAN_IN:
                return
            rows = (rows for part in last for rows in self._blocks(part))
            whole = self._with_blocks(last[0].first, last[-1].end, last[0].level + 1, rows)
            parts[-len(last) :] = [whole]
            reach("after-merged-log", whole.end)
            self._delete([*self._replaced, *(part.url for part in last)], whole.end)

    def _delete(self, urls: Sequence[str], count: int) -> None:
        """Delete files that a merged one has replaced; what is left over does no harm, and the next start finds it."""
        self._replaced = []
        for url in urls:
            files, path = filesystem(url, {})
            with suppress(OSError):
                files.rm_file(path)
            reach("in-deletion-of-log", count)

    def _known(self) -> Names:
        """Return the names of all entries."""
        if self._names is None:
            names = Names()
            names.load(self._columns())
            self._names = names
        return self._names

    def _columns(self) -> Iterator[pa.Array]:
        """Yield the names of all entries; note when the newest file was written."""
        for part in self._listed():
            for rows in self._blocks(part):
                self._newest = max(self._newest, pc.max(rows.column("modified")).as_py() or 0.0)
                yield rows.column("name")

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
        elif self._block is not None and end == first + 1 and self._block[:2] == (part.url, first):
            yield self._block[2]
        else:
            blocks = part.blocks
            for number in range(first, len(blocks) if end is None else end):
                self._block = part.url, number, blocks.batch(number)
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
        """Return the parts that together have all entries."""
        files, root = filesystem(self.folder, {})
        files.invalidate_cache()
        names = [path.rpartition("/")[2] for path in files.ls(root, detail=False)] if files.exists(root) else []
        begins = farthest(self.folder, names)
        read = {part.url: part for part in self._parts or []}
        parts: list[Part] = []
        while part := begins.pop(parts[-1].end if parts else 0, None):
            part = read.get(part.url, part)
            parts.append(part if part.level or part.end > part.first else self._with_rows(part, parts))
        end = parts[-1].end if parts else 0
        if later := [part.url for part in begins.values() if part.first > end]:
            raise _missing(root, end, f"{min(later)} comes behind it")
        used = {part.url for part in parts}
        urls = (f"{self.folder}/{name}" for name in names if Part.named("", name) or name.endswith(_UNFINISHED))
        self._replaced = [url for url in urls if url not in used]
        return parts

    def _with_rows(self, part: Part, before: Sequence[Part]) -> Part:
        """Return the part of a listing with its entries."""
        if (listed := part.listing.read()) is None:
            raise FileNotFoundError(part.url)
        return replace(part, end=part.first + len(listed), rows=rows_of(listed, self._last_hash(before)))

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
