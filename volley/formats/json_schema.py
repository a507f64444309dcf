"""Maps JSON Schema to columns: what no column can be has its JSON as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin

import pyarrow as pa

from volley.errors import ConfigError
from volley.formats.registered import Registered

__all__ = ["Items", "Members", "Node", "Plain", "Struct", "Text", "Whole", "columns_of", "merged", "text_of"]

_DEEPEST = 50
_MOST_PARTS = 10_000
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_TYPES = {"boolean": pa.bool_(), "number": pa.float64(), "string": pa.string()}


@dataclass(frozen=True)
class Plain:
    """A value without parts."""

    type: pa.DataType


@dataclass(frozen=True)
class Whole:
    """A whole number, which may be written as ``5.0``."""


@dataclass(frozen=True)
class Text:
    """Any value, as its JSON."""


@dataclass(frozen=True)
class Struct:
    """An object with these fields."""

    fields: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Items:
    """An array."""

    item: Node


@dataclass(frozen=True)
class Members:
    """An object of any keys."""

    value: Node


Node = Plain | Whole | Text | Struct | Items | Members


def columns_of(schema: Registered) -> Struct:
    """Return the columns of the objects of a schema.

    Raises:
        ConfigError: If it is no schema of an object with properties.
    """
    try:
        documents = {"": json.loads(schema.text), **{name: json.loads(text) for name, text in _texts(schema)}}
        node = _Types(documents).node(documents[""], "", 0, ())
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"not a JSON Schema ({type(error).__name__}: {error})", hint="give the columns: schema=…"
        ) from error
    if not isinstance(node, Struct):
        raise ConfigError("the JSON Schema is not that of an object with properties", hint="give the columns: schema=…")
    return node


def _texts(schema: Registered) -> Iterator[tuple[str, str]]:
    for name, reference in schema.references:
        yield from _texts(reference)
        yield name, reference.text


class _Types:
    """Maps schemas to nodes.

    Args:
        documents: The schemas by the names under which others refer to them; that of the root is empty.
    """

    def __init__(self, documents: Mapping[str, Any]) -> None:
        own = {document["$id"]: document for document in documents.values() if _has_id(document)}
        self._documents = {**own, **documents}
        self._parts = 0

    def node(self, schema: Any, base: str, depth: int, path: tuple[tuple[str, str], ...]) -> Node:
        """Return the node of a schema.

        Args:
            base: The name of the document that it is in.
            path: The references that it is within; one that contains itself is text.
        """
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise ConfigError(f"the JSON Schema has more than {_MOST_PARTS:,} parts", hint="give the columns: schema=…")
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return Text()
        nodes = [*self._combined(schema, base, depth, path)]
        own = self._own(schema, base, depth, path)
        return _all([*([] if own is None else [own]), *nodes])

    def _combined(self, schema: Any, base: str, depth: int, path: tuple[tuple[str, str], ...]) -> Iterator[Node]:
        """Yield the nodes of what a value must be besides."""
        if "$ref" in schema:
            yield self._reference(str(schema["$ref"]), base, depth, path)
        for member in schema.get("allOf", ()):
            yield self.node(member, base, depth + 1, path)
        for key in ("anyOf", "oneOf"):
            if branches := [branch for branch in schema.get(key, ()) if not _is_null(branch)]:
                yield _any([self.node(branch, base, depth + 1, path) for branch in branches])

    def _reference(self, reference: str, base: str, depth: int, path: tuple[tuple[str, str], ...]) -> Node:
        name, _, pointer = reference.partition("#")
        document = self._document(name, base)
        step = document, pointer
        if step in path:
            return Text()
        target = self._documents[document]
        for part in unquote(pointer).split("/")[1:]:
            key: Any = part.replace("~1", "/").replace("~0", "~")
            key = int(key) if isinstance(target, list) and key.isdigit() else key
            if not isinstance(target, list | dict) or (isinstance(target, dict) and key not in target):
                raise ConfigError(f"the JSON Schema refers to {reference!r}, which is not there", hint=_HINT)
            target = target[key]
        if pointer and not pointer.startswith("/"):
            raise ConfigError(f"the JSON Schema refers to the anchor {reference!r}", hint=_HINT)
        return self.node(target, document, depth + 1, (*path, step))

    def _document(self, name: str, base: str) -> str:
        if not name:
            return base
        known = self._documents.get(base)
        joined = urljoin(known["$id"], name) if isinstance(known, dict) and _has_id(known) else name
        for candidate in (name, joined):
            if candidate in self._documents:
                return candidate
        raise ConfigError(f"the JSON Schema refers to {name!r}, which is not among its references", hint=_HINT)

    def _own(self, schema: Any, base: str, depth: int, path: tuple[tuple[str, str], ...]) -> Node | None:
        """Return the node of a schema's own type; None if it says nothing of it."""
        named = schema.get("type")
        types = [item for item in (named if isinstance(named, list) else [named]) if item not in (None, "null")]
        if not types:
            types = _implied(schema)
        if {*types} == {"integer", "number"}:
            types = ["number"]
        if not types:
            return None
        if len(types) > 1:
            return Text()
        match types[0]:
            case "object":
                return self._object(schema, base, depth, path)
            case "array":
                items = schema.get("items")
                return Items(self.node(items, base, depth + 1, path)) if isinstance(items, dict) else Text()
            case "integer":
                return Whole()
            case "string" if schema.get("format") in _FORMATS:
                return Plain(_FORMATS[schema["format"]])
        return Plain(_TYPES[types[0]]) if types[0] in _TYPES else Text()

    def _object(self, schema: Any, base: str, depth: int, path: tuple[tuple[str, str], ...]) -> Node | None:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            fields = ((name, self.node(inner, base, depth + 1, path)) for name, inner in properties.items())
            return Struct(tuple(fields))
        if isinstance(others, dict) and others:
            return Members(self.node(others, base, depth + 1, path))
        # Its properties may stand beside it.
        return None if {"$ref", "allOf", "anyOf", "oneOf"} & schema.keys() else Text()


