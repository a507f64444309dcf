"""A load and the log behind it: each change once, exactly beside the load, also after restarts."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest

from tests.mariadb.shops import Shop, applied, same
from tests.postgres.runs import running
from tests.waiting import wait_until
from volley import ConfigError, SourceContext, SourceError, SourceNotFoundError
from volley.capture.segments import Segments


def test_rows_of_the_load_and_every_change_come_once(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        rows = run.epoch()
        start = run.start
    assert sorted(row["id"] for row in rows) == list(range(1, 1001))
    assert {row["_op"] for row in rows} == {"r"}
    assert applied(rows)[7] == {"id": 7, "customer": "c7", "total": Decimal("7.00"), "note": "note 7"}
    shop.run("insert into orders values (2000, 'new', 1.5, null)", "update orders set note = 'x' where id <= 3")
    shop.run("update orders set id = 5000 where id = 5", "delete from orders where id in (8, 9)")
    shop.run("replace into orders values (10, 'other', null, '')")
    with running(shop.source(), tmp_path, start) as run:
        changes = run.epoch()
        start = run.start
    assert [(row["_op"], row["id"]) for row in sorted(changes, key=lambda row: row["_seq"])] == [
        *(("i", 2000), ("u", 1), ("u", 2), ("u", 3), ("d", 5), ("u", 5000), ("d", 8), ("d", 9), ("u", 10)),
    ]
    assert same(applied(changes, applied(rows)), shop)
    with running(shop.source(), tmp_path, start) as run:
        assert run.epoch() == []


def test_a_truncation_is_a_row_between_the_others(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        rows = run.epoch()
        start = run.start
    shop.run("truncate table orders")
    shop.run("insert into orders values (1, 'again', 1, null)")
    with running(shop.source(), tmp_path, start) as run:
        assert same(applied(run.epoch(), applied(rows)), shop)


def test_rolled_back_changes_do_not_come(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(load="none"), tmp_path) as run:
        start = run.start
    with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
        for statement in (
            *("begin", "insert into orders values (2001, 'a', 1, null)", "savepoint s"),
            *("insert into orders values (2002, 'b', 1, null)", "rollback to s", "commit"),
            *("begin", "delete from orders", "rollback"),
        ):
            cursor.execute(statement)
    with running(shop.source(load="none"), tmp_path, start) as run:
        assert [(row["_op"], row["id"]) for row in run.epoch()] == [("i", 2001)]


def test_writers_beside_the_load_lose_and_double_nothing(shop: Shop, tmp_path: Path) -> None:
    """Seven loads start while four clients write in long and short transactions."""
    done = threading.Event()

    def write(client: int) -> None:
        with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
            number = 0
            while not done.is_set():
                cursor.execute("begin")
                for _ in range(1 + number % 3):
                    number += 1
                    key = client * 1_000_000 + number
                    cursor.execute(f"insert into orders values ({key}, 'c', {number}, null)")
                    cursor.execute(f"update orders set total = total + 1 where id = {1 + number % 1000}")
                    cursor.execute(f"delete from orders where id = {key - 50}")
                time.sleep(0.002 * (number % 4))
                cursor.execute("rollback" if number % 7 == 0 else "commit")

    clients = [threading.Thread(target=write, args=(client,)) for client in range(1, 5)]
    for client in clients:
        client.start()
    try:
        runs = []
        for number in range(7):
            folder = tmp_path / str(number)
            with running(shop.source(server_id=100 + number), folder) as run:
                runs.append((folder, number, applied(run.epoch()), run.start))
    finally:
        done.set()
        for client in clients:
            client.join()
    for folder, number, made, start in runs:
        with running(shop.source(server_id=100 + number), folder, start) as run:
            assert same(applied(run.epoch(), made), shop), f"load {number}"


def test_rows_are_the_same_when_an_epoch_is_read_again(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        end = run.end()
        first = run.read(end)
    shop.run("update orders set note = 'later'")
    with running(shop.source(), tmp_path) as run:
        assert run.read(end) == first
        run.reader.committed(end)
        run.start = end
        changes_end = run.end()
        changes = run.read(changes_end)
    shop.run("delete from orders")
    with running(shop.source(), tmp_path, end) as run:
        assert run.read(changes_end) == changes


@pytest.mark.parametrize("image", ["minimal", "noblob"])
def test_what_an_update_leaves_out_is_named(shop: Shop, tmp_path: Path, image: str) -> None:
    with running(shop.source(), tmp_path) as run:
        rows = run.epoch()
        start = run.start
    shop.run_with(
        f"set binlog_row_image = {image}",
        "insert into orders values (2000, 'new', 1.5, null)",
        "update orders set total = 7 where id <= 3",
        "update orders set id = 5000 where id = 5",
        "update orders set note = null where id = 7",
        "delete from orders where id = 8",
    )
    with running(shop.source(), tmp_path, start) as run:
        changes = run.epoch()
    by_id = {row["id"]: row for row in changes}
    assert by_id[1]["_unchanged"] == (["customer", "note"] if image == "minimal" else ["note"])
    made = applied(rows)
    # A row with another key has what its old one had.
    made[5000] = made[5]
    assert same(applied(changes, made), shop)


def test_a_minimal_insert_that_leaves_out_a_default_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.run("create table defaults (id int primary key, a int, b int default 5)")
    with running(shop.source("defaults"), tmp_path) as run:
        start = run.start
    shop.run_with("set binlog_row_image = minimal", "insert into defaults (id, b) values (1, 2)")
    with running(shop.source("defaults"), tmp_path, start) as run:
        assert [(row["id"], row["a"], row["b"]) for row in run.epoch()] == [(1, None, 2)]
        start = run.start
    shop.run_with("set binlog_row_image = minimal", "insert into defaults (id) values (2)")
    with running(shop.source("defaults"), tmp_path, start) as run, pytest.raises(SourceError, match="column 'b'"):
        run.epoch()


def test_a_transaction_larger_than_a_segment_and_rows_larger_than_an_event(shop: Shop, tmp_path: Path) -> None:
    shop.run("create table large (id int primary key, b longblob)")
    with running(shop.source("large"), tmp_path) as run:
        start = run.start
    shop.run(
        f"insert into large select seq, repeat(char(seq % 256), 900) from {shop.series(120000)}",
        "insert into large values (200000, repeat('x', 20000000)), (200001, null)",
        "update large set b = 'new' where id % 2",
    )
    with running(shop.source("large"), tmp_path, start) as run:
        assert same(applied(run.epoch()), shop, "large")


def test_a_load_whose_connection_breaks_is_done_again(shop: Shop, tmp_path: Path) -> None:
    """The table is locked until the load waits for it, and its connection is killed."""
    source = shop.source(bounded=False, on_rewrite="reload")
    waiting = "select id from information_schema.processlist where state like 'Waiting for table metadata lock'"
    with running(source, tmp_path) as run:
        assert len(run.epoch()) == 1000
        with shop.server.connect(shop.name) as connection, connection.cursor() as cursor:
            cursor.execute("lock tables orders write")
            cursor.execute("alter table orders add column level int not null default 7")
            wait_until(lambda: shop.rows(waiting), 30, "the load")
            shop.run(f"kill {shop.rows(waiting)[0][0]}")
            cursor.execute("unlock tables")
        wait_until(lambda: run.end() != run.start, 30, "the load that is done again")
    # The column that came belongs to another run.
    with running(source, tmp_path, run.start) as run:
        rows = [row for row in run.epoch() if row["_op"] == "r"]
    assert sorted((row["id"], row["level"]) for row in rows) == [(id, 7) for id in range(1, 1001)]


def test_segments_that_are_read_are_deleted(shop: Shop, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
        for number in range(3):
            shop.run(f"insert into orders values ({2000 + number}, 'new', 1.5, null)")
        start = run.start
    with running(shop.source(), tmp_path, start) as run:
        run.epoch()
    assert len(Segments(f"{tmp_path}/state/segments").listed()) <= 1
    assert not [*(tmp_path / "state/rows").glob("*")]


def test_bad_settings_and_servers_are_refused(shop: Shop, tmp_path: Path) -> None:
    with pytest.raises(SourceNotFoundError, match="does not exist"):
        shop.source("missing").open(SourceContext(str(tmp_path), 2))
    with pytest.raises(SourceError, match="Access denied"):
        shop.source(password="wrong").open(SourceContext(str(tmp_path), 2))
    with pytest.raises(ConfigError, match="server_id"):
        shop.source(server_id=1 << 32)
    shop.run("create table memory (id int primary key) engine = memory")
    with pytest.raises(SourceError, match="has no transactions"):
        shop.source("memory").open(SourceContext(str(tmp_path), 2))
    if shop.is_mysql:
        return
    shop.run("create table versions (id int primary key) with system versioning")
    with pytest.raises(SourceError, match="system-versioned"):
        shop.source("versions").open(SourceContext(str(tmp_path), 2))
    shop.run("create table packed (id int primary key, t text compressed)")
    with pytest.raises(SourceError, match="compressed, which this source does not read"):
        shop.source("packed").open(SourceContext(str(tmp_path), 2))
