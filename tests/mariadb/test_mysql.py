"""What only MySQL has: its global ids, settings, and events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mariadb.shops import Shop, applied
from tests.postgres.runs import running
from tests.servers.mysql import RELEASE, MySql
from volley import MariaDbSource, MySqlSource, SourceContext, SourceError
from volley.connectors.mariadb.gtids import SetGtids
from volley.connectors.mariadb.log import Event
from volley.connectors.mariadb.origin import origin_record

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def shop(mysql: MySql) -> Iterator[Shop]:
    made = Shop(mysql, mysql.database())
    made.run("create table orders (id int primary key, note text)", "insert into orders values (1, 'a'), (2, 'b')")
    yield made
    made.run(f"drop database {made.name}")


def _event(number: int) -> Event:
    return Event(33, 0, 0, b"\0" + bytes.fromhex(SERVER.replace("-", "")) + number.to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("before", "number", "after"),
    [
        ("", 5, f"{SERVER}:5"),
        (f"{SERVER}:1-4", 5, f"{SERVER}:1-5"),
        (f"{SERVER}:6-9", 5, f"{SERVER}:5-9"),
        (f"{SERVER}:1-4:6-9", 5, f"{SERVER}:1-9"),
        (f"{SERVER}:1-3:7", 5, f"{SERVER}:1-3:5:7"),
        (f"{SERVER}:1:deploy:1-9", 5, f"{SERVER}:1:5,{SERVER}:deploy:1-9"),
        ("aaaaaaaa-71ca-11e1-9e33-c80aa9429562:1-9", 5, f"{SERVER}:5,aaaaaaaa-71ca-11e1-9e33-c80aa9429562:1-9"),
    ],
)
def test_a_set_of_global_ids_grows(before: str, number: int, after: str) -> None:
    gtids = SetGtids(before.replace(":1-", ": 1-").replace(",", ",\n"))
    assert gtids.begin(_event(number))
    assert gtids.text == after
    with pytest.raises(SourceError, match=f"{SERVER}:{number} was read before"):
        gtids.begin(_event(number))


def test_transactions_with_tags_and_of_other_forms(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(load="none"), tmp_path) as run:
        start = run.start
    shop.run(
        "set gtid_next = 'AUTOMATIC:deploy'",
        "insert into orders values (3, 'tagged')",
        "commit",
        "set gtid_next = 'AUTOMATIC'",
        *("xa start 'a'", "insert into orders values (4, 'xa')", "xa end 'a'", "xa commit 'a' one phase"),
        "create table others select * from orders",
        "insert into orders values (5, 'after')",
    )
    with running(shop.source(load="none"), tmp_path, start) as run:
        assert [(row["_op"], row["id"], row["note"]) for row in run.epoch()] == [
            *(("i", 3, "tagged"), ("i", 4, "xa"), ("i", 5, "after")),
        ]
        start = run.start
    # The ids that were read hold the tag: the next run finds them on the server.
    with running(shop.source(load="none"), tmp_path, start) as run:
        assert run.epoch() == []


def test_the_log_has_what_foreign_keys_delete(shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shop.run(
        "create table items (id int primary key, `order` int, foreign key (`order`) references orders (id) "
        "on delete cascade on update cascade)",
        "insert into items values (10, 1), (11, 1), (20, 2)",
    )
    with running(shop.source("items"), tmp_path) as run:
        made = applied(run.epoch())
        start = run.start
    if RELEASE == "8.4":
        assert "the log has no change that the cascade of foreign key" in caplog.text
        return
    assert "cascade" not in caplog.text
    shop.run("delete from orders where id = 1", "update orders set id = 7 where id = 2")
    with running(shop.source("items"), tmp_path, start) as run:
        assert applied(run.epoch(), made) == {20: {"id": 20, "order": 7}}


def test_hidden_and_generated_columns(shop: Shop, tmp_path: Path) -> None:
    shop.run(
        "create table every (id int primary key, a varchar(10), j json, low varchar(10) as (lower(a)) virtual, "
        "up varchar(10) as (upper(a)) stored, seen int invisible default 5, index (( length(a) )), "
        "index ((cast(j -> '$.x' as unsigned array))))",
        """insert into every (id, a, j) values (1, 'Ab', '{"x": [1, 2]}')""",
    )
    with running(shop.source("every"), tmp_path) as run:
        loaded = run.epoch()
        start = run.start
    shop.run("insert into every (id, a, j) select 2, a, j from every")
    with running(shop.source("every"), tmp_path, start) as run:
        streamed = run.epoch()
    rows = [{name: value for name, value in row.items() if name[0] != "_"} for row in (*loaded, *streamed)]
    assert rows == [{"id": id, "a": "Ab", "j": '{"x": [1, 2]}', "low": "ab", "up": "AB", "seen": 5} for id in (1, 2)]


def test_parts_of_json_values_are_refused(shop: Shop, tmp_path: Path) -> None:
    shop.run("create table documents (id int primary key, j json)")
    shop.run("insert into documents values (1, json_object('a', repeat('x', 1000), 'b', 1))")
    with running(shop.source("documents"), tmp_path) as run:
        start = run.start
    shop.run_with(
        "set binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL",
        "update documents set j = json_set(j, '$.b', 2)",
    )
    with (
        pytest.raises(SourceError, match="parts of JSON values only"),
        running(shop.source("documents"), tmp_path, start) as run,
    ):
        run.epoch()


def test_parts_of_json_values_in_other_tables_are_passed_over(shop: Shop, tmp_path: Path) -> None:
    shop.run("create table documents (id int primary key, j json)")
    shop.run("insert into documents values (1, json_object('a', repeat('x', 1000), 'b', 1))")
    with running(shop.source(), tmp_path) as run:
        run.epoch()
        start = run.start
    shop.run_with(
        "set binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL",
        "update documents set j = json_set(j, '$.b', 2)",
    )
    shop.run("delete from orders")
    with running(shop.source(), tmp_path, start) as run:
        assert {row["_op"] for row in run.epoch()} == {"d"}


def test_the_log_of_another_server_is_refused(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
        start = run.start
    ((server,),) = shop.rows("select @@server_uuid")
    record = origin_record(f"{tmp_path}/state")
    origin = record.read()
    assert origin is not None
    assert origin.server == server
    record.write({**vars(origin), "server": SERVER})
    with pytest.raises(SourceError, match=f"changes were read from {SERVER}"), running(shop.source(), tmp_path, start):
        pass


def test_a_load_waits_for_a_transaction_that_has_changed_its_table(shop: Shop, tmp_path: Path) -> None:
    with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
        cursor.execute("insert into orders values (3, 'open')")
        with (
            pytest.raises(SourceError, match="Lock wait timeout exceeded"),
            running(shop.source(timeout="1s"), tmp_path / "a"),
        ):
            pass
        connection.commit()
    with running(shop.source(), tmp_path / "b") as run:
        assert sorted(row["id"] for row in run.epoch()) == [1, 2, 3]


def test_each_source_refuses_the_other_server(shop: Shop, tmp_path: Path) -> None:
    source = shop.source()
    assert isinstance(source, MySqlSource)
    other = MariaDbSource(host=source.host, port=source.port, user="volley", password="secret", server_id=1)
    with pytest.raises(SourceError, match=f"the server is MySQL {RELEASE}"):
        other.open(SourceContext(str(tmp_path), 2))


def test_the_least_privileges_are_enough(shop: Shop, tmp_path: Path) -> None:
    user = f"least_{shop.name[-20:]}"
    shop.run(
        f"create user {user} identified by 'secret'",
        f"grant select, lock tables, replication slave, replication client on *.* to {user}",
    )
    try:
        with running(shop.source(user=user), tmp_path) as run:
            assert len(run.epoch()) == 2
        shop.run(f"revoke lock tables on *.* from {user}")
        with pytest.raises(SourceError, match="denied"), running(shop.source(user=user), tmp_path / "b"):
            pass
    finally:
        shop.run(f"drop user {user}")
