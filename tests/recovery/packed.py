"""The job that kill tests kill: changes of several tables by Debezium, packed, into their rows and their histories."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.end_to_end.test_told_columns import ID, NOTE, PAID, message
from tests.sinks import config_of
from volley import (
    Environment,
    FileSource,
    History,
    IcebergSink,
    Job,
    RoutedSink,
    Upsert,
)
from volley.iceberg.modes import CommitMode

__all__ = ["EPOCHS", "ROWS", "VERSIONS", "run", "write"]

_WIDE = {**ID, "type": "int64"}
_FILES = {
    "1.json": [
        message(1, [ID], "c", {"id": 1}, "users"),
        message(2, [ID], "c", {"id": 2}, "users"),
        message(3, [ID, PAID], "c", {"id": 1, "paid": "AeI6"}, "bills"),
    ],
    # A column more, and a table more.
    "2.json": [
        message(4, [ID, NOTE], "u", {"id": 2, "note": "new"}, "users"),
        message(5, [ID], "c", {"id": 7}, "visits"),
        message(6, [ID, PAID], "u", {"id": 1, "paid": "AA=="}, "bills"),
    ],
    # A wider column, and rows of two schemas.
    "3.json": [
        message(7, [ID], "d", {"id": 7}, "visits"),
        message(8, [ID, PAID], "d", {"id": 1, "paid": "AA=="}, "bills"),
        message(9, [_WIDE, PAID], "c", {"id": 2**40, "paid": None}, "bills"),
        message(10, [ID, NOTE], "d", {"id": 1, "note": None}, "users"),
    ],
}

EPOCHS = {"users": ["0", "1", "2"], "bills": ["0", "1", "2"], "visits": ["1", "2"]}
"""The epochs that each table has rows of."""

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "users": [(2, "new")],
    "bills": [(2**40, None)],
    "visits": [],
}
"""The rows of each table at the end."""

VERSIONS: dict[str, list[tuple[Any, ...]]] = {
    "users": [(1, None, 1, 10), (2, None, 2, 4), (2, "new", 4, None)],
    "bills": [(1, Decimal("1234.50"), 3, 6), (1, Decimal("0.00"), 6, 8), (2**40, None, 9, None)],
    "visits": [(7, 5, 7)],
}
"""The versions of each table's rows, with the places in the log at which they begin and end."""


def write(folder: Path) -> None:
    """Write the files, of which an epoch reads one."""
    (folder / "in").mkdir()
    for name, lines in _FILES.items():
        (folder / "in" / name).write_text("\n".join(lines))


def run(folder: Path, master: str = "local[2]") -> Job:
    """Read all files."""
    config = config_of(folder, "t")
    config = config.with_schema_evolution("full")

    def tables(namespace: str, mode: CommitMode) -> RoutedSink:
        sink = IcebergSink(replace(config, namespace=[namespace]).with_commit_mode(mode))
        keys = {table: ["id"] for table in EPOCHS}
        return sink.routed("{source_table}", rows="rows", key_fields=keys, commits_at_once=1)

    options = {"packed": True, "source": ["table"]}
    source = FileSource(folder / "in", format="debezium", schema="rows binary", options=options, max_files_per_epoch=1)
    stream = Environment(master, checkpoint_dir=str(folder / "checkpoints")).from_source(source)
    return stream.to_sink(tables("db", Upsert())).to_sink(tables("past", History())).execute("packed")
