"""The Python of the tests' Spark workers: each process is forked from one that has imported what workers need.

Spark starts half a dozen Pythons before the first epoch of a job, and the tests start hundreds of jobs: without this,
each process imports PySpark, PyArrow and pyiceberg again, for up to a second of CPU. Run as a module, this is the
process that is forked; its clients stand in for Python.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.processes import ROOT, plain_environment
from tests.waiting import wait_until
from volley.spark.workers import choose_worker_python

__all__ = ["warm_workers"]

_MODULES = (
    *("pyspark.worker", "pyspark.daemon", "volley.task.task", "volley.iceberg.commit.committer"),
    *("volley.connectors.files.reader", "volley.connectors.memory.reader", "volley.iceberg.read.reader"),
)

# A client passes its arguments, environment, folder and standard streams, and then each signal that it gets; it ends
# with the exit code that comes back. What is not a module runs in a Python of its own.
_CLIENT = """#!{python} -IS
import os, pickle, signal, socket, sys

if sys.argv[1] != "-m":
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: server.send(bytes([number])))
request = pickle.dumps((sys.argv[2:], dict(os.environ), os.getcwd()))
socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
server.sendall(request)
for number in range(3):
    os.close(number)
code = server.recv(1)
os._exit(code[0] if code else 1)
"""


def warm_workers() -> None:
    """Let the Spark workers of JVMs that this process and its children start be forked, on a local master."""
    choose_worker_python("local", starts=True)
    # Coverage starts with a Python.
    if "VOLLEY_PYTHON" in os.environ and not any(name.startswith("COVERAGE") for name in os.environ):
        os.environ["VOLLEY_PYTHON"] = str(_start())


@cache
def _start() -> Path:
    """Start the process that is forked, which ends with this one; return the client that stands in for Python."""
    folder = Path(tempfile.mkdtemp(prefix="volley-warm-"))
    address, client = folder / "socket", folder / "python"
    client.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm_python", str(address)],
        cwd=ROOT,
        env=plain_environment(PYTHONHASHSEED="0"),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until(address.exists, 60, "the process that is forked")
    # Closes its standard input, at which it ends.
    atexit.register(process.communicate)
    return client


def _serve(address: str) -> None:
    """Fork a process for each client until the standard input ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(_attend(client))
        client.close()
    shutil.rmtree(Path(address).parent)


def _attend(client: socket.socket) -> int:
    """Run a client's module in a process, pass it the client's signals, and its exit code back."""
    size, streams, _, _ = socket.recv_fds(client, 4, 3)
    request = client.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
    process = os.fork()
    if process == 0:
        client.close()
        os._exit(_run(streams, *pickle.loads(request)))
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    ended = os.pidfd_open(process)
    while ended not in select.select([client.fileno(), ended], [], [])[0]:
        # A client that was killed takes its process along.
        for number in client.recv(16) or [signal.SIGKILL]:
            os.kill(process, number)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(OSError):
        client.send(bytes([code if code >= 0 else 128 - code]))
    return 0


def _run(streams: list[int], arguments: list[str], environment: dict[str, str], folder: str) -> int:
    """Do in this process what ``python -m`` does; return the exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    own = {str(ROOT), *_python_path()}
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [folder, *_python_path(), *(path for path in sys.path if path not in own)]
    sys.argv = arguments
    out: Any = sys.stdout
    out.reconfigure(write_through=True)
    # It says that the module is loaded, which it is meant to be.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _python_path() -> list[str]:
    return list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


if __name__ == "__main__":
    _serve(sys.argv[1])
