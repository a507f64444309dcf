"""What can't be captured is refused before anything is changed; what the stream does not carry stops the job."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg2
import pytest

from tests.captured import Database
from tests.postgres.runs import running
from tests.servers.postgres import Postgres
from tests.tiers import in_turn
from tests.waiting import wait_until
from volley import ConfigError, PostgresSource, SourceContext, SourceError
from volley.connectors.postgres.connection import server_errors
from volley.connectors.postgres.settings import ANEW, ServerAddress
from volley.storage.state_formats import SLOT


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tables": ["a.b", "a.c"], "packed": False}, "packed is False"),
        ({"tables": []}, "tables is empty"),
        ({"load": "none", "on_rewrite": "reload"}, "on_rewrite"),
        ({"tables": "orders"}, "not a schema and a table"),
        ({"slot_name": "Upper"}, "slot_name 'Upper'"),
        ({"publication": "a b"}, "publication 'a b'"),
        ({"load": "all"}, "load 'all' is unknown"),
        ({"max_staged": "lots"}, "max_staged"),
        ({"host": ""}, "host"),
    ],
)
def test_settings(settings: dict[str, object], message: str) -> None:
    good = {"host": "h", "database": "d", "user": "u", "slot_name": "s", "publication": "p", "tables": "a.b"}
    with pytest.raises(ConfigError, match=message):
        PostgresSource(**{**good, **settings})  # type: ignore[arg-type]


def test_names_in_quotes(shop: Database, tmp_path: Path) -> None:
    shop.run(
        'create table "Order.Items Ü" (id int primary key, "a ""b""" text)',
        """insert into "Order.Items Ü" values (1, 'x')""",
    )
    source = shop.source('public."Order.Items Ü"')
    with running(source, tmp_path) as run:
        assert run.epoch() == [{"id": 1, 'a "b"': "x", "_op": "r", "_seq": 3, "_unchanged": None}]
    shop.run("""insert into "Order.Items Ü" values (2, 'y')""")
    with running(source, tmp_path, run.start) as run:
        assert [row['a "b"'] for row in run.epoch()] == ["y"]


def unchanged(shop: Database) -> None:
    """Nothing was left on the server."""
    assert shop.rows("select count(*) from pg_publication") == [(0,)]
    assert shop.rows("select count(*) from pg_replication_slots where database = current_database()") == [(0,)]


def test_a_look_changes_nothing(shop: Database) -> None:
    (probe,) = shop.source("public.orders").probes()
    assert probe.run() == "public.orders can be captured"
    unchanged(shop)
    (probe,) = shop.source("public.nowhere").probes()
    with pytest.raises(SourceError, match="not found"):
        probe.run()


@pytest.mark.parametrize(
    ("statement", "table", "message"),
    [
        ("select 1", "public.nowhere", "table public.nowhere not found"),
        ("create table plain (id int)", "public.plain", "has no replica identity"),
        (
            "create table never (id int primary key); alter table never replica identity nothing",
            "public.never",
            "no replica",
        ),
        ("create table late (id int primary key deferrable)", "public.late", "has no replica identity"),
        ("create unlogged table fast (id int primary key)", "public.fast", "are not logged"),
        ("create view seen as select 1 as id", "public.seen", "a view"),
        (
            "create table parts (id int primary key) partition by range (id); "
            "create unlogged table fast_part partition of parts for values from (0) to (9)",
            "public.parts",
            "unlogged partition fast_part",
        ),
    ],
)
def test_tables_that_are_refused(shop: Database, tmp_path: Path, statement: str, table: str, message: str) -> None:
    shop.run(statement)
    with pytest.raises(SourceError, match=message):
        shop.source(table).open(SourceContext(str(tmp_path)))
    unchanged(shop)


def test_a_role_that_may_not_replicate(shop: Database, tmp_path: Path) -> None:
    role = f"r{shop.name}"[:60]
    shop.run(f"create role {role} login password 'hush-hush'", f"grant select on orders to {role}")
    with pytest.raises(SourceError, match="may not replicate"):
        shop.source(user=role, password="hush-hush").open(SourceContext(str(tmp_path)))
    with pytest.raises(SourceError, match="password authentication failed") as error:
        shop.source(user=role, password="wrong-secret").open(SourceContext(str(tmp_path)))
    assert "wrong-secret" not in str(error.value)
    unchanged(shop)
    shop.run(f"alter role {role} replication", f"revoke select on orders from {role}")
    with pytest.raises(SourceError, match="may not read table"):
        shop.source(user=role, password="hush-hush").open(SourceContext(str(tmp_path)))
    shop.run(f"drop role {role}")


