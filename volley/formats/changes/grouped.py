"""What decoders of changes share: messages are divided once, by the schema that each carries, and read by schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from volley.columns.batches import no_rows
from volley.errors import SourceError, message_of
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.avro import Avro
from volley.formats.changes.debezium import Envelope, Flattened
from volley.formats.changes.declared import Declared
from volley.formats.changes.encoding import Encoding, Json
from volley.formats.changes.events import Shape
from volley.formats.changes.shapes import Airbyte, Canal, Dms, Maxwell, OLake
from volley.formats.messages import Values
from volley.formats.rows import Sorted, joined
from volley.formats.schema_registry import Registry

__all__ = ["GroupedChanges", "shape_of"]

_TOMBSTONE = (
    'it has no value, which may tell of a deletion: tombstones="delete" takes the record\'s key, of Kafka alone; '
    'delete.tombstone.handling.mode=rewrite writes a row for it; with rewrite-with-tombstone, tombstones="skip" leaves '
    "it out"
)


@dataclass(frozen=True)
class GroupedChanges(ABC):
    """Decodes values that are changes: as many rows as a message has, none for one that has no change.

    Args:
        columns: The declared columns.
        value_format: One of `CHANGES`.
        registry: The registry of the schemas of messages in Avro; None = they are JSON.
    """

    rows_vary: ClassVar[bool] = True
    columns: pa.Schema
    value_format: str
    options: ChangeOptions
    registry: Registry | None = field(default=None, kw_only=True)

    @property
    def format(self) -> str:
        return self._encoding.format

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @abstractmethod
    def sort(self, values: Values, place: str = "") -> Sorted:
        """Return the rows of values, each with the number of its value, and the faults of those that are bad."""

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        rows = self.sort(values, place)
        if rows.faults:
            raise SourceError(next(iter(rows.faults.values())))
        return rows.batch

    def fault(self, value: bytes | None, error: Exception) -> str:
        return message_of(error)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def _read_columns(self) -> pa.Schema:
        """The columns that messages are read into; none if each tells its own."""
        return self.columns

    @cached_property
    def _shape(self) -> Shape:
        return shape_of(self.value_format, self.options, self._read_columns.names)

    @cached_property
    def _encoding(self) -> Encoding:
        if self.registry is not None:
            return Avro(self._read_columns, self._shape, self.registry, self.options)
        return Json(self._read_columns, self._shape, self.value_format == "debezium", self.options)

    @cached_property
    def _empty(self) -> Sorted:
        return Sorted([no_rows(self.schema)], [], {})

    def _tombstones(self, values: Values, keys: Collection[int] = ()) -> dict[int, str]:
        """Return the faults of messages with neither value nor key: it may be all that tells of a deletion."""
        if not self.options.flattened or self.options.tombstones == "skip":
            return {}
        empty = (number for number, value in enumerate(values) if value is None or value == b"null")
        return {number: _TOMBSTONE for number in empty if number not in keys}

    def _ordered(self, pieces: Sequence[Sorted]) -> Sorted:
        """Return rows in the order of their messages; those of one piece are in order."""
        rows = joined([self._empty, *pieces])
        if sum(bool(piece.numbers) for piece in pieces) < 2:
            return rows
        order = np.argsort(rows.numbers, kind="stable")
        return Sorted([rows.batch.take(pa.array(order))], [rows.numbers[row] for row in order], rows.faults)


def shape_of(value_format: str, options: ChangeOptions, columns: Collection[str] = ()) -> Shape:
    """Return the shape of messages of a format.

    Args:
        columns: The columns of rows, which a declared shape needs to know.
    """
    keys = tuple(options.key_fields)
    if options.unwrap is not None:
        return Declared(options.unwrap, keys, frozenset(columns))
    shapes: dict[str, Shape] = {
        "debezium": Flattened() if options.flattened else Envelope(),
        "maxwell": Maxwell(keys),
        "canal": Canal(keys),
        "dms": Dms(keys),
        "airbyte": Airbyte(),
        "olake": OLake(),
    }
    return shapes[value_format]
