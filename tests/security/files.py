"""Reads files as an executor does, with all limits of the readers lowered: no test needs a large file."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import FileSource, SourceContext

__all__ = ["KILOBYTE", "LIMIT", "batches_of", "count", "lower_limits", "parquet"]

KILOBYTE = 1 << 10
LIMIT = 64 * KILOBYTE
"""The limit of a value, a line and a batch, a thousandth of the usual one."""

_LIMITS = {
    "volley.formats": {f"{module}.LARGEST_VALUE": LIMIT for module in ("parquet", "json_chunks")},
    "volley.formats.lines": {"LARGEST_VALUE": LIMIT, "_PIECE": KILOBYTE},
    "volley.formats.csv": {"_BLOCK": 4 * KILOBYTE, "_LONGEST_NAME": 100},
    "volley.formats.json_lines": {"_CHUNK": 8 * KILOBYTE, "_SAMPLE": KILOBYTE, "_DEEPEST": 10},
    "volley.formats.parquet": {
        **{"_BATCH_BYTES": LIMIT, "_USUAL_PAGE": 16 * KILOBYTE, "_LARGEST_PAGES": 512 * KILOBYTE},
        **{"_LARGEST_GROUP": 256 * KILOBYTE, "_COLUMN_BUFFER": 4 * KILOBYTE},
    },
}


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the limits of all readers by about a thousand."""
    for module, limits in _LIMITS.items():
        for name, limit in limits.items():
            monkeypatch.setattr(f"{module}.{name}", limit)


def batches_of(path: str | Path, schema: str | None) -> list[pa.RecordBatch]:
    """Return the batches of a file or folder, with one split after the other."""
    source = FileSource(str(path), schema=schema).open(SourceContext(f"memory://{time.time_ns()}"))
    start = source.initial_offset()
    splits = source.splits(start, source.latest_offset(start, None, None))
    return [batch for split in splits for batch in source.read(split)]


def count(path: str | Path, schema: str | None) -> int:
    """Return the number of the rows of a file or folder."""
    return sum(batch.num_rows for batch in batches_of(path, schema))


def parquet(path: Path, column: pa.Array, **options: object) -> Path:
    """Write a column ``v`` in one row group."""
    pq.write_table(pa.table({"v": column}), path, row_group_size=len(column), **options)
    return path
