"""Files on remote storage are uploaded while more rows are encoded: in order, in bounded memory, no error lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.spec import AbstractBufferedFile
from hypothesis import given
from hypothesis import strategies as st

from volley.iceberg.storage.files import Upload, uploaded


class Remote:
    """What has arrived, write by write; `at_write` is called before each."""

    def __init__(self, at_write: Callable[[], None] = lambda: None) -> None:
        self.arrived: list[bytes] = []
        self.closed = False
        self._at_write = at_write

    def write(self, data: Any) -> int:
        self._at_write()
        self.arrived.append(bytes(data))
        return len(self.arrived[-1])

    def close(self) -> None:
        self.closed = True


@given(st.lists(st.binary(max_size=20)), st.integers(0, 50))
def test_all_bytes_arrive_in_their_order(parts: list[bytes], waiting: int) -> None:
    remote = Remote()
    upload = Upload(remote, waiting)
    for part in parts:
        assert upload.write(part) == len(part)
        assert upload.tell() - sum(map(len, remote.arrived)) <= waiting + len(part)
    upload.close()
    upload.close()
    assert b"".join(remote.arrived) == b"".join(parts)
    assert upload.tell() == len(b"".join(parts))
    assert remote.closed


def test_the_writer_goes_on_while_the_storage_is_busy() -> None:
    storage_may_go_on = threading.Event()
    remote = Remote(lambda: _wait_for(storage_may_go_on))
    upload = Upload(remote, 100)
    for _ in range(10):
        upload.write(b"0123456789")
    assert not remote.arrived
    storage_may_go_on.set()
    upload.close()
    assert b"".join(remote.arrived) == b"0123456789" * 10


def _at_most(event: threading.Event, seconds: float) -> None:
    event.wait(seconds)


def _wait_for(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_writer_that_is_too_far_ahead_waits() -> None:
    slow = threading.Event()
    remote = Remote(lambda: _at_most(slow, 0.001))
    upload, ahead = Upload(remote, 10), []
    for _ in range(100):
        upload.write(b"01234567")
        ahead.append(upload.tell() - sum(map(len, remote.arrived)))
    upload.close()
    assert 10 < max(ahead) <= 18


def test_what_fails_is_raised_and_nothing_is_written_behind_it() -> None:
    writes = iter([None, OSError("the storage is full"), None, None])

    def at_write() -> None:
        if error := next(writes):
            raise error

    remote = Remote(at_write)
    upload = Upload(remote)

    def work() -> None:
        for _ in range(3):
            upload.write(b"part")
        upload.close()

    with pytest.raises(OSError, match="the storage is full"):
        work()
    upload.close()
    assert remote.closed
    assert remote.arrived == [b"part"]


def test_a_parquet_writer_raises_what_the_storage_did() -> None:
    def at_write() -> None:
        raise PermissionError("denied")

    upload = Upload(Remote(at_write), 0)
    table = pa.table({"id": range(1000)})

    def work() -> None:
        with pq.ParquetWriter(upload, table.schema) as parquet:
            parquet.write_table(table)
        upload.close()

    with pytest.raises(PermissionError, match="denied"):
        work()


class Buffered(AbstractBufferedFile):  # type: ignore[misc]
    """As files of remote storages are: parts are sent when there are enough bytes."""

    def __init__(self) -> None:
        super().__init__(None, "file", "wb", block_size=50 << 20)
        self.parts: list[int] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.append(self.buffer.tell())
        return True

    def _initiate_upload(self) -> None:
        pass


def test_a_remote_file_is_sent_in_parts_long_before_it_is_closed() -> None:
    file = Buffered()
    stream = uploaded(file)
    for _ in range(40):
        stream.write(bytes(1 << 20))
    stream.close()
    assert file.parts == [16 << 20, 16 << 20, 8 << 20]


def test_a_local_file_is_written_at_once(tmp_path: Any) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert uploaded(file) is file
