"""Decodes values that name their schema in front, which is then left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.framing import head_of
from volley.formats.messages import Decoder, Values
from volley.formats.rows import Sorted

__all__ = ["FramedValues"]


@dataclass(frozen=True)
class FramedValues:
    """Decodes values behind their frame; which schema it names has no part in it.

    Args:
        inner: What decodes them without it.
    """

    inner: Decoder

    @property
    def format(self) -> str:
        return self.inner.format

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    @property
    def rows_vary(self) -> bool:
        return self.inner.rows_vary

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        return self.inner.decode([*map(_body, values)], place)

    def sort(self, values: Values, place: str = "") -> Sorted:
        faults: dict[int, str] = {}
        bodies: list[bytes | None] = []
        numbers: list[int] = []
        for number, value in enumerate(values):
            try:
                bodies.append(_body(value))
                numbers.append(number)
            except SourceError as error:
                faults[number] = error.message
        rows = self.inner.sort(bodies, place) if bodies else Sorted([], [], {})
        faults |= {numbers[number]: fault for number, fault in rows.faults.items()}
        return replace(rows, numbers=[numbers[number] for number in rows.numbers], faults=dict(sorted(faults.items())))

    def fault(self, value: bytes | None, error: Exception) -> str:
        try:
            return self.inner.fault(_body(value), error)
        except SourceError as fault:
            return fault.message


def _body(value: bytes | None) -> bytes | None:
    return None if value is None else value[len(head_of(value)) :]
