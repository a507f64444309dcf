"""What a durable request costs a HttpSource's receiver, beside an aiohttp server that only echoes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice

import psutil
from aiohttp import web

from benchmarks.benchmark import Limit, Run, benchmark, within
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
    options={"bytes": (150, 2_000)},
    cases="bytes",
    case="bytes a body",
    figures=(_FIGURE, "requests_per_second", "cpu_seconds"),
    plots=(_FIGURE,),
    bounds=within(
        Limit(_FIGURE, "requests per CPU-second", 8_000, of=_VOLLEY),
        Limit(_FIGURE, "requests per CPU-second", 0.65, of=_VOLLEY, beside=_ECHO),
    ),
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
        yield hook.port, psutil.Process(hook.supervisor.process_id)


@contextmanager
def _echo(run: Run) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-c", "from benchmarks.webhook import echo; echo()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), psutil.Process(process.pid)
        process.terminate()


def echo() -> None:
    """Return each request's body, as the plainest server of aiohttp does; prints the port first."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/events", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


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
    loop = asyncio.get_running_loop()
    ends = [loop.create_future() for _ in range(_CONNECTIONS)]
    for end in ends:
        await loop.create_connection(partial(_Connection, requests, end), "127.0.0.1", port)
    await asyncio.gather(*ends)


class _Connection(asyncio.Protocol):
    """A connection that sends what is left of the requests; `end` is set at the end, or if a request is refused."""

    def __init__(self, requests: Iterator[bytes], end: asyncio.Future[None]) -> None:
        self._requests = requests
        self._end = end
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 20"):
            self._next()
        elif not data.startswith((b"{", b"x")):
            self._end.set_exception(RuntimeError(data.decode(errors="replace")))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        else:
            self._transport.close()
            self._end.set_result(None)
