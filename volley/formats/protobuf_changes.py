"""Checks that messages of one Protobuf schema mean the same when they are read by another one."""

from __future__ import annotations

from typing import Any

from volley.errors import SourceError

__all__ = ["check_readable"]

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_NAMES = {
    **{_DOUBLE: "double", _FLOAT: "float", _INT64: "int64", _UINT64: "uint64", _INT32: "int32", _FIXED64: "fixed64"},
    **{_FIXED32: "fixed32", _BOOL: "bool", _STRING: "string", _GROUP: "group", _MESSAGE: "message", _BYTES: "bytes"},
    **{_UINT32: "uint32", _ENUM: "enum", _SFIXED32: "sfixed32", _SFIXED64: "sfixed64", _SINT32: "sint32"},
    _SINT64: "sint64",
}
# The types whose values another type reads as they were meant: their bytes are the same, and it has room for them.
_READ_BY: dict[int, tuple[int, ...]] = {
    _INT64: (_INT32, _UINT32, _BOOL, _ENUM),
    _INT32: (_BOOL, _ENUM),
    _UINT64: (_UINT32, _BOOL),
    _UINT32: (_BOOL,),
    _SINT64: (_SINT32,),
    _BYTES: (_STRING,),
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
        if field.type in (_MESSAGE, _GROUP):
            _check(own.message_type, field.message_type, seen)


def _changed(field: Any, written: str, read: str) -> SourceError:
    return SourceError(
        f"field {field.name!r} ({field.number} of {field.containing_type.full_name}) was written as {written}, "
        f"which can't be read as {read}",
        hint="give fields that change their type a new number",
    )
