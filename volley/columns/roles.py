"""Notes in a stream's schema which of its columns tell an upsert what to do: the keys, the order, the operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.types.arrow import ROLE

__all__ = ["ChangeColumns"]

_ORDER, _OPERATION, _UNCHANGED = b"order", b"operation", b"unchanged"


@dataclass(frozen=True)
class ChangeColumns:
    """The columns that an upsert uses if it names none itself.

    They are noted in the metadata of their fields: a renamed column keeps its note, a computed one has none.

    Args:
        keys: The columns that identify a row; empty = unknown, or one of them is no longer in the stream.
        order: The column that orders the changes of a row; it is not written.
        operation: The column whose value ``"d"`` deletes the row; it is not written.
        unchanged: The column with the names of the columns whose values the row lacks; it is not written.

    Example:
        >>> schema = pa.schema({"id": pa.int64(), "_op": pa.string()})
        >>> ChangeColumns.of(ChangeColumns(("id",), operation="_op").noted(schema))
        ChangeColumns(keys=('id',), order=None, operation='_op', unchanged=None)
    """

    keys: Sequence[str] = ()
    order: str | None = None
    operation: str | None = None
    unchanged: str | None = None

    @classmethod
    def of(cls, schema: pa.Schema) -> ChangeColumns:
        """Return what is noted in a schema."""
        columns = {field.metadata[ROLE]: field.name for field in schema if ROLE in (field.metadata or {})}
        return cls(_keys(columns), *(columns.get(role) for role in (_ORDER, _OPERATION, _UNCHANGED)))

    def noted(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the notes."""
        roles = dict(self._roles())
        return pa.schema([_with_role(field, roles.get(field.name)) for field in schema])

    def _roles(self) -> Iterator[tuple[str, bytes]]:
        for number, key in enumerate(self.keys):
            yield key, b"key %d of %d" % (number, len(self.keys))
        for column, role in ((self.order, _ORDER), (self.operation, _OPERATION), (self.unchanged, _UNCHANGED)):
            if column is not None:
                yield column, role


def _with_role(field: pa.Field, role: bytes | None) -> pa.Field:
    return field if role is None else field.with_metadata({ROLE: role})


def _keys(columns: dict[bytes, str]) -> tuple[str, ...]:
    """Return the key columns in their order, if the stream has all of them."""
    roles = sorted((role for role in columns if role.startswith(b"key ")), key=lambda role: int(role.split()[1]))
    is_whole = bool(roles) and len(roles) == int(roles[0].split()[3])
    return tuple(columns[role] for role in roles) if is_whole else ()
