"""A publication that is altered, and restored, while the job is down or runs: the stream lacks changes of that time."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.captured import Database
from tests.postgres.jobs import append, config, difference, mirror
from tests.postgres.runs import running
from tests.postgres.test_many_tables import applied, stored
from tests.waiting import wait_until
from volley import IcebergSink, SourceContext, SourceError
from volley.storage.state_formats import CAPTURED_TABLE

ALTERED = {
    "table": ("alter publication volley drop table orders", "alter publication volley add table orders"),
    "operations": (
        "alter publication volley set (publish = 'insert')",
        "alter publication volley set (publish = 'insert, update, delete, truncate')",
    ),
    "rows": (
        "alter publication volley set table orders where (id < 5)",
        "alter publication volley set table orders",
    ),
    "columns": (
        "alter publication volley set table orders (id, customer)",
        "alter publication volley set table orders",
    ),
}
CHANGES = (
    "update orders set note = 'changed' where id < 100",
    "delete from orders where id > 990",
    "insert into orders values (2000, 'new', 1, 'inserted')",
)
MESSAGES = {
    "table": r"publication 'volley' does not have table public\.orders",
    "operations": r"publication 'volley' leaves out operations: table public\.orders",
    "rows": r"publication 'volley' has only some rows of table public\.orders",
    "columns": r"publication 'volley' has only some columns of table public\.orders: it lacks 'total'",
}
MISSING = r"publication 'volley' was altered since the last look: the stream may lack changes of table public\.orders"

both = pytest.mark.parametrize("kind", ALTERED)


@pytest.mark.usefixtures("spark")
@both
def test_changes_that_a_publication_left_out_while_the_job_was_down_are_loaded(
    any_shop: Database, tmp_path: Path, kind: str
) -> None:
    altered, restored = ALTERED[kind]
    source = any_shop.source(on_rewrite="reload")
    mirror(tmp_path, source)
    for statement in (altered, *CHANGES, restored):
        any_shop.run(statement)
    mirror(tmp_path, source)
    assert difference(any_shop, tmp_path) == []
    any_shop.run("update orders set note = 'later' where id = 2000")
    mirror(tmp_path, source)
    assert difference(any_shop, tmp_path) == []


@both
def test_changes_that_a_publication_left_out_while_the_job_was_down_stop_it(
    shop: Database, tmp_path: Path, kind: str
) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    for statement in (ALTERED[kind][0], CHANGES[0], ALTERED[kind][1]):
        shop.run(statement)
    for _ in range(2):
        with pytest.raises(SourceError, match=MISSING) as error, running(shop.source(), tmp_path, run.start):
            pass
        assert "drop the slot, then start with fresh=True" in str(error.value.hint)
    # The way on, for who knows that none is missing.
    with running(shop.source(on_rewrite="ignore"), tmp_path, run.start) as run:
        run.epoch()
    with running(shop.source(), tmp_path, run.start) as run:
        assert run.epoch() == []


@both
@pytest.mark.usefixtures("looks_often")
def test_changes_that_a_publication_left_out_while_the_job_ran(shop: Database, tmp_path: Path, kind: str) -> None:
    altered, restored = ALTERED[kind]
    with running(shop.source(bounded=False, on_rewrite="reload", packed=True), tmp_path) as run:
        tables = applied(run.epoch())
        # One transaction: no look falls between.
        shop.run(altered, *CHANGES, restored)
        wait_until(lambda: run.end()["loads"] == 2, 30, "the load")
        tables = applied(run.epoch(), tables)
    assert [(id, row["note"]) for id, row in sorted(tables["public.orders"].items())] == shop.rows(
        "select id, note from orders order by id"
    )


@both
@pytest.mark.usefixtures("looks_often")
def test_a_publication_that_leaves_out_changes_stops_a_job_that_runs(shop: Database, tmp_path: Path, kind: str) -> None:
    source = shop.source(bounded=False, on_rewrite="reload")
    with running(source, tmp_path) as run:
        run.epoch()
        shop.run(ALTERED[kind][0])
        with pytest.raises(SourceError, match=MESSAGES[kind]):
            wait_until(lambda: run.end() is None, 30, "the failure")
    with pytest.raises(SourceError, match=MESSAGES[kind]), running(source, tmp_path, run.start):
        pass


@both
def test_a_look_before_the_start_refuses_such_a_publication(shop: Database, tmp_path: Path, kind: str) -> None:
    shop.run("create publication volley for table orders", ALTERED[kind][0])
    with pytest.raises(SourceError, match=MESSAGES[kind]):
        shop.source().open(SourceContext(str(tmp_path)))


@pytest.mark.usefixtures("spark")
def test_a_publication_that_is_made_anew(shop_18: Database, tmp_path: Path) -> None:
    """PostgreSQL 18 passes over changes that were made while there was none; 15 fails."""
    source = shop_18.source(on_rewrite="reload")
    mirror(tmp_path, source)
    for statement in ("drop publication volley", *CHANGES):
        shop_18.run(statement)
    mirror(tmp_path, source)
    assert difference(shop_18, tmp_path) == []


@pytest.mark.usefixtures("looks_often")
def test_a_publication_that_is_dropped_while_the_job_runs(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(bounded=False), tmp_path) as run:
        run.epoch()
        shop.run("drop publication volley")
        with pytest.raises(SourceError, match="publication 'volley' is gone"):
            wait_until(lambda: run.end() is None, 30, "the failure")


def test_a_publication_that_others_use_too(shop: Database, tmp_path: Path) -> None:
    """What concerns other tables, and a second way in, lose no changes of this one."""
    shop.run("create publication volley for table orders", "create table other (id int primary key)")
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    for id, statements in enumerate(
        (
            ["alter publication volley add table other", "alter publication volley add tables in schema public"],
            ["alter publication volley drop table other, orders", "comment on publication volley is 'shared'"],
            ["alter publication volley add table orders"],
            ["alter publication volley drop tables in schema public"],
        )
    ):
        shop.run(*statements)
        shop.run(f"insert into orders values (2000 + {id}, 'x', 1, null)")
        with running(shop.source(), tmp_path, run.start) as run:
            assert [row["id"] for row in run.epoch()] == [2000 + id]


def test_a_schema_that_leaves_a_publication_and_comes_back(shop: Database, tmp_path: Path) -> None:
    source = shop.source("public.*", on_rewrite="reload")
    shop.run("create table lines (id int primary key, item text)", "insert into lines values (1, 'tea')")
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
    shop.run("alter publication volley drop tables in schema public", "update lines set item = 'milk'")
    with running(source, tmp_path, run.start) as run:
        assert run.epoch() == [], "tables that are not named may leave"
    shop.run("alter publication volley add tables in schema public", "insert into lines values (2, 'rum')")
    with running(source, tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
    assert tables["public.lines"] == stored(shop, "lines")


def test_the_root_of_partitions(shop: Database, tmp_path: Path) -> None:
    """Without it the rows of a table come as those of other tables."""
    shop.run(
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
        "insert into parts values (1, 'a')",
    )
    source = shop.source("public.*", on_rewrite="reload")
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
    shop.run("alter publication volley set (publish_via_partition_root = false)", "insert into parts values (2, 'b')")
    with (
        pytest.raises(SourceError, match=r"has the partitions of public\.parts, and not the table itself") as error,
        running(source, tmp_path, run.start),
    ):
        pass
    assert "set (publish_via_partition_root = true)" in str(error.value.hint)
    shop.run("alter publication volley set (publish_via_partition_root = true)")
    with running(source, tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
    assert tables["public.parts"] == stored(shop, "parts")


@pytest.mark.usefixtures("spark")
def test_a_changelog_lacks_events(shop: Database, tmp_path: Path) -> None:
    altered, restored = ALTERED["table"]
    append(tmp_path, shop.source(changelog=True))
    for statement in (altered, *CHANGES, restored):
        shop.run(statement)
    with pytest.raises(SourceError, match=MISSING):
        append(tmp_path, shop.source(changelog=True))
    append(tmp_path, shop.source(changelog=True, on_rewrite="reload"))
    events = duckdb.from_arrow(IcebergSink(config(tmp_path)).to_arrow())
    ((last,),) = events.filter("op = 't'").aggregate("max(seq)").fetchall()
    rows = events.filter(f"seq > {last}").select("unnest(after)").order("id").fetchall()
    assert rows == shop.rows("select * from orders order by id")


def test_a_state_of_an_earlier_version(shop: Database, tmp_path: Path) -> None:
    """It does not know how tables are in the publication, and takes what is there."""
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    (record,) = (tmp_path / "state" / "tables").glob("*.json")
    values = CAPTURED_TABLE.load(record.read_bytes(), str(record))
    del values["bases"]
    for name in ("unsent", "membership", "printed"):
        del values["table"][name]
    for column in values["table"]["columns"]:
        del column["generated"], column["declared"]
    record.write_bytes(CAPTURED_TABLE.dump(values))
    shop.run("insert into orders values (2000, 'x', 1, null)")
    with running(shop.source(), tmp_path, run.start) as run:
        assert [row["id"] for row in run.epoch()] == [2000]
    shop.run("alter publication volley set table orders where (id < 5)", "alter publication volley set table orders")
    with pytest.raises(SourceError, match=MISSING), running(shop.source(), tmp_path, run.start):
        pass
