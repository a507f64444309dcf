"""Decodes the requests of a log into rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.connectors.webhook.batches import Faults
from volley.connectors.webhook.frames import Entry, Frame
from volley.connectors.webhook.headers import unpacked
from volley.connectors.webhook.settings import UNKNOWN
from volley.formats.message_rows import MessageRows, decode_errors
from volley.formats.messages import Decoder, JsonValues, PlainValues
from volley.types.arrow import arrow_schema, canonical_schema

__all__ = ["Requests", "decoder_of", "faults_of", "rows_of"]


@dataclass
class Requests:
    """Consecutive requests of a log.

    Args:
        entries: The requests.
        times: When each was written, in microseconds since 1970.
        first: The number of the first one.
    """

    entries: list[Entry]
    times: list[int]
    first: int

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Requests:
        """Return the requests of consecutive frames."""
        entries = [entry for frame in frames for entry in frame.entries]
        times = [frame.head.time for frame in frames for _ in frame.entries]
        return cls(entries, times, frames[0].head.first)

    @property
    def values(self) -> Sequence[bytes]:
        """Their bodies."""
        return [entry.body for entry in self.entries]

    def part(self, start: int, end: int) -> Requests:
        """Return the requests from `start` (inclusive) to `end` (exclusive)."""
        return replace(self, entries=self.entries[start:end], times=self.times[start:end], first=self.first + start)

    def position(self, row: int) -> str:
        """Return the number of a request."""
        return f"request {self.first + row}"


def decoder_of(value_format: str, schema: object, on_unknown: str) -> Decoder:
    """Return the decoder of bodies.

    Args:
        value_format: ``"json"``, ``"string"`` or ``"raw"``.
        schema: The columns of JSON.
        on_unknown: What to do with JSON fields that the schema lacks.
    """
    if value_format == "json":
        return JsonValues(canonical_schema(arrow_schema(schema)), on_unknown, UNKNOWN)
    return PlainValues(value_format == "string")


def rows_of(decoder: Decoder, include: Sequence[str], headers: Sequence[str]) -> MessageRows:
    """Return what decodes requests into the columns of bodies, of parts of requests, and of headers.

    Args:
        decoder: Decodes bodies.
        include: The parts, out of `METADATA`.
        headers: The columns of the kept headers, in their order.
    """
    fields = [pa.field(f"http_{part}", _PARTS[part][0]) for part in include]
    fields += [pa.field(column, pa.string()) for column in headers]
    return MessageRows(decoder, pa.schema([*decoder.schema, *fields]), partial(_metadata, include, len(headers)))


def faults_of(decoder: Decoder) -> Faults:
    """Return what says which bodies a decoder can't decode."""

    def faults(bodies: Sequence[bytes]) -> Mapping[int, str]:
        def attempt(start: int, end: int) -> Mapping[int, str]:
            decoder.decode(bodies[start:end])
            return {}

        def few(start: int, end: int) -> tuple[Mapping[int, str], bool]:
            faults = decoder.sort(bodies[start:end]).faults
            return {start + number: fault for number, fault in faults.items()}, bool(faults)

        try:
            return attempt(0, len(bodies))
        except decode_errors:
            pieces = sort_failing(len(bodies), attempt, few, decode_errors)
            return {number: fault for piece in pieces for number, fault in piece.items()}

    return faults


def _metadata(include: Sequence[str], headers: int, fields: Sequence[pa.Field], requests: Requests) -> list[pa.Array]:
    parts = [_PARTS[part][1](requests) for part in include]
    kept = [unpacked(entry.headers) for entry in requests.entries] if headers else []
    return parts + [pa.array([values[number] for values in kept], pa.string()) for number in range(headers)]


def _keys(requests: Requests) -> pa.Array:
    keys = [entry.key.decode(errors="replace") if entry.key else None for entry in requests.entries]
    return pa.array(keys, pa.string())


def _times(requests: Requests) -> pa.Array:
    return pa.array(requests.times, pa.timestamp("us", "UTC"))


_PARTS: dict[str, tuple[pa.DataType, Callable[[Requests], pa.Array]]] = {
    "key": (pa.string(), _keys),
    "received_at": (pa.timestamp("us", "UTC"), _times),
}
