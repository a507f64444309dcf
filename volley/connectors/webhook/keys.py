"""Idempotency keys: the recent ones in memory, the others in SQLite, for as long as senders may repeat a request."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from volley.errors import ConfigError, SourceError
from volley.storage.local import begin_local_file
from volley.storage.state_formats import WEBHOOK_KEYS

__all__ = ["KeyStore", "digest", "json_key", "json_path"]

_DIGEST_BYTES = 16
# A body's digest is followed by a CRC-32 of key and digest.
_SUM_BYTES = 4
# A bit says whether any key has it: with a million keys, 99 of 100 new ones need no look-up. 16 MB.
_BITS = 1 << 27
_TABLES = (
    "create table if not exists young (key blob primary key, body blob) without rowid",
    "create table if not exists old (key blob primary key, body blob) without rowid",
    "create table if not exists state (name text primary key, value integer)",
    "insert or ignore into state values ('indexed', 0), ('began', 0), ('sum', 0)",
)
_ALL = "select key, body from young union all select key, body from old"
_SEAL = "update {} set body = sealed(key, body)"
_FIND = "select body from young where key = ?1 union all select body from old where key = ?1"
_EXPIRE = ("drop table old", "alter table young rename to old")


def digest(data: bytes) -> bytes:
    """Return a digest of 16 bytes; two keys or bodies of one digest are taken for equal."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


class KeyStore:
    """The keys of requests that are on disk, each with a digest of its body, in a SQLite file.

    A key is remembered for one to two times the given time: the table of young keys becomes that of old ones, whose
    keys are forgotten.

    Args:
        remember: Seconds to remember a key, at least.

    Raises:
        SourceError: If the file can't be read, or is damaged.
        StorageError: If a newer Volley wrote it.
    """

    def __init__(self, path: str, remember: float) -> None:
        self._remember = remember
        self._bits = bytearray(_BITS // 8)
        with _readable(path), ExitStack() as stack:
            self._writer = stack.enter_context(closing(_connect(path)))
            self._prepare(path)
            self._check()
            # Look-ups come from the event loop, while another thread adds keys.
            self._reader = stack.enter_context(closing(_connect(path)))
            self._set_bits(_checked(row) for row in self._writer.execute(_ALL))
            stack.pop_all()

    def _prepare(self, path: str) -> None:
        """Make the tables of a new file, and give those of version 1 their checksums."""
        version = self._number("pragma user_version")
        WEBHOOK_KEYS.check(WEBHOOK_KEYS.name, version, path)
        if version == WEBHOOK_KEYS.version:
            return
        self._writer.create_function("sealed", 2, _sealed_once, deterministic=True)
        with self._writer:
            self._writer.execute("begin")
            for statement in (*_TABLES, *map(_SEAL.format, ("young", "old"))):
                self._writer.execute(statement)
            self._set("began", self._state("began") or int(time.time()))
            self._writer.execute(f"pragma user_version = {WEBHOOK_KEYS.version}")

    def _check(self) -> None:
        """Raise ValueError if SQLite finds the file damaged, or the numbers in it do not fit their checksum."""
        ((fault,),) = self._writer.execute("pragma quick_check(1)")
        if fault != "ok":
            raise ValueError(fault)
        if self._state("sum") != self._sum():
            raise ValueError("its numbers do not fit their checksum")

    def _sum(self) -> int:
        return zlib.crc32(f"{self._state('indexed')} {self._state('began')}".encode())

    def _number(self, statement: str, *values: object) -> int:
        return int(self._writer.execute(statement, values).fetchone()[0])

    @property
    def indexed(self) -> int:
        """The position in the log up to which all keys are here."""
        return self._state("indexed")

    def find(self, key: bytes) -> bytes | None:
        """Return the digest of the body that came with a key; None if the key is unknown."""
        bit = int.from_bytes(key[:8], "little") % _BITS
        if not self._bits[bit >> 3] >> (bit & 7) & 1:
            return None
        row = self._reader.execute(_FIND, (key,)).fetchone()
        return None if row is None else row[0][:-_SUM_BYTES]

    def add(self, keys: Iterable[tuple[bytes, bytes]], indexed: int) -> None:
        """Add keys with their bodies' digests, and force them to disk.

        Args:
            indexed: The position in the log up to which all keys are here then.
        """
        keys = sorted(keys)
        self._set_bits(key for key, _ in keys)
        with self._writer:
            # In order of the keys, a page of the table is changed once for many.
            rows = ((key, _sealed(key, body)) for key, body in keys)
            self._writer.executemany("insert or replace into young values (?, ?)", rows)
            self._set("indexed", indexed)
        if time.time() - self._state("began") >= self._remember:
            with self._writer:
                # All of it or nothing: on a full disk the old table must stay.
                for statement in ("begin", *_EXPIRE, *_TABLES):
                    self._writer.execute(statement)
                self._set("began", int(time.time()))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self._writer.close()

    def _set_bits(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            bit = int.from_bytes(key[:8], "little") % _BITS
            self._bits[bit >> 3] |= 1 << (bit & 7)

    def _state(self, name: str) -> int:
        return self._number("select value from state where name = ?", name)

    def _set(self, name: str, value: int) -> None:
        self._writer.execute("update state set value = ? where name = ?", (value, name))
        self._writer.execute("update state set value = ? where name = 'sum'", (self._sum(),))


def _sealed(key: bytes, body: bytes) -> bytes:
    """Return a body's digest with its checksum."""
    return body + zlib.crc32(key + body).to_bytes(_SUM_BYTES, "little")


def _sealed_once(key: bytes, body: bytes) -> bytes:
    """Return a body's digest of version 1 with its checksum."""
    if len(body) != _DIGEST_BYTES:
        raise ValueError("a digest has another length")
    return _sealed(key, body)


def _checked(row: tuple[bytes, bytes]) -> bytes:
    """Return the key of a row whose checksum is right."""
    key, body = row
    if _sealed(key, body[:-_SUM_BYTES]) != body:
        raise ValueError("a key does not fit its checksum")
    return key


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what a damaged file raises into a SourceError."""
    try:
        yield
    except (sqlite3.Error, ValueError, TypeError, OverflowError) as error:
        raise SourceError(
            f"{path}, which has the idempotency keys, can't be read: {error}",
            hint="make room if the disk is full; else restore it from a backup, or delete it: requests that are sent "
            "again are stored again then, if only it had their keys",
        ) from error


def _connect(path: str) -> sqlite3.Connection:
    # SQLite gives the files beside it the same mode.
    begin_local_file(path)
    connection = sqlite3.connect(path, check_same_thread=False, timeout=30)
    connection.executescript("pragma journal_mode = wal; pragma synchronous = full")
    return connection


def json_path(path: str) -> tuple[str, ...]:
    """Return the names in a path such as ``$.event.id``.

    Raises:
        ConfigError: If it is not such a path.

    Example:
        >>> json_path("$.event.id")
        ('event', 'id')
    """
    if not re.fullmatch(r"\$(\.[^.\[\]\s]+)+", path):
        raise ConfigError(f"{path!r} is not a path in JSON", hint='names with dots between them: "json:$.event.id"')
    return tuple(path.split(".")[1:])


def json_key(body: bytes, path: tuple[str, ...]) -> str | None:
    """Return the text or number at a path in a JSON object; None if there is none.

    Raises:
        ValueError: If the body is not JSON.

    Example:
        >>> json_key(b'{"event": {"id": 7}}', ("event", "id"))
        '7'
    """
    try:
        value: Any = json.loads(body)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None
