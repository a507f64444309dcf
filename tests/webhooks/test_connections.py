"""Connections that keep a receiver busy: unfinished handshakes, few descriptors, bursts, malformed requests."""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.servers.certificates import self_signed
from tests.waiting import wait_until
from tests.webhooks.hooks import Hook, receiving, request
from volley import BearerAuth, ServerTls, SourceError
from volley.connectors.webhook.limits import Deadlines, Seldom

REQUEST = b'POST /events HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"id": %d}'


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(clients: ExitStack, hook: Hook, data: bytes = b"") -> socket.socket:
    client = clients.enter_context(socket.create_connection(("127.0.0.1", hook.port), timeout=30))
    client.sendall(data)
    return client


@contextmanager
def held_up(hook: Hook) -> Iterator[None]:
    """Stop the receiver's process, as a machine under load does."""
    os.kill(hook.receiver.process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(hook.receiver.process_id, signal.SIGCONT)


def get_no_answer(client: socket.socket, seconds: float) -> None:
    client.settimeout(seconds)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(30)


def test_handshakes_count_and_have_to_end(tmp_path: Path, clients: ExitStack) -> None:
    made = self_signed(tmp_path)
    files = str(made.file), str(made.key_file)
    trusting = ssl.create_default_context(cafile=files[0])
    with receiving(tmp_path / "log", tls=ServerTls(*files), max_connections=3, timeout=1) as hook:
        silent: list[socket.socket] = []

        def refused() -> bool:
            # On a busy machine the first of them are cut off before the last are there.
            silent[:] = [*(connect(clients, hook) for _ in range(2)), connect(clients, hook, b"\x16\x03\x01")]
            return request(hook.port, {"id": 1}, tls=trusting).status == 503

        wait_until(refused, 30, "three connections at once")
        assert {client.recv(1) for client in silent} == {b""}
        wait_until(lambda: request(hook.port, {"id": 2}, tls=trusting).status == 202, 30, "a free connection")
        assert [row["id"] for row in hook.rows()] == [2]


@pytest.fixture
def few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let the receiver's process open 200 files, whatever it asks for."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -n 200\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    return 200


def test_a_limit_of_descriptors_below_the_connections(
    tmp_path: Path, clients: ExitStack, few_files: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with receiving(tmp_path / "log") as hook:
        process = hook.receiver.process_id
        assert "max_connections is 72 instead of 10000: this process may open 200 files" in capfd.readouterr().err
        open_ones = [connect(clients, hook) for _ in range(72)]
        # Each of the others has an answer, also of those for which no descriptor is left at first.
        for client in [connect(clients, hook, REQUEST % 1) for _ in range(few_files)]:
            assert client.recv(12) == b"HTTP/1.1 503"
            client.close()
        open_ones.pop().close()
        wait_until(lambda: hook.post({"id": 2}).status == 202, 30, "a free connection")
        assert hook.receiver.process_id == process
        assert [row["id"] for row in hook.rows()] == [2]
    assert capfd.readouterr().err == ""


def test_too_few_descriptors_for_a_connection(tmp_path: Path, few_files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.connectors.webhook.process._PROGRAM", _with_fewer_files())
    with pytest.raises(SourceError, match="may open 100 files, and needs 128 besides") as error, receiving(tmp_path):
        pass
    assert "ulimit -Hn" in (error.value.hint or "")


def _with_fewer_files() -> str:
    from volley.connectors.webhook.process import _PROGRAM

    return f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); {_PROGRAM}"


def test_no_descriptor_is_left(tmp_path: Path, clients: ExitStack, capfd: pytest.CaptureFixture[str]) -> None:
    with receiving(tmp_path) as hook:
        assert hook.post({"id": 0}).status == 202
        process = hook.receiver.process_id
        _, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{process}/fd"))
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used + 2, hard))
        # Each that is answered and closed makes room for the next one.
        for client in [connect(clients, hook, REQUEST % number) for number in range(1, 9)]:
            assert client.recv(12) == b"HTTP/1.1 202"
            client.close()
        resource.prlimit(process, resource.RLIMIT_NOFILE, (hard, hard))
        assert hook.post({"id": 9}).status == 202
        assert sorted(row["id"] for row in hook.rows()) == list(range(10))
        assert hook.receiver.process_id == process
    error = capfd.readouterr().err
    assert error.count("none can be accepted: [Errno 24] Too many open files") == 1
    assert len(error.splitlines()) <= 2


def test_a_receiver_that_is_held_up_answers_what_has_come_meanwhile(tmp_path: Path, clients: ExitStack) -> None:
    with receiving(tmp_path, timeout=2) as hook:
        new = [connect(clients, hook) for _ in range(100)]
        used = connect(clients, hook, REQUEST % 0)
        assert used.recv(12) == b"HTTP/1.1 202"
        used.recv(1_000)
        half = connect(clients, hook, (REQUEST % 0)[:-5])
        with held_up(hook):
            for client in [*new, used]:
                client.sendall(REQUEST % 1)
            half.sendall((REQUEST % 0)[-5:])
            get_no_answer(used, 2.5)
        assert {client.recv(12) for client in [*new, used, half]} == {b"HTTP/1.1 202"}
        # Those that send nothing more are cut off nevertheless.
        assert all(not client.recv(1_000).startswith(b"HTTP") for client in new)
        assert {client.recv(1_000) for client in new} == {b""}


def test_malformed_requests_leave_no_secrets_in_the_log(
    tmp_path: Path, clients: ExitStack, capfd: pytest.CaptureFixture[str]
) -> None:
    with receiving(tmp_path, auth=BearerAuth("the-token")) as hook:
        head = b"POST /events HTTP/1.1\r\nAuthorization: Bearer the-token\r\n"
        for malformed in (b"Content-Length: one", b"bad header", b"X: the-token\x00"):
            client = connect(clients, hook, head + malformed + b"\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4_096), b""))  # noqa: B023
            assert answer.startswith(b"HTTP/1.0 400")
            assert answer.endswith(b'{"error": "the request is malformed"}')
        assert hook.post({"id": 1}, Authorization="Bearer the-token").status == 202
    (line,) = capfd.readouterr().err.splitlines()
    assert "a request of 127.0.0.1 failed: status 400" in line
    assert "the-token" not in line


def test_lines_about_many_subjects() -> None:
    now = [0.0]
    seldom = Seldom(lambda: now[0])
    assert sum(seldom.is_due(str(number)) for number in range(1_000)) == 100
    assert not seldom.is_due("1")
    now[0] = 61
    assert seldom.is_due("1")


def test_deadlines_by_looks() -> None:
    ended: list[str] = []
    deadlines = Deadlines(1.0, ended.append)
    deadlines.begin("first")
    deadlines.begin("answered")
    deadlines.look()
    deadlines.begin("second")
    deadlines.stop("answered")
    for expected in ([], ["first"], ["first", "second"]):
        deadlines.look()
        assert ended == expected
