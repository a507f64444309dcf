"""The table's schema changes in the snapshot of the rows that need it, in every commit mode, whoever else writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IntegerType, LongType, StringType

from tests.recovery.lake import change_at, disturb
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake
from volley import LayoutChangedError, SchemaMismatchError
from volley.iceberg import Append, Overwrite, Partitioning, Upsert
from volley.iceberg.modes import CommitMode
from volley.types.arrow import arrow_schema as parse

BEFORE = parse("id int, name string, price float, home struct<zip: string>, all array<struct<x: int>>, note string")
AFTER = parse(
    "key long, title string, price double, home struct<land: string, code: string>, all array<struct<x: long, y: int>>"
)
RENAMES = {"id": "key", "name": "title", "home.zip": "code"}

MODES: dict[str, CommitMode] = {
    "append": Append(),
    "overwrite": Overwrite(),
    "merge_on_read": Upsert("id", strategy="merge_on_read"),
    "copy_on_write": Upsert("id", strategy="copy_on_write"),
}


def old(*ids: int) -> list[dict[str, Any]]:
    return [
        {"id": i, "name": f"n {i}", "price": i / 2, "home": {"zip": f"z {i}"}, "all": [{"x": i}], "note": "gone"}
        for i in ids
    ]


def new(*ids: int) -> list[dict[str, Any]]:
    wide = 2**40
    return [
        {
            "key": i,
            "title": f"t {i}",
            "price": i / 3,
            "home": {"land": f"l {i}", "code": f"c {i}"},
            "all": [{"x": wide + i, "y": i % 100}],
        }
        for i in ids
    ]


def as_new(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Old rows as the new schema shows them."""
    return [
        {
            "key": row["id"],
            "title": row["name"],
            "price": row["price"],
            "home": {"land": None, "code": row["home"]["zip"]},
            "all": [{"x": each["x"], "y": None} for each in row["all"]],
        }
        for row in rows
    ]


def evolve(lake: Lake) -> None:
    """The job's next start has another stream."""
    lake.schema = AFTER
    mode = lake.config.commit_mode
    if isinstance(mode, Upsert):
        lake.config = lake.config.with_commit_mode(Upsert("key", strategy=mode.strategy))
    lake.config = lake.config.with_schema_evolution("full", renames=RENAMES, drops=["note"])


def expected(mode: str) -> list[dict[str, Any]]:
    """After epochs with the old rows 1 to 6, and the new rows 2, 7 and 2 ** 33."""
    kept = {"append": (1, 2, 3, 4, 5, 6), "overwrite": ()}.get(mode, (1, 3, 4, 5, 6))
    return in_order([*as_new(old(*kept)), *new(2, 7, 2**33)])


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(({name: row[name] for name in sorted(row)} for row in rows), key=repr)


def shown(lake: Lake) -> list[dict[str, Any]]:
    """The rows, as two engines read them."""
    found = in_order(lake.rows())
    assert found == in_order(lake.duckdb_rows())
    return found


def state(table: Table) -> tuple[int, int, int]:
    """How many snapshots there are, schemas, and commits at the catalog."""
    return len(table.snapshots()), len(table.schemas()), len(table.metadata.metadata_log)


