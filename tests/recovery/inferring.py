"""The job that kill tests kill: files of which the later ones have fields that the earlier ones lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.sinks import sink_of
from volley import Environment, FileSource, Job

__all__ = ["expected", "run", "write"]

_FILES = {
    "1.json": [{"id": 1, "tags": []}, {"id": 2, "price": 5}],
    "2.json": [{"id": 3, "price": 1.5}, {"id": 4, "address": {"city": "Sète"}}],
    "3.json": [{"id": 5, "tags": ["new"], "address": {"zip": 34200}}, {"id": "six"}],
}


def write(folder: Path) -> None:
    """Write the files, of which an epoch reads one."""
    (folder / "in").mkdir()
    for name, rows in _FILES.items():
        (folder / "in" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(folder: Path, master: str = "local[2]") -> Job:
    """Read all files."""
    source = FileSource(folder / "in", format="json", schema="infer", max_files_per_epoch=1)
    environment = Environment(master, checkpoint_dir=str(folder / "checkpoints"))
    return environment.from_source(source).to_sink(sink_of(folder)).execute("inferring")


def expected() -> list[dict[str, Any]]:
    """Return the table's rows, those without an id last."""
    none = {"id": None, "price": None, "address": None, "tags": None, "rescued": None}
    return [
        {**none, "id": 1},
        {**none, "id": 2, "price": 5},
        {**none, "id": 3, "rescued": '{"price": 1.5}'},
        {**none, "id": 4, "address": {"city": "Sète", "zip": None}},
        {**none, "id": 5, "tags": ["new"], "address": {"city": None, "zip": 34200}},
        {**none, "rescued": '{"id": "six"}'},
    ]
