"""What a branch remembers of deletions: whose they are, what publishing does to them, what retries leave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake, do
from tests.upserts.test_sequence import SCHEMA, TOMBSTONES, Row, Writer, expected, live, row
from volley import CommitConflictError, ConfigError
from volley.iceberg import IcebergTable, Overwrite, SnapshotManager, Upsert, publish_branch
from volley.iceberg.upsert.tombstones import tombstone_branch

MODE = Upsert(["id", "part"], sequence="seq", op_field="op")


def another(lake: Lake, number: int) -> Writer:
    """Another job on the table."""
    return Writer(lake, QUERY.replace("2b6f", f"{number:04}"))


def commit(writer: Writer, *tasks: list[Row]) -> None:
    driver, epoch, results = writer.stage(*tasks)
    driver.commit(epoch, results)


def commit_while(lake: Lake, rows: list[Row], others: list[Row], number: int = 9) -> None:
    """Commit rows while another job commits its own, once the first attempt has computed what it writes."""
    driver, epoch, results = another(lake, number).stage(rows)
    other, is_first = another(lake, number + 1), True

    def do_and_be_interrupted(tasks: Sequence[Any]) -> list[Any]:
        nonlocal is_first
        done = do(tasks)
        if is_first:
            is_first = False
            commit(other, others)
        return done

    driver._context = type(driver._context)("job", lake.schema, lake.metrics, do_and_be_interrupted)
    driver.commit(epoch, results)


def test_a_branch_is_not_published_over_deletions_that_main_has_got_meanwhile(make_lake: MakeLake) -> None:
    """Even if they change none of main's rows: those of the branch were not settled by them."""
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1)])
    main, audit = lake.config, lake.config.with_branch("audit")
    lake.config = audit
    writer = another(lake, 1)
    commit(writer, [row(2, 5, 5)])
    lake.config = main
    lake.epoch([row(2, 9, op="d")])
    with pytest.raises(CommitConflictError, match="branch 'main' has remembered deletions meanwhile"):
        publish_branch(audit)
    lake.epoch([row(2, 8, 8)])
    assert lake.rows() == expected([row(1, 1, 1)])


@pytest.mark.parametrize("first", [[row(1, 1, 1)], [row(1, 1, 1), row(9, 1, op="d")]], ids=["none", "some"])
def test_a_branch_is_published_again_and_again(first: list[Row], make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch(first)
    main, audit = lake.config, lake.config.with_branch("audit")
    lake.config = audit
    writer, audited = another(lake, 1), [[row(2, 5, 5)], [row(3, 5, op="d")], [row(2, 6, op="d")], [row(4, 5, op="d")]]
    for rows in audited:
        commit(writer, rows)
        publish_branch(audit)
        SnapshotManager(main.ref).expire_snapshots("0s", 1)
    lake.config = main
    late = [row(number, 3, 3) for number in (2, 3, 4)]
    lake.epoch(late)
    assert lake.rows() == expected([*first, *(each for rows in audited for each in rows), *late])
    lake.config = audit
    commit(writer, [row(5, 5, op="d")])
    lake.config = main
    lake.epoch([row(6, 5, op="d")])
    with pytest.raises(CommitConflictError, match="has remembered deletions meanwhile"):
        publish_branch(audit)


@pytest.mark.parametrize("is_branch", [True, False], ids=["branch", "tag"])
def test_a_branch_or_tag_of_the_users_that_has_the_name(is_branch: bool, make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1)])
    snapshots = SnapshotManager(lake.config.ref)
    create, drop = (
        (snapshots.create_branch, snapshots.drop_branch) if is_branch else (snapshots.create_tag, snapshots.drop_tag)
    )
    create(TOMBSTONES)
    before = lake.table().metadata.refs[TOMBSTONES]
    with pytest.raises(ConfigError, match=f"'{TOMBSTONES}' has no deletions"):
        lake.epoch([row(1, 5, op="d")])
    driver = lake.driver()
    driver.last_epoch(QUERY)
    driver.clear()
    assert lake.table().metadata.refs[TOMBSTONES] == before
    drop(TOMBSTONES)
    commit(another(lake, 1), [row(1, 5, op="d"), row(2, 1, 1)])
    commit(another(lake, 2), [row(1, 4, 4)])
    assert lake.rows() == expected([row(2, 1, 1)])


def test_a_branch_that_is_dropped_leaves_what_only_has_the_name(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1)])
    snapshots = SnapshotManager(lake.config.ref)
    snapshots.create_branch("audit")
    snapshots.create_tag(tombstone_branch("audit"))
    publish_branch(lake.config.with_branch("audit"))
    snapshots.drop_branch("audit")
    assert [tag.name for tag in snapshots.tags()] == [tombstone_branch("audit")]


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Upsert("id", sequence="seq", op_field="op"), "by ['id'] in the order of ['seq']"),
        (Upsert(["id", "value"], sequence="seq", op_field="op"), "by ['id', 'value'] in the order of ['seq']"),
        (
            Upsert(["id", "part"], sequence="value", op_field="op"),
            "by ['id', 'part'] in the order of ['value']",
        ),
        (Upsert(["id", "part"], sequence=["seq", "value"]), "in the order of ['seq', 'value']"),
    ],
)
def test_other_keys_or_another_sequence_than_those_that_are_remembered(
    mode: Upsert, said: str, make_lake: MakeLake
) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 5, op="d")])
    lake.config = lake.config.with_commit_mode(mode)
    if mode.op_field is None:
        lake.schema = SCHEMA.remove(4)
    with pytest.raises(ConfigError, match=re.escape(said)):
        lake.epoch([row(2, 4, 4)])
    assert lake.rows() == expected([row(1, 1, 1)])
    SnapshotManager(lake.config.ref).drop_branch(TOMBSTONES)
    lake.epoch([row(2, 4, 4)])
    assert lake.rows() == expected([row(1, 1, 1), row(2, 4, 4)])


