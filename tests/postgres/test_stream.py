"""The stream under transactions, crashes and rivals: nothing is lost, nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import threading
from array import array
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from tests.captured import Database
from tests.postgres.runs import fail_by_rewrite, running
from tests.postgres.test_capture import applied, stored
from tests.postgres.test_many_tables import applied as unpacked
from tests.servers.postgres import Postgres
from tests.waiting import wait_until
from volley import SourceContext, SourceError
from volley.capture import segments
from volley.capture.segments import Segments, SegmentTaken
from volley.connectors.postgres import reader, session
from volley.connectors.postgres.connection import lsn_number, query
from volley.connectors.postgres.load import ExportedSnapshot
from volley.connectors.postgres.settings import ServerAddress

CLIENTS = 6


def write_at_random(shop: Database, client: int, ends: threading.Event, ids: list[int]) -> None:
    """Insert rows in transactions that overlap, with savepoints and rollbacks; note the ids that were committed."""
    dice, number = random.Random(client), client * 1_000_000
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        while not ends.is_set():
            inserted = []
            for _ in range(dice.randrange(1, 4)):
                number += 1
                cursor.execute("savepoint before")
                cursor.execute("insert into orders values (%s, 'c', 1, null)", [number])
                if dice.random() < 0.2:
                    cursor.execute("rollback to before")
                else:
                    inserted.append(number)
                ends.wait(dice.random() * 0.005)
            if dice.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
                ids.extend(inserted)


def test_a_load_under_writers_meets_the_stream_exactly(shop: Database, tmp_path: Path) -> None:
    ends = threading.Event()
    ids: list[list[int]] = [[] for _ in range(CLIENTS)]
    writers = [threading.Thread(target=write_at_random, args=(shop, n + 1, ends, ids[n])) for n in range(CLIENTS)]
    for writer in writers:
        writer.start()
    try:
        with running(shop.source(), tmp_path) as run:
            rows = run.epoch()
        with running(shop.source(), tmp_path, run.start) as run:
            rows += run.epoch()
    finally:
        ends.set()
        for writer in writers:
            writer.join()
    with running(shop.source(), tmp_path, run.start) as run:
        rows += run.epoch()
    expected = [*range(1, 1001), *(id for client in ids for id in client)]
    assert sorted(row["id"] for row in rows) == sorted(expected)
    assert len(expected) > 1100


def test_transactions(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments and batches of a few messages, transactions and rows larger than both, a storm of updates of one key."""
    monkeypatch.setattr(segments, "_SEGMENT_MESSAGES", 7)
    monkeypatch.setattr(segments, "_BATCH_MESSAGES", 3)
    monkeypatch.setattr(segments, "_BATCH_BYTES", 1_000)
    with running(shop.source(), tmp_path) as run:
        table = applied(run.epoch())
    shop.run("insert into orders select n, 'big', n, null from generate_series(5000, 5400) n")
    shop.run("insert into orders select n, 'wide', n, repeat('x', 100 * (n - 6000)) from generate_series(6000, 6020) n")
    for number in range(30):
        shop.run(f"update orders set total = {number} where id = 7")
    shop.run("delete from orders where id = 8", "insert into orders values (8, 'again', 0, null)")
    shop.run(
        "update orders set id = -1 where id = 1",
        "update orders set id = 1 where id = 2",
        "update orders set id = 2 where id = -1",
    )
    shop.run("alter table orders drop column customer", "insert into orders values (9000, 1, 'short')")
    shop.run("insert into orders values (9001, 1, 'short')")
    shop.run("alter table orders add column level text", "insert into orders values (9002, 1, 'long', 'x')")
    assert len(Segments(f"{tmp_path}/state/segments").listed()) <= 1
    epochs = 0
    with running(shop.source(), tmp_path, run.start) as run:
        while rows := run.epoch(limit=2):
            table, epochs = applied(rows, table), epochs + 1
    expected = {row[0]: row for row in shop.rows("select id, total, note from orders")}
    assert {id: (row["id"], row["total"], row["note"]) for id, row in table.items()} == expected
    assert epochs > 7
    assert table[9000]["level"] is None
    assert table[9002]["level"] == "x"


def test_a_receiver_that_lives_on_is_ended(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(bounded=False), tmp_path) as zombie:
        table = applied(zombie.epoch())
        shop.run("delete from orders where id < 100")
        with running(shop.source(), tmp_path, zombie.start) as run:
            # Both write the same chain now: whoever is late begins again behind the other.
            shop.run("update orders set total = 0 where id < 200")
            table = applied(run.epoch(), table)
    with running(shop.source(), tmp_path, run.start) as run:
        table = applied(run.epoch(), table)
    assert table == stored(shop)


def test_a_stale_segment_of_a_zombie_is_refused(shop: Database, tmp_path: Path) -> None:
    staged = Segments(f"{tmp_path}/segments")
    chain = staged.chain(100)
    first, second = staged.writer(chain), staged.writer(chain)
    for writer in (first, second):
        writer.write(bytearray(b"x"), array("i", [1]))
    first.finish(200, 0.0)
    with pytest.raises(SegmentTaken):
        second.finish(150, 0.0)
    assert (staged.chain(100).next, staged.chain(100).end) == (2, 200)
    assert [segment.first for segment in staged.listed()] == [1]


