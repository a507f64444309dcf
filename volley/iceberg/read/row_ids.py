"""The ids of rows in tables of format version 3, and the numbers of the snapshots that last changed them.

A file has them in columns of its own where its rows come from other files; the others inherit them from the manifest:
https://iceberg.apache.org/spec/#row-lineage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.types import CHANGED_AT_ID, ROW_ID_ID

__all__ = ["RowIds"]


@dataclass(frozen=True)
class RowIds:
    """What the rows of a data file inherit where its own columns have no value.

    Args:
        first: The id of its first row; None = its rows have no ids yet, as the table was upgraded and not changed.
        sequence_number: That of its rows, which a compaction of format version 2 leaves; the file has a later one then.
    """

    first: int | None
    sequence_number: int

    @classmethod
    def of(cls, file: FileEntry) -> Self:
        return cls(file.first_row_id, file.sequence_number)

    def inherited(self, schema: Schema, columns: Sequence[pa.Array], positions: Positions | range) -> list[pa.Array]:
        """Return the columns of rows, with ids and numbers where a schema has them.

        Args:
            positions: The rows' positions in the whole file.
        """
        return [self._column(field, column, positions) for field, column in zip(schema.fields, columns, strict=True)]

    def _column(self, field: NestedField, column: pa.Array, positions: Positions | range) -> pa.Array:
        if field.field_id == ROW_ID_ID and self.first is not None:
            # NumPy takes each number of a range by itself.
            places = np.arange(positions.start, positions.stop) if isinstance(positions, range) else positions
            return pc.coalesce(column, pa.array(places + self.first))
        if field.field_id == CHANGED_AT_ID and self.first is not None:
            return column.fill_null(self.sequence_number)
        return column
