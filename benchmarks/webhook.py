"""What a durable request costs a WebhookSource's receiver, beside an aiohttp server that only echoes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice

import psutil
from aiohttp import web

from benchmarks.benchmark import Limit, Run, benchmark
from tests.servers.process import ServerProcess, free_ports, listens
from tests.webhooks.hooks import receiving
from volley import HmacAuth

_VOLLEY, _CHECKED, _ECHO = "Volley, on disk", "Volley, bodies checked too", "aiohttp, echo"
_CONNECTIONS = 64
_WARM_UP = 5_000
_SECRET = "a-secret-of-the-benchmark"
_FIGURE = "requests_per_cpu_second"


@benchmark(
    rows=100_000,
    repeat=3,
    peers={"volley": _VOLLEY, "checked": _CHECKED, "echo": _ECHO},
    cases={"bytes": (150, 2_000)},
    case="bytes a body",
    figures=(_FIGURE, "requests_per_second", "cpu_seconds"),
    plots=(_FIGURE,),
    bounds=[
        Limit(_FIGURE, "requests per CPU-second", 8_000, of=_VOLLEY),
        Limit(_FIGURE, "requests per CPU-second", 0.65, of=_VOLLEY, beside=_ECHO),
    ],
)
def webhook(run: Run) -> None:
    """Signed JSON requests with keys, on disk before the answer: requests per CPU-second of the receiver."""
    server = _echo if run.peer == "echo" else _receiver
    with server(run) as (port, process):
        requests = _requests(int(run.case))
        asyncio.run(_send(port, islice(requests, _WARM_UP)))
        began, used = time.perf_counter(), _cpu(process)
        asyncio.run(_send(port, islice(requests, run.rows)))
        seconds, cpu = time.perf_counter() - began, _cpu(process) - used
    run.record(requests_per_cpu_second=run.rows / cpu, requests_per_second=run.rows / seconds, cpu_seconds=cpu)


@contextmanager
def _receiver(run: Run) -> Iterator[tuple[int, psutil.Process]]:
    with receiving(
        run.folder,
        schema="id long, text string",
        on_bad="reject" if run.peer == "checked" else "dead_letter",
        auth=HmacAuth("github", _SECRET),
        idempotency="header:X-GitHub-Delivery",
    ) as hook:
        yield hook.port, psutil.Process(hook.receiver.process_id)


@contextmanager
def _echo(run: Run) -> Iterator[tuple[int, psutil.Process]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-c", f"from benchmarks.webhook import echo; echo({port})"]
    server = ServerProcess("aiohttp", command, run.folder / "log")
    try:
        server.start(listens(port))
        yield port, psutil.Process(server.pid)
    finally:
        server.stop()


def echo(port: int) -> None:
    """Return each request's body, as the plainest server of aiohttp does."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application()
    app.router.add_post("/events", answer)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None)


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def _requests(size: int) -> Iterator[bytes]:
    """Signed requests with bodies of so many bytes, each with a key of its own."""
    text = "x" * (size - len('{"id": 1000000, "text": ""}'))
    for number in count():
        body = json.dumps({"id": 1_000_000 + number, "text": text}).encode()
        signature = hmac.digest(_SECRET.encode(), body, hashlib.sha256).hex()
        head = (
            "POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"X-Hub-Signature-256: sha256={signature}\r\nX-GitHub-Delivery: {number:032x}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        yield head.encode() + body


async def _send(port: int, requests: Iterator[bytes]) -> None:
    """Send requests over some connections, each the next one as soon as the last is answered."""

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 20"), head
            (length,) = re.findall(rb"(?i)content-length: (\d+)", head)
            await reader.readexactly(int(length))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(_CONNECTIONS)))
