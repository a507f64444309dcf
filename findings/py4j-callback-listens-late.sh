#!/usr/bin/env bash
# py4j's callback server: start() returns with a bound port, but a thread listens there later, so a JVM can be refused.
#
# py4j 0.10.9.9, which PySpark 4.3.0 uses for foreachBatch. The thread logs a line before it listens: a log handler that
# takes its time shows the gap, which a busy machine makes, too.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check py4j==0.10.9.9
"$folder/venv/bin/python" - <<'PYTHON'
import logging
import socket
import threading

from py4j.java_gateway import CallbackServer, CallbackServerParameters
from py4j import java_gateway

tried, listens = threading.Event(), threading.Event()


class Slow(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if "Starting" in record.getMessage():
            tried.wait(30)


logger = logging.getLogger("py4j")
logger.addHandler(Slow())
logger.setLevel(logging.INFO)
java_gateway.server_started.connect(lambda *_, **__: listens.set())
server = CallbackServer({}, None, callback_server_parameters=CallbackServerParameters(port=0, daemonize=True))
server.start()
address = server.get_listening_address(), server.get_listening_port()
try:
    socket.create_connection(address, 5).close()
    first = "accepted"
except ConnectionRefusedError:
    first = "refused"
tried.set()
assert listens.wait(30)
socket.create_connection(address, 5).close()
print(f"py4j 0.10.9.9: start() has returned, a connection is {first}; once its thread runs, accepted")
assert first == "refused", "the behaviour has changed"
PYTHON
