"""Reads the positions of deleted rows: from position-delete files and from deletion vectors."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyroaring import BitMap64

from volley.errors import SourceError
from volley.iceberg.read.cache import Cache
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.opening import open_input, open_stored

__all__ = ["Positions", "deleted_positions"]

Positions = np.ndarray[Any, np.dtype[np.int64]]
"""Row numbers in a data file, from 0."""

_PATH, _POSITION = "file_path", "pos"
_MAGIC = b"\xd1\xd3\x39\x64"


# The changes of many snapshots need the same files again and again.
_cache: Cache[Positions] = Cache(32 << 20)


def deleted_positions(io: FileIO, path: str, delete: FileEntry) -> Positions:
    """Return the positions in a data file that a position-delete file or a deletion vector deletes, in any order.

    Args:
        io: Opens files.
        path: The data file's location.
        delete: The delete file.

    Raises:
        SourceError: If the delete file is gone, damaged or in a format that can't be read.
    """
    key = (delete.path, delete.size, delete.blob_offset, delete.blob_size, path)
    positions = _cache.get(key)
    if positions is None:
        positions = _read(io, path, delete)
        _cache.put(key, positions, positions.nbytes)
    return positions


def _read(io: FileIO, path: str, delete: FileEntry) -> Positions:
    if delete.format == "PUFFIN":
        return _vector(io, delete)
    if delete.format != "PARQUET":
        with open_stored(io, delete) as stored:
            rows = (batch for batch, _ in stored.batches([_PATH, _POSITION], stored.part(0, 1)))
            return np.concatenate([np.empty(0, np.int64), *(_of(pa.table(batch), path) for batch in rows)])
    with open_input(io, delete.path) as stream:
        file = pq.ParquetFile(stream, read_dictionary=[_PATH])
        if delete.referenced_file == path:
            # All rows are of this data file: the column of paths, most of the bytes, need not be read.
            return np.asarray(file.read([_POSITION], use_threads=False)[_POSITION].to_numpy(), np.int64)
        return _of(file.read([_PATH, _POSITION], use_threads=False), path)


def _of(rows: pa.Table, path: str) -> Positions:
    """Return the positions in one data file."""
    return np.asarray(rows.filter(pc.equal(rows[_PATH], path))[_POSITION].to_numpy(), np.int64)


def _vector(io: FileIO, delete: FileEntry) -> Positions:
    """Read a deletion vector: Iceberg's Puffin specification, blob type ``deletion-vector-v1``."""
    assert delete.blob_offset is not None
    assert delete.blob_size is not None
    with open_input(io, delete.path) as stream:
        stream.seek(delete.blob_offset)
        blob = stream.read(delete.blob_size)
    checked, checksum = blob[4:-4], int.from_bytes(blob[-4:], "big")
    if len(blob) != delete.blob_size or checked[:4] != _MAGIC or zlib.crc32(checked) != checksum:
        raise SourceError(
            f"the deletion vector in {delete.path} at byte {delete.blob_offset} is damaged",
            hint="restore the file, or roll the table back to a snapshot without it",
        )
    return np.asarray(BitMap64.deserialize(checked[4:]).to_array(), np.int64)
