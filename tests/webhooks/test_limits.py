"""Limits: of rate, of waiting and staged requests, of slow clients; a full disk."""

from __future__ import annotations

import os
import resource
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.disks import can_mount, small_disk
from tests.waiting import wait_until
from tests.webhooks.hooks import receiving
from volley.connectors.webhook.limits import RateLimit

SLOW_CLIENTS = 1_000


def test_the_rate_of_one_address(tmp_path: Path) -> None:
    with receiving(tmp_path, max_rate=3) as hook:
        answers = [hook.post({"id": number}) for number in range(8)]
        refused = [answer for answer in answers if answer.status == 429]
        assert len(refused) + len(hook.rows()) == 8
        assert len(refused) >= 2
        assert refused[0].headers["Retry-After"] == "1"
        # Probes don't count.
        assert all(hook.is_ready() for _ in range(8))


def test_rates_in_the_long_run() -> None:
    limit = RateLimit(10)
    accepted = [number for number in range(1_000) if limit.wait("a", number / 100) == 0]
    # Ten at once, then one each tenth of a second.
    assert len(accepted) == 109
    assert limit.wait("b", 5.0) == 0
    assert RateLimit(1).wait("a", 0.0) == 0


def test_staged_bytes(tmp_path: Path) -> None:
    with receiving(tmp_path, max_staged=2_000) as hook:
        wait_until(lambda: hook.post({"name": "x" * 500}).status == 503, 30, "the limit")
        answer = hook.post({"id": 1})
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert "wait for the job" in answer.text
        assert (hook.send("GET", "/readyz").status, hook.send("GET", "/healthz").status) == (503, 200)
        rows = hook.rows()
        hook.reader.committed(hook.reader.latest_offset(hook.reader.initial_offset(), None, None))
        wait_until(hook.is_ready, 30, "room")
        assert hook.post({"id": 2}).status == 202
        assert [row["id"] for row in hook.rows()] == [2]
        assert len(rows) >= 4


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit of file sizes stands for it: the write fails in the middle."""
    with receiving(tmp_path, value_format="raw", idempotency="header:Key") as hook:
        assert hook.post(b"a" * 1_000, "first").status == 202
        process, free = hook.receiver.process_id, resource.RLIM_INFINITY
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1_500, free))
        for _ in range(2):
            answer = hook.post(b"b" * 1_000, "second")
            assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
        ready = hook.send("GET", "/readyz")
        assert (ready.status, ready.text) == (503, '{"error": "the log can\'t be written: File too large"}')
        assert hook.send("GET", "/healthz").status == 200
        # What fits is still taken, behind the whole requests.
        assert hook.post(b"c", "third").status == 202
        resource.prlimit(process, resource.RLIMIT_FSIZE, (free, free))
        wait_until(hook.is_ready, 30, "the log can be written again")
        assert hook.post(b"b" * 1_000, "second").status == 202
        assert hook.post(b"b" * 1_000, "second").status == 200
        assert [row["value"][:1] for row in hook.rows()] == [b"a", b"c", b"b"]
        hook.kill()
        assert [row["value"][:1] for row in hook.rows()] == [b"a", b"c", b"b"]


@can_mount
def test_a_full_disk_is_noticed_before_a_request_comes(tmp_path: Path) -> None:
    with small_disk(tmp_path), receiving(tmp_path / "receiver") as hook:
        wait_until(hook.is_ready, 30, "the receiver")
        rest = tmp_path / "rest"
        with pytest.raises(OSError, match="No space left"):
            rest.write_bytes(bytes(1 << 20))
        wait_until(lambda: not hook.is_ready(), 30, "a look at the disk")
        assert hook.send("GET", "/readyz").text == '{"error": "the log can\'t be written: No space left on device"}'
        assert hook.send("GET", "/healthz").status == 200
        rest.unlink()
        wait_until(hook.is_ready, 30, "room")
        assert hook.post({"id": 1}).status == 202
        assert hook.rows() == [{"id": 1, "name": None}]


def test_slow_clients(tmp_path: Path) -> None:
    """Clients that send the headers or the body byte by byte don't keep others waiting, and are cut off."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with receiving(tmp_path, timeout=3, max_connections=2 * SLOW_CLIENTS) as hook, ExitStack() as clients:

        def connect(data: bytes) -> socket.socket:
            client = clients.enter_context(socket.create_connection(("127.0.0.1", hook.port), timeout=30))
            client.sendall(data)
            return client

        silent = [connect(b"") for _ in range(SLOW_CLIENTS // 2)]
        in_headers = [connect(b"POST /events HTTP/1.1\r\nHo") for _ in range(SLOW_CLIENTS // 4)]
        request = b'POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"id"'
        in_bodies = [connect(request) for _ in range(SLOW_CLIENTS // 4)]
        assert hook.post({"id": 1}).status == 202
        assert {client.recv(1_000) for client in silent} == {b""}
        # More bytes don't help: the whole request has to come in time.
        assert {client.recv(1_000) for client in in_headers} == {b""}
        assert {client.recv(12) for client in in_bodies} == {b"HTTP/1.1 408"}
        assert hook.post({"id": 2}).status == 202
        assert [row["id"] for row in hook.rows()] == [1, 2]


def test_too_many_connections(tmp_path: Path) -> None:
    with receiving(tmp_path, max_connections=3) as hook, ExitStack() as clients:

        def connect() -> socket.socket:
            return clients.enter_context(socket.create_connection(("127.0.0.1", hook.port), timeout=30))

        open_ones = [connect() for _ in range(3)]
        assert connect().recv(1_000).startswith(b"HTTP/1.1 503")
        open_ones[0].close()
        wait_until(lambda: hook.post({"id": 1}).status == 202, 30, "a free connection")


def test_too_many_requests_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving(tmp_path, max_waiting=2, timeout=20) as hook, ExitStack() as clients:
        for _ in range(2):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", hook.port), timeout=30))
            client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        wait_until(lambda: hook.post({"id": 1}).status == 503, 10, "the limit")
        assert os.path.exists(hook.folder.path)


def test_requests_at_once_share_a_write(tmp_path: Path) -> None:
    with receiving(tmp_path) as hook:
        ready = threading.Barrier(32)

        def send(number: int) -> None:
            ready.wait()
            assert hook.post({"id": number}).status == 202

        threads = [threading.Thread(target=send, args=[number]) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(row["id"] for row in hook.rows()) == list(range(32))
