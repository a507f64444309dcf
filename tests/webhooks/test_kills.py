"""The receiver dies: nothing acknowledged is lost or doubled, and the job learns what can't be mended."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.disks import can_mount, small_disk
from tests.processes import plain_environment
from tests.waiting import wait_until
from tests.webhooks.hooks import Hook, open_reader, receiving
from volley import SourceError
from volley.task.failpoints import LOG, RECEIVER_POINTS, VARIABLE


@pytest.mark.parametrize("point", RECEIVER_POINTS)
def test_killed_around_the_sync(point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{point}@2")
    monkeypatch.setenv(LOG, str(tmp_path / "deaths"))
    with receiving(tmp_path, idempotency="header:Key") as hook:
        # The next receiver must not die at the same point.
        monkeypatch.delenv(VARIABLE)
        assert [hook.post({"id": number}, f"{number}").status for number in range(2)] == [202, 202]
        process = hook.receiver.process_id
        with pytest.raises(ConnectionError):
            hook.post({"id": 2}, "2")
        assert (tmp_path / "deaths").read_text() == f"{process} {point}\n"
        wait_until(hook.is_ready, 60, "the next receiver")
        # The sender had no answer: it sends again. The request was written as a whole, so that it is known.
        assert hook.post({"id": 2}, "2").status == 200
        assert hook.post({"id": 0}, "0").status == 200
        assert [row["id"] for row in hook.rows()] == [0, 1, 2]


def test_a_torn_end_after_a_kill(tmp_path: Path) -> None:
    with receiving(tmp_path, idempotency="header:Key") as hook:
        for number in range(5):
            assert hook.post({"id": number}, f"{number}").status == 202
            path = hook.folder.segments()[-1].path
            data = Path(path).read_bytes()
            os.kill(hook.receiver.process_id, signal.SIGSTOP)
            with open(path, "ab") as file:
                file.write(data[: 20 + 7 * number])
            hook.kill()
            assert hook.post({"id": number}, f"{number}").status == 200
        assert [row["id"] for row in hook.rows()] == list(range(5))


def test_keys_outlive_kills_and_segments(tmp_path: Path) -> None:
    with receiving(tmp_path, value_format="raw", idempotency="header:Key", max_body="80MB") as hook:
        assert hook.post(b"small", "small").status == 202
        # Ends the segment.
        assert hook.post(b"x" * (65 << 20), "large").status == 202
        wait_until(lambda: len(hook.folder.segments()) == 2, 30, "the next segment")
        assert hook.post(b"more", "more").status == 202
        hook.reader.committed(hook.reader.latest_offset(hook.reader.initial_offset(), None, None))
        assert len(hook.folder.segments()) == 1
        for _ in range(2):
            assert [hook.post(key.encode(), key).status for key in ("small", "more")] == [200, 200]
            assert hook.post(b"else", "small").status == 409
            hook.kill()
        assert hook.rows() == []


def test_a_log_that_is_deleted_ends_the_job(tmp_path: Path) -> None:
    with receiving(tmp_path) as hook:
        assert hook.post({"id": 1}).status == 202
        os.unlink(hook.folder.segments()[0].path)
        assert hook.post({"id": 2}).status == 503
        wait_until(lambda: hook.folder.failure.read(), 60, "the reason")
        with pytest.raises(SourceError, match="deleted or replaced"):
            hook.reader.latest_offset(hook.reader.initial_offset(), None, None)


@can_mount
def test_an_error_that_a_full_disk_has_no_room_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path), receiving(tmp_path) as hook:
        assert hook.post({"id": 1}).status == 202
        Path(hook.folder.segments()[0].path).rename(tmp_path / "lost")
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(shutil.disk_usage(tmp_path).free))
        os.kill(hook.receiver.process_id, signal.SIGKILL)
        wait_until(lambda: "can't be recorded" in caplog.text, 60, "the attempt")
        ballast.unlink()
        wait_until(lambda: hook.folder.failure.read(), 60, "the reason")


def test_damage_ends_the_start(tmp_path: Path) -> None:
    with receiving(tmp_path) as hook:
        assert [hook.post({"id": number}).status for number in range(3)] == [202] * 3
        path = Path(hook.folder.segments()[0].path)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="damaged at byte"), receiving(tmp_path):
        pass
    # Executors, too, check what they read.
    hook = Hook(open_reader(tmp_path, bounded=True))
    with pytest.raises(SourceError, match="damaged at byte 49"):
        hook.rows()


def test_a_second_driver_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(tmp_path) as hook:
        reader = open_reader(tmp_path)
        with pytest.raises(SourceError, match=f"another job receives .* \\(process {hook.receiver.process_id}\\)"):
            reader.start()
        assert hook.post({"id": 1}).status == 202


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SourceError, match="can't be received at"):
            open_reader(tmp_path, port=taken.getsockname()[1]).start()


def test_a_driver_that_dies_takes_its_receiver_along(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.webhooks.hooks import open_reader\n"
        "reader = open_reader(Path(sys.argv[1])); reader.start()\n"
        "print(reader.receiver.process_id, flush=True); input()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=plain_environment()) as driver:
        assert driver.stdout is not None
        receiver = int(driver.stdout.readline())
        driver.kill()
    wait_until(lambda: not Path(f"/proc/{receiver}").exists(), 30, "the receiver's end")
    # The next driver starts at once; it waits for the receiver's lock if it must.
    with receiving(tmp_path) as hook:
        assert hook.post({"id": 1}).status == 202


def test_stopping_answers_those_who_wait(tmp_path: Path) -> None:
    with receiving(tmp_path, timeout=20) as hook:
        with socket.create_connection(("127.0.0.1", hook.port), timeout=30) as client:
            client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
            # From now on the receiver waits for the body.
            assert client.recv(1_000).startswith(b"HTTP/1.1 100")
            process = hook.receiver.process_id
            os.kill(process, signal.SIGTERM)
            wait_until(lambda: not hook.is_ready(), 15, "the end of the receiver")
            client.sendall(b'{"id": 9}')
            assert client.recv(1_000).startswith(b"HTTP/1.1 202")
        assert [row["id"] for row in hook.rows()] == [9]
