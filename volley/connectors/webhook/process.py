"""Starts the receiver's process, and again if it dies, as long as the job runs."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import IO

from volley.connectors.webhook.log import LogFolder
from volley.connectors.webhook.settings import ReceiverSettings
from volley.errors import SourceError, VolleyError

__all__ = ["ReceiverProcess"]

_log = logging.getLogger(__name__)

_STOP_SECONDS = 15
_PAUSE_SECONDS = 0.1
_MOST_FAILED_STARTS = 6
# The driver's own path: the process finds what the driver finds.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from volley.connectors.webhook.receiver import main; main()"


class ReceiverProcess:
    """Keeps a receiver running. If it can't, the job's next epoch fails with the reason.

    Attributes:
        port: The port at which requests are received; known after `start`.
    """

    def __init__(self, settings: ReceiverSettings) -> None:
        self.port = settings.port
        self._settings = settings
        self._folder = LogFolder(settings.folder)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes]
        self._watcher: threading.Thread | None = None

    @property
    def process_id(self) -> int:
        """The id of the receiver's process."""
        return self._process.pid

    def start(self) -> None:
        """Start the receiver, and wait until it listens.

        Raises:
            VolleyError: If it can't: another job uses the folder, the port is taken, the log is damaged.
        """
        self._process = self._spawn()
        try:
            if not self._await_port():
                raise self._death()
        except BaseException:
            _end(self._process)
            raise
        self._folder.failure.clear()
        _log.info("receiving requests at port %d, path %s", self.port, self._settings.path)
        self._watcher = threading.Thread(target=self._watch, name="volley-receiver", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Stop the receiver: it answers the requests that it has, and takes no more."""
        with self._lock:
            self._stopping.set()
            process = self._process
        _end(process)
        if self._watcher is not None:
            self._watcher.join()

    def _watch(self) -> None:
        """Start the receiver again whenever it ends, until the job stops it or it tells why it can't run."""
        failed_starts = 0
        while True:
            status = self._process.wait()
            if self._stopping.is_set():
                return
            _log.warning("the receiver of requests ended with status %d, starting it again", status)
            try:
                self._read_answer()
                if failed_starts > _MOST_FAILED_STARTS:
                    raise self._death()
                if not self._stopping.wait(_PAUSE_SECONDS * 2**failed_starts):
                    failed_starts = 0 if self._restart() else failed_starts + 1
            except VolleyError as error:
                _log.error("requests are no longer received: %s", error)
                self._folder.failure.keep(error, self._stopping)
                return

    def _restart(self) -> bool:
        """Start the next receiver; return False if it dies before it listens."""
        process = self._spawn()
        with self._lock:
            self._process = process
        if self._stopping.is_set():
            _end(process)
        return self._await_port()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", _PROGRAM, *sys.path]
        try:
            # A session of its own: Ctrl-C is for the driver.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise SourceError(
                f"no process can be started that receives requests: {error}", hint="see the limits of this machine"
            ) from error
        with suppress(BrokenPipeError):
            # By the pipe: arguments and environment can be read by others.
            pickle.dump(replace(self._settings, port=self.port), _pipe(process.stdin))
            _pipe(process.stdin).flush()
        return process

    def _await_port(self) -> bool:
        """Wait until the receiver listens; return False if it has died."""
        port = self._read_answer()
        self.port = int(port or self.port)
        return bool(port)

    def _read_answer(self) -> str:
        """Return the next line of the receiver, its port; nothing if it has ended.

        Raises:
            VolleyError: If it is the reason why it has ended.
        """
        answer = "" if _pipe(self._process.stdout).closed else _pipe(self._process.stdout).readline().decode().strip()
        if answer.startswith("{"):
            raise VolleyError.from_json(answer)
        return answer

    def _death(self) -> SourceError:
        return SourceError(
            f"the receiver of requests died at its start (status {self._process.wait()})",
            hint="its messages are in the driver's standard error",
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe, on which the process ends; kill it if it does not."""
    with suppress(BrokenPipeError):
        _pipe(process.stdin).close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _pipe(process.stdout).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
