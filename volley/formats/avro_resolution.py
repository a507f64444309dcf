"""Resolves the schema that Avro values were written with and the one to read them into, before the first value is read.

fastavro resolves schemas itself, but returns defaults as JSON, takes units from the writer alone and compares short
names. It gets schemas of which all this is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from volley.errors import SourceError
from volley.formats.avro_defaults import READ_AS, converted, logical

__all__ = [
    *("UNREAD", "added_sizes", "can_become", "is_same", "kind_of", "named_types", "resolved", "same_name"),
    *("set_defaults", "unread_reasons"),
]

_PROMOTED: dict[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_DEFAULT = "converted"
UNREAD = "unread"
"""A branch of the writer's that can't be read has a name that begins so, and an attribute of this name: the reason."""
_DECIMAL = ("precision", "scale")

_Pair = tuple[Any, Any]


def resolved(writer: Any, reader: Any) -> _Pair:
    """Return both schemas under the reader's names, types without namespaces, and units that both agree on.

    Args:
        writer: The schema of the values, as fastavro parsed it: with full names.
        reader: The schema to read into, likewise.

    Raises:
        SourceError: If no value of the writer can be read; names the field.
    """
    return _Resolver(writer, reader).pair(writer, reader, "")


def set_defaults(schema: Any) -> None:
    """Set the converted defaults of a parsed schema that `resolved` made: the parser accepts only JSON."""
    for part in _parts(schema):
        for field in part.get("fields", ()):
            if _DEFAULT in field:
                field["default"] = field[_DEFAULT]


def added_sizes(schema: Any) -> dict[str, int]:
    """Return about how large the converted defaults of records are, by their names in a schema that `resolved` made."""
    sizes: dict[str, int] = {}
    for part in _parts(schema):
        for field in part.get("fields", ()):
            if _DEFAULT in field:
                sizes[part["name"]] = sizes.get(part["name"], 0) + len(repr(field[_DEFAULT]))
    return sizes


def unread_reasons(schema: Any) -> list[str]:
    """Return why values of some branches of a schema that `resolved` made can't be read."""
    return list(dict.fromkeys(part[UNREAD] for part in _parts(schema) if UNREAD in part))


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all parts of a schema that have attributes."""
    if isinstance(schema, list):
        for member in schema:
            yield from _parts(member)
    elif isinstance(schema, dict):
        yield schema
        for inner in (
            schema.get("items"),
            schema.get("values"),
            *(field["type"] for field in schema.get("fields", ())),
        ):
            yield from _parts(inner)


class _Resolver:
    """Pairs the types of two schemas."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writers = named_types(writer)
        self._readers = named_types(reader)
        # The new names of pairs of named types; of a type that is skipped, the reader's name is empty.
        self._made: dict[tuple[str, str], str] = {}
        self._count = 0

    def pair(self, writer: Any, reader: Any, place: str) -> _Pair:
        writer, reader = _found(writer, self._writers), _found(reader, self._readers)
        if isinstance(writer, list):
            return self._union(writer, reader, place)
        if isinstance(reader, list):
            if kind_of(writer) == "null" and "null" in reader:
                return "null", "null"
            if len([member for member in reader if member != "null"]) > 1:
                return self._branch(writer, reader, place)
            reader = _found(next((member for member in reader if member != "null"), "null"), self._readers)
        match kind_of(writer), kind_of(reader):
            case "array", "array":
                return self._inside("items", writer, reader, place)
            case "map", "map":
                return self._inside("values", writer, reader, place)
            case ("record", "record") | ("enum", "enum") | ("fixed", "fixed") if same_name(writer, reader):
                return self._of_names(writer, reader, place)
        return _plain(writer, reader, place)

    def _union(self, members: list[Any], reader: Any, place: str) -> _Pair:
        """Pair each branch that can be read; a value of another one is an error once it comes."""
        writers, readers, reason = [], [], _mismatch(members, reader, place)
        for member in members:
            before = dict(self._made)
            try:
                branch, target = self.pair(member, reader, place)
            except SourceError as error:
                self._made, reason = before, error
                # A record of one field has the bytes of the field, and matches no type of the reader.
                branch = {
                    "type": "record",
                    "name": self._name(UNREAD),
                    "fields": [_field("value", self._skipped(member))],
                    UNREAD: error.message,
                }
            else:
                readers += [] if target in readers else [target]
            writers.append(branch)
        if not readers:
            raise reason
        return writers, readers

    def _branch(self, writer: Any, members: list[Any], place: str) -> _Pair:
        """Pair a type with the one of several that it is, else the first one that it can be read into.

        A record of one field has the bytes of the field: so the value has its branch, and its number as a default.
        """
        numbered = [(number, _found(member, self._readers)) for number, member in enumerate(members)]
        same = [(number, member) for number, member in numbered if is_same(writer, member)]
        reason = _mismatch(writer, members, place)
        for number, member in [*same, *numbered]:
            before = dict(self._made)
            try:
                written, target = self.pair(writer, member, place)
            except SourceError as error:
                self._made, reason = before, error if same else reason
                continue
            name = self._name("branch")
            own = [_field(f"field{number}", written)]
            tag = {**_field("tag", "null"), "default": None, _DEFAULT: number}
            read_as = [_field(f"field{number}", target), tag]
            return (
                {"type": "record", "name": name, "fields": own},
                {"type": "record", "name": name, "fields": read_as},
            )
        raise reason

    def _inside(self, key: str, writer: Any, reader: Any, place: str) -> _Pair:
        inner, target = self.pair(writer[key], reader[key], place)
        return {"type": writer["type"], key: inner}, {"type": writer["type"], key: target}

    def _of_names(self, writer: Any, reader: Any, place: str) -> _Pair:
        def build(name: str) -> _Pair:
            if writer["type"] == "record":
                return self._record(writer, reader, name, place)
            if writer["type"] == "fixed":
                return _fixed(writer, reader, name, place)
            resolved_type = {"type": "enum", "name": name, "symbols": writer["symbols"]}
            if set(writer["symbols"]) <= set(reader["symbols"]):
                return resolved_type, resolved_type
            default = {"default": reader["default"]} if "default" in reader else {}
            return resolved_type, {**resolved_type, "symbols": reader["symbols"], **default}

        key = writer["name"], reader["name"]
        resolved_type: _Pair = self._once(key, lambda name: (name, name), build)
        return resolved_type

    def _once(self, key: tuple[str, str], again: Callable[[str], Any], build: Callable[[str], Any]) -> Any:
        """Build a named type at its first place; refer to it at others."""
        if key in self._made:
            return again(self._made[key])
        self._made[key] = self._name(_short(key[0]))
        return build(self._made[key])

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}_{self._count}"

    def _record(self, writer: Any, reader: Any, name: str, place: str) -> _Pair:
        own = {field["name"] for field in writer["fields"]}
        unread = {field["name"]: field for field in reader["fields"]}
        aliases = {
            alias: target for target in unread if target not in own for alias in unread[target].get("aliases", ())
        }
        writers, readers = [], []
        for field in writer["fields"]:
            target = unread.pop(field["name"] if field["name"] in unread else aliases.get(field["name"]), None)
            if target is None:
                writers.append(_field(field["name"], self._skipped(field["type"])))
                continue
            written, read_as = self.pair(field["type"], target["type"], _inner(place, target["name"]))
            writers.append(_field(target["name"], written))
            readers.append(_field(target["name"], read_as))
        readers += [self._missing(field, _inner(place, field["name"])) for field in unread.values()]
        return {"type": "record", "name": name, "fields": writers}, {"type": "record", "name": name, "fields": readers}

    def _missing(self, field: Mapping[str, Any], place: str) -> dict[str, Any]:
        if "default" not in field:
            raise SourceError(f"field {place!r} is not in the schema of the values, and has no default")
        try:
            value = converted(field["default"], field["type"], self._readers)
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
            raise SourceError(f"the default of field {place!r} is no value of its type: {error}") from error
        return {**_field(field["name"], "null"), "default": None, _DEFAULT: value}

    def _skipped(self, schema: Any) -> Any:
        """Return a type of the writer under names that no type of the reader has."""
        schema = _found(schema, self._writers)
        if isinstance(schema, list):
            return [self._skipped(member) for member in schema]
        match kind_of(schema):
            case "array":
                return {"type": "array", "items": self._skipped(schema["items"])}
            case "map":
                return {"type": "map", "values": self._skipped(schema["values"])}
            case "record" | "error" | "enum" | "fixed":
                return self._once((schema["name"], ""), str, lambda name: self._skipped_name(schema, name))
        return kind_of(schema)

    def _skipped_name(self, schema: Any, name: str) -> dict[str, Any]:
        attributes = {key: schema[key] for key in ("type", "symbols", "size") if key in schema}
        fields = [_field(field["name"], self._skipped(field["type"])) for field in schema.get("fields", ())]
        return {**attributes, "name": name, **({"fields": fields} if "fields" in schema else {})}


