"""Columns that come, go and grow while a job runs: its table gets them with the rows that have them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.captured import Database
from tests.postgres.jobs import config, difference, start, start_appending
from tests.postgres.runs import running
from tests.waiting import wait_while_it_runs
from volley import IcebergSink, Job, SchemaChangedError, SchemaMismatchError, SourceError

SLOW = "100ms"


def wait_for(job: Job, shop: Database, folder: Path) -> None:
    """Wait until the job has read and committed all that the server has."""
    shop.run("insert into orders (id, customer) select max(id) + 1, 'last' from orders")
    ((last,),) = shop.rows("select max(id) from orders")
    table = IcebergSink(config(folder))

    def has_last() -> bool:
        rows = table.to_arrow()
        ids = rows["after"].combine_chunks().field("id") if "after" in rows.column_names else rows["id"]
        return last in ids.to_pylist()

    wait_while_it_runs(job, lambda: job.progress.epochs > 0 and has_last(), "the last row")


@pytest.mark.usefixtures("spark")
def test_a_mirror_gets_columns_while_it_runs(shop: Database, tmp_path: Path) -> None:
    source = shop.source(bounded=False, on_rewrite="reload")
    with start(tmp_path, source, interval=SLOW) as job:
        wait_for(job, shop, tmp_path)
        # Rows before and after the change, in one transaction with it.
        shop.run(
            "update orders set note = 'before' where id < 5",
            "alter table orders add column level int, add column at timestamptz",
            "update orders set level = id, at = '2024-02-29 12:00+00' where id < 4",
            "insert into orders values (5001, 'new', 1, 'with', 7, null)",
        )
        wait_for(job, shop, tmp_path)
        assert difference(shop, tmp_path) == []
        shop.run("alter table orders alter column total type numeric(14, 2)")
        shop.run("update orders set total = 123456789012.34 where id = 3", "alter table orders drop column note")
        wait_for(job, shop, tmp_path)
        columns = "id, customer, total, null, level, at"
        shop.run(
            "alter table orders alter column id type bigint", "insert into orders values (1::bigint << 40, 'far', 1)"
        )
        wait_for(job, shop, tmp_path)
    assert job.exception is None
    assert job.metrics.restarts == 0
    theirs = shop.rows(f"select {columns} from orders")
    ours = [tuple(row.values()) for row in IcebergSink(config(tmp_path)).to_arrow().to_pylist()]
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)


@pytest.mark.usefixtures("spark")
def test_a_changelog_gets_columns_while_it_runs(shop: Database, tmp_path: Path) -> None:
    source = shop.source(bounded=False, changelog=True)
    with start_appending(tmp_path, source, interval=SLOW) as job:
        wait_for(job, shop, tmp_path)
        shop.run(
            "update orders set note = 'before' where id = 1",
            "alter table orders add column level int, alter column total type numeric(14, 2)",
            "update orders set level = 7, total = 123456789012.34 where id = 1",
        )
        wait_for(job, shop, tmp_path)
        shop.run("alter table orders drop column note, add column remark text")
        shop.run("update orders set remark = 'after' where id = 1")
        wait_for(job, shop, tmp_path)
    assert job.exception is None
    rows = duckdb.from_arrow(IcebergSink(config(tmp_path)).to_arrow())
    assert rows.aggregate("op = 'u' as is_update, count(*), count(distinct after.id)").order("1").fetchall() == [
        *((False, 1003, 1003), (True, 3, 1)),
    ]
    changes = rows.filter("after.id = 1 and op = 'u'").order("seq")
    assert changes.select("after.note, after.level, after.total, after.remark").fetchall() == [
        ("before", None, Decimal("1.00"), None),
        ("before", 7, Decimal("123456789012.34"), None),
        (None, 7, Decimal("123456789012.34"), "after"),
    ]


@pytest.mark.usefixtures("spark")
def test_a_sink_that_takes_no_columns_stops_the_job_and_a_start_that_does_goes_on(
    shop: Database, tmp_path: Path
) -> None:
    source = shop.source(bounded=False)
    with start(tmp_path, source, interval=SLOW, evolution="strict") as job:
        wait_for(job, shop, tmp_path)
        shop.run("alter table orders add column level int", "update orders set level = id where id < 4")
        assert job.wait(60)
    assert isinstance(job.exception, SchemaMismatchError)
    assert "'level'" in str(job.exception)
    with start(tmp_path, source, interval=SLOW) as job:
        wait_for(job, shop, tmp_path)
    assert difference(shop, tmp_path) == []


def test_a_column_that_came_and_went_while_the_job_was_down(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders add column level int", "insert into orders values (5000, 'x', 1, null, 7)")
    shop.run("alter table orders drop column level", "insert into orders values (5001, 'x', 1, null)")
    with running(shop.source(), tmp_path, run.start) as run, pytest.raises(SchemaChangedError, match="'level'"):
        run.epoch()
    with running(shop.source(), tmp_path, run.start) as run:
        assert [row["id"] for row in run.epoch()] == [5000, 5001]


def test_a_column_that_came_twice_while_the_job_was_down(shop: Database, tmp_path: Path) -> None:
    """The row of the first one has lost its value, and the stream does not say so."""
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders add column level int", "insert into orders values (5000, 'x', 1, null, 7)")
    shop.run("alter table orders drop column level", "alter table orders add column level int")
    with (
        pytest.raises(SourceError, match="a column came and went before 'level' came"),
        running(shop.source(), tmp_path, run.start),
    ):
        pass
    source = shop.source(on_rewrite="reload")
    with running(source, tmp_path, run.start) as run:
        rows = run.epoch()
    assert [row["level"] for row in rows if row["id"] == 5000] == [None]


def test_a_column_of_rows_that_are_read_again_after_a_rename(shop: Database, tmp_path: Path) -> None:
    """An epoch that was planned before the table was loaded again has rows of its earlier form."""
    source = shop.source(on_rewrite="reload")
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run("insert into orders values (5000, 'x', 1, 'old')")
    with running(source, tmp_path, run.start) as run:
        end = run.end()
    shop.run("alter table orders rename column note to remark", "insert into orders values (5001, 'x', 1, 'new')")
    with running(source, tmp_path, run.start) as run:
        (split,) = run.reader.splits(run.start, end)
        assert [row["id"] for batch in run.reader.read(split) for row in batch.to_pylist()] == [5000]


@pytest.mark.parametrize("changelog", [False, True])
def test_a_column_that_is_narrowed_under_an_epoch_that_was_planned(
    shop: Database, tmp_path: Path, changelog: bool
) -> None:
    """A start then plans with the narrow type, and the epoch, which is read again, has rows of the wide one."""
    shop.run("create table levels (id int primary key, level bigint)", "insert into levels values (1, 1)")
    source = shop.source("public.levels", on_rewrite="reload", changelog=changelog)
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run(f"insert into levels values (2, {1 << 40})")
    with running(source, tmp_path, run.start) as run:
        end = run.end()
    shop.run(f"insert into levels values (3, {1 << 41})", "update levels set level = id")
    shop.run("alter table levels alter column level type int")
    with running(source, tmp_path, run.start) as run:
        (before,) = run.read(end)
        run.start = end
        rows = run.epoch()
    assert (before["after"] if changelog else before)["level"] == 1 << 40
    # Loaded again, without the rows that were wide; or each event.
    levels = [(row["after"] if changelog else row)["level"] for row in rows]
    assert levels == ([1 << 41, 1, 2, 3] if changelog else [None, 1, 2, 3])
    with running(source, tmp_path, run.start) as run:
        assert run.epoch() == []
        schema = run.reader.schema
    assert (schema.field("after").type if changelog else schema).field("level").type == pa.int64()


@pytest.mark.parametrize("on_rewrite", ["reload", "ignore"])
def test_texts_that_become_a_narrower_type_stay_texts(shop: Database, tmp_path: Path, on_rewrite: Any) -> None:
    """As they do in the table: the load and the stream then have the same texts."""
    shop.run("create table flags (id int primary key, flag text)", "insert into flags values (1, 'yes')")
    source = shop.source("public.flags", on_rewrite=on_rewrite)
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run("alter table flags alter column flag type boolean using flag = 'yes'")
    with running(source, tmp_path, run.start) as run:
        rows = run.epoch()
    shop.run("insert into flags values (2, true)")
    with running(source, tmp_path, run.start) as run:
        rows += run.epoch()
    loaded = [(None, "t"), (1, "r")] if on_rewrite == "reload" else []
    assert [(row["id"], row["_op"]) for row in rows] == [*loaded, (2, "i")]
    assert {row["flag"] for row in rows if row["id"]} == {"t"}
