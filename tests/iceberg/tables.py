"""Tables whose snapshots are made file by file, with delete files of every kind, as other engines write them."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.duck import query
from volley.iceberg import IcebergStorage, IcebergTable, TableRef
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.schema.types import arrow_schema, to_iceberg_schema

__all__ = ["Files", "FilesOf", "Lake"]

_PATH_ID, _POSITION_ID = 2147483546, 2147483545
Row = dict[str, Any]


class FilesOf:
    """Makes files and snapshots of a table on a disk.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def data(self, rows: Sequence[Row], **parquet: Any) -> DataFile:
        """A data file of one partition, with options of pyarrow's writer."""
        batch = pa.Table.from_pylist(list(rows), schema=arrow_schema(self.table.schema()))
        # pyiceberg's writer has empty lists in the place of null ones: only the partition is its.
        (like,) = _dataframe_to_data_files(self.table.metadata, batch, self.table.io)
        like.spec_id = self.table.spec().spec_id
        return self._file(batch, like, parquet, content=DataFileContent.DATA)

    def positions(self, *deleted: tuple[DataFile, int]) -> DataFile:
        """A position-delete file; of one data file, if it names no other."""
        paths = [file.file_path for file, _ in deleted]
        low, high = min(paths).encode(), max(paths).encode()
        return self._file(
            pa.table({"file_path": paths, "pos": [position for _, position in deleted]}),
            content=DataFileContent.POSITION_DELETES,
            like=deleted[0][0],
            lower_bounds={_PATH_ID: low, _POSITION_ID: struct.pack("<q", 0)},
            upper_bounds={_PATH_ID: high, _POSITION_ID: struct.pack("<q", 1 << 40)},
        )

    def keys(self, columns: Sequence[str], rows: Sequence[Row], like: DataFile) -> DataFile:
        """An equality-delete file for the partition of a data file."""
        schema = self.table.schema().select(*columns)
        return self._file(
            pa.Table.from_pylist(list(rows), schema=arrow_schema(schema)),
            content=DataFileContent.EQUALITY_DELETES,
            like=like,
            equality_ids=[schema.find_field(column).field_id for column in columns],
        )

    def _file(self, rows: pa.Table, like: DataFile, parquet: Mapping[str, Any] | None = None, **more: Any) -> DataFile:
        path = f"{self.table.location()}/data/{uuid.uuid4()}.parquet"
        local = Path(path.removeprefix("file://"))
        local.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, local, **(parquet or {}))
        file = DataFile.from_args(
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=like.partition if like.partition is not None else Record(),
            record_count=rows.num_rows,
            file_size_in_bytes=local.stat().st_size,
            **more,
        )
        file.spec_id = like.spec_id
        return file

    def commit(
        self, added: Sequence[DataFile] = (), deletes: Sequence[DataFile] = (), removed: Sequence[DataFile] = ()
    ) -> int:
        """One snapshot."""
        snapshot_id = uuid.uuid4().int >> 66
        with self.table.transaction() as transaction:
            add_snapshot(
                transaction,
                added=added,
                deletes=deletes,
                removed=removed,
                snapshot_id=snapshot_id,
                summary={},
                branch="main",
            )
        return snapshot_id


class Files(FilesOf):
    """A table ``db.t`` in a folder, and what makes its files and snapshots.

    Args:
        folder: Its folder.
        schema: Its schema.
        spec: Its partition spec.
    """

    def __init__(
        self, folder: Path, schema: pa.Schema | Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        self.ref = TableRef("db", "t", IcebergStorage.Local(str(folder)))
        self.catalog = self.ref.load_catalog()
        self.catalog.create_namespace("db")
        iceberg = schema if isinstance(schema, Schema) else to_iceberg_schema(schema)
        super().__init__(self.catalog.create_table("db.t", iceberg, partition_spec=spec))

    def close(self) -> None:
        self.catalog.close()


class Lake:
    """Such a table with a column ``id``, which others write to as well, and its readers.

    Args: As for `Files`.
    """

    def __init__(
        self, folder: Path, schema: pa.Schema | Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        self.folder = folder
        self.files = Files(folder, schema, spec)
        self.view = IcebergTable(self.files.ref)

    def commit(self, *changes: Any) -> int:
        """One snapshot on the table's current state; arguments as for `Files.commit`."""
        self.files.table.refresh()
        return self.files.commit(*changes)

    def check_others(self, expected: Collection[Any], *, equality: bool = False) -> None:
        """Assert that pyiceberg and DuckDB read these values of ``id``.

        Args:
            equality: True if the table has equality deletes, which pyiceberg doesn't read.
        """
        table = self.files.ref.load()
        if not equality:
            assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(expected)
        found = query(f"select id from iceberg_scan('{table.metadata_location}')").fetchall()
        assert sorted(value for (value,) in found) == sorted(expected)

    def close(self) -> None:
        self.files.close()
