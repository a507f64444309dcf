"""The binary log as the server sends it: events, whose checksums are right and which are not compressed any more."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from volley.connectors.mariadb.connection import connect, one, query
from volley.connectors.mariadb.positions import log_file, position_of
from volley.connectors.mariadb.settings import ANEW, ServerAddress
from volley.errors import SourceError

__all__ = [
    *("DELETE_ROWS", "GTID", "HEARTBEAT", "INSERT_ROWS", "QUERY", "ROTATE", "TABLE_MAP", "UPDATE_ROWS"),
    *("UNREADABLE_ROWS", "XA_PREPARE", "XID", "BinaryLog", "Event", "is_gtid", "opens_transaction", "statement"),
    "unreadable",
]

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT, XA_PREPARE, GTID = 2, 4, 15, 16, 19, 27, 38, 162
_GTIDS = (33, 34, 42, GTID)
"""Of MySQL: with an id, without one, with an id that has a tag; of MariaDB."""
_LONG_HEARTBEAT = 41
INSERT_ROWS, UPDATE_ROWS, DELETE_ROWS = 23, 24, 25
_INCIDENT = 26
# Compressed events, and what they are without: those of rows of version 1 and 2, and of statements.
_COMPRESSED = {165: QUERY, 166: INSERT_ROWS, 167: UPDATE_ROWS, 168: DELETE_ROWS}
# Rows of version 2: what is said of them beside their columns is left out.
_VERSION_2 = {30: INSERT_ROWS, 31: UPDATE_ROWS, 32: DELETE_ROWS}
_PARTIAL, _PAYLOAD = 39, 40
UNREADABLE_ROWS = (_PARTIAL, 169, 170, 171)
"""Events of rows that this source can't read: parts of JSON values, and compressed ones of version 2."""
_PAYLOAD_SIZE, _PAYLOAD_CODEC, _PAYLOAD_LENGTH = 1, 2, 3
_ZSTD, _PLAIN = 0, 255
_HEADER_SIZE = 19
_DUMP = 0x12
_HEADER = struct.Struct("<xIBIIIH")
_EVENT_HEADER = struct.Struct("<IBIIIH")
_LONGEST_PACKET = (1 << 24) - 1
_HEARTBEAT_NANOSECONDS = 100_000_000
_ROWS_HEAD = 8
_QUERY_HEAD = struct.Struct("<IIBHH")
# The first two settings that a statement is logged with: a session's flags, and its sql_mode.
_SQL_MODE = struct.Struct("<BIBQ")
_STRICT = 3 << 21


@dataclass(frozen=True)
class Event:
    """An event of the log."""

    type: int  # its number; of rows and of global ids as the server has written them
    time: int  # when its statement began, in seconds since 1970
    end: int  # the position after it
    body: bytes
    server: int = 0  # the id of the server that wrote it


class BinaryLog:
    """Reads the log from a position on, as a replica does.

    A server ends the connection of an earlier replica with the same id.

    Args:
        position: Where a transaction ends.
    """

    def __init__(self, server: ServerAddress, position: int, example: str) -> None:
        self._connection = connect(server)
        try:
            self._start(server, *log_file(position, example))
        except BaseException:
            self.close()
            raise

    def _start(self, server: ServerAddress, file: str, offset: int) -> None:
        connection = self._connection
        query(connection, "set @master_binlog_checksum = @@global.binlog_checksum")
        server.dialect.register(connection)
        query(connection, "set @master_heartbeat_period = %s", _HEARTBEAT_NANOSECONDS)
        (checksum,) = one(connection, "select @@global.binlog_checksum")
        self._has_checksums = checksum == "CRC32"
        self.file = file
        connection._sock.settimeout(server.timeout)
        name = file.encode()
        payload = struct.pack("<BIHI", _DUMP, offset, 0, server.server_id) + name
        connection._write_bytes(struct.pack("<I", len(payload)) + payload)
        self._stream = connection._rfile

    def close(self) -> None:
        """End the connection, also if another thread reads from it."""
        with suppress(Exception):
            self._connection._force_close()

    def events(self) -> Iterator[Event]:
        """Yield the events as they come, heartbeats while there is none; ends only by an error.

        Raises:
            SourceError: If an event is damaged, or of a kind that can't be read.
            pymysql.Error: If the server ends the stream.
            OSError: If the connection breaks.
        """
        while True:
            packet = self._packet()
            time, kind, server, _, end, _ = _HEADER.unpack_from(packet)
            body = self._checked(kind, packet)
            if kind == ROTATE:
                self.file, offset = body[8:].decode(), int.from_bytes(body[:8], "little")
                yield Event(ROTATE, time, position_of(self.file, offset), body)
            elif kind == FORMAT:
                self._has_checksums = packet[-5] == 1
            elif kind == _PAYLOAD:
                yield from _unpacked(body, position_of(self.file, end))
            else:
                yield _event(kind, time, position_of(self.file, end) if end else 0, body, server)

    def _packet(self) -> bytes:
        parts = []
        while True:
            head = self._read(4)
            size = int.from_bytes(head[:3], "little")
            parts.append(self._read(size))
            if size < _LONGEST_PACKET:
                break
        packet = parts[0] if len(parts) == 1 else b"".join(parts)
        if packet[0] == 0xFF:
            pymysql.err.raise_mysql_exception(packet)
        if packet[0] == 0xFE and len(packet) < 9:
            raise pymysql.err.OperationalError(2013, "the server has ended the stream")
        return packet

    def _read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise pymysql.err.OperationalError(2013, "the connection is closed")
        return data

    def _checked(self, kind: int, packet: bytes) -> bytes:
        """Return the body of an event."""
        if not self._has_checksums:
            return packet[20:]
        if kind != FORMAT and zlib.crc32(memoryview(packet)[1:-4]) != int.from_bytes(packet[-4:], "little"):
            raise SourceError(
                f"an event of the binary log in {self.file} has a wrong checksum",
                hint="start the job again: if it stays, the server's log is damaged",
            )
        return packet[20:-4]


