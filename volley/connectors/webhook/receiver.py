"""The receiver's process: a child of the driver, so that it answers while the driver is busy, and ends with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from volley.connectors.webhook.batches import BatchWriter, Faults
from volley.connectors.webhook.connections import fault
from volley.connectors.webhook.keys import KeyStore
from volley.connectors.webhook.limits import LOOK_SECONDS, Seldom
from volley.connectors.webhook.listener import Listener, allowed_connections, listen, listening_errors, tls_context
from volley.connectors.webhook.log import Log, LogFolder, lock
from volley.connectors.webhook.server import Responder
from volley.connectors.webhook.settings import ReceiverSettings
from volley.errors import VolleyError

__all__ = ["main"]

_log = logging.getLogger(__name__)
_seldom = Seldom()

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
    asyncio.get_running_loop().set_exception_handler(_complain)
    most = allowed_connections(settings.max_connections)
    folder = LogFolder(settings.folder)
    descriptor = lock(folder, _LOCK_SECONDS)
    log = Log(folder)
    keys = KeyStore(f"{folder.path}/keys.sqlite", settings.remember_keys) if settings.idempotency else None
    writer = BatchWriter(log, keys, _faults(settings))
    server = Responder(settings, writer)
    runner = web.ServerRunner(server.connections, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    listener = _listener(server, settings, most)
    try:
        listener.start()
        gc.collect()
        gc.freeze()
        # Requests leave little for the collector, which would look at all remembered keys again and again.
        gc.set_threshold(_COLLECT_EVERY)
        print(listener.port, flush=True)
        work = writer.run(), writer.check(), _watch(server, listener), _end_of_driver()
        tasks = [asyncio.ensure_future(part) for part in work]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # aiohttp drops what comes for a request that has begun as soon as it cleans up.
        await server.finish(_GRACE_SECONDS)
        listener.close()
        await runner.cleanup()
        os.close(descriptor)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()


def _listener(server: Responder, settings: ReceiverSettings, most: int) -> Listener:
    with listening_errors(settings.host, settings.port):
        context = None if settings.tls is None else tls_context(settings.tls)
        sockets = listen(settings.host, settings.port)
    return Listener(server.connections, sockets, context, most, settings.timeout, server.seldom)


async def _watch(server: Responder, listener: Listener) -> None:
    while True:
        server.look()
        listener.close_expired()
        await asyncio.sleep(LOOK_SECONDS)


def _complain(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Write what the event loop has met in one line: a traceback or a callback's text may have values of a request."""
    message = context["message"].partition("<")[0].strip()
    if _seldom.is_due(message):
        _log.warning("%s (%s)", message, fault(context.get("exception")))


def _faults(settings: ReceiverSettings) -> Faults:
    if settings.decoder is None:
        return _no_faults
    from volley.connectors.webhook.reader import faults_of

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
