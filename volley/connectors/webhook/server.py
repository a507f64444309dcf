"""Answers requests: checks who sent them, puts them into the log, and says so when they are on disk."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sqlite3
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress

from aiohttp import web

from volley.connectors.webhook.auth import BearerAuth, HmacAuth, SnsAuth
from volley.connectors.webhook.batches import Added, BatchWriter
from volley.connectors.webhook.connections import Connections, Refused, answer, stored
from volley.connectors.webhook.events import Split, cloud_events, cloud_key, json_events
from volley.connectors.webhook.frames import MOST_HEADER_BYTES, Entry, packed
from volley.connectors.webhook.keys import json_key, json_path
from volley.connectors.webhook.limits import Deadlines, RateLimit, Seldom
from volley.connectors.webhook.log import LogFolder
from volley.connectors.webhook.proxies import Proxies
from volley.connectors.webhook.settings import ReceiverSettings
from volley.connectors.webhook.signatures import verifier
from volley.connectors.webhook.sns import Topics
from volley.errors import SourceError
from volley.formats.change_options import CHANGES

__all__ = ["Responder"]

_log = logging.getLogger(__name__)

_MOST_WAITING_BYTES = 64 << 20
_LONGEST_KEY = 1024
_GZIP = 16 + zlib.MAX_WBITS
_GZIP_PIECE = 16 << 10
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SPLITS: dict[str, Split] = {**dict.fromkeys(("json", *CHANGES), json_events), "cloudevents": cloud_events}


class Responder:
    """Answers the requests of all connections."""

    def __init__(self, settings: ReceiverSettings, writer: BatchWriter) -> None:
        self._settings = settings
        self._path = settings.path
        self._writer = writer
        self._folder = LogFolder(settings.folder)
        auth = settings.auth
        self._topics = Topics(auth.topics) if isinstance(auth, SnsAuth) else None
        self._verify = verifier(None if isinstance(auth, SnsAuth) else auth)
        self._is_early = isinstance(auth, BearerAuth)
        self._is_slack = isinstance(auth, HmacAuth) and auth.scheme == "slack"
        # Slack shows an error for another one in answer to a command; SNS documents 200, too.
        self._status = 200 if self._is_slack or self._topics else 202
        self._split = _SPLITS.get(settings.value_format)
        self._proxies = Proxies(settings.trusted_proxies) if settings.trusted_proxies else None
        place, _, rest = (settings.idempotency or "").partition(":")
        self._key_header = rest if place == "header" else None
        self._key_path = json_path(rest) if place == "json" else None
        self._is_cloud_key = place == "cloudevents"
        self._rate = None if settings.max_rate is None else RateLimit(settings.max_rate)
        self._released = self._folder.released.position
        self._waiting = self._waiting_bytes = 0
        self._most_bytes = max(_MOST_WAITING_BYTES, 4 * settings.max_body)
        self._stopping = False
        self.seldom = Seldom()
        self._faults = Seldom()
        self._bodies: Deadlines[asyncio.Timeout] = Deadlines(settings.timeout, _expire)
        self.connections = Connections(self._handle, settings.timeout, self.seldom, auto_decompress=False)

    def look(self) -> None:
        """Look how much the job has committed, and end what waits too long; call it every `LOOK_SECONDS`."""
        try:
            self._released = self._folder.released.position
        except OSError as error:
            if self._faults.is_due("released"):
                _log.warning("how much the job has committed can't be read: %s", error)
        self.connections.close_expired()
        self._bodies.look()

    async def finish(self, seconds: float) -> None:
        """Refuse further requests, and wait until those that have begun have their answers.

        Args:
            seconds: How long at most.
        """
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._waiting:
                    await asyncio.sleep(0.01)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self.connections.busy(connection)
        self._waiting += 1
        try:
            return await self._respond(request)
        except Refused as refusal:
            return refusal.answer()
        finally:
            self._waiting -= 1
            self.connections.idle(connection)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.raw_path
        if path != self._path and path.partition("?")[0] != self._path:
            return self._probe(request.path)
        if request.method == "OPTIONS" and self._settings.allowed_origins:
            return self._permission(request.headers)
        if request.method != "POST":
            raise Refused(405, "send requests with POST", Allow="POST")
        headers = request.headers
        client = self._client(request)
        self._check_load(client)
        if self._is_early:
            self._check_sender(headers, b"")
        sent = await self._body(request)
        try:
            if not self._is_early:
                self._check_sender(headers, sent)
            body = self._decompressed(headers, sent)
            if self._is_slack and (challenge := _challenge(body)):
                return answer(200, challenge=challenge)
            if self._topics and not await self._topics.receive(body):
                return answer(200)
            return await self._store(request, self._entries(headers, body, client))
        finally:
            self._waiting_bytes -= len(sent)

    def _probe(self, path: str) -> web.Response:
        if path not in ("/healthz", "/readyz"):
            raise Refused(404, "no such path")
        busy = (self._busy() or self._writer.failure) if path == "/readyz" else None
        return answer(503, {"Retry-After": "5"}, error=busy) if busy else answer(200)

    def _busy(self) -> str | None:
        """Return why no request is taken; None if they are."""
        if self._stopping:
            return "the receiver stops"
        if self._waiting > self._settings.max_waiting or self._waiting_bytes > self._most_bytes:
            return "too many requests wait for the disk"
        if self._writer.log.end.position - self._released >= self._settings.max_staged:
            return "too many bytes wait for the job"
        return None

    def _client(self, request: web.BaseRequest) -> str:
        peer = request.remote or ""
        if self._proxies is None:
            return peer
        return self._proxies.client(peer, ",".join(request.headers.getall("X-Forwarded-For", ())))

    def _permission(self, headers: Mapping[str, str]) -> web.Response:
        """Answer the question of a sender of CloudEvents whether it may send."""
        origin, allowed = headers.get("WebHook-Request-Origin", ""), self._settings.allowed_origins
        if "*" not in allowed and origin.lower() not in allowed:
            raise Refused(403, "WebHook-Request-Origin has a sender that may not send")
        rate = "*" if self._settings.max_rate is None else str(int(self._settings.max_rate * 60))
        return answer(200, {"Allow": "POST", "WebHook-Allowed-Origin": origin or "*", "WebHook-Allowed-Rate": rate})

    def _check_load(self, client: str) -> None:
        if busy := self._busy():
            raise Refused(503, busy, Retry_After="5")
        if self._rate and (seconds := self._rate.wait(client, time.monotonic())):
            raise Refused(429, "too many requests of this address", Retry_After=str(math.ceil(seconds)))

    def _check_sender(self, headers: Mapping[str, str], body: bytes) -> None:
        if refusal := self._verify(headers, body, time.time()):
            raise Refused(401, refusal)

    async def _body(self, request: web.BaseRequest) -> bytes:
        """Return the body as it was sent; its bytes count as waiting."""
        if (request.content_length or 0) > self._settings.max_body:
            raise self._too_large()
        if request.content.is_eof():
            return await self._read(request)
        if request.headers.get("Expect", "").lower() == "100-continue":
            request.transport.write(_CONTINUE)  # type: ignore[union-attr]
        limit = asyncio.timeout(None)
        self._bodies.begin(limit)
        try:
            async with limit:
                return await self._read(request)
        except TimeoutError as error:
            raise Refused(408, "the body did not come in time", Connection="close") from error
        finally:
            self._bodies.stop(limit)

    async def _read(self, request: web.BaseRequest) -> bytes:
        content, chunks, size = request.content, [], 0
        try:
            while chunk := await content.readany():
                chunks.append(chunk)
                size += len(chunk)
                self._waiting_bytes += len(chunk)
                if size > self._settings.max_body:
                    raise self._too_large()
                if self._waiting_bytes > self._most_bytes:
                    raise Refused(503, "too many requests wait for the disk", Retry_After="5", Connection="close")
        except BaseException:
            self._waiting_bytes -= size
            raise
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _decompressed(self, headers: Mapping[str, str], body: bytes) -> bytes:
        encoding = headers.get("Content-Encoding", "identity").lower()
        if encoding == "identity":
            return body
        if encoding != "gzip":
            raise Refused(415, "the only Content-Encoding is gzip", Accept_Encoding="gzip")
        try:
            return self._gunzipped(body)
        except zlib.error as error:
            raise Refused(400, "the body is not gzip") from error

    def _gunzipped(self, body: bytes) -> bytes:
        """Return the content of all members of a gzip; stops at the limit, whatever it would grow to."""
        parts: list[bytes] = []
        room, position = self._settings.max_body, 0
        while position < len(body) or not parts:
            decompressor = zlib.decompressobj(_GZIP)
            while not decompressor.eof:
                # A member gives back what comes behind it, as a copy: of a piece, not of the rest of the body.
                piece = body[position : position + _GZIP_PIECE]
                if not piece:
                    raise Refused(400, "the body's gzip is cut off")
                parts.append(decompressor.decompress(piece, room + 1))
                room -= len(parts[-1])
                if room < 0:
                    raise self._too_large()
                position += len(piece) - len(decompressor.unused_data)
        return b"".join(parts)

    def _too_large(self) -> Refused:
        return Refused(413, f"the body is larger than {self._settings.max_body} bytes", Connection="close")

    def _entries(self, headers: Mapping[str, str], body: bytes, client: str) -> list[Entry]:
        """Return the events of a request."""
        kept = self._kept(headers, client)
        events = self._events(headers, body)
        if len(events) == 1 and events[0] is body:
            return [Entry(self._key(headers, body), kept, body)]
        return [Entry(self._key(headers, event, number), kept, event) for number, event in enumerate(events)]

    def _events(self, headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
        if self._split is None:
            return [body]
        try:
            return self._split(headers, body)
        except ValueError as error:
            if self._settings.keeps_bad:
                return [body]
            raise Refused(400, str(error)) from error

    def _key(self, headers: Mapping[str, str], body: bytes, number: int | None = None) -> bytes:
        """Return the key of a body; of an event that is not alone, a header's key with its number."""
        if self._key_header is not None:
            encoded = headers.get(self._key_header, "").encode(errors="surrogateescape")
            if encoded and number is not None:
                encoded += f"/{number}".encode()
        elif self._key_path is not None or self._is_cloud_key:
            encoded = self._key_in(body)
        else:
            return b""
        if not 0 < len(encoded) <= _LONGEST_KEY:
            raise Refused(400, f"no idempotency key of 1 to {_LONGEST_KEY} bytes in {self._settings.idempotency}")
        return encoded

    def _key_in(self, body: bytes) -> bytes:
        try:
            return (cloud_key(body) if self._key_path is None else json_key(body, self._key_path) or "").encode()
        except UnicodeEncodeError as error:
            raise Refused(400, f"the key in {self._settings.idempotency} has half a surrogate pair") from error
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error

    def _kept(self, headers: Mapping[str, str], client: str) -> bytes:
        names, clients = self._settings.headers, [client] if self._settings.keeps_client else []
        if not names and not clients:
            return b""
        kept = packed([*(headers.get(name) for name in names), *clients])
        if len(kept) > MOST_HEADER_BYTES:
            raise Refused(431, f"{', '.join(names)} have more than {MOST_HEADER_BYTES} bytes together")
        return kept

    def _added(self, entries: Sequence[Entry]) -> list[Added]:
        try:
            added = self._writer.add(entries)
        except sqlite3.Error as error:
            if self._faults.is_due("keys"):
                _log.warning("the keys of earlier requests can't be read: %s", error)
            raise Refused(503, "the request's key can't be looked up", Retry_After="10") from error
        if added is None:
            raise Refused(409, "a request with this key had another body")
        return added

    async def _store(self, request: web.BaseRequest, entries: Sequence[Entry]) -> web.StreamResponse:
        added = self._added(entries)
        for batch, number, _ in added:
            try:
                await batch.done
            except (OSError, SourceError) as error:
                raise Refused(503, "the request can't be stored", Retry_After="10") from error
            if batch.faults and number in batch.faults:
                raise Refused(400, batch.faults[number])
        if added and all(event.is_duplicate for event in added):
            return answer(200, status="duplicate")
        return stored(request, self._status)


def _expire(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())


def _challenge(body: bytes) -> str | None:
    """Return the answer that Slack expects when it checks a URL; None if this is another request."""
    if b'"url_verification"' not in body:
        return None
    try:
        event = json.loads(body)
    except ValueError:
        return None
    is_check = isinstance(event, dict) and event.get("type") == "url_verification"
    return str(event.get("challenge")) if is_check else None
