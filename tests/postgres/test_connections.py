"""What lies between a job and the server, and what the server or the database sets for all sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import psycopg2
import pytest

from tests.captured import Database
from tests.postgres.runs import running
from tests.postgres.test_refusals import unchanged
from tests.servers.pgbouncer import pgbouncer
from tests.waiting import wait_until
from volley import SourceContext, SourceError


@pytest.mark.parametrize(
    ("ignored", "message"),
    [
        ("extra_float_digits", "unsupported startup parameter: options"),
        ("extra_float_digits,options", "the session has intervalstyle = 'postgres', where the job asks for 'iso_8601'"),
    ],
)
@pytest.mark.parametrize("pool_mode", ["session", "transaction"])
def test_a_pooler_is_refused(shop: Database, tmp_path: Path, pool_mode: str, ignored: str, message: str) -> None:
    """One that leaves out the settings of a session would let values print otherwise, and rows go unseen."""
    server = urlsplit(shop.uri).port
    assert server
    with (
        pgbouncer(server, pool_mode=pool_mode, ignore_startup_parameters=ignored) as port,
        pytest.raises(SourceError, match=message) as error,
    ):
        shop.source(port=port).open(SourceContext(str(tmp_path)))
    assert "connect to the server itself: a pooler such as PgBouncer is before it" in str(error.value.hint)
    unchanged(shop)


@pytest.fixture
def hurried(shop_18: Database) -> Database:
    """A database whose transactions end after 50 ms, by connections that may last."""
    shop_18.alone(f"alter database {shop_18.name} set transaction_timeout = '50ms'")
    return Database(f"{shop_18.uri}?options=-c%20transaction_timeout%3D0")


def test_transactions_may_last(hurried: Database, tmp_path: Path) -> None:
    """The wait for the slot, the snapshot of the load, and the decoding of a large transaction last longer."""
    reader = hurried.source().open(SourceContext(f"{tmp_path}/state", 2))
    waits = "select 1 from pg_stat_activity where query like '%pg_create_logical%' and wait_event_type = 'Lock' "
    with closing(psycopg2.connect(hurried.uri)) as other, other.cursor() as cursor:
        cursor.execute("insert into orders values (5000, 'x', 1, null)")
        thread = Thread(target=reader.start)
        thread.start()
        wait_until(lambda: hurried.rows(f"{waits} and now() - xact_start > '100ms'"), 30, "a wait for the slot")
        other.rollback()
    thread.join()
    reader.stop()
    hurried.run("insert into orders select n, 'x', 1, repeat('y', 100) from generate_series(5001, 105000) n")
    with running(hurried.source(), tmp_path) as run:
        assert len(run.epoch()) == 101_000


@pytest.fixture
def unchecked(shop: Database) -> Iterator[Database]:
    """A database that takes any bytes for texts."""
    shop.alone(f"create database {shop.name}_bytes template template0 encoding 'SQL_ASCII' locale 'C'")
    made = Database(f"{shop.uri}_bytes?client_encoding=utf8")
    made.run("create table orders (id int primary key, note text)", "insert into orders values (1, 'a\u00e4')")
    yield made
    made.drop_slots()


LATIN = r"insert into orders values (%d, convert_from('\xe4'::bytea, 'sql_ascii'))"


def test_texts_that_are_not_utf_8(unchecked: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = unchecked.source()
    unchecked.run(LATIN % 2)
    with running(source, tmp_path) as run:
        with pytest.raises(
            SourceError, match=r"loading table public\.orders failed: .* invalid byte sequence"
        ) as error:
            run.epoch()
        assert "SQL_ASCII checks none" in str(error.value.hint)
    unchecked.run("delete from orders where id = 2")
    with running(source, tmp_path) as run:
        assert [row["note"] for row in run.epoch() if row["_op"] == "r"] == ["a\u00e4"]
    assert "the database's encoding is SQL_ASCII, which checks no text" in caplog.text
    unchecked.run("update orders set note = 'b\u00fc'")
    with running(source, tmp_path, run.start) as run:
        assert [row["note"] for row in run.epoch()] == ["b\u00fc"]
    unchecked.run(LATIN % 3)
    with pytest.raises(SourceError, match="invalid byte sequence") as error:
        running(source, tmp_path, run.start).__enter__()
    assert "SQL_ASCII checks none" in str(error.value.hint)
