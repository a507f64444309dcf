"""Chaos of a table's maintenance: a process that upserts and maintains a table dies at its points, and at random."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

from pyiceberg.table import Table

from tests.drivers import Drivers
from tests.duck import query
from tests.servers.iceberg_spark import IcebergSpark
from tests.upserts.maintained_stream import KILLED, Stream, actions, run_killed
from volley.iceberg import orphan_files, remove_orphan_files
from volley.task.failpoints import COMPACTION_POINTS, DELETE_POINTS, EXPIRY_POINTS, MANIFEST_POINTS

__all__ = ["run"]

_POINTS = (*COMPACTION_POINTS, *MANIFEST_POINTS, *EXPIRY_POINTS)
_AT_RANDOM = "at random"
# All of a run's epochs and its maintenance take some seconds.
_SECONDS = (0.5, 7.0)
_EPOCHS = (15, 40)
_TIMEOUT = 240


def run(
    iceberg_spark: IcebergSpark, folder: Path, kills: int, seed: int, check_every: int = 10, version: str = "2"
) -> Counter[str]:
    """Kill the process until it has died so often; return how often it died at each point.

    Args:
        iceberg_spark: Reads the table's snapshots.
        folder: An empty folder.
        kills: How often the process dies.
        seed: Repeats the schedule, except for the moments at random.
        check_every: After so many deaths a run in this process goes to its end, and all rows of all snapshots are
            compared.
        version: The table's format version.

    Raises:
        AssertionError: If a row was lost, doubled or changed, a snapshot can't be read, or a run failed.
    """
    dice, died, epochs = random.Random(seed), Counter[str](), 0
    while died.total() < kills:
        epochs += dice.randint(*_EPOCHS)
        point = dice.choice((*_POINTS, *(DELETE_POINTS if "deletes" in actions(version) else ()), _AT_RANDOM))
        if not _dies(folder, epochs, point, dice, version):
            continue
        died[point] += 1
        if died.total() % check_every == 0 or died.total() == kills:
            epochs = _check(iceberg_spark, folder, epochs + _EPOCHS[1], version)
    return died


def _dies(folder: Path, epochs: int, point: str, dice: random.Random, version: str) -> bool:
    """Run the stream in a process; return False if it came to its end before it reached the point."""
    number = dice.randint(1, 3) if point == EXPIRY_POINTS[1] else 0
    armed = "" if point == _AT_RANDOM else f"{point}@{number}"
    driver = Drivers().start(run_killed, folder, epochs, version, failpoint=armed)
    driver.join(dice.uniform(*_SECONDS) if point == _AT_RANDOM else _TIMEOUT)
    if driver.exitcode is None:
        driver.kill()
        driver.join()
        assert point == _AT_RANDOM, f"a run with {armed} hangs"
    assert driver.exitcode in (0, -signal.SIGKILL), f"a run with {armed} ended with status {driver.exitcode}"
    return driver.exitcode != 0


def _check(iceberg_spark: IcebergSpark, folder: Path, epochs: int, version: str) -> int:
    """Compare the table with its model, and what three readers see in each snapshot; return its epochs.

    Nothing is left of the dead runs.
    """
    stream = Stream(folder, KILLED, version)
    try:
        epochs = stream.run(epochs, actions(version))
        stream.check(epochs)
        remove_orphan_files(stream.lake.config, 0)
        stream.check(epochs)
        assert orphan_files(stream.lake.config, 0) == []
        _check_snapshots(iceberg_spark, stream.lake.folder, stream.lake.table())
        return epochs
    finally:
        stream.committer._catalog.close()
        stream.lake.close()


def _check_snapshots(iceberg_spark: IcebergSpark, folder: Path, table: Table) -> None:
    """Compare the rows of each snapshot, as pyiceberg, DuckDB and Spark read them, and the ids that the rows have."""
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    name, has_ids = ".".join(table.name()), table.format_version > 2
    columns = f"id, name{', _row_id, _last_updated_sequence_number' if has_ids else ''}"
    queries = (f"select {columns} from volley.{name} version as of {each} order by id" for each in ids)
    by_spark = iceberg_spark.sql(folder / "catalog.db", *queries)
    owners = dict[int, int]()
    for snapshot, spark_rows in zip(ids, by_spark, strict=True):
        by_pyiceberg = table.scan(snapshot_id=snapshot).to_arrow().sort_by("id").to_pylist()
        scanned = f"iceberg_scan('{table.metadata_location}', snapshot_from_id = {snapshot})"
        by_duckdb = query(f"select {columns} from {scanned} order by id").to_arrow_table().to_pylist()
        assert [{"id": row["id"], "name": row["name"]} for row in by_duckdb] == by_pyiceberg, snapshot
        assert spark_rows == by_duckdb, snapshot
        if has_ids:
            assert len({row["_row_id"] for row in by_duckdb}) == len(by_duckdb)
            assert all(owners.setdefault(row["_row_id"], row["id"]) == row["id"] for row in by_duckdb)
