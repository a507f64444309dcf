"""The receiver's process: a child of the driver, so that it answers while the driver is busy, and ends with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from aiohttp import web

from volley.connectors.webhook.address import listening_errors, tls_context
from volley.connectors.webhook.batches import BatchWriter, Faults
from volley.connectors.webhook.folder import LogFolder
from volley.connectors.webhook.keys import KeyStore
from volley.connectors.webhook.log import Log, lock
from volley.connectors.webhook.server import Server
from volley.connectors.webhook.settings import ReceiverSettings
from volley.errors import VolleyError

__all__ = ["main"]

_LOCK_SECONDS = 10
_GRACE_SECONDS = 5
_COLLECT_EVERY = 50_000


def main() -> None:
    """Receive requests until standard input ends, which the driver holds open; its first bytes are the settings.

    Prints the port once requests are received. An error that another start can't mend is printed as JSON.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which stops this process
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    settings: ReceiverSettings = pickle.load(sys.stdin.buffer)
    try:
        asyncio.run(_receive(settings))
    except VolleyError as error:
        print(error.to_json(), flush=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)  # the driver has died meanwhile


async def _receive(settings: ReceiverSettings) -> None:
    _allow_files(settings.max_connections)
    folder = LogFolder(settings.folder)
    descriptor = lock(folder, _LOCK_SECONDS)
    log = Log(folder)
    keys = KeyStore(f"{folder.path}/keys.sqlite", settings.remember_keys) if settings.idempotency else None
    writer = BatchWriter(log, keys, _faults(settings))
    server = Server(settings, writer)
    runner = web.ServerRunner(server.connections, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    try:
        port = await _listen(runner, settings)
        gc.collect()
        gc.freeze()
        # Requests leave little for the collector, which would look at all remembered keys again and again.
        gc.set_threshold(_COLLECT_EVERY)
        print(port, flush=True)
        writing, watching = asyncio.ensure_future(writer.run()), asyncio.ensure_future(server.watch())
        ended = asyncio.ensure_future(_end_of_driver())
        await asyncio.wait([writing, watching, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        # aiohttp drops what comes for a request that has begun as soon as it cleans up.
        await server.finish(_GRACE_SECONDS)
        await runner.cleanup()
        os.close(descriptor)
    for task in (writing, watching):
        if task.done():
            task.result()
        task.cancel()


async def _listen(runner: web.ServerRunner, settings: ReceiverSettings) -> int:
    with listening_errors(settings.host, settings.port):
        context = None if settings.tls is None else tls_context(settings.tls)
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context, backlog=1024)
        await site.start()
    return int(runner.addresses[0][1])


def _faults(settings: ReceiverSettings) -> Faults:
    if settings.decoder is None:
        return _no_faults
    from volley.connectors.webhook.rows import faults_of

    return faults_of(settings.decoder)


def _no_faults(bodies: Sequence[bytes]) -> Mapping[int, str]:
    return {}


async def _end_of_driver() -> None:
    """Return when the driver has closed its end of the pipe, has died, or sends SIGTERM."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    parent = os.getppid()

    def read_to_end() -> None:
        # Not by the buffered reader, whose lock this thread would hold at the process' end.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read_to_end, daemon=True).start()
    # A process that the driver forked may hold the pipe open after the driver's death.
    while os.getppid() == parent and not ended.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.5)


def _allow_files(connections: int) -> None:
    """Raise the limit of open files as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = connections + 100 if hard == resource.RLIM_INFINITY else min(hard, connections + 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
