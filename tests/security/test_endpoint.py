"""The metrics endpoint of a job against clients that are idle, slow, too many, or led to it by another name."""

from __future__ import annotations

import asyncio
import gc
import http.client
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from volley import JobError
from volley.metrics import endpoint as endpoint_module
from volley.metrics.endpoint import Endpoint
from volley.metrics.metrics import Metrics

IDLE = 300
METRICS = Metrics({"job_name": "watched"})


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    running = Endpoint(METRICS.to_registry(), "127.0.0.1", 0, ["orders.example.com"])
    yield running
    running.close()


def port(endpoint: Endpoint) -> int:
    return int(endpoint.url.rpartition(":")[2].partition("/")[0])


def answer(endpoint: Endpoint, path: str = "/metrics", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port(endpoint), timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def connect(clients: ExitStack, endpoint: Endpoint, data: bytes = b"") -> socket.socket:
    client = clients.enter_context(socket.create_connection(("127.0.0.1", port(endpoint)), timeout=30))
    client.sendall(data)
    return client


def test_idle_connections_take_no_threads_and_keep_nobody_out(endpoint: Endpoint, clients: ExitStack) -> None:
    threads = threading.active_count()
    idle = [connect(clients, endpoint, b"GET /metrics HTTP/1.1\r\n") for _ in range(IDLE)]
    status, text = answer(endpoint)
    assert (status, threading.active_count()) == (200, threads)
    assert {family.name for family in text_string_to_metric_families(text)} >= {"volley_iceberg_records_written"}
    # The oldest ones made room.
    assert {client.recv(1) for client in idle[: IDLE - endpoint_module.MOST_CONNECTIONS]} == {b""}


def test_slow_connections_are_closed(monkeypatch: pytest.MonkeyPatch, clients: ExitStack) -> None:
    monkeypatch.setattr(endpoint_module, "REQUEST_SECONDS", 0.2)
    endpoint = Endpoint(METRICS.to_registry(), "127.0.0.1", 0)
    slow = [connect(clients, endpoint, b"GET /healthz HTTP/1.1\r\nHo"), connect(clients, endpoint)]
    # It reads its answer and stays.
    answered = connect(clients, endpoint, b"GET /healthz HTTP/1.1\r\n\r\n")
    assert b"".join(iter(lambda: answered.recv(4_096), b"")).endswith(b"\r\n\r\nok\n")
    assert [client.recv(1) for client in slow] == [b"", b""]
    endpoint.close()
    with pytest.raises(ConnectionRefusedError):
        answer(endpoint)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "10.1.2.3", "LOCALHOST.", "orders.example.com"])
def test_hosts_that_are_allowed(endpoint: Endpoint, host: str) -> None:
    assert answer(endpoint, "/healthz", host) == (200, "ok\n")
    assert answer(endpoint, "/healthz", f"{host}:{port(endpoint)}") == (200, "ok\n")


@pytest.mark.parametrize("host", ["rebound.example", "localhost.example", "127.0.0.1.example:80", "x@localhost", ""])
def test_hosts_that_are_not_allowed(endpoint: Endpoint, host: str) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        assert answer(endpoint, path, host) == (403, "this host is not one of metrics_allowed_hosts\n")


def test_a_second_host_does_not_help(endpoint: Endpoint, clients: ExitStack) -> None:
    client = connect(clients, endpoint, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example\r\n\r\n")
    assert client.recv(12) == b"HTTP/1.0 403"


def test_requests_that_are_too_large_or_malformed(
    endpoint: Endpoint, clients: ExitStack, capfd: pytest.CaptureFixture[str]
) -> None:
    head = b"GET /healthz HTTP/1.1\r\nX-Large: "
    for sent, status in [
        (head + b"x" * 20_000 + b"\r\n\r\n", b"HTTP/1.0 431"),
        (head + b"x" * 8_000 + b"\r\n\r\n", b"HTTP/1.0 200"),
        (b"nonsense the-token\r\n\r\n", b"<!DOCTYPE HT"),
        (b"GET /else HTTP/1.1\r\n\r\n", b"HTTP/1.0 404"),
        (b"GET /readyz HTTP/1.1\r\n\r\n", b"HTTP/1.0 503"),
        # The body is not read, and does not cost the answer.
        (b"POST /healthz HTTP/1.1\r\nContent-Length: 9\r\n\r\n" + b"x" * 100_000, b"HTTP/1.0 200"),
    ]:
        assert connect(clients, endpoint, sent).recv(12) == status, sent[:30]
    assert capfd.readouterr().err == ""


def test_a_process_without_descriptors_logs_nothing_and_answers_later(
    endpoint: Endpoint, clients: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rests, sleep = threading.Event(), asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.set()
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", rest)
    sockets = [clients.enter_context(socket.socket()) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as taken:
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        for client in sockets:
            client.settimeout(30)
            client.connect(("127.0.0.1", port(endpoint)))
            client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        rests.wait(30)
    assert {client.recv(12) for client in sockets} == {b"HTTP/1.0 200"}
    assert not caplog.records


def test_a_status_that_fails_ends_its_stream(
    endpoint: Endpoint, clients: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(endpoint_module, "_EVENT_SECONDS", 0.01)
    endpoint.show(["{}"].pop)
    client = connect(clients, endpoint, b"GET /events HTTP/1.1\r\n\r\n")
    assert b"".join(iter(lambda: client.recv(4_096), b"")).endswith(b"data: {}\n\n")
    gc.collect()
    assert not caplog.records


def test_a_port_that_is_taken(endpoint: Endpoint) -> None:
    with pytest.raises(JobError, match="nothing can be served at "):
        Endpoint(METRICS.to_registry(), "127.0.0.1", port(endpoint))