def test_a_role_that_may_not_make_the_publication(shop: Database, tmp_path: Path) -> None:
    """The statement of the hint heals it."""
    role = f"p{shop.name}"[:60]
    shop.run(f"create role {role} login replication password 'hush'", f"grant select on orders to {role}")
    source = shop.source(user=role, password="hush")
    (probe,) = source.probes()
    for look in (probe.run, lambda: source.open(SourceContext(f"{tmp_path}/state"))):
        with pytest.raises(SourceError, match=f"publication 'volley' is not there, and role '{role}' may not") as error:
            look()
        unchanged(shop)
    # Of the database, and not of the table.
    shop.run(f"grant create on database {shop.name} to {role}")
    with pytest.raises(SourceError, match=f"role '{role}' may not create it: must be owner"), running(source, tmp_path):
        pass
    unchanged(shop)
    shop.run(str(error.value.hint).partition("run: ")[2])
    with running(source, tmp_path) as run:
        assert len(run.epoch()) == 1000
    shop.drop_slots()
    shop.run(f"drop owned by {role}", f"drop role {role}")


def test_connections_that_are_refused_say_why(shop: Database) -> None:
    role = f"c{shop.name}"[:60]
    shop.run(f"create role {role} login replication password 'hush' connection limit 0")
    for settings, message, hint in (
        ({"database": "nowhere"}, 'database "nowhere" does not exist', "check database="),
        ({"user": role, "password": "hush"}, "too many connections for role", "max_connections"),
        ({"host": "nohost.invalid"}, "could not translate host name", "check host="),
    ):
        with pytest.raises(SourceError, match=message) as error:
            shop.source(**settings).probes()[0].run()
        assert hint in str(error.value.hint)
    shop.run(f"drop role {role}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("FATAL:  number of requested standby connections exceeds max_wal_senders (currently 2)", "max_wal_senders"),
        ("FATAL:  remaining connection slots are reserved for superuser connections", "max_connections"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ('FATAL:  no pg_hba.conf entry for replication connection from host "::1", user "a"', "a line of its own"),
        ('FATAL:  role "a" is not permitted to log in', "grant the role"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ('root certificate file "/x" does not exist', "sslrootcert"),
        ("connection refused", "check that the server runs"),
    ],
)
def test_each_refusal_of_a_connection_has_its_way_out(text: str, hint: str) -> None:
    server = ServerAddress("h", 5432, "d", "u", None, 1)
    with pytest.raises(SourceError) as error, server_errors(server, "connecting"):
        raise psycopg2.OperationalError(text)
    assert hint in str(error.value.hint)


@pytest.mark.parametrize(
    ("publication", "message"),
    [
        ("create publication volley", "does not have table"),
        ("create publication volley for table orders with (publish = 'insert')", "leaves out operations"),
        ("create publication volley for table orders where (id > 5)", "only some rows"),
        ("create publication volley for table orders (id, customer)", "only some columns"),
    ],
)
def test_publications_that_are_refused(shop: Database, tmp_path: Path, publication: str, message: str) -> None:
    shop.run(publication)
    with pytest.raises(SourceError, match=message), running(shop.source(), tmp_path):
        pass
    assert shop.rows("select count(*) from pg_replication_slots where database = current_database()") == [(0,)]


CHANGES = [
    ("alter table orders rename column note to remark", "named 'remark' now"),
    ("alter table orders alter column id type bigint", "was int32 and is int64 now"),
    ("alter table orders alter column note type text using 'v' || note", "was rewritten"),
    ("alter table orders add column level int default 42", "has a default for older rows"),
    ("alter table orders add column at timestamptz default clock_timestamp()", "was rewritten"),
    (
        "drop table orders; create table orders (id int primary key, customer text, total numeric(10, 2), note text); "
        "alter publication volley add table orders",
        "made anew",
    ),
    ("alter table orders drop column note; alter table orders add column note text", "dropped and added again"),
]


@pytest.mark.parametrize(("change", "running_on"), in_turn(CHANGES, [True, False]))
def test_changes_that_the_stream_does_not_carry(
    shop: Database, tmp_path: Path, change: tuple[str, str], running_on: bool
) -> None:
    statement, message = change
    insert = "insert into orders values (5000, 'x', 1, null)"
    with running(shop.source(), tmp_path) as run:
        run.epoch()
        if running_on:
            shop.run(statement, insert)
    with pytest.raises(SourceError, match=message):  # noqa: PT012
        if not running_on:
            shop.run(statement)
        with running(shop.source(), tmp_path, run.start) as again:
            again.epoch()


def test_columns_that_come_and_go(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders add column level int", "insert into orders values (5000, 'x', 1, null, 7)")
    with running(shop.source(), tmp_path, run.start) as run:
        assert [(row["id"], row["level"]) for row in run.epoch()] == [(5000, 7)]
    shop.run("insert into orders values (5001, 'x', 1, 'gone', 8)")
    shop.run("alter table orders drop column note", "insert into orders values (5002, 'x', 1, 9)")
    with running(shop.source(), tmp_path, run.start) as run:
        rows = run.epoch()
    assert [(row["id"], row["level"]) for row in rows] == [(5001, 8), (5002, 9)]
    assert "note" not in rows[0]


def test_a_column_that_comes_while_the_job_runs(shop: Database, tmp_path: Path) -> None:
    reader = shop.source(bounded=False, load="none").open(SourceContext(f"{tmp_path}/state"))
    reader.start()
    shop.run("alter table orders add column level int", "insert into orders values (5000, 'x', 1, null, 7)")
    reader.stop()
    start = {"loads": 0, "next": 1}
    with running(shop.source(load="none"), tmp_path, start) as run:
        pass
    with pytest.raises(SourceError, match="new column 'level'"):
        list(reader.read(run.reader.splits(start, run.end())[0]))


def test_slots(shop: Database, tmp_path: Path) -> None:
    shop.run("select pg_create_logical_replication_slot(current_database()::text, 'pgoutput')")
    with (
        pytest.raises(SourceError, match="exists, and this checkpoint has read nothing"),
        running(shop.source(), tmp_path),
    ):
        pass
    shop.drop_slots()
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.drop_slots()
    with pytest.raises(SourceError, match="is gone"), running(shop.source(), tmp_path):
        pass
    shop.alone("select pg_create_logical_replication_slot(current_database()::text, 'test_decoding')")
    with pytest.raises(SourceError, match="made anew by another"), running(shop.source(), tmp_path):
        pass
    shop.drop_slots()
    shop.run("insert into orders values (5000, 'lost', 1, null)")
    shop.alone("select pg_create_logical_replication_slot(current_database()::text, 'pgoutput')")
    with pytest.raises(SourceError, match="are gone"), running(shop.source(), tmp_path):
        pass


def test_a_table_that_is_renamed_while_the_job_runs(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(bounded=False), tmp_path) as run:
        run.epoch()
        shop.run("alter table orders rename to bought", "insert into bought values (5000, 'x', 1, null)")
        with pytest.raises(SourceError, match=r"is named public\.bought now"):
            wait_until(lambda: run.end() is None, 30, "the failure")
    with pytest.raises(SourceError, match=r"table public\.orders not found"):
        shop.source().open(SourceContext(f"{tmp_path}/state"))


def test_a_publication_that_is_dropped(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
        shop.run("drop publication volley", "insert into orders values (5000, 'x', 1, null)")
    # The start makes it anew, and the slot has nothing of the time without it.
    with (
        pytest.raises(SourceError, match="publication 'volley' was altered since the last look"),
        running(shop.source(), tmp_path, run.start),
    ):
        pass


def test_another_server_or_timeline(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    record = tmp_path / "state" / "slot.json"
    origin = SLOT.load(record.read_bytes(), str(record))
    for changed, message in (("system", "another cluster"), ("timeline", "restored from a backup or a standby")):
        record.write_bytes(SLOT.dump({**origin, changed: origin[changed] + 1}))
        with pytest.raises(SourceError, match=message), running(shop.source(), tmp_path, run.start):
            pass


@pytest.mark.services
def test_a_standby_that_is_promoted(tmp_path: Path) -> None:
    """It continues the log on another timeline, and has no slot; one of its own lacks what nobody has read."""
    for name in ("primary", "standby"):
        (tmp_path / name).mkdir()
    with ExitStack() as servers:
        primary = Postgres(tmp_path / "primary").start()
        servers.callback(primary.stop)
        shop = Database(primary.database().replace("+psycopg2", ""))
        shop.run("create table orders (id int primary key)", "insert into orders values (1)")
        with running(shop.source(), tmp_path) as run:
            run.epoch()
        standby = Postgres(tmp_path / "standby", primary).start()
        servers.callback(standby.stop)
        promoted = Database(shop.uri.replace(str(primary.port), str(standby.port)))
        shop.run("insert into orders values (2)")
        wait_until(lambda: promoted.rows("select * from orders where id = 2"), 30, "the row on the standby")
        promoted.alone("select pg_promote()")
        for message in ("the slot is not there, and changes may be gone", "was promoted, and changes may be gone"):
            with pytest.raises(SourceError, match=f"timeline is 2, .* made on timeline 1: .*{message}") as error:
                running(promoted.source(), tmp_path, run.start).__enter__()
            assert error.value.hint == ANEW
            promoted.drop_slots()
            promoted.alone("select pg_create_logical_replication_slot(current_database()::text, 'pgoutput')")
        # The way out.
        promoted.drop_slots()
        with running(promoted.source(), tmp_path / "anew") as again:
            assert {row["id"] for row in again.epoch()} == {1, 2}


@pytest.mark.services
def test_a_slot_that_the_server_has_given_up(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    server = Postgres(tmp_path / "server").start()
    try:
        shop = Database(server.database().replace("+psycopg2", ""))
        shop.run("create table orders (id int primary key)")
        with running(shop.source(), tmp_path) as run:
            run.epoch()
        shop.alone("alter system set max_slot_wal_keep_size = '1MB'")
        shop.alone("select pg_reload_conf()")
        for number in range(4):
            shop.run(f"insert into orders values ({number})")
            shop.alone("select pg_switch_wal()")
        shop.alone("checkpoint")
        with pytest.raises(SourceError, match="was invalidated"), running(shop.source(), tmp_path, run.start):
            pass
    finally:
        server.stop()
