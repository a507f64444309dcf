"""The driver is killed with SIGKILL at every gated point and started again: the table is as if it had never died."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from tests.drivers import Drivers
from tests.recovery import pipeline
from tests.recovery.lake import EVENTS
from tests.recovery.runs import FILES, ROWS_PER_FILE, load, write_input
from tests.sinks import config_of
from tests.tiers import some
from volley.iceberg import Partitioning, orphan_files, remove_orphan_files
from volley.iceberg.layout.partitioning import partitioning
from volley.iceberg.layout.specs import spec_of
from volley.iceberg.schema.types import to_iceberg_schema
from volley.task.failpoints import POINTS, TASK_POINTS

LETTERS = (None, "table", "folder")
PLAIN = pa.schema({"id": pa.int64(), "name": pa.string(), "twice": pa.int64()})
BEFORE = pa.schema({"id": pa.int32(), "label": pa.string(), "note": pa.string()})


@dataclass(frozen=True)
class Kill:
    """One death.

    Args:
        point: Where.
        epoch: In which epoch.
    """

    point: str
    epoch: int


@dataclass(frozen=True)
class Case:
    """A job, and the deaths that it dies one after the other before a run goes to the end.

    Args:
        kills: The deaths.
        mode: The commit mode.
        letters: What takes bad rows.
        partitioned: Whether the table has partitions and an order, which win over the job's own settings.
        evolving: Whether epoch 0 changes the schema of a table that has a row.
        with_jvm: Whether the first driver takes its JVM along, as one that a machine takes along.
    """

    kills: tuple[Kill, ...]
    mode: str = "append"
    letters: str | None = None
    partitioned: bool = False
    evolving: bool = False
    with_jvm: bool = False


IN_EACH_EPOCH = (Kill("after-commit", 0), Kill("before-checkpoint", 1), Kill("before-commit", 2))
IN_ONE_EPOCH_AND_WHILE_IT_RECOVERS = tuple(
    Kill(point, 1)
    for point in ("before-planning", "after-files", "before-commit", "after-commit", "in-recovery", "in-recovery")
)


def on(*points: str) -> tuple[Kill, ...]:
    """A death in each epoch."""
    return tuple(Kill(point, epoch) for epoch, point in enumerate(points))


def first(*points: str) -> tuple[Kill, ...]:
    """All deaths in epoch 0."""
    return tuple(Kill(point, 0) for point in points)


CASES = [
    Case(IN_EACH_EPOCH, with_jvm=True),
    Case(IN_ONE_EPOCH_AND_WHILE_IT_RECOVERS),
    Case(on(*TASK_POINTS), with_jvm=True),
    Case(on("between-commits", "before-commit"), letters="table", partitioned=True),
    Case(first("before-files", "after-commit"), letters="folder", evolving=True),
    Case(
        first("between-commits", "before-commit", "after-commit"),
        mode="overwrite",
        partitioned=True,
        evolving=True,
        with_jvm=True,
    ),
    Case(first("before-planning", "before-checkpoint"), mode="overwrite", letters="table", evolving=True),
    Case(on("before-files", "after-files"), mode="overwrite", letters="folder", partitioned=True),
    Case(IN_EACH_EPOCH, mode="merge_on_read", with_jvm=True),
    Case(first("before-files", "after-files"), mode="merge_on_read", letters="table", evolving=True),
    Case(on("before-planning", "between-commits"), mode="merge_on_read", letters="folder", partitioned=True),
    Case(on("before-planning", "before-files", "after-files"), mode="copy_on_write", with_jvm=True),
    Case(first("between-commits", "after-commit"), mode="copy_on_write", letters="table", evolving=True),
    Case(
        first("before-commit", "before-checkpoint"),
        mode="copy_on_write",
        letters="folder",
        partitioned=True,
        evolving=True,
    ),
    Case(on("before-planning", "before-files", "after-files"), mode="in_sequence"),
    Case(first("between-commits", "after-commit"), mode="in_sequence", letters="table", evolving=True),
    Case(
        first("before-commit", "before-checkpoint"),
        mode="in_sequence",
        letters="folder",
        partitioned=True,
        evolving=True,
    ),
    Case(on("before-planning", "before-files", "after-files"), mode="partial"),
    Case(first("between-commits", "after-commit"), mode="partial", letters="table", evolving=True),
    Case(
        first("before-commit", "before-checkpoint"),
        mode="partial",
        letters="folder",
        partitioned=True,
        evolving=True,
    ),
    Case(on("before-planning", "before-files", "after-files"), mode="history"),
    Case(first("between-commits", "after-commit"), mode="history", letters="table", evolving=True),
    Case(
        first("before-commit", "before-checkpoint"),
        mode="history",
        letters="folder",
        partitioned=True,
        evolving=True,
    ),
]
# Replaces each partition once; the others' modes are met with everything else.
DYNAMIC = Case(on("after-commit", "before-commit", "after-files"), mode="dynamic", partitioned=True)


def cost(case: Case) -> tuple[bool, int]:
    """What orders cases by their CPU time: a JVM of its own costs as much as many deaths."""
    return case.with_jvm, len(case.kills)


def name(case: Case) -> str:
    traits = {
        case.mode: True,
        f"letters to a {case.letters}": case.letters,
        "partitioned": case.partitioned,
        "evolving": case.evolving,
        "with the JVM": case.with_jvm,
    }
    kills = (f"{kill.point}@{kill.epoch}" for kill in case.kills)
    return ", ".join([*(trait for trait, there in traits.items() if there), *kills])


@pytest.mark.parametrize("case", some(sorted([*CASES, DYNAMIC], key=cost), by=lambda case: case.mode), ids=name)
def test_killed(drivers: Drivers, case: Case, tmp_path: Path) -> None:
    write_input(tmp_path)
    make_table(case, tmp_path)
    letters = {"table": "dead", "folder": f"{tmp_path}/dead"}.get(case.letters or "")
    job = partial(pipeline.main, tmp_path, dead_letter=letters, mode=case.mode, evolve=case.evolving)
    for number, kill in enumerate(case.kills):
        driver = Drivers() if case.with_jvm and number == 0 else drivers
        in_task = kill.point in TASK_POINTS
        # An epoch has one task: a second core would only start a Python worker more.
        driver.die(f"{kill.point}@{kill.epoch}", job, "local[1]", kill_driver=in_task)
        check_schemas(case, kill, tmp_path)
    job()
    check_table(case, load(tmp_path))
    if case.letters:
        check_letters(list(read_letters(case, tmp_path)))
    check_orphans(case, tmp_path)


def test_the_cases_cover_every_pair() -> None:
    """Of point, mode, dead letter, partitions and evolving."""
    covered = {
        pair
        for case in CASES
        for kill in case.kills
        for pair in pairs(
            *(kill.point, case.mode, case.letters),
            *(case.partitioned, case.evolving and kill.epoch == 0),
        )
    }
    modes = tuple(mode for mode in pipeline.MODES if mode != DYNAMIC.mode)
    values: list[tuple[Any, ...]] = [POINTS, modes, LETTERS]
    values += [(False, True), (False, True)]
    wanted = {
        ((one, first), (two, second))
        for (one, firsts), (two, seconds) in combinations(enumerate(values), 2)
        for first in firsts
        for second in seconds
    }
    assert wanted - covered == set()
    met = {kill.point for case in CASES for kill in case.kills}
    assert met == {*POINTS, *TASK_POINTS, "in-recovery"}


def pairs(*values: Any) -> Iterator[tuple[Any, Any]]:
    """Each two of them, with their places."""
    return combinations(enumerate(values), 2)


# --- the table before


def make_table(case: Case, folder: Path) -> None:
    """The job's table, made before the job; ids of an evolving one are narrower, and columns have other names."""
    if not (case.partitioned or case.evolving):
        return
    columns = BEFORE if case.evolving else PLAIN
    schema = to_iceberg_schema(columns)
    catalog = config_of(folder).ref.load_catalog()
    catalog.create_namespace("db")
    text = columns.names[1]
    order = SortOrder(SortField(2, IdentityTransform())) if case.partitioned else SortOrder()
    table = catalog.create_table("db.events", schema, sort_order=order)
    if case.evolving:
        table.append(pa.table({"id": [-1], "label": ["old"], "note": ["gone"]}, BEFORE))
    if case.partitioned:
        how = partitioning([Partitioning.bucket("id", n=3), Partitioning.truncate(text, width=5)])
        with table.update_spec() as update:
            for field in spec_of(how, schema).fields:
                update.add_field(columns.names[field.source_id - 1], field.transform, field.name)
    catalog.close()