def _plain(writer: Any, reader: Any, place: str) -> _Pair:
    """Pair types without parts: the reader says what a number means, the unit is that of the writer if it has one."""
    written, wanted = kind_of(writer), kind_of(reader)
    if written in ("array", "map", "record", "enum", "fixed") or not can_become(written, wanted):
        raise _mismatch(writer, reader, place)
    own, target = logical(writer), logical(reader)
    if target is None:
        return written, wanted
    if own is None:
        # int and long, as string and bytes, have the same bytes.
        resolved_type = {"type": wanted, **_marks(reader)}
        return resolved_type, resolved_type
    if _family(own) != _family(target):
        raise _mismatch(writer, reader, place)
    into = target if target.endswith("-volley") else target.rpartition("-")[0]
    unit = f"{into}-{own.rpartition('-')[2]}"
    resolved_type = _marks({**writer, "logicalType": unit} if "-" in own else writer)
    return {"type": written, **resolved_type}, {"type": wanted, **_marks(reader)}


def can_become(written: str, wanted: str) -> bool:
    """Return True if values of one kind of type can be read as another.

    Example:
        >>> can_become("int", "double"), can_become("double", "int")
        (True, False)
    """
    return wanted in (written, *_PROMOTED.get(written, ()))


def _fixed(writer: Any, reader: Any, name: str, place: str) -> _Pair:
    if writer["size"] != reader["size"]:
        raise _mismatch(writer, reader, place)
    resolved_type = {"type": "fixed", "name": name, "size": writer["size"]}
    if logical(reader) is None:
        return resolved_type, resolved_type
    resolved_type |= _marks(writer if logical(writer) else reader)
    return resolved_type, resolved_type