def test_a_slot_that_another_reads(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.run("delete from orders where id = 5")
    shop.alone(
        f"select count(*) from pg_logical_slot_get_binary_changes('{shop.name}', null, null, "
        "'proto_version', '1', 'publication_names', 'volley')"
    )
    with pytest.raises(SourceError, match="are gone: another reader"), running(shop.source(), tmp_path):
        pass


def test_staged_bytes_are_bounded(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_SEGMENT_MESSAGES", 7)
    # The bound is looked at after this many messages and seconds: the receiver may stage more until then.
    monkeypatch.setattr(session, "_READ_MESSAGES", 30)
    monkeypatch.setattr(session, "_FEEDBACK_SECONDS", 0.001)
    with running(shop.source(), tmp_path) as run:
        table = applied(run.epoch())
    # 300 KB, which no compression makes smaller than half.
    note = "(select string_agg(md5(random()::text), '') from generate_series(1, 32))"
    for number in range(300):
        shop.run(f"update orders set total = total + 1, note = {note} where id = {number + 1}")
    staged: list[int] = []
    while table != stored(shop):
        with running(shop.source(max_staged="20KB"), tmp_path, run.start) as run:
            staged.append(sum(segment.size for segment in run.reader.capture.segments.listed()))  # type: ignore[attr-defined]
            table = applied(run.epoch(), table)
    assert 20_000 <= staged[0] < 100_000
    assert all(size < 100_000 for size in staged)


def test_a_transaction_larger_than_what_may_be_staged(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_READ_MESSAGES", 30)
    monkeypatch.setattr(session, "_FEEDBACK_SECONDS", 0.001)
    with running(shop.source(), tmp_path) as run:
        table = applied(run.epoch())
    shop.run("update orders set total = total + 1")
    with running(shop.source(), tmp_path, run.start):
        pass
    shop.run("update orders set total = total + 1 where id <= 500")
    # The first run finds it staged already, the next one reads on though its segment is the last one and stays.
    for _ in range(3):
        with running(shop.source(max_staged="1KB"), tmp_path, run.start) as run:
            table = applied(run.epoch(), table)
    assert table == stored(shop)


def test_an_idle_slot_moves_on(shop: Database, tmp_path: Path) -> None:
    position = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = current_database()"
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    before = shop.rows(position)
    shop.run("create table other (id int primary key)", "insert into other select generate_series(1, 1000)")
    with running(shop.source(heartbeat="1s"), tmp_path, run.start) as run:
        assert run.epoch() == []
    assert shop.rows(position) > before
    shop.run("insert into orders values (5000, 'x', 1, null)")
    with running(shop.source(), tmp_path, run.start) as run:
        assert [row["id"] for row in run.epoch()] == [5000]


def test_a_run_that_ends_before_it_is_due_acknowledges_what_it_has_staged(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps its log up to there: short runs would fill its disk."""
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    monkeypatch.setattr(session, "_FEEDBACK_SECONDS", 3600)
    with running(shop.source(bounded=False), tmp_path, run.start) as run:
        known = run.reader.capture.segments  # type: ignore[attr-defined]
        before = known.chain(0).next
        shop.run("insert into orders values (5000, 'x', 1, null)")
        wait_until(lambda: known.chain(0).next > before, 30, "a receiver that has staged the row")
    told = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = current_database()"

    def acknowledged() -> bool:
        ((position,),) = shop.rows(told)
        return bool(lsn_number(position) >= known.chain(0).end)

    wait_until(acknowledged, 10, "a server that has heard of it")


def test_a_bounded_run_decides_about_rewritten_tables(shop: Database, tmp_path: Path) -> None:
    """It waits until the log that may have a truncation is on disk: here, for a transaction that is still open."""
    shop.run("create table notes (id int)")
    with running(shop.source(on_rewrite="reload"), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders alter column note type text using 'v' || note")
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        ((flushed,),) = shop.rows("select pg_current_wal_flush_lsn()::text")
        cursor.execute("insert into notes values (1)")
        read = (
            f"select from pg_replication_slots where slot_name = '{shop.name}' and confirmed_flush_lsn >= '{flushed}'"
        )

        def commit() -> None:
            try:
                wait_until(lambda: shop.rows(read), 30, "a receiver that has read all that is on disk")
            finally:
                connection.commit()

        committing = threading.Thread(target=commit)
        committing.start()
        with running(shop.source(on_rewrite="reload"), tmp_path, run.start) as run:
            truncation, *loaded = run.epoch()
        committing.join()
    assert truncation["_op"] == "t"
    assert applied(loaded) == stored(shop)


def test_a_slot_that_waits_for_open_transactions(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "_NOTICE_SECONDS", 0.1)
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        cursor.execute("delete from orders where id = 1")

        def commit() -> None:
            try:
                wait_until(lambda: "is not ready" in caplog.text, 30, "the notice")
            finally:
                connection.commit()

        committing = threading.Thread(target=commit)
        committing.start()
        with running(shop.source(), tmp_path) as run:
            assert applied(run.epoch()) == stored(shop)
        committing.join()


def test_a_wait_for_the_slot_can_be_interrupted(shop: Database, tmp_path: Path) -> None:
    waits = f"select from pg_stat_activity where query like '%pg_create_logical%' and datname = '{shop.name}'"
    waits += " and wait_event_type = 'Lock'"
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        cursor.execute("delete from orders where id = 1")

        def interrupt() -> None:
            try:
                wait_until(lambda: shop.rows(waits), 30, "a wait for the slot")
                os.kill(os.getpid(), signal.SIGINT)
                wait_until(lambda: not shop.rows(waits), 30, "the end of the wait")
            finally:
                connection.rollback()

        user = threading.Thread(target=interrupt)
        user.start()
        with pytest.raises(KeyboardInterrupt), running(shop.source(), tmp_path):
            pass
        user.join()
    with running(shop.source(), tmp_path) as run:
        assert applied(run.epoch()) == stored(shop)


@pytest.mark.services
def test_the_server_dies(tmp_path: Path) -> None:
    """PostgreSQL is killed and recovers; it may have forgotten what it was told. The receiver connects again."""
    server = Postgres(tmp_path / "server")
    (tmp_path / "server").mkdir()
    server.start()
    try:
        shop = Database(server.database().replace("+psycopg2", ""))
        shop.run("create table orders (id int primary key, customer text, total numeric(10, 2), note text)")
        with running(shop.source(bounded=False), tmp_path) as run:
            table = applied(run.epoch())
            for number in range(3):
                shop.run(f"insert into orders values ({number}, 'x', 1, null)")
                server.kill()
                server.start()
                shop.run(
                    f"update orders set total = 2 where id = {number}", f"insert into orders values ({100 + number})"
                )
        with running(shop.source(), tmp_path, run.start) as run:
            rows = run.epoch()
        assert applied(rows, table) == stored(shop)
        assert len(rows) == 9
    finally:
        server.stop()


@pytest.mark.services
def test_a_commit_that_waits_for_a_standby(tmp_path: Path) -> None:
    """The server sends a transaction when it is logged; others see it, and its tables, only when it has returned."""
    (tmp_path / "server").mkdir()
    server = Postgres(tmp_path / "server").start()
    try:
        market = Database(server.database().replace("+psycopg2", ""))
        market.run("create table first (id int primary key)")
        with running(market.source(None, load="none", bounded=False), tmp_path) as run:
            market.alone("alter system set synchronous_standby_names = 'none'")
            market.alone("select pg_reload_conf()")
            make = ("create domain level as int", "create table later (id int primary key, l level)")
            commit = threading.Thread(target=market.run, args=[*make, "insert into later values (1, 7)"])
            commit.start()
            looks = "select from pg_stat_activity where query like '%pg_current_snapshot%' and pid <> pg_backend_pid()"
            wait_until(lambda: market.rows(looks), 30, "a look at the catalog")
            market.alone("alter system reset synchronous_standby_names")
            market.alone("select pg_reload_conf()")
            commit.join()
        with running(market.source(None, load="none"), tmp_path, run.start) as run:
            assert unpacked(run.epoch()) == {"public.later": {1: {"id": 1, "l": 7}}}
    finally:
        server.stop()


def test_a_crash_takes_back_nothing_that_a_load_has_seen(shop: Database) -> None:
    server = _server(shop)
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        cursor.execute("set synchronous_commit = off")
        cursor.execute("insert into orders select n, 'x', 1, null from generate_series(2000, 2100) n")
        connection.commit()
        with closing(ExportedSnapshot(server)) as snapshot:
            assert query(snapshot.connection, "select count(*) from public.orders") == [(1101,)]
            ((flushed,),) = query(snapshot.connection, "select pg_current_wal_flush_lsn()::text")
            assert lsn_number(flushed) >= snapshot.fence.position


def test_the_server_does_not_end_a_snapshot_that_waits(shop: Database) -> None:
    shop.alone(f"alter database {shop.name} set idle_in_transaction_session_timeout = '20ms'")
    with closing(ExportedSnapshot(_server(shop))) as snapshot:
        shop.alone(f"alter database {shop.name} reset idle_in_transaction_session_timeout")
        others = f"pg_stat_activity where datname = '{shop.name}' and state = 'idle in transaction'"
        idle = f"select max(clock_timestamp() - state_change) > '200 ms' from {others}"
        wait_until(lambda: shop.rows(idle) == [(True,)], 30, "ten times the bound")
        assert query(snapshot.connection, "select count(*) from public.orders") == [(1000,)]


def _server(shop: Database) -> ServerAddress:
    return shop.source()._capture(SourceContext("state")).server


def test_a_failure_of_the_receiver_stops_the_job(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(bounded=False), tmp_path) as run:
        run.epoch()
        fail_by_rewrite(run, shop)
    reader = shop.source(on_rewrite="ignore").open(SourceContext(f"{tmp_path}/state"))
    reader.start()
    reader.stop()
    assert shop.source().open(SourceContext(f"{tmp_path}/state")).latest_offset(run.start, None, None)["next"] > 1
