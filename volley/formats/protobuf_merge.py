"""Merges a later Protobuf schema into the one that messages are read by, so that no field of either is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from volley.errors import SourceError
from volley.formats.protobuf_schema import check_files, is_built_in, joined, parts_of

__all__ = ["merged"]

_HINT = "give new fields new names and numbers; or the schema to read by: schema=…"


def merged(kept: bytes, latest: bytes) -> bytes:
    """Return a schema with the fields, values of enums and types of both; the same bytes if nothing is new.

    What the first one has keeps its name and type, but `int32` and `sint32` become as wide as the second one has them.

    Args:
        kept: The schema to read by, a serialized FileDescriptorSet whose last file has the message.
        latest: A later one, likewise.

    Raises:
        SourceError: If the second one is no valid schema, or does not go with the first one: a new field has the name
            of another one, a file has another syntax now, types have moved so that files import one another.
    """
    check_files(latest)
    files = parts_of(kept)
    merger = _Merger(files)
    for file in parts_of(latest):
        if not is_built_in(file.name):
            merger.add(file)
    if not merger.changed:
        return kept
    both = joined(files, files[-1].name)
    check_files(both)
    return both


class _Merger:
    """Adds what later files have to those that are kept.

    Args:
        files: The kept ones, which are changed.

    Attributes:
        changed: True if something was new.
    """

    def __init__(self, files: list[Any]) -> None:
        self.changed = False
        self._files = files
        self._types = {name: part for file in files for name, part in _types(file.package, _tops(file))}

    def add(self, file: Any) -> None:
        """Add what a later file has."""
        own = next((other for other in self._files if other.name == file.name), None)
        if own is None:
            own = type(file)()
            own.CopyFrom(file)
            del own.message_type[:], own.enum_type[:]
            # The last file is the one with the message.
            self._files.insert(0, own)
        elif _dialect(own) != _dialect(file):
            raise SourceError(f"the latest Protobuf schema has another syntax now: {_dialect(file)}", hint=_HINT)
        before, self.changed = self.changed, False
        for message in file.message_type:
            self._message(message, file.package, own.message_type)
        for enum in file.enum_type:
            self._enum(enum, file.package, own.enum_type)
        if self.changed:
            _add_imports(own, file)
        self.changed |= before

    def _message(self, message: Any, place: str, siblings: Any) -> None:
        name = _full(place, message.name)
        own = self._types.get(name)
        if own is None:
            self.changed = True
            own = siblings.add()
            own.CopyFrom(message)
            # Those within it may be known: they are added one by one.
            del own.nested_type[:], own.enum_type[:]
            self._types[name] = own
        for inner in message.nested_type:
            self._message(inner, name, own.nested_type)
        for enum in message.enum_type:
            self._enum(enum, name, own.enum_type)
        for field in message.field:
            self._field(field, own, message, name)

    def _field(self, field: Any, own: Any, message: Any, name: str) -> None:
        known = {other.number: other for other in own.field}
        if field.number in known:
            self._widen(known[field.number], field)
            return
        if other := next((other for other in own.field if other.name == field.name), None):
            raise SourceError(
                f"field {field.name!r} of {name} has the number {field.number} now, and had {other.number}: one column "
                "can't have both",
                hint=_HINT,
            )
        self.changed = True
        added = own.field.add()
        added.CopyFrom(field)
        _forget_reserved(own)
        if field.HasField("oneof_index"):
            _join(own, added, message.oneof_decl[field.oneof_index])

    def _widen(self, own: Any, field: Any) -> None:
        wider = {own.TYPE_INT32: own.TYPE_INT64, own.TYPE_SINT32: own.TYPE_SINT64}
        if wider.get(own.type) == field.type and own.label == field.label:
            self.changed = True
            own.type = field.type

    def _enum(self, enum: Any, place: str, siblings: Any) -> None:
        name = _full(place, enum.name)
        own = self._types.get(name)
        if own is None:
            self.changed = True
            own = self._types[name] = siblings.add()
            own.CopyFrom(enum)
            return
        names, numbers = {value.name for value in own.value}, {value.number for value in own.value}
        for value in enum.value:
            if value.name not in names and value.number not in numbers:
                self.changed = True
                own.value.add().CopyFrom(value)
                _forget_reserved(own)


def _join(message: Any, field: Any, oneof: Any) -> None:
    """Put a new field into the oneof of its name; those of `optional` fields stand behind the others."""
    names = [own.name for own in message.oneof_decl]
    if oneof.name not in names:
        message.oneof_decl.add().CopyFrom(oneof)
        names.append(oneof.name)
    field.oneof_index = names.index(oneof.name)
    optional = {own.oneof_index for own in message.field if own.proto3_optional}
    order = sorted(range(len(names)), key=optional.__contains__)
    oneofs = [type(oneof).FromString(message.oneof_decl[index].SerializeToString()) for index in order]
    del message.oneof_decl[:]
    message.oneof_decl.extend(oneofs)
    for own in message.field:
        if own.HasField("oneof_index"):
            own.oneof_index = order.index(own.oneof_index)


def _forget_reserved(part: Any) -> None:
    """Forget which numbers and names may not be used, which says nothing to a reader."""
    del part.reserved_range[:], part.reserved_name[:]


def _add_imports(own: Any, file: Any) -> None:
    public = {file.dependency[index] for index in file.public_dependency}
    for name in file.dependency:
        if name not in own.dependency:
            own.dependency.append(name)
            if name in public:
                own.public_dependency.append(len(own.dependency) - 1)


def _tops(file: Any) -> Iterator[Any]:
    yield from file.message_type
    yield from file.enum_type


def _types(place: str, parts: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        name = _full(place, part.name)
        yield name, part
        if hasattr(part, "nested_type"):
            yield from _types(name, [*part.nested_type, *part.enum_type])


def _full(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _dialect(file: Any) -> str:
    """Return what says whether a field that is unset is null."""
    return f"{file.syntax or 'proto2'} {file.edition or ''} {file.options.features}".strip()