def test_keys_in_another_order_or_under_another_name(make_lake: MakeLake) -> None:
    """They are the same keys."""
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 5, op="d")])
    lake.config = lake.config.with_commit_mode(Upsert(["part", "id"], sequence="seq", op_field="op"))
    lake.epoch([row(2, 4, 4)])
    with lake.table().update_schema() as update:
        update.rename_column("part", "area").rename_column("seq", "version")
    names = {"part": "area", "seq": "version"}
    lake.schema = pa.schema([field.with_name(names.get(field.name, field.name)) for field in SCHEMA])
    lake.config = lake.config.with_commit_mode(Upsert(["id", "area"], sequence="version", op_field="op"))
    lake.epoch([{names.get(name, name): value for name, value in row(2, 4, 4).items()}])
    assert lake.rows() == [{"id": 1, "area": "a", "version": 1, "value": 1}]


def test_another_sequence_once_nothing_is_remembered(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op", tombstones="1ms"), SCHEMA)
    lake.epoch([row(2, 5, op="d"), row(1, 1, 1)])
    lake.epoch([row(1, 2, 2)])
    lake.config = lake.config.with_commit_mode(Upsert(["id", "part"], sequence="value", op_field="op"))
    lake.epoch([row(1, 1, 3), row(2, 1, 1)])
    assert lake.rows() == expected([row(1, 1, 3), row(2, 1, 1)])


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        pytest.param([row(2, 5, 5)], [row(2, 9, 9)], id="nothing"),
        pytest.param([row(3, 5, 5)], [row(3, 9, op="d")], id="nothing-of-what-was-not-there"),
        pytest.param([row(3, 5, op="d")], [row(4, 9, op="d")], id="a-deletion"),
        pytest.param([row(3, 5, op="d"), row(2, 5, 5)], [row(2, 9, 9)], id="a-deletion-of-a-row-too"),
        pytest.param([row(2, 5, 5), row(1, 5, 5)], [row(2, 9, 9)], id="a-row"),
    ],
)
@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_an_attempt_that_came_too_late_leaves_no_file(
    rows: list[Row], others: list[Row], strategy: Any, make_lake: MakeLake
) -> None:
    """Whatever the next one commits."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op", strategy=strategy), SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 1, 1)])
    commit_while(lake, rows, others)
    assert lake.rows() == expected([row(1, 1, 1), row(2, 1, 1), *rows, *others])
    assert {path.name for path in lake.files()} <= live(lake)


@pytest.mark.parametrize("rows", [[row(2, 5, op="d")], [row(2, 5, 5)]], ids=["nothing", "rows"])
@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_an_attempt_of_a_plain_upsert_that_came_too_late_leaves_no_file(
    rows: list[Row], strategy: Any, make_lake: MakeLake
) -> None:
    lake = make_lake(Upsert(["id", "part"], op_field="op", strategy=strategy), SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 1, 1), row(3, 1, 1)])
    commit_while(lake, rows, [row(2, 9, op="d")])
    kept = [each for each in rows if each["op"] != "d"]
    assert lake.rows() == expected([row(1, 1, 1), row(3, 1, 1), *kept])
    assert {path.name for path in lake.files()} <= live(lake)


def test_an_overwrite_keeps_what_is_remembered(make_lake: MakeLake) -> None:
    """What it brings is settled against it when a change of its key comes."""
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 5, op="d")])
    lake.config = lake.config.with_commit_mode(Overwrite())
    lake.schema = SCHEMA.remove(4)
    lake.epoch([row(2, 4, 4), row(3, 1, 1)])
    lake.config, lake.schema = lake.config.with_commit_mode(MODE), SCHEMA
    assert lake.rows() == expected([row(2, 4, 4), row(3, 1, 1)])
    lake.epoch([row(2, 3, 3)])
    assert lake.rows() == expected([row(3, 1, 1)])


def test_an_erasure_takes_what_is_remembered_of_the_key_alone(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 1, 2)])
    lake.epoch([row(2, 5, op="d"), row(3, 5, op="d")])
    lake.epoch([row(4, 1, op="d")])
    erasure = IcebergTable(lake.config).erase([{"id": 2}])
    assert erasure.rows == {"main": 0, TOMBSTONES: 1}
    assert erasure.proven_at is not None
    # A change of before its deletion brings the row of the key back; others stay deleted.
    lake.epoch([row(2, 3, 3), row(3, 3, 3)])
    assert lake.rows() == expected([row(1, 1, 1), row(2, 3, 3)])
