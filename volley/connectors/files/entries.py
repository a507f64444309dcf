"""The entries of a file log: the listed files, as rows with their hashes, and the names of all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, compress, islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.connectors.files.listing import LoggedFile

__all__ = ["BLOCK", "Names", "blocks_of", "files_of", "names_of", "rows_of", "version_of", "versions_of"]

BLOCK = 4096
"""The entries of a block of a merged file."""

_NAME_BYTES, _HASH_BYTES = 16, 12
_NAME = f"S{_NAME_BYTES}"
_FEW = 4096
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


def rows_of(listed: Sequence[LoggedFile], before: bytes) -> pa.RecordBatch:
    """Return files as rows, given the hash of all files before them; no bytes before the first."""
    columns = (
        [file.path.encode(errors="surrogatepass") for file in listed],
        [file.size for file in listed],
        [file.modified for file in listed],
        [_name_of(file.path) for file in listed],
        [*islice(accumulate(listed, _chained, initial=before), 1, None)],
    )
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns, _ROWS.types)), schema=_ROWS)


def files_of(rows: pa.RecordBatch) -> list[LoggedFile]:
    """Return the files of rows."""
    paths = (path.decode(errors="surrogatepass") for path in rows.column("path").to_pylist())
    return list(map(LoggedFile, paths, rows.column("size").to_pylist(), rows.column("modified").to_pylist()))


def blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def names_of(paths: Iterable[str]) -> pa.Array:
    """Return the hashes by which files are known as read."""
    return pa.array(map(_name_of, paths), pa.binary(_NAME_BYTES))


def _name_of(path: str) -> bytes:
    """Return the hash of a path, by which a file is known as read."""
    return hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=_NAME_BYTES).digest()


def version_of(file: LoggedFile) -> bytes:
    """Return the hash of a file's path, size and time, by which it is known as read as it is."""
    entry = json.dumps([file.path, file.size, file.modified]).encode()
    return hashlib.blake2b(entry, digest_size=_NAME_BYTES).digest()


def versions_of(files: Sequence[LoggedFile]) -> pa.Array:
    """Return the hashes by which files are known as read as they are."""
    return pa.array(map(version_of, files), pa.binary(_NAME_BYTES))


def _chained(before: bytes, file: LoggedFile) -> bytes:
    """Return the hash of a file and all files before it, given theirs."""
    entry = json.dumps([file.path, file.size, file.modified]).encode()
    return hashlib.blake2b(before + entry, digest_size=_HASH_BYTES).digest()


class Names:
    """A set of names that grows, of 16 bytes each: a sorted array, and the latest beside it until they are many."""

    def __init__(self) -> None:
        self._sorted: npt.NDArray[np.bytes_] = np.empty(0, _NAME)
        self._latest: set[bytes] = set()

    def __contains__(self, path: str) -> bool:
        return not self.unknown([LoggedFile(path, 0)])

    def unknown(
        self, listed: Sequence[LoggedFile], name: Callable[[LoggedFile], bytes] = lambda file: _name_of(file.path)
    ) -> list[LoggedFile]:
        """Return the files that are not among the names, in their order; `name` returns that of a file."""
        names = [name(file) for file in listed]
        is_new = np.array([name not in self._latest for name in names], bool)
        if len(self._sorted):
            asked = np.array(names, _NAME)
            is_new &= self._sorted[np.searchsorted(self._sorted, asked).clip(max=len(self._sorted) - 1)] != asked
        return [*compress(listed, is_new.tolist())]

    def load(self, columns: Iterable[pa.Array]) -> None:
        """Take all names of a log, given as the columns of their hashes."""
        parts = [np.frombuffer(column.buffers()[1], _NAME)[column.offset :][: len(column)].copy() for column in columns]
        self._sorted = np.concatenate([self._sorted, *parts])
        self._sorted.sort()

    def add(self, column: pa.Array) -> None:
        """Add the names of new files, given as the column of their hashes."""
        self._latest.update(column.to_pylist())
        # Sort again when a share of all names is new, so that a name costs the same whatever their number.
        if len(self._latest) > _FEW + len(self._sorted) // 8:
            self._sorted = np.sort(np.concatenate([self._sorted, np.array([*self._latest], _NAME)]))
            self._latest.clear()
