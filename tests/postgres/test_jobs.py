"""Whole jobs: a table of PostgreSQL and its mirror in Iceberg have the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples import postgres_database_to_iceberg, postgres_to_iceberg
from tests.captured import Database
from tests.drivers import Drivers
from tests.postgres.jobs import config, difference, differences, mirror, mirror_all, start
from tests.waiting import wait_until
from volley import IcebergSink, IcebergSinkConfig, IcebergStorage, SourceError
from volley.connectors.postgres.loads import Loads

pytestmark = pytest.mark.usefixtures("spark")


def test_a_mirror(shop: Database, tmp_path: Path) -> None:
    mirror(tmp_path, shop.source())
    assert difference(shop, tmp_path) == []
    shop.run("update orders set total = total + 1 where id % 7 = 0", "delete from orders where id % 5 = 0")
    shop.run("update orders set id = id + 10000 where id % 9 = 0", "insert into orders values (5, 'again', null, null)")
    job = mirror(tmp_path, shop.source())
    assert difference(shop, tmp_path) == []
    assert job.progress.epochs == 1
    assert IcebergSink(config(tmp_path)).table().schema().column_names == ["id", "customer", "total", "note"]


def test_a_driver_that_dies_behind_the_commit_of_a_load(drivers: Drivers, shop: Database, tmp_path: Path) -> None:
    drivers.die("after-commit@0", mirror, tmp_path, shop.source())
    shop.run("update orders set total = total + 1 where id % 7 = 0", "delete from orders where id % 5 = 0")
    shop.run("update orders set id = id + 10000 where id % 9 = 0", "insert into orders values (5, 'again', null, null)")
    mirror(tmp_path, shop.source())
    assert difference(shop, tmp_path) == []
    # The table has the epoch of the load: it is not read again.
    assert len(Loads(f"{tmp_path}/checkpoints/mirror/volley/source-0").listed()) == 1


def test_an_endless_job_follows(shop: Database, tmp_path: Path) -> None:
    with start(tmp_path, shop.source(bounded=False)) as job:
        wait_until(lambda: job.progress.epochs > 0 or job.exception is not None, 60, "the load")
        shop.run("update orders set note = 'seen' where id < 50")
        wait_until(lambda: job.exception is not None or job.progress.epochs > 1, 60, "the changes")
        wait_until(lambda: "public.orders" in job.metrics.lags, 10, "the lag")
        lag = job.metrics.lags["public.orders"]
    assert job.exception is None
    assert difference(shop, tmp_path) == []
    assert lag.retained_bytes is not None
    assert lag.staged_bytes == 0


def test_the_example(shop: Database, tmp_path: Path) -> None:
    shop.run("delete from orders where id > 10")
    source = shop.source()
    arguments = (source.host, source.port, source.database, source.user, str(source.password), tmp_path)
    assert postgres_to_iceberg.pipeline(*arguments).progress.rows == 10
    shop.run("delete from orders where id = 1")
    postgres_to_iceberg.pipeline(*arguments)
    config = IcebergSinkConfig(namespace="shop", table="orders", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    rows = IcebergSink(config).table().scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(2, 11))
    assert rows["gross"].to_pylist()[0] == pytest.approx(1.25 * float(rows["total"].to_pylist()[0]))


@pytest.fixture
def documents(shop: Database) -> Database:
    """A table with large values, which are stored outside their rows."""
    shop.run(
        "create table documents (id int primary key, title text, body text, attachment bytea)",
        "alter table documents alter column body set storage external",
        "alter table documents alter column attachment set storage external",
        "insert into documents select n, 't' || n, repeat(md5(n::text), 400), decode(repeat(md5(n::text), 400), 'hex') "
        "from generate_series(1, 50) n",
    )
    return shop


@pytest.mark.parametrize("identity", ["default", "full"])
def test_large_values_that_do_not_change_are_kept(documents: Database, tmp_path: Path, identity: str) -> None:
    documents.run(f"alter table documents replica identity {identity}")
    source = documents.source("public.documents")
    mirror(tmp_path, source)
    large = "repeat(md5(random()::text), 500)"
    # From the table; from a row of the same epoch, inserted or updated; both columns, one of them; deleted after it.
    documents.run("update documents set title = 'from the table' where id <= 10")
    documents.run(f"update documents set body = {large} where id in (5, 6, 60)")
    documents.run("update documents set title = 'attachment from the table, body from an update' where id = 5")
    documents.run(f"insert into documents values (60, 'new', {large}, null), (61, 'new', {large}, 'x')")
    documents.run("update documents set title = 'from an insert' where id >= 60")
    documents.run("update documents set title = 'soon gone' where id = 7", "delete from documents where id = 7")
    documents.run("delete from documents where id = 8", f"insert into documents values (8, 'again', {large}, null)")
    documents.run("update documents set title = 'again and again' where id = 8")
    documents.run("update documents set body = null where id = 9", "update documents set title = 'null' where id = 9")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, "select id, title, body, attachment from documents") == []
    documents.run("update documents set title = 'once more' where id between 5 and 12 or id = 61")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, "select id, title, body, attachment from documents") == []


def test_large_values_of_rows_that_get_another_key(documents: Database, tmp_path: Path) -> None:
    source = documents.source("public.documents")
    mirror(tmp_path, source)
    large = "repeat(md5(random()::text), 500)"
    # Keys change: of a row that was loaded; of a row twice, with another value between; of two rows that change places;
    # of a row that is new in this epoch; and back to what it was.
    documents.run("update documents set id = 1000 where id = 1", "update documents set title = 'moved' where id = 1000")
    documents.run("update documents set id = 1001 where id = 2")
    documents.run(
        f"update documents set body = {large} where id = 1001", "update documents set id = 1002 where id = 1001"
    )
    documents.run(
        "update documents set id = -1 where id = 3",
        "update documents set id = 3 where id = 4",
        "update documents set id = 4 where id = -1",
    )
    documents.run(
        f"insert into documents values (70, 'new', {large}, 'x')", "update documents set id = 71 where id = 70"
    )
    documents.run("update documents set id = 72 where id = 6", "update documents set id = 6 where id = 72")
    # Of a key whose own row was deleted in the same epoch.
    documents.run("delete from documents where id = 8", "update documents set id = 8 where id = 9")
    mirror(tmp_path, source)
    query = "select id, title, body, attachment from documents"
    assert difference(documents, tmp_path, query) == []
    documents.run("update documents set id = id + 5000 where id > 20")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, query) == []


def test_truncations(documents: Database, tmp_path: Path) -> None:
    source = documents.source("public.documents")
    mirror(tmp_path, source)
    query = "select id, title, body, attachment from documents"
    documents.run("insert into documents values (100, 'soon gone', 'x', null)", "truncate documents")
    documents.run(
        "insert into documents select n, 'again', repeat(md5(n::text), 400), null from generate_series(1, 5) n"
    )
    documents.run("update documents set title = 'kept' where id = 2", "update documents set id = 9 where id = 3")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, query) == []
    documents.run("truncate documents")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, query) == []
    documents.run("insert into documents values (1, 'and again', 'x', null)")
    mirror(tmp_path, source)
    assert difference(documents, tmp_path, query) == []


def test_a_rewritten_table_is_loaded_again(shop: Database, tmp_path: Path) -> None:
    source = shop.source(on_rewrite="reload")
    mirror(tmp_path, source)
    shop.run("delete from orders where id = 3", "alter table orders alter column note type text using 'v' || note")
    shop.run("delete from orders where id = 4", "insert into orders values (5000, 'x', 1, null)")
    mirror(tmp_path, source)
    assert difference(shop, tmp_path) == []


def test_the_example_of_a_whole_database(shop: Database, tmp_path: Path) -> None:
    shop.run("delete from orders where id > 10", "create table users (id int primary key, name text)")
    source = shop.source()
    arguments = (source.host, source.port, source.database, source.user, str(source.password), tmp_path)
    postgres_database_to_iceberg.pipeline(*arguments)
    shop.run("delete from orders where id = 1", "insert into users values (1, 'Ada')")
    postgres_database_to_iceberg.pipeline(*arguments)
    lake = IcebergSinkConfig(namespace="public", table="users", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    assert IcebergSink(lake).table().scan().to_arrow().to_pylist() == [{"id": 1, "name": "Ada"}]
    assert IcebergSink(replace(lake, table="orders")).table().scan().count() == 9


def test_a_whole_database(documents: Database, tmp_path: Path) -> None:
    source = documents.source(None, on_rewrite="reload")
    mirror_all(tmp_path, source)
    assert differences(documents, tmp_path) == {"orders": [], "documents": []}
    documents.run("create table later (id int primary key, a text)", "insert into later values (1, 'x'), (2, 'y')")
    documents.run("alter table later add column b numeric(6, 2)", "update later set b = 1.5 where id = 2")
    documents.run(
        "update documents set id = id + 100, title = 'moved' where id < 10", "delete from orders where id > 20"
    )
    documents.run("alter table orders add column level int", "update orders set level = id where id < 5")
    mirror_all(tmp_path, source)
    assert differences(documents, tmp_path) == {"orders": [], "documents": [], "later": []}
    documents.run("truncate later, orders", "insert into later values (3, 'z', null)")
    documents.run("alter table documents add column pages int default 7", "delete from documents where id = 20")
    documents.run("alter table later alter column b type numeric(8, 2)", "insert into later values (4, 'z', 123456.78)")
    mirror_all(tmp_path, source)
    assert differences(documents, tmp_path) == {"orders": [], "documents": [], "later": []}


def test_a_large_value_that_the_table_never_had(documents: Database, tmp_path: Path) -> None:
    source = documents.source("public.documents", load="none")
    mirror(tmp_path, source)
    documents.run("update documents set title = 'x' where id = 1")
    with pytest.raises(SourceError, match="the table does not have the rows that they replace"):
        mirror(tmp_path, source)
