"""A job that joins a table is killed while that changes: an epoch has the rows of one snapshot, in both sinks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery import joined
from tests.recovery.joined import change_customers, check, create_customers, remake_customers, write_orders
from volley import SnapshotExpiredError
from volley.iceberg import SnapshotManager
from volley.joining import MAX_BYTES
from volley.task.failpoints import BUCKET_POINT, JOIN_POINTS

pytestmark = pytest.mark.usefixtures("spark")

# Each point, and whether its epoch is bound to the snapshot that the table had then.
KILLS = [
    *[("before-files@0", False), ("before-pin@1", False), ("after-pin@2", True), ("in-task@3", True)],
    *[("after-files@4", True), ("between-commits@5", True), ("after-commit@6", True), ("before-checkpoint@7", True)],
    ("after-bucket@8", False),
]


@pytest.mark.parametrize(
    ("arrow_native", "max_bytes"), [(True, joined.DIVIDED), (False, MAX_BYTES)], ids=["native-divided", "general"]
)
def test_the_table_changes_between_a_kill_and_the_repetition(
    drivers: Drivers, tmp_path: Path, arrow_native: bool, max_bytes: int
) -> None:
    write_orders(tmp_path, range(len(KILLS)))
    create_customers(tmp_path, 0)
    versions = []
    job = joined.main, tmp_path, arrow_native, max_bytes
    for number, (point, is_bound) in enumerate(KILLS):
        drivers.die(point, *job, kill_driver=point.startswith("in-task"))
        (remake_customers if number % 3 == 2 else change_customers)(tmp_path, number + 1)
        versions.append(number if is_bound else number + 1)
    assert drivers.run(*job) == 0
    check(tmp_path, versions)


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
