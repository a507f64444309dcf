"""What goes wrong around a stream: a server that hangs or loses patience, a full disk; state on object storage."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from array import array
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import psycopg2
import pytest
import s3fs
from botocore.exceptions import EndpointConnectionError
from psycopg2.extensions import connection as Connection

from tests.captured import Database
from tests.disks import can_mount, small_disk
from tests.postgres.runs import fail_by_rewrite, running
from tests.postgres.test_capture import applied, stored
from tests.servers.glue import MotoServer
from tests.waiting import wait_until
from volley import SourceError, VolleyError
from volley.capture import receiver, segments
from volley.capture.segments import SegmentWriter
from volley.connectors.postgres import session, watch
from volley.storage.remembered import FailureRecord


def senders(shop: Database) -> list[int]:
    """The processes that send the slot's stream: one, or none."""
    sql = f"select active_pid from pg_replication_slots where slot_name = '{shop.name}' and active"
    return [int(process) for (process,) in shop.rows(sql)]


def sender(shop: Database) -> int:
    """Wait for a process that sends the slot's stream."""
    wait_until(lambda: senders(shop), 30, "a walsender")
    (process,) = senders(shop)
    return process


def test_a_server_that_hangs(shop: Database, tmp_path: Path) -> None:
    """A walsender that is stopped can't be ended, and keeps its slot: another receiver waits, and then takes it."""
    with running(shop.source(bounded=False), tmp_path) as run:
        table = applied(run.epoch())
        hung = sender(shop)
        os.kill(hung, signal.SIGSTOP)
        try:
            shop.run("update orders set total = 0 where id < 10")
            with running(shop.source(bounded=False), tmp_path, run.start) as other:
                assert other.end() == run.start
                os.kill(hung, signal.SIGCONT)
                wait_until(lambda: other.end() != run.start, 30, "the changes")
                table, start = applied(other.epoch(), table), other.start
        finally:
            with suppress(ProcessLookupError):
                os.kill(hung, signal.SIGCONT)
    with running(shop.source(), tmp_path, start) as run:
        table = applied(run.epoch(), table)
    assert table == stored(shop)


def receivers() -> list[str]:
    """The names of the receivers' threads."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("volley-slot-")]


def test_a_bounded_run_does_not_wait_for_ever(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails if it has no connection for long; it can be interrupted; its receiver ends with it."""
    monkeypatch.setattr(session, "_OWN_SECONDS", 0.1)
    with running(shop.source(bounded=False), tmp_path) as run:
        table, (own,) = applied(run.epoch()), receivers()
        shop.run("update orders set total = 0 where id < 10")
        hung = sender(shop)
        os.kill(hung, signal.SIGSTOP)
        try:
            with pytest.raises(SourceError, match="is active for PID"), running(shop.source(timeout="1s"), tmp_path):
                pass
            assert receivers() == [own]
            caplog.clear()

            def interrupt() -> None:
                wait_until(lambda: "connecting again" in caplog.text, 30, "a receiver that tries to connect")
                os.kill(os.getpid(), signal.SIGINT)

            user = threading.Thread(target=interrupt)
            user.start()
            with pytest.raises(KeyboardInterrupt), running(shop.source(), tmp_path):
                pass
            user.join()
            assert receivers() == [own]
        finally:
            os.kill(hung, signal.SIGCONT)
    with running(shop.source(), tmp_path, run.start) as run:
        assert applied(run.epoch(), table) == stored(shop)


