"""Notes in a stream's schema which of its columns tell an upsert what to do: the keys, the order, the operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.types.arrow import ROLE

__all__ = ["ChangeColumns"]

_KEY, _SEQUENCE = "key", "sequence"
_ORDER, _OPERATION, _UNCHANGED = b"order", b"operation", b"unchanged"
_ORDERING = b"operation and order"


@dataclass(frozen=True)
class ChangeColumns:
    """The columns that an upsert uses if it names none itself.

    They are noted in the metadata of their fields: a renamed column keeps its note, a computed one has none.

    Args:
        keys: The columns that identify a row; empty = unknown, or one of them is no longer in the stream.
        order: The column that orders the changes of a row; it is not written. If it is that of the operation, rows are
            deleted before others come, in whatever order they arrive.
        operation: The column whose value ``"d"`` deletes the row; it is not written.
        unchanged: The column with the names of the columns whose values the row lacks; it is not written.
        sequence: The columns that tell which of two rows is the later one, whenever they come; empty = none, or one of
            them is no longer in the stream.

    Example:
        >>> schema = pa.schema({"id": pa.int64(), "_op": pa.string()})
        >>> ChangeColumns.of(ChangeColumns(("id",), operation="_op").noted(schema))
        ChangeColumns(keys=('id',), order=None, operation='_op', unchanged=None, sequence=())
    """

    keys: Sequence[str] = ()
    order: str | None = None
    operation: str | None = None
    unchanged: str | None = None
    sequence: Sequence[str] = ()

    @classmethod
    def of(cls, schema: pa.Schema) -> ChangeColumns:
        """Return what is noted in a schema."""
        columns = {field.metadata[ROLE]: field.name for field in schema if ROLE in (field.metadata or {})}
        both = columns.get(_ORDERING)
        order, operation = (columns.get(role, both) for role in (_ORDER, _OPERATION))
        return cls(_numbered(columns, _KEY), order, operation, columns.get(_UNCHANGED), _numbered(columns, _SEQUENCE))

    def noted(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the notes."""
        roles = dict(self._roles())
        return pa.schema([_with_role(field, roles.get(field.name)) for field in schema])

    def _roles(self) -> Iterator[tuple[str, bytes]]:
        for kind, listed in ((_KEY, self.keys), (_SEQUENCE, self.sequence)):
            for number, column in enumerate(listed):
                yield column, f"{kind} {number} of {len(listed)}".encode()
        if self.operation is not None and self.operation == self.order:
            yield self.operation, _ORDERING
        else:
            yield from ((name, role) for name, role in ((self.order, _ORDER), (self.operation, _OPERATION)) if name)
        if self.unchanged is not None:
            yield self.unchanged, _UNCHANGED


def _with_role(field: pa.Field, role: bytes | None) -> pa.Field:
    return field if role is None else field.with_metadata({ROLE: role})


def _numbered(columns: dict[bytes, str], kind: str) -> tuple[str, ...]:
    """Return the columns of a kind that has several, in their order, if the stream has all of them."""
    roles = [role for role in columns if role.startswith(f"{kind} ".encode())]
    roles.sort(key=lambda role: int(role.split()[1]))
    is_whole = bool(roles) and len(roles) == int(roles[0].split()[3])
    return tuple(columns[role] for role in roles) if is_whole else ()