# --- what came of it


def check_schemas(case: Case, kill: Kill, folder: Path) -> None:
    """Epoch 0 changes the schema in the commit of its rows."""
    if case.evolving:
        table = load(folder)
        landed = "0" in epochs(table)
        assert len(table.schemas()) == 1 + landed
        assert not (landed and kill.point in POINTS[: POINTS.index("after-commit")])


def epochs(table: Table) -> list[str | None]:
    """The epoch of each snapshot of the table's rows; None if it is not a job's."""
    summaries = (snapshot.summary for snapshot in table.snapshots() if snapshot.summary)
    return [summary["volley.epoch"] for summary in summaries if summary["volley.tombstones"] is None]


def check_table(case: Case, table: Table) -> None:
    """Compare source and table row by row, the snapshots with the epochs, and files with partitions."""
    names = known_names(case)
    expected = [{"id": i, "name": names[i], "twice": 2 * i} for i in ids(case)]
    if case.evolving and case.mode != "overwrite":
        expected.insert(0, {"id": -1, "name": "old", "twice": None})
    rows = table.scan(selected_fields=("id", "name", "twice")).to_arrow().sort_by("id").to_pylist()
    assert rows == expected
    assert table.scan().to_arrow().num_rows == len(rows)
    assert epochs(table) == [*([None] if case.evolving else []), *(str(epoch) for epoch in range(FILES))]
    if case.evolving:
        fields = [str(field) for field in table.schema().fields[:3]]
        assert fields == ["1: id: optional long", "2: name: optional string", "4: twice: optional long"]
        assert [snapshot.schema_id for snapshot in table.snapshots()][:2] == [0, 1]
        assert len(table.schemas()) == 2
    files = table.inspect.files().to_pylist()
    if case.partitioned:
        written = [file for file in files if file["spec_id"] == table.spec().spec_id]
        assert len(written) == len(files) - (case.evolving and case.mode != "overwrite")
    if case.mode == "history":
        current = table.scan("is_current = true", ("id",)).to_arrow()["id"].to_pylist()
        assert sorted(current) == ids(replace(case, mode="in_sequence"))
    if case.mode in ("append", "overwrite", "dynamic"):
        assert sum(file["record_count"] for file in files) == len(rows)


