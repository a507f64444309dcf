"""A job whose rows go to two tables, and its bad rows to a third: an epoch of all is one commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.recovery.lake import QUERY, write
from tests.services.lakes import driver
from volley import Environment, Epoch, FileSource, IcebergSink, IcebergSinkConfig

ROWS = 20


def write_input(folder: Path, files: int) -> None:
    """Files of rows with their numbers, each with a row that is none."""
    (folder / "in").mkdir()
    for number in range(files):
        rows = [json.dumps({"id": number * ROWS + row, "name": f"row {row}"}) for row in range(ROWS)]
        (folder / "in" / f"{number}.json").write_text("\n".join([*rows, f'{{"id": "bad {number}"}}', ""]))


def run(folder: Path, configs: Sequence[IcebergSinkConfig], letters: str) -> None:
    """One run: an epoch is one file."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    source = FileSource(
        str(folder / "in"), format="json", schema={"id": "bigint", "name": "string"}, max_files_per_epoch=1
    )
    stream = environment.from_source(source)
    sinks = [IcebergSink(config.with_dead_letter(letters)) for config in configs]
    environment.execute("together", *(stream.to_sink(sink) for sink in sinks))


def run_epochs(configs: Sequence[IcebergSinkConfig], count: int) -> None:
    """So many epochs more of a job without Spark: each gives a row with its number to each table."""
    committers = [driver(config) for config in configs]
    first = min(-1 if (last := each.last_epoch(QUERY)) is None else last for each in committers)
    for number in range(first + 1, first + 1 + count):
        lacking = [each for each in committers if each.lacks(Epoch(QUERY, number), each.last_epoch(QUERY))]
        parts = [(each, write(each, number, [number])[1]) for each in lacking]
        if parts:
            lacking[0].commit_together(Epoch(QUERY, number), parts)
