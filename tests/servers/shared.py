"""One server for all processes of a test run: the first that asks starts it, the last that lets go stops it."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

__all__ = ["Server", "own_server", "shared"]


class Server(Protocol):
    """What `own_server` needs of a server, and `shared` of one that also pickles."""

    def start(self) -> object: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Server)


@contextmanager
def shared(factory: pytest.TempPathFactory, make: Callable[[Path], S], name: str) -> Iterator[S]:
    """Use a server together with the run's other processes.

    Each process that uses it holds a shared lock on a file; the kernel releases the lock of a process that dies.

    Args:
        factory: Knows the folder of the whole run.
        make: Makes the server, not started, in a folder.
        name: The server's name in this run.
    """
    base = factory.getbasetemp()
    run = base.parent if base.name.startswith("popen-") else base
    address = run / f"{name}.pickle"
    with (run / f"{name}.users").open("w") as users:
        with _alone(run / f"{name}.lock"):
            if address.exists():
                server: S = pickle.loads(address.read_bytes())
            else:
                server = _start(make(factory.mktemp(name)))
                address.write_bytes(pickle.dumps(server))
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield server
        finally:
            with _alone(run / f"{name}.lock"), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Nobody else uses it; a process that asks for it later starts another.
                address.unlink()
                server.stop()


@contextmanager
def own_server(server: S) -> Iterator[S]:
    """Start a server that only this process uses, and stop it at the end.

    Args:
        server: The server, not started.
    """
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(server: S) -> S:
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server
