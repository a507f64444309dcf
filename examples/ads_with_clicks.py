"""Ads joined with the clicks that follow within ten minutes: two streams, each with files that come late.

Run it with ``python -m examples.ads_with_clicks [FOLDER]``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, IcebergTable, Job, TableRef

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ADS = {"ad": "long", "user": "string", "shown_at": "timestamp"}
CLICKS = {"user": "string", "clicked_at": "timestamp"}


def pipeline(folder: Path) -> Job:
    """The job itself: two folders of files, a left join, an Iceberg table."""
    environment = Environment(checkpoint_dir=str(folder / "checkpoints"))
    ads, clicks = (
        environment.from_source(FileSource(str(folder / name), format="json", schema=schema, max_files_per_epoch=1))
        for name, schema in (("ads", ADS), ("clicks", CLICKS))
    )
    config = IcebergSinkConfig(namespace="web", table="ads", storage=IcebergStorage.Local(str(folder / "lake")))
    seen = ads.join(clicks, on="user", how="left", within=("0s", "10m"), time=("shown_at", "clicked_at"), lateness="1m")
    return seen.to_sink(IcebergSink(config)).execute("ads")


def write(folder: Path, name: str, number: int, *rows: dict[str, object]) -> None:
    """Write a file of JSON lines; times are minutes after noon."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    lines = (
        {key: str(NOON + timedelta(minutes=value)) if isinstance(value, float) else value for key, value in row.items()}
        for row in rows
    )
    (folder / name / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def main(folder: Path) -> dict[int, int]:
    """Write both streams, run the job, show the table; return the number of clicks of each ad."""
    write(folder, "ads", 0, {"ad": 1, "user": "ada", "shown_at": 0.0}, {"ad": 2, "user": "bob", "shown_at": 1.0})
    write(folder, "clicks", 0, {"user": "ada", "clicked_at": 1.5})
    write(folder, "ads", 1, {"ad": 3, "user": "ada", "shown_at": 9.0})
    write(folder, "clicks", 1, {"user": "ada", "clicked_at": 9.5}, {"user": "bob", "clicked_at": 11.5})
    pipeline(folder)
    table = IcebergTable(TableRef("web", "ads", IcebergStorage.Local(str(folder / "lake"))))
    table.rows.show()
    clicks: dict[int, int] = {}
    for row in table.rows.to_arrow().to_pylist():
        clicks[row["ad"]] = clicks.get(row["ad"], 0) + (row["clicked_at"] is not None)
    return clicks


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
