"""CSV files → a table partitioned by airport and month: the weather of New York's airports in 2013.

Run it with ``python -m examples.csv_to_partitions [FOLDER]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from examples.flights import nyc
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    Partitioning,
    col,
)

SCHEMA = "origin string, time_hour timestamp, temp double, humid double, wind_speed double"


def write_csv(folder: Path) -> int:
    """Write the weather as one CSV file for each airport; return the number of rows."""
    weather = nyc("weather")
    folder.mkdir(parents=True)
    for origin, rows in weather.groupby("origin"):
        rows[["origin", "time_hour", "temp", "humid", "wind_speed"]].to_csv(folder / f"{origin}.csv", index=False)
    return len(weather)


def main(folder: Path) -> int:
    """Load the files; print the warmest hour of each airport; return the number of rows in the table."""
    written = write_csv(folder / "in")
    config = IcebergSinkConfig(
        namespace="nyc", table="weather", storage=IcebergStorage.Local(str(folder / "lake"))
    ).with_partitioning([Partitioning.identity("origin"), Partitioning.time("time_hour", granularity="month")])
    (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(FileSource(folder / "in", format="csv", schema=SCHEMA))
        .with_column("celsius", (col("temp") - 32) / 1.8)
        .to_sink(IcebergSink(config))
        .execute("weather")
    )
    rows = IcebergTable(config).rows.to_duckdb()
    print(rows.query("weather", "select origin, max(celsius) as warmest from weather group by origin order by origin"))
    found = len(rows)
    print(f"{found:,} of {written:,} rows are in the table")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/weather"))