def good_ids(case: Case) -> list[int]:
    """The ids that reach the table."""
    return [i for i in range(FILES * ROWS_PER_FILE) if i % 7 != 0 and not (case.letters and i % 10 == 3)]


def known_names(case: Case) -> dict[int, str | None]:
    """The name of each id; a row of a partial upsert may keep that of the one before, unless it was deleted."""
    names: dict[int, str | None] = {}
    last: dict[int, str | None] = {}
    for i in good_ids(case):
        lacks = case.mode == "partial" and i % 9 < 4
        names[i] = last.get(i % 300) if lacks else f"row {i}"
        last[i % 300] = None if i % 11 == 0 else names[i]
    return names


def ids(case: Case) -> list[int]:
    """The ids that the table has in the end, in order."""
    good = good_ids(case)
    if case.mode in ("append", "overwrite", "dynamic"):
        return good
    if case.mode == "history":
        return [i for i in good if i % 11 != 0]
    return sorted(i for i in {i % 300: i for i in good}.values() if i % 11 != 0)


def read_letters(case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    if case.letters == "table":
        yield from load(folder, "db.dead").scan().to_arrow().to_pylist()
    else:
        for file in (folder / "dead").glob("*.json"):
            yield from map(json.loads, file.read_text().splitlines())


def check_letters(letters: list[dict[str, Any]]) -> None:
    """Each bad row is in the letters of its epoch, once."""
    found = sorted(
        (json.loads(row["payload"])["id"], row["epoch"], row["position"].rpartition("/")[2]) for row in letters
    )
    bad = [i for i in range(FILES * ROWS_PER_FILE) if i % 7 != 0 and i % 10 == 3]
    places = [divmod(i, ROWS_PER_FILE) for i in bad]
    assert found == [(i, file, f"{file}.parquet, row {row + 1}") for i, (file, row) in zip(bad, places, strict=True)]


def check_orphans(case: Case, folder: Path) -> None:
    """Maintenance removes what the dead drivers have left, and nothing else."""
    before = load(folder).scan().to_arrow().sort_by("id")
    tables = [EVENTS, *(["dead"] if case.letters == "table" else [])]
    left: list[str] = []
    for table in tables:
        orphans = orphan_files(config_of(folder, table), timedelta(0))
        assert remove_orphan_files(config_of(folder, table), timedelta(0)) == orphans
        left += orphans
    if case.kills == IN_ONE_EPOCH_AND_WHILE_IT_RECOVERS:
        assert left
    files = [file for table in tables for file in load(folder, f"db.{table}").inspect.all_files().to_pylist()]
    assert {path.name for path in (folder / "lake").rglob("*.parquet")} <= {
        Path(file["file_path"]).name for file in files
    }
    assert load(folder).scan().to_arrow().sort_by("id").equals(before)
