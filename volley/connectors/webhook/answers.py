"""Answers to requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

__all__ = ["Refused", "answer", "stored"]


class Refused(Exception):
    """A request is refused.

    Args:
        status: The status of the answer.
        reason: The reason, for the sender.
        headers: More headers, with _ for -.
    """

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def answer(self) -> web.Response:
        """Return the answer."""
        response = answer(self.status, self.headers, error=str(self))
        if "Connection" in self.headers:
            response.force_close()
        return response


def answer(status: int, headers: Mapping[str, str] | None = None, /, **content: Any) -> web.Response:
    """Return an answer with a JSON object, or without a body."""
    if not content:
        return web.Response(status=status, headers=headers)
    return web.json_response(content, status=status, headers=headers)


class _Stored(web.StreamResponse):
    """The answer 202 to a usual client, written as it stands: a tenth of a request's CPU less."""

    def __init__(self) -> None:
        super().__init__(status=202)
        self._second = 0
        self._bytes = b""

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if request.transport is None:
            raise ConnectionResetError
        if self._second != (second := int(time.time())):
            date = formatdate(second, usegmt=True)
            self._bytes = f"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nDate: {date}\r\n\r\n".encode()
            self._second = second
        request.transport.write(self._bytes)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the answer is complete."""


_STORED = _Stored()


def stored(request: web.BaseRequest) -> web.StreamResponse:
    """Return the answer to a request that is on disk."""
    is_usual = request.version == HttpVersion11 and request.keep_alive
    # aiohttp's own answer waits for a client that sends and sends, and does not read its answers.
    return _STORED if is_usual and not request.protocol.writing_paused else web.Response(status=202)
