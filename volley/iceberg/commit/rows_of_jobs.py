"""Finds the rows of one job in a table that several share, and what deletes them."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from volley.contracts.epoch import Epoch
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.read.entries import to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.read.skipping import Positions
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.written import SnapshotFiles

__all__ = ["COLUMN", "rows_of", "without_rows_of"]

COLUMN = "job"
"""The column of a shared table that has the job's name."""


def rows_of(job: str) -> EqualTo:
    """Return the filter for the rows of a job.

    By the column, not by the names of files: a compaction puts rows of several jobs into one file.
    """
    return EqualTo.model_validate({"type": "eq", "term": COLUMN, "value": job})


def without_rows_of(job: str, table: Table, config: IcebergSinkConfig) -> SnapshotFiles | None:
    """Return what deletes the rows of a job in the branch of a table with deletion vectors; None if there are none.

    Files of this job alone are removed. Raises like `RowReader.read`.
    """
    head = head_of(table, config.branch)
    if head is None:
        return None
    metadata = table.metadata
    reader = RowReader.of(metadata, Schema(table.schema().find_field(COLUMN)))

    def ours(rows: pa.Table) -> Positions:
        return np.flatnonzero(pc.fill_null(pc.equal(rows[0], job), False).to_numpy())

    whole, partly = [], []
    for planned in plan(table.io, metadata, head, rows_of(job)).files:
        task, file = file_task(planned, metadata), to_data_file(planned.file)
        deleted = reader.deleted(table.io, task) if task.deletes else np.zeros(planned.file.rows, bool)
        before = deleted.sum()
        deleted[reader.find(table.io, task, ours, lambda _: True)] = True
        if deleted.all():
            whole.append(file)
        elif deleted.sum() > before:
            partly.append((file, np.flatnonzero(deleted)))
    if not whole and not partly:
        return None
    new_files = TableFormat.for_table(table, config, Epoch(str(uuid.uuid4()), 0))
    return SnapshotFiles(deletes=write_deletes(new_files, partly), removed=whole)
