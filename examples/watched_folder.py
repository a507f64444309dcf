"""A folder that is watched: files that arrive while the job runs are in the table a second later.

Run it with ``python -m examples.watched_folder [FOLDER]``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, IcebergTable


def drop(folder: Path, number: int) -> None:
    """Let a file arrive: it gets its name when it is complete."""
    part = folder / f".{number}.part"
    part.write_text("".join(json.dumps({"id": number * 10 + row}) + "\n" for row in range(10)))
    part.rename(folder / f"{number}.json")


def main(folder: Path) -> list[int]:
    """Start the job, let three files arrive, stop it; return the ids in the table."""
    inbox = folder / "in"
    inbox.mkdir(parents=True)
    config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local(str(folder / "lake")))
    source = FileSource(inbox, format="json", schema="id long", bounded=False)
    stream = Environment(checkpoint_dir=str(folder / "checkpoints"), checkpoint_interval="1s").from_source(source)
    with stream.to_sink(IcebergSink(config)).start("events") as job:
        for number in range(3):
            drop(inbox, number)
            while job.progress.rows < (number + 1) * 10 and job.exception is None:
                job.wait("100ms")
            print(f"file {number} is in the table after epoch {job.progress.epoch}")
    return sorted(IcebergTable(config).to_arrow()["id"].to_pylist())


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/watched")))
