"""A job that joins a table is killed while that changes: an epoch has the rows of one snapshot, in both sinks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import joined
from tests.recovery.joined import (
    change_customers,
    check,
    check_rows,
    create_customers,
    remake_customers,
    write_customers,
    write_orders,
)
from tests.recovery.joined_history import current_history, joined_by_duckdb, write_timed_orders
from tests.tiers import nightly
from volley import SnapshotExpiredError
from volley.iceberg import SnapshotManager
from volley.stream.joins import MAX_BYTES
from volley.task.failpoints import BUCKET_POINT, JOIN_POINTS

pytestmark = pytest.mark.usefixtures("spark")

# Each point, and whether its epoch is bound to the snapshot that the table had then.
KILLS = [
    *[("before-files@0", False), ("before-pin@1", False), ("after-pin@2", True), ("in-task@3", True)],
    *[("after-files@4", True), ("between-commits@5", True), ("after-commit@6", True), ("before-checkpoint@7", True)],
    ("after-bucket@8", False),
]


@pytest.mark.parametrize(
    ("deduplicated", "max_bytes", "kills"),
    [
        pytest.param(False, joined.DIVIDED, [("after-pin@0", True)], id="divided, one"),
        nightly(False, joined.DIVIDED, KILLS, id="divided, all"),
        nightly(True, MAX_BYTES, KILLS, id="deduplicated, all"),
    ],
)
def test_the_table_changes_between_a_kill_and_the_repetition(
    drivers: Drivers, tmp_path: Path, deduplicated: bool, max_bytes: int, kills: list[tuple[str, bool]]
) -> None:
    write_orders(tmp_path, range(len(kills)))
    create_customers(tmp_path, 0)
    versions = []
    job = partial(joined.main, tmp_path, deduplicated, max_bytes)
    for number, (point, is_bound) in enumerate(kills):
        drivers.die(point, job, kill_driver=point.startswith("in-task"))
        (remake_customers if number % 3 == 2 else change_customers)(tmp_path, number + 1)
        versions.append(number if is_bound else number + 1)
    assert drivers.run(job) == 0
    check(tmp_path, versions)


@pytest.mark.parametrize("kills", [[("between-commits@0", True)], nightly(KILLS, id="all")])
def test_the_file_is_replaced_between_a_kill_and_the_repetition(
    drivers: Drivers, tmp_path: Path, kills: list[tuple[str, bool]]
) -> None:
    write_orders(tmp_path, range(len(kills) + 1))
    job = partial(joined.main, tmp_path, False, joined.DIVIDED, None, True)
    versions = []
    for number, (point, is_bound) in enumerate(kills):
        write_customers(tmp_path, number)
        drivers.die(point, job, kill_driver=point.startswith("in-task"))
        versions.append(number if is_bound else number + 1)
    write_customers(tmp_path, len(kills))
    assert drivers.run(job) == 0
    check(tmp_path, [*versions, len(kills)])


# Each point, whether its epoch is bound to the history that the table had then, and what becomes of the table.
HISTORIES = [
    *[("before-pin@0", False, "change"), ("after-pin@1", True, "change"), ("after-bucket@2", False, "change")],
    *[("in-task@3", True, "roll back"), ("between-commits@4", True, "expire"), ("before-checkpoint@5", True, "remake")],
]


@pytest.mark.nightly
def test_the_history_of_the_table_grows_between_a_kill_and_the_repetition(drivers: Drivers, tmp_path: Path) -> None:
    """It also loses its end and its beginning; each row has what DuckDB finds in the snapshots of its epoch."""
    create_customers(tmp_path, 0)
    job = partial(joined.main, tmp_path, False, joined.DIVIDED, "at")
    expected = []
    for epoch, (point, is_bound, change) in enumerate(HISTORIES):
        orders, known = write_timed_orders(tmp_path, epoch), current_history(tmp_path)
        drivers.die(point, job, kill_driver=point.startswith("in-task"))
        change_history(tmp_path, change, epoch + 1)
        expected += joined_by_duckdb(orders, known if is_bound else current_history(tmp_path))
    orders = write_timed_orders(tmp_path, len(HISTORIES))
    expected += joined_by_duckdb(orders, current_history(tmp_path))
    assert drivers.run(job) == 0
    check_rows(tmp_path, expected)


def change_history(folder: Path, how: str, version: int) -> None:
    manager = SnapshotManager(joined.table(folder))
    before = manager.current_snapshot()
    assert before is not None
    (remake_customers if how == "remake" else change_customers)(folder, version)
    if how == "roll back":
        manager.rollback_to(before.id)
    if how == "expire":
        manager.expire_snapshots(older_than=datetime.now(UTC) + timedelta(days=1), retain_last=1)


def test_the_snapshot_is_rolled_back_or_expired(drivers: Drivers, tmp_path: Path) -> None:
    write_orders(tmp_path, range(3))
    create_customers(tmp_path, 0)
    manager = SnapshotManager(joined.table(tmp_path))
    before = manager.current_snapshot()
    change_customers(tmp_path, 1)
    # The first sink has epoch 0, joined with a snapshot that is no more when the second one gets it.
    drivers.die("between-commits@0", joined.main, tmp_path)
    assert before is not None
    manager.rollback_to(before.id)
    drivers.die("after-pin@1", joined.main, tmp_path)
    change_customers(tmp_path, 2)
    manager.expire_snapshots(older_than=datetime.now(UTC) + timedelta(days=1), retain_last=1)
    assert drivers.run(joined.main, tmp_path) == 0
    # After the rollback the table's rows are those of version 0.
    check(tmp_path, [1, 0, 2])


def test_a_lost_copy_of_a_snapshot_that_is_gone_is_named(drivers: Drivers, tmp_path: Path) -> None:
    write_orders(tmp_path, range(1))
    create_customers(tmp_path, 0)
    drivers.die("between-commits@0", joined.main, tmp_path)
    (copy,) = (tmp_path / "checkpoints").rglob("joins/*/*.arrow")
    copy.unlink()
    # The snapshot is still there: its rows are copied again.
    drivers.die("in-task@0", joined.main, tmp_path, kill_driver=True)
    (copy,) = (tmp_path / "checkpoints").rglob("joins/*/*.arrow")
    copy.unlink()
    remake_customers(tmp_path, 1)
    with pytest.raises(SnapshotExpiredError, match=r"epoch 0 joins .*db.customers.* copy of its rows .* is gone"):
        joined.main(tmp_path)


def test_every_point_is_met() -> None:
    assert {point.partition("@")[0] for point, _ in KILLS} >= {*JOIN_POINTS, BUCKET_POINT}
