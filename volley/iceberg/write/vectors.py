"""Writes deletion vectors, which tables of format version 3 have in place of position-delete files."""

from __future__ import annotations

import uuid
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyroaring import BitMap64

from volley.errors import LayoutChangedError
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.schema.types import POSITION_ID
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.storage.puffin import VECTOR_MAGIC, puffin
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile

__all__ = ["check_form", "write_deletes"]


def write_deletes(
    table: TableFormat, deleted: Sequence[tuple[DataFile, np.ndarray[Any, Any]]]
) -> tuple[WrittenFile, ...]:
    """Write which rows of data files are deleted: as vectors from format version 3 on, else as position-delete files.

    Args:
        deleted: Each data file, with ascending positions: for a vector those of all its rows that are deleted, else
            those that are deleted anew.
    """
    if not deleted:
        return ()
    if table.has_row_ids:
        return _write_vectors(table, deleted)
    written = list[WrittenFile]()
    try:
        for file, positions in deleted:
            written.append(write_position_deletes(table, file, positions))
    except BaseException:
        delete_new_files(table.io, (file.path for file in written))
        raise
    return tuple(written)


def check_form(format_version: int, deletes: Sequence[DataFile]) -> None:
    """Check that deletes by position have the form of a table's format version, which an upgrade changes.

    Raises:
        LayoutChangedError: If a table that has deletion vectors would get a position-delete file: readers ignore it
            beside a vector of the same data file, and its rows would come back.
    """
    old = [file for file in deletes if file.content == DataFileContent.POSITION_DELETES and not _is_vector(file)]
    if format_version >= ROW_IDS_SINCE and old:
        raise LayoutChangedError(
            f"the table was upgraded to format version {format_version} between write and commit: it has deletion "
            f"vectors now, and {old[0].file_path} is a position-delete file",
            hint="start the job again: it repeats the epoch; or run the maintenance again",
        )


def _is_vector(file: DataFile) -> bool:
    return file.file_format == FileFormat.PUFFIN


def _write_vectors(
    table: TableFormat, deleted: Sequence[tuple[DataFile, np.ndarray[Any, Any]]]
) -> tuple[WrittenFile, ...]:
    """Write the deletion vectors of some data files to one Puffin file.

    The form is that of Iceberg's Puffin specification, blob type ``deletion-vector-v1``.
    """
    blobs = [_blob(positions) for _, positions in deleted]
    described = [_described(file, positions) for file, positions in deleted]
    content, starts, _ = puffin(list(zip(described, blobs, strict=True)))
    path = table.new_path(f"{uuid.uuid4()}-deletes.puffin")
    with storage_errors(path):
        stream: Any = table.io.new_output(path).create(overwrite=True)
        with stream:
            stream.write(content)
    vectors = []
    for (file, positions), start, blob in zip(deleted, starts, blobs, strict=True):
        vector = DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PUFFIN,
            partition=file.partition,
            record_count=len(positions),
            file_size_in_bytes=len(content),
            referenced_data_file=file.file_path,
            content_offset=start,
            content_size_in_bytes=len(blob),
        )
        vector.spec_id = file.spec_id
        vectors.append(WrittenFile(vector, table.layout.fingerprint))
    return tuple(vectors)


def _blob(positions: np.ndarray[Any, Any]) -> bytes:
    # From an array of the standard library it takes a quarter of the time.
    vector = BitMap64(array("Q", positions.astype(np.uint64).tobytes()))
    vector.run_optimize()
    checked = VECTOR_MAGIC + vector.serialize()
    return len(checked).to_bytes(4, "big") + checked + zlib.crc32(checked).to_bytes(4, "big")


def _described(file: DataFile, positions: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "type": "deletion-vector-v1",
        "fields": [POSITION_ID],
        # Both are those of the snapshot that the file will be in.
        "snapshot-id": -1,
        "sequence-number": -1,
        "properties": {"referenced-data-file": file.file_path, "cardinality": str(len(positions))},
    }