def _marks(schema: Mapping[str, Any]) -> dict[str, Any]:
    marks = {key: schema[key] for key in _DECIMAL if key in schema}
    name = READ_AS.get(schema["logicalType"], schema["logicalType"])
    return {**marks, **({"logicalType": name} if name else {})}


def _family(name: str) -> str:
    """Return what a logical type counts, without its unit and zone."""
    return name.removeprefix("local-").partition("-")[0]


def _field(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "type": schema}


def _inner(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _found(schema: Any, names: Mapping[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def kind_of(schema: Any) -> str:
    """Return the name of a type's kind, such as ``"record"`` or ``"long"``."""
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def same_name(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> bool:
    """Return True if values of one named type can be read as another: by short name, or an alias."""
    names = [reader["name"], *reader.get("aliases", ())]
    return _short(writer["name"]) in map(_short, names[:1]) or writer["name"] in _full(names)


def is_same(writer: Any, reader: Any) -> bool:
    """Return True if two types have one kind and full name."""
    if isinstance(writer, dict) and "name" in writer:
        return isinstance(reader, dict) and reader.get("name") == writer["name"]
    return kind_of(writer) == kind_of(reader)


def _full(names: list[str]) -> list[str]:
    """Return a type's name and aliases in full: an alias without a namespace has that of the type."""
    space = names[0].rpartition(".")[0]
    return [name if "." in name or not space else f"{space}.{name}" for name in names]


def named_types(schema: Any) -> dict[str, Any]:
    """Return the named types of a parsed schema, by full name."""
    return {part["name"]: part for part in _parts(schema) if "name" in part}


def _mismatch(writer: Any, reader: Any, place: str) -> SourceError:
    written, target = (_told(schema) for schema in (writer, reader))
    where = f"field {place!r}" if place else "a value"
    return SourceError(f"{where} was written as {written}, which can't be read into {target}")


def _told(schema: Any) -> str:
    """Return the short form of a type in messages."""
    if isinstance(schema, list):
        return f"one of {', '.join(map(_told, schema))}"
    if not isinstance(schema, dict):
        return str(schema)
    size = [f"of {schema['size']} bytes"] if "size" in schema else []
    names = [str(schema[key]) for key in ("name", "logicalType") if key in schema]
    return " ".join([kind_of(schema), *names, *size])