@pytest.mark.parametrize("mode", MODES)
def test_schema_and_rows_change_in_one_commit(mode: str, make_lake: MakeLake) -> None:
    lake = make_lake(MODES[mode], BEFORE)
    lake.epoch(old(1, 2, 3), old(4, 5, 6))
    before = state(lake.table())
    evolve(lake)
    lake.driver()
    lake.epoch([])
    assert state(lake.table()) == before
    lake.epoch(new(2), new(7, 2**33))
    assert state(lake.table()) == tuple(count + 1 for count in before)
    assert shown(lake) == expected(mode)
    lake.epoch(new(2))
    assert len(lake.table().schemas()) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_conflict_and_a_lost_answer_stage_the_same_change_again(
    mode: str, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(MODES[mode], BEFORE)
    lake.epoch(old(1, 2, 3))
    evolve(lake)
    driver = lake.driver()
    driver.last_epoch(QUERY)
    written = lake.write(driver, 1, new(2), new(7, 2**33))

    def appended(commit: Callable[[], Any]) -> Any:
        lake.table().append(pa.Table.from_pylist(old(4, 5, 6), lake.table().schema().as_arrow()))
        return commit()

    def answer_lost(commit: Callable[[], Any]) -> Any:
        commit()
        raise ConnectionError("connection reset after the commit")

    disturb(monkeypatch, driver, appended, answer_lost)
    driver.commit(*written)
    assert shown(lake) == expected(mode)
    assert len(lake.table().schemas()) == 2


def test_a_branch_and_a_partition_spec_go_with_it(make_lake: MakeLake) -> None:
    lake = make_lake(Append(), BEFORE)
    lake.config = lake.config.with_partitioning(Partitioning.bucket("id", n=2))
    lake.epoch(old(1, 2, 3))
    evolve(lake)
    by_key = lake.config.with_partitioning(Partitioning.bucket("key", n=2))
    lake.config = by_key.with_branch("audit")
    lake.epoch(new(2))
    assert in_order(lake.table().scan().to_arrow().to_pylist()) == in_order(as_new(old(1, 2, 3)))
    audited = lake.table().scan(row_filter="key = 2").use_ref("audit").to_arrow()
    assert in_order(audited.to_pylist()) == in_order([*as_new(old(2)), *new(2)])


def add(name: str, kind: Any) -> Callable[[UpdateSchema], Any]:
    return lambda update: update.add_column(name, kind)


NARROW, WIDE = parse("id int, name string"), parse("id long, name string, extra string")


@pytest.fixture(params=["append", "merge_on_read"])
def narrow(request: pytest.FixtureRequest, make_lake: MakeLake) -> Lake:
    """A table with a row, and a job whose stream has wider rows."""
    lake = make_lake(MODES[request.param], NARROW)
    lake.epoch([{"id": 1, "name": "a"}])
    lake.schema = WIDE
    lake.config = lake.config.with_schema_evolution("full")
    return lake


ROWS = [{"id": 1, "name": "b", "extra": "c"}]


@pytest.mark.parametrize("moment", ["between write and commit", "while it commits"])
@pytest.mark.parametrize(
    "change",
    [add("other", LongType()), add("extra", StringType()), lambda update: update.rename_column("name", "label")],
    ids=["another column", "the same column", "a rename"],
)
def test_files_are_written_anew_when_another_client_changes_the_schema_first(
    moment: str, change: Callable[[UpdateSchema], Any], narrow: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = narrow.driver()
    driver.last_epoch(QUERY)
    written = narrow.write(driver, 1, ROWS)
    before = set(narrow.files())

    def changed() -> None:
        with narrow.table().update_schema() as update:
            change(update)

    change_at(moment, monkeypatch, driver, changed)
    with pytest.raises(LayoutChangedError, match="changed between write and commit"):
        driver.commit(*written)
    driver.abort(*written)
    assert len(narrow.table().snapshots()) == 1
    assert set(narrow.files()) <= before

    driver.last_epoch(QUERY)
    driver.commit(*narrow.write(driver, 1, ROWS))
    assert ROWS[0] in [{name: row[name] for name in WIDE.names} for row in narrow.rows()]
    assert len(narrow.table().snapshots()) == 2


def test_the_very_same_change_by_another_client_is_no_change(narrow: Lake) -> None:
    driver = narrow.driver()
    driver.last_epoch(QUERY)
    written = narrow.write(driver, 1, ROWS)
    with narrow.table().update_schema() as update:
        update.update_column("id", LongType()).add_column("extra", StringType())
    driver.commit(*written)
    assert ROWS[0] in narrow.rows()
    assert len(narrow.table().schemas()) == 2


def test_the_same_column_under_another_id_is_not_the_same_column(narrow: Lake) -> None:
    """The schema's id is the same as the planned one's, its columns have the same names."""
    driver = narrow.driver()
    driver.last_epoch(QUERY)
    written = narrow.write(driver, 1, ROWS)
    with narrow.table().update_schema() as update:
        update.add_column("other", StringType())
        update.update_column("id", LongType()).add_column("extra", StringType())
    with pytest.raises(LayoutChangedError):
        driver.commit(*written)


@pytest.mark.parametrize("moment", ["between write and commit", "while it commits"])
def test_a_stream_that_no_longer_fits_stops_and_lands_nothing(
    moment: str, narrow: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = narrow.driver()
    driver.last_epoch(QUERY)
    written = narrow.write(driver, 1, ROWS)

    def changed() -> None:
        with narrow.table().update_schema() as update:
            update.add_column("extra", IntegerType())

    change_at(moment, monkeypatch, driver, changed)
    with pytest.raises(SchemaMismatchError, match="'extra': the stream has string, the table int"):
        driver.commit(*written)
    with pytest.raises(SchemaMismatchError):
        driver.writer(written[0])
    assert len(narrow.table().snapshots()) == 1


def test_an_abort_leaves_the_files_of_the_epoch_before(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", strategy="copy_on_write"), NARROW)
    driver = lake.driver()
    driver.last_epoch(QUERY)
    driver.commit(*lake.write(driver, 0, [{"id": 1, "name": "a"}]))
    driver.abort(*lake.write(driver, 1, [{"id": 1, "name": "b"}]))
    assert lake.rows() == [{"id": 1, "name": "a"}]


def test_nulls_that_a_dead_letter_takes_leave_a_column_required(make_lake: MakeLake) -> None:
    lake = make_lake(Append(), NARROW)
    lake.epoch([{"id": 1, "name": "a"}])
    with lake.table().transaction() as change, change.update_schema(allow_incompatible_changes=True) as update:
        update._set_column_requirement("id", required=True)
    lake.config = lake.config.with_schema_evolution("full").with_dead_letter("letters")
    lake.epoch([{"id": 2, "name": "b"}])
    assert lake.table().schema().find_field("id").required
    lake.config = lake.config.with_dead_letter(None)
    lake.epoch([{"id": None, "name": "c"}])
    assert not lake.table().schema().find_field("id").required
    assert [row["id"] for row in lake.rows()] == [1, 2, None]
