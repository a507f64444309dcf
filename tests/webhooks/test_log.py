"""The log: any cut by a crash leaves whole requests; damage of what was acknowledged is an error."""

from __future__ import annotations

import errno
import io
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disks import can_mount, small_disk
from volley import SourceError
from volley.connectors.webhook import log as log_module
from volley.connectors.webhook.frames import Entry, encode, frames, heads
from volley.connectors.webhook.keys import KeyStore, digest
from volley.connectors.webhook.log import Log, LogFolder, Mark

ENTRY = st.builds(Entry, st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=200))
BATCHES = st.lists(st.lists(ENTRY, min_size=1, max_size=4), min_size=1, max_size=6)


def read(folder: LogFolder) -> list[Entry]:
    log = Log(folder)
    try:
        return [entry for frame in log.frames_from(0) for entry in frame.entries]
    finally:
        log.close()


def fill(log: Log) -> None:
    while True:
        log.append([Entry(b"", b"", bytes(1_000))])


def written(folder: LogFolder, batches: list[list[Entry]]) -> list[int]:
    """Write batches; the positions at which they end."""
    log, ends = Log(folder), [0]
    for batch in batches:
        log.append(batch)
        ends.append(log.end.position)
    log.close()
    return ends


def segment(folder: LogFolder) -> Path:
    return Path(folder.segments()[-1].path)