def test_a_server_that_is_silent(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The receiver connects again, though the connection is there."""
    monkeypatch.setattr(session, "_MOST_UNANSWERED", 5)
    monkeypatch.setattr(session, "_FEEDBACK_SECONDS", 0.05)
    with running(shop.source(bounded=False), tmp_path) as run:
        table = applied(run.epoch())
        hung = sender(shop)
        os.kill(hung, signal.SIGSTOP)
        try:
            wait_until(lambda: "the server does not answer" in caplog.text, 30, "its notice")
        finally:
            os.kill(hung, signal.SIGCONT)
        shop.run("update orders set total = 0 where id < 10")
        wait_until(lambda: run.end() != run.start, 30, "the changes")
        assert applied(run.epoch(), table) == stored(shop)


def test_a_stop_does_not_wait_for_a_lock(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "_STOP_SECONDS", 0.2)
    monkeypatch.setattr(watch, "_VISIBLE_SECONDS", 0.0)
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with closing(psycopg2.connect(shop.uri)) as connection, connection.cursor() as cursor:
        with running(shop.source(bounded=False), tmp_path) as run, closing(psycopg2.connect(shop.uri)) as other:
            run.epoch()
            # A session that starts behind the lock may wait for it too: the server then fills its cache of the catalog.
            other.autocommit = True
            cursor.execute("lock table pg_publication in access exclusive mode")
            wait_until(lambda: _has_rows(other, waiting), 30, "the receiver's look at the catalog")
        assert receivers()
        connection.rollback()
    wait_until(lambda: not receivers(), 30, "its end")


def _has_rows(connection: Connection, query: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone() is not None


def test_an_error_that_can_not_be_recorded_at_first(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage is out of reach, which s3fs tells by errors of botocore."""
    failures = list[str]()
    write = FailureRecord.write

    def write_later(record: FailureRecord, error: VolleyError) -> None:
        if len(failures) < 2:
            failures.append(record.url)
            raise EndpointConnectionError(endpoint_url="http://storage")
        write(record, error)

    monkeypatch.setattr(FailureRecord, "write", write_later)
    monkeypatch.setattr("volley.storage.remembered._RETRY_SECONDS", 0.05)
    with running(shop.source(bounded=False), tmp_path) as run:
        run.epoch()
        fail_by_rewrite(run, shop)
    assert len(failures) == 2


def test_a_server_that_loses_patience(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walsender ends by itself, again and again, as a slow disk keeps the receiver from answering in time."""
    with running(shop.source(), tmp_path) as run:
        table = applied(run.epoch())
    write, ended = SegmentWriter.write, list[int]()

    def write_slowly(writer: SegmentWriter, messages: bytearray, lengths: array[int]) -> None:
        # It may have ended already.
        wait_until(lambda: not senders(shop), 30, "its end")
        ended.append(len(ended))
        write(writer, messages, lengths)

    monkeypatch.setattr(SegmentWriter, "write", write_slowly)
    shop.run(f"alter database {shop.name} set wal_sender_timeout = '100ms'")
    with running(shop.source(bounded=False), tmp_path, run.start):
        for number in range(3):
            shop.run(f"insert into orders values ({5000 + number}, 'x', 1, null)")
            wait_until(partial(ended.__contains__, number), 30, "the end of a walsender")
    monkeypatch.undo()
    with running(shop.source(), tmp_path, run.start) as run:
        rows = run.epoch()
    assert [row["id"] for row in rows] == [5000, 5001, 5002]
    assert applied(rows, table) == stored(shop)


@can_mount
def test_a_full_disk_under_the_segments(shop: Database, tmp_path: Path) -> None:
    with small_disk(tmp_path):
        with running(shop.source(), tmp_path) as run:
            table = applied(run.epoch())
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(tmp_path).free - 64 * 1024))
        shop.run("update orders set note = md5(id::text) || md5(total::text)")
        with pytest.raises(SourceError, match="No space left on device"), running(shop.source(), tmp_path, run.start):
            pass
        ballast.unlink()
        with running(shop.source(), tmp_path, run.start) as run:
            assert applied(run.epoch(), table) == stored(shop)


@can_mount
def test_a_disk_that_is_full_of_segments(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job makes room by reading them."""
    monkeypatch.setattr(segments, "_SEGMENT_MESSAGES", 100)
    with small_disk(tmp_path):
        with running(shop.source(), tmp_path) as run:
            table = applied(run.epoch())
        for number in range(6):
            shop.run(f"update orders set note = md5(id::text) || md5(total::text) || {number} where id <= 500")
        with running(shop.source(), tmp_path):
            pass
        (tmp_path / "ballast").write_bytes(bytes(shutil.disk_usage(tmp_path).free - 16 * 1024))
        shop.run("update orders set note = md5(note) || md5(total::text)")
        for _ in range(2):
            with running(shop.source(), tmp_path, run.start) as run:
                table = applied(run.epoch(), table)
        assert table == stored(shop)


def test_state_on_object_storage(shop: Database, moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": moto.uri}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("captures")
    folder = f"s3://captures/{shop.name}"
    with running(shop.source(), folder) as run:
        table = applied(run.epoch())
    shop.run("update orders set total = 0 where id < 10", "delete from orders where id = 20")
    with running(shop.source(bounded=False), folder, run.start) as run:
        wait_until(lambda: run.end() != run.start, 30, "the changes")
        table = applied(run.epoch(), table)
        with running(shop.source(), folder, run.start) as other:
            # Both continue one chain: an object that is there is not replaced.
            shop.run("delete from orders where id = 21")
            wait_until(lambda: other.end() != other.start, 30, "the change")
            table = applied(other.epoch(), table)
    with running(shop.source(), folder, other.start) as run:
        assert applied(run.epoch(), table) == stored(shop)
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_role_whose_transactions_end_soon(shop_18: Database, tmp_path: Path) -> None:
    """The snapshot of a load lives on."""
    role = f"r{shop_18.name}"[:60]
    shop_18.run(
        f"create role {role} login replication superuser password 'hush-hush'",
        f"alter role {role} set transaction_timeout = '200ms'",
    )
    with running(shop_18.source(user=role, password="hush-hush"), tmp_path) as run:
        end = run.plan()
        age = f"select max(clock_timestamp() - xact_start) from pg_stat_activity where usename = '{role}'"
        wait_until(lambda: shop_18.rows(f"select ({age}) > '400 ms'") != [(False,)], 30, "the end of the time")
        assert len(run.read(end)) == 1000
    shop_18.drop_slots()
    shop_18.run(f"drop owned by {role} cascade", f"drop role {role}")
