"""A running receiver, and a client of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from volley import SourceContext, WebhookSource
from volley.connectors.webhook.log import LogFolder
from volley.connectors.webhook.process import ReceiverProcess
from volley.connectors.webhook.reader import WebhookReader

__all__ = ["SCHEMA", "Answer", "Hook", "open_reader", "receiving", "request"]

SCHEMA = "id long, name string"


@dataclass(frozen=True)
class Answer:
    """What a client is answered."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Hook:
    """A receiver that runs.

    Args:
        reader: The driver's reader.
    """

    reader: WebhookReader

    @property
    def receiver(self) -> ReceiverProcess:
        assert self.reader.receiver is not None
        return self.reader.receiver

    @property
    def port(self) -> int:
        return self.receiver.port

    @property
    def folder(self) -> LogFolder:
        return self.reader.folder

    def post(self, body: object, key: str | None = None, path: str = "/events", **headers: str) -> Answer:
        """Send a request; a body that is not bytes is sent as JSON; in names of headers _ stands for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("POST", path, body, headers={**named, **({} if key is None else {"Key": key})})

    def send(self, method: str, path: str, body: object = b"", **more: Any) -> Answer:
        """Send a request of any method; `more` as for `request`."""
        return request(self.port, body, method, path, **more)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all requests on disk that are not committed."""
        begin = {"log": self.folder.id, **vars(self.folder.released)}
        end = self.reader.latest_offset(begin, None, None)
        splits = self.reader.splits(begin, end)
        return [row for split in splits for batch in self.reader.read(split) for row in batch.to_pylist()]

    def kill(self) -> None:
        """Kill the receiver, and wait for the next one."""
        process = self.receiver.process_id
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: self.receiver.process_id != process and self.is_ready(), 60, "the next receiver")

    def is_ready(self) -> bool:
        """Ask the receiver whether it takes requests."""
        try:
            return self.send("GET", "/readyz").status == 200
        except OSError:
            return False


def request(
    port: int,
    body: object,
    method: str = "POST",
    path: str = "/events",
    headers: Mapping[str, str | bytes] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Send a request, and return the answer; a body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)
    )
    try:
        connection.request(method, path, data, dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read().decode())
    finally:
        connection.close()


def open_reader(folder: Path, **settings: Any) -> WebhookReader:
    """Return the reader of a source of JSON, or of the given settings; it is not started."""
    if settings.get("value_format", "json") == "json":
        settings = {"schema": SCHEMA, **settings}
    reader = WebhookSource(**{"port": 0, **settings}).open(SourceContext(str(folder), 4))
    assert isinstance(reader, WebhookReader)
    return reader


@contextmanager
def receiving(folder: Path, **settings: Any) -> Iterator[Hook]:
    """Run a receiver while the block runs."""
    reader = open_reader(folder, **settings)
    reader.start()
    try:
        yield Hook(reader)
    finally:
        reader.stop()