_HINT = "give the columns: schema=…"


def _has_id(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("$id"), str)


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", 0) is None)


def _implied(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema without a type has by its other words."""
    if "properties" in schema:
        return ["object"]
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    names = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return sorted({names.get(type(value), "any") for value in values if value is not None})


def _all(nodes: Sequence[Node]) -> Node:
    """Return the node of values that are all of these; what is not said is text."""
    structs = [node for node in nodes if isinstance(node, Struct)]
    if structs and all(isinstance(node, Struct | Text) for node in nodes):
        return _merged(structs)
    known = {node for node in nodes if not isinstance(node, Text)}
    return known.pop() if len(known) == 1 else Text()


def _any(nodes: Sequence[Node]) -> Node:
    """Return the node of values that are one of these."""
    different = {*nodes}
    if len(different) == 1:
        return nodes[0]
    if different == {Whole(), Plain(pa.float64())}:
        return Plain(pa.float64())
    structs = [node for node in nodes if isinstance(node, Struct)]
    return _merged(structs) if len(structs) == len(nodes) else Text()


def _merged(structs: Iterable[Struct]) -> Struct:
    """Return an object with the fields of several; one that they have of different types is text."""
    fields: dict[str, Node] = {}
    for struct in structs:
        for name, node in struct.fields:
            fields[name] = _any([fields[name], node]) if name in fields else node
    return Struct(tuple(fields.items()))


def merged(kept: Struct, latest: Struct) -> Struct:
    """Return the columns of two schemas: those of the first one keep their types, and new fields follow."""
    names = {name for name, _ in kept.fields}
    others = dict(latest.fields)
    fields = [(name, _merged_node(node, others.get(name, node))) for name, node in kept.fields]
    return Struct((*fields, *((name, node) for name, node in latest.fields if name not in names)))


def _merged_node(kept: Node, latest: Node) -> Node:
    match kept, latest:
        case Struct(), Struct():
            return merged(kept, latest)
        case Items(old), Items(new):
            return Items(_merged_node(old, new))
        case Members(old), Members(new):
            return Members(_merged_node(old, new))
    return kept


def text_of(node: Node) -> str:
    """Return a JSON Schema that has these columns.

    Example:
        >>> text_of(Struct((("id", Whole()),)))
        '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    """
    return json.dumps(_schema_of(node))


def _schema_of(node: Node) -> dict[str, Any]:
    match node:
        case Struct(fields):
            return {"type": "object", "properties": {name: _schema_of(inner) for name, inner in fields}}
        case Items(item):
            return {"type": "array", "items": _schema_of(item)}
        case Members(value):
            return {"type": "object", "additionalProperties": _schema_of(value)}
        case Whole():
            return {"type": "integer"}
        case Plain(data_type) if data_type in _FORMATS.values():
            return {"type": "string", "format": next(name for name, own in _FORMATS.items() if own == data_type)}
        case Plain(data_type):
            return {"type": next(name for name, own in _TYPES.items() if own == data_type)}
    # An empty schema says nothing as that of the members of an object.
    return {"$comment": "any value"}
