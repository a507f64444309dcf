"""Senders of webhooks: they repeat each request, under its key, until it is acknowledged."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from itertools import count

__all__ = ["Senders"]

_LONGEST_TEXT = 600


class Senders:
    """Some connections that send numbered requests, one after the other, until they are stopped.

    Attributes:
        acknowledged: The text of each request that has an answer, by its id.
        repeated: The requests that were sent again, since no answer came.

    Args:
        port: The receiver's port.
        connections: How many.
    """

    def __init__(self, port: int, connections: int) -> None:
        self.acknowledged: dict[int, str] = {}
        self.repeated = 0
        self.unexpected: list[int] = []
        self._port = port
        self._ids = count()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(connections)]

    def start(self) -> None:
        """Start to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop once every request that was sent has an answer."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a request gets no answer"

    def _run(self) -> None:
        dice = random.Random()
        connection = self._connect()
        while not self._stopping.is_set():
            number = next(self._ids)
            text = "x" * dice.randrange(_LONGEST_TEXT)
            body = json.dumps({"id": number, "text": text})
            while not self._send(connection, number, body):
                connection.close()
                connection = self._connect()
                self.repeated += 1
                time.sleep(0.05)
            self.acknowledged[number] = text
        connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)

    def _send(self, connection: http.client.HTTPConnection, number: int, body: str) -> bool:
        """Send a request; return False if it has to be sent again."""
        try:
            connection.request("POST", "/events", body, {"Key": f"key {number}"})
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return False
        if response.status not in (200, 202, 503):
            self.unexpected.append(response.status)
        return response.status in (200, 202)
