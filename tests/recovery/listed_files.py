"""A FileSource's reader without a job: an epoch for each new file, in processes that tests kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from volley import FileSource, SourceContext
from volley.connectors.files import log

__all__ = ["FAN_IN", "follow", "opened"]

FAN_IN = 3
"""The number of files of a log that are merged."""


def opened(folder: Path) -> Any:
    """The reader of the files in ``in``, with its state in ``state``."""
    source = FileSource(folder / "in", format="json", schema="id long", bounded=False)
    return source.open(SourceContext(str(folder / "state")))


def follow(folder: Path, files: int) -> None:
    """Write file after file, and plan an epoch for each; ``offsets`` has a line for each planned epoch.

    Args:
        folder: The folder for everything; it has ``in``.
        files: The number of files after which to end.
    """
    log._FAN_IN = FAN_IN
    reader, offsets = opened(folder), folder / "offsets"
    planned = [json.loads(line) for line in offsets.read_text().splitlines()] if offsets.exists() else []
    for number in range(len(planned), files):
        (folder / "in" / f"{number:04}.json").write_text(f'{{"id": {number}}}\n')
        start = planned[-1] if planned else reader.initial_offset()
        planned.append(reader.latest_offset(start, None, None))
        with offsets.open("a") as file:
            file.write(json.dumps(planned[-1]) + "\n")
