"""The job that kill tests kill: changes by Debezium, whose later messages tell other columns than the earlier ones."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.end_to_end.test_told_columns import ID, NOTE, PAID, message
from tests.sinks import config_of
from volley import Environment, FileSource, IcebergSink, Job, Upsert

__all__ = ["ROWS", "run", "write"]

_FILES = {
    "1.json": [
        message(1, [ID], "c", {"id": 1}),
        message(2, [ID], "c", {"id": 2}),
        message(3, [ID], "c", {"id": 3}),
    ],
    "2.json": [
        message(4, [ID, PAID], "u", {"id": 2, "paid": "AeI6"}),
        message(5, [ID, PAID], "c", {"id": 4, "paid": None}),
    ],
    "3.json": [
        message(6, [ID, PAID, NOTE], "u", {"id": 3, "paid": "AA==", "note": "new"}),
        message(7, [{**ID, "type": "int64"}, NOTE], "c", {"id": 2**40, "note": "no paid"}),
        message(8, [ID], "d", {"id": 1}),
    ],
}

ROWS: list[dict[str, Any]] = [
    {"id": 2, "paid": Decimal("1234.50"), "note": None},
    {"id": 3, "paid": Decimal("0.00"), "note": "new"},
    {"id": 4, "paid": None, "note": None},
    {"id": 2**40, "paid": None, "note": "no paid"},
]
"""The table's rows at the end."""


def write(folder: Path) -> None:
    """Write the files, of which an epoch reads one."""
    (folder / "in").mkdir()
    for name, lines in _FILES.items():
        (folder / "in" / name).write_text("\n".join(lines))


def run(folder: Path, master: str = "local[2]") -> Job:
    """Read all files."""
    config = config_of(folder)
    config = config.with_commit_mode(Upsert()).with_schema_evolution("full")
    options = {"key_fields": ["id"]}
    source = FileSource(folder / "in", format="debezium", schema="infer", options=options, max_files_per_epoch=1)
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    return environment.from_source(source).to_sink(IcebergSink(config)).execute("told")