@given(batches=BATCHES, cut=st.floats(0, 1), torn=st.binary(max_size=50))
def test_a_torn_end_is_cut_off(batches: list[list[Entry]], cut: float, torn: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = LogFolder(name)
        ends = written(folder, batches)
        # The last write did not get to the disk as a whole, and the receiver had not published it.
        kept = ends[-2] + int(cut * (ends[-1] - ends[-2] - 1))
        data = segment(folder).read_bytes()
        segment(folder).write_bytes(data[:kept] + torn)
        requests = sum(map(len, batches[:-1]))
        Path(name, "durable").write_bytes(Mark(ends[-2], requests).to_bytes())
        expected = [entry for batch in batches[:-1] for entry in batch]
        whole = [*expected, *batches[-1]]
        assert read(folder) == (whole if segment(folder).read_bytes() == data else expected)
        # It goes on as if nothing had happened.
        log = Log(folder)
        log.append(batches[-1])
        log.close()
        assert read(folder)[-len(batches[-1]) :] == batches[-1]
        assert folder.durable.requests == len(read(folder))


@given(batches=BATCHES, at=st.floats(0, 1), flip=st.integers(1, 255))
def test_damage_of_acknowledged_requests_is_an_error(batches: list[list[Entry]], at: float, flip: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = LogFolder(name)
        ends = written(folder, batches)
        data = bytearray(segment(folder).read_bytes())
        data[int(at * (ends[-1] - 1))] ^= flip
        segment(folder).write_bytes(data)
        with pytest.raises(SourceError, match="damaged at byte"):
            Log(folder)
        assert segment(folder).read_bytes() == data


def test_a_damaged_length_reads_no_more_than_the_file_has() -> None:
    """Also where planning took the same length for the end of the log."""

    class Measured(io.BytesIO):
        most = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.most = max(self.most, size or 0)
            return super().read(size)

    frame = bytearray(encode([Entry(b"key", b"", b"{}")], first=0, time=0))
    # The third byte of the length: 64 kB.
    frame[10] = 1
    file = Measured(frame)
    (head,) = heads(file, 0, len(frame))
    with pytest.raises(ValueError, match="damaged at byte 0"):
        list(frames(file, 0, head.end))
    assert file.most < len(frame) < head.end


def test_damage_in_the_middle_is_an_error_also_if_the_mark_is_lost(tmp_path: Path) -> None:
    folder = LogFolder(str(tmp_path))
    ends = written(folder, [[Entry(b"", b"", bytes([number]) * 100)] for number in range(3)])
    Path(folder.path, "durable").unlink()
    data = bytearray(segment(folder).read_bytes())
    data[ends[1] + 50] ^= 1
    segment(folder).write_bytes(data)
    with pytest.raises(SourceError, match=f"damaged at byte {ends[1]}"):
        Log(folder)


def test_acknowledged_requests_that_are_missing(tmp_path: Path) -> None:
    folder = LogFolder(str(tmp_path))
    ends = written(folder, [[Entry(b"", b"", b"x")], [Entry(b"", b"", b"y")]])
    copy = segment(folder).read_bytes()
    os.truncate(segment(folder), ends[1])
    with pytest.raises(SourceError, match=f"lacks bytes {ends[1]} to {ends[2]}"):
        Log(folder)
    segment(folder).unlink()
    with pytest.raises(SourceError, match="lacks bytes 0 to"):
        Log(folder)
    Path(tmp_path, f"{0:020}-{0:020}.log").write_bytes(copy)
    assert len(read(folder)) == 2


def test_segments_end_and_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_SEGMENT_BYTES", 300)
    folder = LogFolder(str(tmp_path))
    log, ends = Log(folder), []
    for number in range(10):
        log.append([Entry(b"", b"", bytes([number]) * 100)])
        ends.append(log.end)
        if log.is_full:
            log.rotate()
    assert len(folder.segments()) == 4
    log.close()
    assert [entry.body[0] for entry in read(folder)] == list(range(10))
    folder.release(ends[4])
    # The second segment has requests behind the mark.
    assert len(folder.segments()) == 3
    assert folder.released == ends[4]
    folder.release(ends[0])
    assert folder.released == ends[4]
    folder.release(ends[-1])
    assert len(folder.segments()) == 1
    assert Log(folder).end == ends[-1]
    gap = tmp_path / "gap"
    shutil.copytree(tmp_path, gap)
    Path(gap, f"{0:020}-{0:020}.log").write_bytes(b"")
    with pytest.raises(SourceError, match="lacks bytes 0 to"):
        Log(LogFolder(str(gap)))


def test_a_segment_that_can_not_be_made_durable_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LogFolder(str(tmp_path))
    log = Log(folder)
    log.append([Entry(b"", b"", b"first")])

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            log.rotate()
    # The old segment goes on, and all requests are there after the next start.
    log.append([Entry(b"", b"", b"second")])
    log.close()
    assert [entry.body for entry in read(folder)] == [b"first", b"second"]


@can_mount
def test_a_disk_that_is_full_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_SEGMENT_BYTES", 100_000)
    folder = LogFolder(str(tmp_path))
    with small_disk(tmp_path), closing(Log(folder)) as log:
        for size in (200_000, 200_000):
            log.append([Entry(b"", b"", bytes(size))])
            log.rotate()
        committed = log.end
        with pytest.raises(OSError, match="No space left"):
            fill(log)
        folder.release(committed)
        assert len(folder.segments()) == 1
        assert folder.released == committed
        log.append([Entry(b"", b"", bytes(100_000))])


def test_a_segment_that_is_deleted_or_replaced_is_noticed(tmp_path: Path) -> None:
    for name in ("deleted", "replaced"):
        (tmp_path / name).mkdir()
        folder = LogFolder(str(tmp_path / name))
        log = Log(folder)
        log.append([Entry(b"", b"", b"x")])
        data = segment(folder).read_bytes()
        file = segment(folder)
        file.unlink()
        if name == "replaced":
            # A file with another number, as one restored from a backup has.
            other = file.with_suffix(".copy")
            other.write_bytes(data)
            other.rename(file)
        with pytest.raises(SourceError, match="was deleted or replaced"):
            log.append([Entry(b"", b"", b"y")])


def test_a_second_receiver_is_refused(tmp_path: Path) -> None:
    folder = LogFolder(str(tmp_path))
    first = log_module.lock(folder, 0)
    with pytest.raises(SourceError, match=f"another job receives .* \\(process {os.getpid()}\\)"):
        log_module.lock(folder, 0.1)
    os.close(first)
    os.close(log_module.lock(folder, 0))


def test_keys_are_remembered_once_or_twice_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("volley.connectors.webhook.keys.time.time", lambda: now[0])
    path, keys = str(tmp_path / "keys"), [digest(bytes([number])) for number in range(4)]
    store = KeyStore(path, remember=100)
    for number, key in enumerate(keys):
        assert store.find(key) is None
        store.add([(key, digest(b"body"))], indexed=number)
        now[0] += 60
    # Two tables, each of 100 seconds at least.
    assert [store.find(key) is not None for key in keys] == [True] * 4
    store.close()
    again = KeyStore(path, remember=100)
    assert again.indexed == 3
    assert [again.find(key) for key in keys] == [digest(b"body")] * 4
    now[0] += 60
    again.add([(digest(b"more"), b"")], indexed=4)
    assert [again.find(key) is not None for key in keys] == [False, False, False, True]
    again.close()
