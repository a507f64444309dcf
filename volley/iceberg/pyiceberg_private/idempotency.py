"""Keys by which a REST catalog knows a request that it gets again, and answers as it did before."""

from __future__ import annotations

import re
import secrets
import time
import uuid
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.exceptions import ChunkedEncodingError, ConnectionError, RequestException, Timeout

__all__ = ["IdempotencyKeys", "KeyedAdapter"]

_HEADER = "Idempotency-Key"
# These change nothing.
_WITHOUT_KEY = re.compile(r"/namespaces/[^/]+/tables/[^/]+/(metrics|plan|tasks)(/|$)")
_UNCLEAR = (500, 502, 504)
# Asked again with another token, or later.
_LATER = (401, 408, 419, 425, 429)
_LIFETIME: TypeAdapter[timedelta] = TypeAdapter(timedelta)


def new_key() -> str:
    """Return a key: a UUID of version 7, which begins with the time.

    Sources:
        RFC 9562, 5.7.
    """
    random = secrets.randbits(74)
    high, low = random >> 62, random & (1 << 62) - 1
    return str(uuid.UUID(int=time.time_ns() // 1_000_000 << 80 | 7 << 76 | high << 64 | 2 << 62 | low))


class IdempotencyKeys:
    """The keys of requests that change something: a request has the same one until it is clear what became of it.

    Args:
        lifetime: How long the catalog knows a key, as it announces it: a duration of ISO 8601, such as ``"PT30M"``.
    """

    def __init__(self, lifetime: str) -> None:
        try:
            self._seconds = _LIFETIME.validate_python(lifetime).total_seconds()
        except ValidationError:
            self._seconds = 0.0
        self._unclear: dict[bytes, tuple[str, float]] = {}

    def key_of(self, request: PreparedRequest) -> str:
        """Return the key of a request: a new one, unless the same request was sent before without a clear answer."""
        now = time.monotonic()
        key, since = self._unclear.get(_content(request), ("", now))
        if not key or now - since >= self._seconds:
            key, since = new_key(), now
        self._unclear[_content(request)] = key, since
        return key

    def forget(self, request: PreparedRequest) -> None:
        """Forget the key of a request whose outcome is clear: the next one like it is another."""
        self._unclear.pop(_content(request), None)


def _content(request: PreparedRequest) -> bytes:
    body: Any = request.body or b""
    content: bytes = body.encode() if isinstance(body, str) else body
    return sha256(f"{request.method} {request.url}\n".encode() + content).digest()


class KeyedAdapter(BaseAdapter):
    """Sends requests like another adapter, those that change something with a key, and once more if need be.

    That is, if the connection was cut before the answer, or a gateway or the server answered that it does not know the
    outcome. A second answer counts if it says that the request was done. A refusal says nothing of the first request,
    which may still be on its way: the caller gets the first outcome, and has to look.
    """

    def __init__(self, adapter: BaseAdapter, keys: IdempotencyKeys) -> None:
        super().__init__()
        self._adapter = adapter
        self._keys = keys

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        if request.method not in ("POST", "DELETE") or _WITHOUT_KEY.search(urlsplit(request.url or "").path):
            return self._adapter.send(request, *args, **kwargs)
        # A request that is sent again with another token has its key.
        request.headers.setdefault(_HEADER, self._keys.key_of(request))
        response = self._send(request, *args, **kwargs)
        # Who sends it again does so by this adapter.
        vars(response)["connection"] = self
        if response.status_code < 500 and response.status_code not in _LATER:
            self._keys.forget(request)
        return response

    def _send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        # An adapter that signs changes the request.
        same = request.copy()
        try:
            first = self._whole(request, *args, **kwargs)
        except Timeout:
            raise
        except (ConnectionError, ChunkedEncodingError):
            second = self._again(same, *args, **kwargs)
            if second is None:
                raise
            return second
        return (first.status_code in _UNCLEAR and self._again(same, *args, **kwargs)) or first

    def _again(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response | None:
        """Send a request once more; return its answer if it was done."""
        try:
            response = self._whole(request, *args, **kwargs)
        except RequestException:
            return None
        return response if response.status_code < 300 else None

    def _whole(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        response = self._adapter.send(request, *args, **kwargs)
        # An answer that is cut in its midst is none.
        _ = response.content
        return response

    def close(self) -> None:
        self._adapter.close()
