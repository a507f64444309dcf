"""The files of a file log: a small one of JSON for a listing, and merged ones of blocks, each of which is read alone.

Their names tell which entries they have: ``000000000030.json`` those of one listing after the first 30 entries,
``000000000010-000000000030-1.arrow`` the entries from 10 to 30, merged once. A merged file is written before those that
it replaces are deleted, so that several files may begin with one entry: the one that reaches farthest counts.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from volley.connectors.files.logged import LoggedFile
from volley.storage.durable import sync, write_durably
from volley.storage.private import begin_file
from volley.storage.state_formats import FILE_LOG, MERGED_FILE_LOG
from volley.store.batch_file import Batches, BatchFileWriter, damage, open_batches
from volley.task.failpoints import reach

__all__ = [
    *("BLOCK", "Part", "farthest", "files_of", "name_of", "named", "number_of_entries"),
    *("open_blocks", "read_listing", "rows_of", "write_blocks", "write_listing"),
]

BLOCK = 4096
"""The entries of a block of a merged file."""

_NAME_BYTES, _HASH_BYTES = 16, 12
_ROWS = pa.schema(
    {
        # The name of a local file may not be text.
        "path": pa.binary(),
        "size": pa.int64(),
        "modified": pa.float64(),
        "name": pa.binary(_NAME_BYTES),
        "hash": pa.binary(_HASH_BYTES),
    }
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")
_LISTING = re.compile(r"(\d{12})\.json")
_MERGED = re.compile(r"(\d{12})-(\d{12})-(\d+)\.arrow")


@dataclass(frozen=True)
class Part:
    """A file of the log.

    Args:
        path: Its path in the file system.
        first: The number of entries before it.
        end: The number of entries up to its end; of a listing, `first` until it is read.
        level: How often its entries were merged.
        rows: The entries of a listing of JSON that was read.
    """

    path: str
    first: int
    end: int
    level: int = 0
    rows: pa.RecordBatch | None = field(default=None, repr=False)


def named(path: str) -> Part | None:
    """Return the part that a file's name tells of; None = the file is none of the log's."""
    name = posixpath.basename(path)
    if match := _LISTING.fullmatch(name):
        return Part(path, int(match[1]), int(match[1]))
    if match := _MERGED.fullmatch(name):
        return Part(path, int(match[1]), int(match[2]), int(match[3]))
    return None


def farthest(parts: Iterable[Part]) -> dict[int, Part]:
    """Return of the parts that begin with the same entry the one that reaches farthest, by that entry's number."""
    return {part.first: part for part in sorted(parts, key=lambda part: (part.first, part.end))}


def name_of(path: str) -> bytes:
    """Return the hash of a path, by which a file is known as read."""
    return hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=_NAME_BYTES).digest()


def rows_of(listed: Sequence[LoggedFile], before: bytes) -> pa.RecordBatch:
    """Return files as rows.

    Args:
        listed: The files.
        before: The hash of all files before them; no bytes before the first.
    """
    columns = (
        [file.path.encode(errors="surrogatepass") for file in listed],
        [file.size for file in listed],
        [file.modified for file in listed],
        [name_of(file.path) for file in listed],
        [*islice(accumulate(listed, _chained, initial=before), 1, None)],
    )
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns, _ROWS.types)), schema=_ROWS)


def files_of(rows: pa.RecordBatch) -> list[LoggedFile]:
    """Return the files of rows."""
    paths = (path.decode(errors="surrogatepass") for path in rows.column("path").to_pylist())
    return list(map(LoggedFile, paths, rows.column("size").to_pylist(), rows.column("modified").to_pylist()))


def _chained(before: bytes, file: LoggedFile) -> bytes:
    """Return the hash of a file and all files before it, given theirs."""
    entry = json.dumps([file.path, file.size, file.modified]).encode()
    return hashlib.blake2b(before + entry, digest_size=_HASH_BYTES).digest()


def write_listing(files: Any, root: str, first: int, listed: Sequence[LoggedFile], rows: pa.RecordBatch) -> Part:
    """Write the new files of a listing, and return their part; a long listing is written in blocks.

    Args:
        files: The file system.
        root: The folder of the log.
        first: The number of entries before them.
        listed: The files.
        rows: The same as rows.

    Raises:
        OSError: If they can't be written.
    """
    end = first + len(listed)
    if len(listed) > BLOCK:
        return write_blocks(files, root, Part("", first, end), [rows])
    path = f"{root}/{first:012}.json"
    write_durably(files, path, FILE_LOG.dump([asdict(file) for file in listed]))
    return Part(path, first, end, rows=rows)


def read_listing(data: bytes, path: str) -> list[LoggedFile]:
    """Return the files of a listing.

    Args:
        data: The bytes of its file.
        path: The file's path, for the error.

    Raises:
        Exception: One of `MALFORMED`, if the file is damaged.
        StorageError: If a newer Volley wrote it.
    """
    return [LoggedFile(**entry) for entry in FILE_LOG.load(data, path)]


def number_of_entries(files: Any, part: Part) -> int:
    """Return the number of entries in a part; read all of them.

    Args:
        files: The file system.
        part: The part.

    Raises:
        Exception: One of `MALFORMED`, if it is damaged.
        StorageError: If a newer Volley wrote it.
    """
    if part.end == part.first:
        return len(read_listing(files.cat_file(part.path), part.path))
    with open_blocks(files, part.path) as blocks:
        return sum(blocks.batch(number).num_rows for number in range(len(blocks)))


def write_blocks(files: Any, root: str, part: Part, batches: Iterable[pa.RecordBatch]) -> Part:
    """Write rows in blocks, under another name that is changed in the end; return the part with its path.

    Args:
        files: The file system.
        root: The folder of the log.
        part: The numbers of the entries, and the level.
        batches: Their rows.

    Raises:
        OSError: If they can't be written.
    """
    path = f"{root}/{part.first:012}-{part.end:012}-{part.level}.arrow"
    hidden = f"{path}.tmp"
    begin_file(files, hidden)
    with files.open(hidden, "wb") as sink:
        writer = BatchFileWriter(sink, MERGED_FILE_LOG, _COMPRESSED)
        for block in _blocks(batches):
            writer.write_batch(block)
        writer.close()
    sync(files, hidden)
    reach("before-merged-log", part.end)
    files.mv(hidden, path)
    sync(files, root)
    return Part(path, part.first, part.end, part.level)


def _blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of one size; the last one may be smaller."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if whole := count // BLOCK * BLOCK:
            rows = pa.Table.from_batches(waiting).combine_chunks()
            yield from rows.slice(0, whole).to_batches(max_chunksize=BLOCK)
            waiting, count = rows.slice(whole).to_batches(), count - whole
    if count:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


@contextmanager
def open_blocks(files: Any, path: str) -> Iterator[Batches]:
    """Open a merged file for the block.

    Args:
        files: The file system.
        path: The file's path.

    Raises:
        Damaged: If it is damaged, also where the block reads it.
        StorageError: If a newer Volley wrote it.
        FileNotFoundError: If it is gone.
    """
    with files.open(path, "rb") as stream, damage():
        yield open_batches(pa.PythonFile(stream, "r"), MERGED_FILE_LOG, path)
