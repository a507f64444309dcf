"""Checks that messages of one Protobuf schema mean the same when they are read by another one."""

from __future__ import annotations

from typing import Any

from volley.errors import SourceError
from volley.formats.protobuf_types import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FIXED32,
    FIXED64,
    FLOAT,
    GROUP,
    INT32,
    INT64,
    MESSAGE,
    SFIXED32,
    SFIXED64,
    SINT32,
    SINT64,
    STRING,
    UINT32,
    UINT64,
)

__all__ = ["check_readable"]

_NAMES = {
    **{DOUBLE: "double", FLOAT: "float", INT64: "int64", UINT64: "uint64", INT32: "int32", FIXED64: "fixed64"},
    **{FIXED32: "fixed32", BOOL: "bool", STRING: "string", GROUP: "group", MESSAGE: "message", BYTES: "bytes"},
    **{UINT32: "uint32", ENUM: "enum", SFIXED32: "sfixed32", SFIXED64: "sfixed64", SINT32: "sint32"},
    SINT64: "sint64",
}
# The types whose values another type reads as they were meant: their bytes are the same, and it has room for them.
_READ_BY: dict[int, tuple[int, ...]] = {
    INT64: (INT32, UINT32, BOOL, ENUM),
    INT32: (BOOL, ENUM),
    UINT64: (UINT32, BOOL),
    UINT32: (BOOL,),
    SINT64: (SINT32,),
    BYTES: (STRING,),
}


def check_readable(writer: Any, reader: Any) -> None:
    """Check that a message's fields have the same meaning by their numbers.

    Args:
        writer: The descriptor of the messages.
        reader: The one to read them by; fields that it lacks are left out, and those that the writer lacks are unset.

    Raises:
        SourceError: If a field would be read as something else; names it.
    """
    _check(writer, reader, set())


def _check(writer: Any, reader: Any, seen: set[tuple[str, str]]) -> None:
    pair = writer.full_name, reader.full_name
    if pair in seen:
        return
    seen.add(pair)
    for field in reader.fields:
        own = writer.fields_by_number.get(field.number)
        if own is None:
            continue
        if own.type != field.type and own.type not in _READ_BY.get(field.type, ()):
            raise _changed(field, _NAMES[own.type], _NAMES[field.type])
        if own.is_repeated and not field.is_repeated:
            raise _changed(field, "repeated", "one value")
        if field.type in (MESSAGE, GROUP):
            _check(own.message_type, field.message_type, seen)


def _changed(field: Any, written: str, read: str) -> SourceError:
    return SourceError(
        f"field {field.name!r} ({field.number} of {field.containing_type.full_name}) was written as {written}, "
        f"which can't be read as {read}",
        hint="give fields that change their type a new number",
    )