def _event(kind: int, time: int, end: int, body: bytes, server: int) -> Event:
    """Return an event in the one form that all servers' events have here."""
    if kind in _VERSION_2:
        size = int.from_bytes(body[_ROWS_HEAD : _ROWS_HEAD + 2], "little")
        kind, body = _VERSION_2[kind], body[:_ROWS_HEAD] + body[_ROWS_HEAD + size :]
    elif kind in _COMPRESSED:
        kind, body = _COMPRESSED[kind], _decompressed(kind, body)
    elif kind == _LONG_HEARTBEAT:
        kind = HEARTBEAT
    elif kind == _INCIDENT:
        raise unreadable(kind)
    return Event(kind, time, end, body, server)


def _unpacked(body: bytes, end: int) -> Iterator[Event]:
    """Yield the events of a compressed transaction; the last one ends where the whole does."""
    fields, at = {}, 0
    while (kind := body[at]) != 0:
        size, at = lenenc(body, at + 1)
        fields[kind], _ = lenenc(body, at)
        at += size
    payload = memoryview(body)[at + 1 :]
    if len(payload) != fields[_PAYLOAD_SIZE] or fields[_PAYLOAD_CODEC] not in (_ZSTD, _PLAIN):
        raise SourceError(
            "the binary log has a transaction of an unknown compression",
            hint="set global binlog_transaction_compression = OFF",
        )
    if fields[_PAYLOAD_CODEC] == _ZSTD:
        payload = memoryview(pa.decompress(payload, fields[_PAYLOAD_LENGTH], codec="zstd"))
    at = 0
    while at < len(payload):
        time, kind, server, size, _, _ = _EVENT_HEADER.unpack_from(payload, at)
        inner, at = bytes(payload[at + _HEADER_SIZE : at + size]), at + size
        yield _event(kind, time, end if at == len(payload) else 0, inner, server)


def unreadable(kind: int) -> SourceError:
    """Return the error for an event that can't be read."""
    if kind == _INCIDENT:
        return SourceError(
            "the binary log has an incident: the server could not log changes",
            hint=ANEW,
        )
    if kind == _PARTIAL:
        return SourceError(
            "the binary log has parts of JSON values only (binlog_row_value_options of a session)",
            hint=f"set it to '', and {ANEW}",
        )
    return SourceError(f"the binary log has events of type {kind}, which this source does not read", hint=ANEW)


def _decompressed(kind: int, body: bytes) -> bytes:
    """Return the body of an event without compression: of rows behind their bitmaps, of a statement its text."""
    at = _rows_at(kind, body) if kind != 165 else _text_at(body)
    size = body[at] & 0x07
    if body[at] >> 4 & 0x07:
        raise SourceError("the binary log has events of an unknown compression", hint="set global log_bin_compress = 0")
    return body[:at] + zlib.decompress(body[at + 1 + size :])


def _rows_at(kind: int, body: bytes) -> int:
    columns, at = lenenc(body, _ROWS_HEAD)
    return at + (columns + 7) // 8 * (2 if kind == 167 else 1)


def _text_at(body: bytes) -> int:
    _, _, database, _, variables = _QUERY_HEAD.unpack_from(body)
    return int(_QUERY_HEAD.size + variables + database + 1)


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of a length of one to nine bytes, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def is_gtid(event: Event) -> bool:
    """Return whether an event begins a transaction, and tells its global id."""
    return event.type in _GTIDS


def opens_transaction(text: str) -> bool:
    """Return whether more events of a transaction follow its first statement."""
    upper = text.upper()
    return upper == "BEGIN" or upper.startswith(("XA START", "XA BEGIN")) or upper.endswith(") START TRANSACTION")


def statement(body: bytes) -> tuple[str, str, bool]:
    """Return the default database of a statement, its text, and whether what does not fit a column is an error."""
    _, _, database, _, variables = _QUERY_HEAD.unpack_from(body)
    at = _QUERY_HEAD.size + variables
    settings = _SQL_MODE.unpack_from(body, _QUERY_HEAD.size) if variables >= _SQL_MODE.size else (0, 0, 0, 0)
    is_strict = (settings[0], settings[2]) == (0, 1) and bool(settings[3] & _STRICT)
    return body[at : at + database].decode(), body[at + database + 1 :].decode("utf-8", "replace"), is_strict
