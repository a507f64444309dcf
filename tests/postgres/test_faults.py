"""What goes wrong around a stream: a server that hangs or loses patience, a full disk; state on object storage."""

from __future__ import annotations

import os
import shutil
import signal
from array import array
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import s3fs

from tests.captured import Database
from tests.postgres.runs import running
from tests.postgres.test_capture import applied, stored
from tests.recovery.test_damaged_checkpoints import small_disk
from tests.servers.glue import MotoServer
from tests.waiting import wait_until
from volley import SourceError
from volley.connectors.postgres.segments import SegmentWriter


def sender(shop: Database) -> int:
    """Wait for a process that sends the slot's stream."""
    sql = f"select active_pid from pg_replication_slots where slot_name = '{shop.name}' and active"
    wait_until(lambda: shop.rows(sql), 30, "a walsender")
    ((process,),) = shop.rows(sql)
    return int(process)


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


def test_a_server_that_loses_patience(shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walsender ends by itself, again and again, as a slow disk keeps the receiver from answering in time."""
    with running(shop.source(), tmp_path) as run:
        table = applied(run.epoch())
    write, ended = SegmentWriter.write, list[int]()

    def write_slowly(writer: SegmentWriter, messages: bytearray, lengths: array[int]) -> None:
        process = sender(shop)
        wait_until(lambda: not shop.rows(f"select from pg_stat_replication where pid = {process}"), 30, "its end")
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
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
