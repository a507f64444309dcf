"""Jobs with windows are killed at every point: no window is lost, doubled or different, and late rows count once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.drivers import Drivers
from tests.recovery import windowed
from tests.recovery.rows import START, read_back
from tests.recovery.runs import load
from tests.tiers import deaths
from volley import PlanError, StorageError
from volley.storage.state_formats import STATE_OF_EPOCH
from volley.task.failpoints import EXECUTOR_TASK_POINT, POINTS, TASK_POINTS, WINDOW_POINTS

pytestmark = pytest.mark.usefixtures("spark")

FILES, ROWS = 6, 300
SCHEMA = pa.schema({"id": pa.int64(), "user": pa.string(), "price": pa.float64(), "at": pa.timestamp("us", "UTC")})
MASTER = "local[2,4]"
WINDOWS = (timedelta(minutes=1), timedelta(seconds=windowed.LATENESS), timedelta(seconds=windowed.GAP))
Row = dict[str, Any]


def write_input(folder: Path) -> list[list[Row]]:
    """Files of a minute each, whose rows come in any order; some are up to three minutes late."""
    dice = random.Random(7)
    files: list[list[Row]] = []
    (folder / "in").mkdir()
    for number in range(FILES):
        rows = []
        for place in range(ROWS):
            late = dice.random() < 0.05
            at = START + timedelta(minutes=number - (3 if late else 0), milliseconds=dice.randrange(60_000))
            user = dice.choice([None, *map(str, range(20))])
            rows.append({"id": number * ROWS + place, "user": user, "price": dice.randrange(100) / 4, "at": at})
        files.append(rows)
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "in" / f"{number}.parquet")
    return files


def on_time(files: Iterable[Sequence[Row]], final: bool) -> tuple[list[Row], int]:
    """The rows that are not late, and how many are: those behind the watermark at their epoch's start."""
    size, lateness, gap = WINDOWS
    watermark: datetime | None = None
    rows: list[Row] = []
    late = 0
    for file in files:
        for row in file:
            end = START + ((row["at"] - START) // size + 1) * size if final else row["at"] + gap
            if watermark is not None and end <= watermark:
                late += 1
            else:
                rows.append(row)
        latest = max(row["at"] for row in file) - lateness
        watermark = latest if watermark is None else max(watermark, latest)
    return rows, late


def final_windows(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, Any], list[Row]] = {}
    for row in rows:
        groups.setdefault((START + (row["at"] - START) // WINDOWS[0] * WINDOWS[0], row["user"]), []).append(row)
    return [
        (start, user, len(group), total := sum(row["price"] for row in group), max(group, key=_time)["id"], 2 * total)
        for (start, user), group in groups.items()
    ]


def _time(row: Row) -> tuple[datetime, int]:
    return row["at"], row["id"]


def sessions(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    open_sessions: dict[Any, list[Row]] = {}
    for row in sorted(({**row, "user": row["user"] or "nobody"} for row in rows), key=_time):
        group = open_sessions.setdefault(row["user"], [])
        if group and row["at"] - group[-1]["at"] >= WINDOWS[2]:
            found.append(_session(group))
            group.clear()
        group.append(row)
    return found + [_session(group) for group in open_sessions.values()]


def _session(group: Sequence[Row]) -> tuple[Any, ...]:
    start, end = group[0]["at"], group[-1]["at"] + WINDOWS[2]
    return start, end, group[0]["user"], len(group), sum(row["price"] for row in group)


def check(folder: Path, files: list[list[Row]]) -> None:
    """Compare all tables with what plain Python makes of the rows."""
    rows, _ = on_time(files, final=True)
    names = ["window_start", "user", "n", "total", "last", "double"]
    assert values(folder, "final", names) == texts(final_windows(rows))
    rows, _ = on_time(files, final=False)
    names = ["window_start", "window_end", "user", "n", "total"]
    assert values(folder, "sessions", names) == texts(sessions(rows))
    assert values(folder, "events", ["id"]) == texts((row["id"],) for file in files for row in file)


def values(folder: Path, table: str, names: Sequence[str]) -> list[str]:
    return texts(tuple(row[name] for name in names) for row in read_back(load(folder, f"db.{table}"), names))


def texts(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    return sorted(repr([value.isoformat() if isinstance(value, datetime) else value for value in row]) for row in rows)


KILLS = [
    "in-task@0,after-partials@1",
    "after-merge@1",
    "after-state@2",
    "after-task@2,after-files@2",
    "before-planning@3,before-files@3",
    "between-commits@3",
    "before-commit@4",
    "after-commit@4",
    "after-commit@4",
    "in-recovery@4,before-checkpoint@5",
]


@pytest.mark.parametrize("kills", deaths(KILLS, 2))
def test_killed_at_every_point(drivers: Drivers, tmp_path: Path, kills: list[str]) -> None:
    files = write_input(tmp_path)
    for points in kills:
        drivers.die(points, windowed.main, tmp_path, MASTER, kill_driver="task" in points)
    windowed.main(tmp_path)
    check(tmp_path, files)


@pytest.mark.nightly
def test_killed_while_several_tasks_merge(drivers: Drivers, tmp_path: Path) -> None:
    """Workers die first, in the tasks that read and in those that merge, then drivers."""
    files = write_input(tmp_path)
    for points in ("in-task@0,after-merge@1", "after-task@1,after-state@2", "after-files@3", "after-commit@4"):
        drivers.die(points, windowed.in_tasks, tmp_path, MASTER)
    windowed.in_tasks(tmp_path)
    states = tmp_path / "checkpoints" / "windowed" / "volley" / "windows-0" / f"{FILES - 1}"
    assert len(list(states.glob("state-*.arrow"))) == 2
    check(tmp_path, files)


def test_every_point_is_met() -> None:
    met = {each.partition("@")[0] for points in KILLS for each in points.split(",")}
    assert met >= {*POINTS, *WINDOW_POINTS, *TASK_POINTS, "in-recovery"} - {EXECUTOR_TASK_POINT}


def test_an_epoch_that_is_repeated_and_damaged_state(tmp_path: Path) -> None:
    """An epoch that the log has lost runs again: nothing changes. State that is lost or cut is an error."""
    files = write_input(tmp_path)
    job = windowed.main(tmp_path)
    assert job.metrics.by_sink[next(iter(job.metrics.by_sink))].rows_late == on_time(files, final=True)[1]
    checkpoint = tmp_path / "checkpoints" / "windowed"
    folder = checkpoint / "volley" / "windows-0" / str(FILES - 1)
    (checkpoint / "commits" / str(FILES - 1)).unlink()
    # As in an old copy: to pass over the epoch would leave no state to go on with.
    state_after = (folder / "done.json").rename(folder / "elsewhere")
    with pytest.raises(StorageError, match=f"sinks have epoch {FILES - 1}, and the checkpoint lacks the state"):
        windowed.main(tmp_path)
    state_after.rename(folder / "done.json")
    windowed.main(tmp_path)
    check(tmp_path, files)

    state = next(path for path in sorted(folder.glob("state-*.arrow")))
    whole = state.read_bytes()
    pq.write_table(
        pa.Table.from_pylist([dict(files[0][0], at=START + timedelta(hours=1))], SCHEMA), tmp_path / "in/9.parquet"
    )
    for damage in (whole[: len(whole) // 2], None):
        state.unlink()
        if damage is not None:
            state.write_bytes(damage)
        with pytest.raises(StorageError, match=rf"state .*{state.name} (has|is missing)"):
            windowed.main(tmp_path)
        state.write_bytes(whole)
    done = folder / "done.json"
    values = STATE_OF_EPOCH.load(done.read_bytes(), str(done))
    done.write_bytes(STATE_OF_EPOCH.dump({**values, "columns": ["pane int64"]}))
    with pytest.raises(PlanError, match="types behind aggregate n=count"):
        windowed.main(tmp_path)
