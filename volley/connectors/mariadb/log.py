"""The binary log as the server sends it: events, whose checksums are right and which are not compressed any more."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pymysql

from volley.connectors.mariadb.connection import connect, one, query
from volley.connectors.mariadb.positions import log_file, position_of
from volley.connectors.mariadb.settings import ServerAddress
from volley.errors import SourceError

__all__ = [
    *("DELETE_ROWS", "GTID", "HEARTBEAT", "INSERT_ROWS", "QUERY", "ROTATE", "TABLE_MAP", "UPDATE_ROWS"),
    *("XA_PREPARE", "XID", "BinaryLog", "Event"),
]

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, HEARTBEAT, XA_PREPARE, GTID = 2, 4, 15, 16, 19, 27, 38, 162
INSERT_ROWS, UPDATE_ROWS, DELETE_ROWS = 23, 24, 25
_INCIDENT = 26
# Compressed events, and what they are without: those of rows of version 1 and 2, and of statements.
_COMPRESSED = {165: QUERY, 166: INSERT_ROWS, 167: UPDATE_ROWS, 168: DELETE_ROWS}
_VERSION_2 = (30, 31, 32, 39, 169, 170, 171)
_DUMP = 0x12
_HEADER = struct.Struct("<xIBIIIH")
_LONGEST_PACKET = (1 << 24) - 1
_HEARTBEAT_NANOSECONDS = 100_000_000
_ROWS_HEAD = 8
_QUERY_HEAD = struct.Struct("<IIBHH")


@dataclass(frozen=True)
class Event:
    """An event of the log."""

    type: int
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
        # What an older replica does not know would be replaced: global ids.
        query(connection, "set @mariadb_slave_capability = 4")
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
            elif kind in (*_VERSION_2, _INCIDENT):
                raise _unreadable(kind)
            else:
                if kind in _COMPRESSED:
                    kind, body = _COMPRESSED[kind], _decompressed(kind, body)
                yield Event(kind, time, position_of(self.file, end) if end else 0, body, server)

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


def _unreadable(kind: int) -> SourceError:
    if kind == _INCIDENT:
        return SourceError(
            "the binary log has an incident: the server could not log changes",
            hint='load the tables anew: start with fresh=True, into="replace"',
        )
    return SourceError(
        f"the binary log has events of type {kind}, as MySQL writes them", hint="this source reads the log of MariaDB"
    )


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


def statement(body: bytes) -> tuple[str, str]:
    """Return the default database of a statement, and its text."""
    _, _, database, _, variables = _QUERY_HEAD.unpack_from(body)
    at = _QUERY_HEAD.size + variables
    return body[at : at + database].decode(), body[at + database + 1 :].decode("utf-8", "replace")
