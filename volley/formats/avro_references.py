"""Puts Avro schemas that refer to others into one text: each named type stands where it is first used."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from volley.errors import SourceError
from volley.formats.registered import Registered

__all__ = ["self_contained"]

_NAMED = ("record", "error", "enum", "fixed")


def self_contained(schema: Registered) -> str:
    """Return the text of a schema, with the types that it refers to in it.

    Raises:
        SourceError: If a text is not JSON, or has too many levels.
    """
    if not schema.references:
        return schema.text
    try:
        types = {name: json.loads(text) for name, text in _texts(schema)}
        return json.dumps(_Inliner(types).schema(json.loads(schema.text), ""))
    except (ValueError, RecursionError, TypeError, AttributeError) as error:
        raise SourceError(f"the schema of the values is not Avro ({type(error).__name__}: {error})") from error


def _texts(schema: Registered) -> Iterator[tuple[str, str]]:
    for name, reference in schema.references:
        yield from _texts(reference)
        yield name, reference.text


class _Inliner:
    """Replaces the first use of each type by its definition.

    Args:
        types: The definitions, by full name.
    """

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types
        self._defined: set[str] = set()

    def schema(self, schema: Any, space: str) -> Any:
        """Return a schema.

        Args:
            space: The namespace around it.
        """
        if isinstance(schema, list):
            return [self.schema(member, space) for member in schema]
        if isinstance(schema, str):
            return self._name(schema, space)
        type_name = schema["type"]
        if type_name in ("array", "map"):
            key = {"array": "items", "map": "values"}[type_name]
            return {**schema, key: self.schema(schema[key], space)}
        if type_name not in _NAMED:
            return {**schema, "type": self.schema(type_name, space)}
        return self._definition(schema, space)

    def _name(self, name: str, space: str) -> Any:
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._defined or full not in self._types:
            return full if full in self._defined else name
        # Outside of a namespace, whatever the one around its first use is.
        return self.schema(_outside(self._types[full]), "")

    def _definition(self, schema: dict[str, Any], space: str) -> dict[str, Any]:
        name = str(schema["name"])
        full = name if "." in name else ".".join(filter(None, (schema.get("namespace", space), name)))
        self._defined.add(full)
        inner = full.rpartition(".")[0]
        if "fields" not in schema:
            return schema
        fields = [{**field, "type": self.schema(field["type"], inner)} for field in schema["fields"]]
        return {**schema, "fields": fields}


def _outside(schema: Any) -> Any:
    if isinstance(schema, dict) and "." not in str(schema.get("name", ".")):
        return {"namespace": "", **schema}
    return schema
