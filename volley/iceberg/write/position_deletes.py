"""Writes position-delete files: each names the rows of one data file."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from volley.iceberg.schema.reserved import PATH_ID, POSITION_ID
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile

__all__ = ["write_position_deletes"]

_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)}),
    ]
)


def write_position_deletes(
    table: TableFormat, path: str, file: DataFile, positions: np.ndarray[Any, Any]
) -> WrittenFile:
    """Write a position-delete file for one data file; its bounds are that file's path: readers of others skip it.

    Args:
        table: The format of the table's files.
        path: Where to write it.
        file: The data file.
        positions: The positions of the deleted rows, in ascending order.
    """
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [file.file_path])
    with storage_errors(path):
        stream: Any = table.io.new_output(path).create(overwrite=True)
        with stream, pq.ParquetWriter(stream, _POSITIONS, compression="zstd", store_schema=False) as parquet:
            parquet.write_table(pa.Table.from_arrays([paths.cast(pa.string()), pa.array(positions)], schema=_POSITIONS))
            parquet.close()
            size = int(stream.tell())
    file_path = file.file_path.encode()
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=size,
        lower_bounds={PATH_ID: file_path, POSITION_ID: struct.pack("<q", positions[0])},
        upper_bounds={PATH_ID: file_path, POSITION_ID: struct.pack("<q", positions[-1])},
    )
    deletes.spec_id = file.spec_id
    return WrittenFile(deletes, table.layout.fingerprint)
