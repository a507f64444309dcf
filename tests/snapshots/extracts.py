"""Extracts in files, and what becomes of a table that their changes are written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from volley import DataStream, Environment, FileSource

__all__ = ["SCHEMA", "applied", "changes", "write"]

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "score": pa.float64()})
Row = dict[str, Any]


def write(folder: Path, day: int, rows: Sequence[Row], part: int = 0, schema: pa.Schema = SCHEMA) -> Path:
    """Write an extract, or a part of one, below a folder of its day."""
    path = folder / "in" / f"day={day}" / f"{part}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
    return path


def changes(folder: Path, schema: str = "id long, name string, score double, day long", **more: Any) -> DataStream:
    """The changes of all extracts in the folder."""
    settings = {"keys": "id", "version": "day", "max_deleted": None, **more}
    return Environment().changes_from_snapshots(FileSource(folder / "in", "parquet", schema), **settings)


def applied(rows: Iterable[Row], state: Mapping[int, Row] | None = None) -> dict[int, Row]:
    """A table after changes, each of which must make sense there: by key, without version."""
    table = dict(state or {})
    for row in rows:
        values = {name: value for name, value in row.items() if name not in ("day", "_change", "_version")}
        match row["_change"]:
            case "insert":
                assert row["id"] not in table
                table[row["id"]] = values
            case "update_after":
                assert repr(table[row["id"]]) != repr(values), "nothing has changed"
                table[row["id"]] = values
            case "delete":
                assert repr(table.pop(row["id"])) == repr(values), "a deleted row has its last values"
    return table
