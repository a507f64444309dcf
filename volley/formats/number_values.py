"""Decodes values that are one number, as Kafka's own serializers write them: its bytes, the highest one first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from volley.errors import SourceError, message_of
from volley.formats.messages import Values
from volley.formats.rows import Sorted

__all__ = ["NUMBERS", "NumberValues"]

NUMBERS = {
    "short": (">i2", pa.int16()),
    "int": (">i4", pa.int32()),
    "long": (">i8", pa.int64()),
    "float": (">f4", pa.float32()),
    "double": (">f8", pa.float64()),
}
"""By the name of a number, its bytes as NumPy names them, and its type."""


@dataclass(frozen=True)
class NumberValues:
    """Decodes values into the column ``value``; a tombstone becomes a null.

    Args:
        name: What they are, out of `NUMBERS`.
    """

    format: ClassVar[str] = "text"
    rows_vary: ClassVar[bool] = False
    name: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("value", NUMBERS[self.name][1])])

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        for value in values:
            if fault := self._fault(value):
                raise SourceError(fault)
        code, data_type = NUMBERS[self.name]
        data = b"".join(bytes(self._size) if value is None else value for value in values)
        numbers = np.frombuffer(data, code).astype(code[1:])
        column = pa.array(numbers, data_type, mask=np.array([value is None for value in values], bool))
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def sort(self, values: Values, place: str = "") -> Sorted:
        faults = {number: fault for number, value in enumerate(values) if (fault := self._fault(value))}
        numbers = [number for number in range(len(values)) if number not in faults]
        return Sorted([self.decode([values[number] for number in numbers])], numbers, faults)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return message_of(error)

    @property
    def _size(self) -> int:
        return int(NUMBERS[self.name][0][2:])

    def _fault(self, value: bytes | None) -> str | None:
        if value is None or len(value) == self._size:
            return None
        return f"it has {len(value)} bytes; a {self.name} has {self._size}"
