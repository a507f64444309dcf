"""Merges a later Avro schema into the one that values are read into, so that values of both can be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from volley.errors import SourceError
from volley.formats.avro_defaults import logical
from volley.formats.avro_resolution import is_same, kind_of, named_types, same_name

__all__ = ["merged"]

_WIDER = {("int", "long"), ("float", "double")}
_KEYS = {"array": "items", "map": "values"}


def merged(kept: Any, latest: Any) -> str | None:
    """Return a schema that reads values of both; None if the first one has all that the second one has.

    The types of the first one stay, but where the second has a wider one that a column can become. Fields that one of
    them lacks may be null.

    Args:
        kept: The schema to read into, as fastavro parsed it: with full names.
        latest: A later one, likewise.

    Raises:
        SourceError: If it has too many levels.

    Example:
        >>> kept = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
        >>> merged(kept, {**kept, "fields": [{"name": "id", "type": "long"}]})
        '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
        >>> merged(kept, kept) is None
        True
    """
    try:
        result = _Merger(kept, latest).type(kept, latest)
    except RecursionError as error:
        raise SourceError("the latest schema has too many levels") from error
    return None if result == _plain(kept) else json.dumps(result)


class _Merger:
    """Merges types; each named type stands where it is first used, with all that both schemas have of it."""

    def __init__(self, kept: Any, latest: Any) -> None:
        self._kept, self._latest = named_types(kept), named_types(latest)
        self._done: set[str] = set()

    def type(self, old: Any, new: Any) -> Any:
        """Return the merged type; the old one if the new one can't be read into it."""
        old, new = self._kept.get(_name(old), old), self._latest.get(_name(new), new)
        if isinstance(old, list) or isinstance(new, list):
            return self._union(_members(old), _members(new))
        kind = kind_of(old)
        if kind != kind_of(new):
            return self._copy(new if _is_wider(old, new) else old)
        if kind in _KEYS:
            return {**old, _KEYS[kind]: self.type(old[_KEYS[kind]], new[_KEYS[kind]])}
        if kind in ("record", "enum") and same_name(new, old):
            return self._named(old["name"], lambda: self._both(old, new))
        return self._copy(new if _is_wider(old, new) else old)

    def _both(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        if "symbols" in old:
            return {**old, "symbols": _added(old["symbols"], new["symbols"])}
        own, others = ({field["name"]: field for field in schema["fields"]} for schema in (old, new))
        fields = [
            {**field, "type": self.type(field["type"], others[name]["type"])}
            if name in others
            else self._optional(field)
            for name, field in own.items()
        ]
        return {**old, "fields": fields + [self._optional(others[name]) for name in others if name not in own]}

    def _optional(self, field: Mapping[str, Any]) -> dict[str, Any]:
        """Return a field that values may lack."""
        data_type = self._copy(field["type"])
        if "default" in field:
            return {**field, "type": data_type}
        return {**field, "type": _with_null(_members(data_type)), "default": None}

    def _union(self, old: Sequence[Any], new: Sequence[Any]) -> Any:
        if len([member for member in old if member != "null"]) > 1:
            return self._branches(old, new)
        # A column of one type can't become a struct: other branches are bad rows.
        (own,) = [member for member in old if member != "null"] or ["null"]
        matches = [member for member in new if self._is_same(own, member)]
        matches += [member for member in new if member != "null"]
        data_type = self.type(own, matches[0] if matches else own)
        if "null" not in old and "null" in new:
            return ["null", data_type]
        return [member if member == "null" else data_type for member in old] if len(old) > 1 else data_type

    def _branches(self, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """Return a union of several types: the branches keep their numbers, new ones follow."""
        left = [*new]
        branches = []
        for member in old:
            match = next((other for other in left if self._is_same(member, other)), None)
            left = [other for other in left if other is not match]
            branches.append(self._copy(member) if match is None else self.type(member, match))
        return [*branches, *map(self._copy, left)]

    def _is_same(self, old: Any, new: Any) -> bool:
        return is_same(self._kept.get(_name(old), old), self._latest.get(_name(new), new))

    def _copy(self, schema: Any) -> Any:
        """Return a type that one of the schemas has; of a name that both have, the merged one."""
        if isinstance(schema, list):
            return [self._copy(member) for member in schema]
        if (name := _name(schema)) in self._kept or name in self._latest:
            old, new = self._kept.get(name), self._latest.get(name)
            if old is None or new is None or kind_of(old) != kind_of(new) or kind_of(old) == "fixed":
                return self._named(name, lambda: self._alone(old or new or {}))
            return self._named(name, lambda: self._both(old, new))
        key = _KEYS.get(kind_of(schema))
        return schema if key is None else {**schema, key: self._copy(schema[key])}

    def _alone(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        fields = [{**field, "type": self._copy(field["type"])} for field in schema.get("fields", ())]
        return {**schema, **({"fields": fields} if "fields" in schema else {})}

    def _named(self, name: str, build: Callable[[], dict[str, Any]]) -> Any:
        """Build a named type at its first place; refer to it at others."""
        if name in self._done:
            return name
        self._done.add(name)
        return _plain(build())


def _name(schema: Any) -> str:
    return str(schema.get("name", "") if isinstance(schema, dict) else schema if isinstance(schema, str) else "")


def _members(schema: Any) -> list[Any]:
    return schema if isinstance(schema, list) else [schema]


def _with_null(members: list[Any]) -> list[Any]:
    """Return a union that has null; the numbers of several types stay."""
    if "null" in members:
        return members
    return [*members, "null"] if len(members) > 1 else ["null", *members]


def _added(old: list[Any], new: list[Any]) -> list[Any]:
    return [*old, *(item for item in new if item not in old)]


def _is_wider(old: Any, new: Any) -> bool:
    """Return True if a column of the old type can become one of the new type."""
    if logical(old) == logical(new) == "decimal":
        scales = (schema.get("scale", 0) for schema in (old, new))
        return kind_of(old) == kind_of(new) == "bytes" and len({*scales}) == 1 and old["precision"] < new["precision"]
    return logical(old) is logical(new) is None and (kind_of(old), kind_of(new)) in _WIDER


def _plain(schema: Any) -> Any:
    """Return a schema without the marks of the parser, which stand at its top."""
    if isinstance(schema, list):
        return [_plain(member) for member in schema]
    return {k: v for k, v in schema.items() if not k.startswith("__")} if isinstance(schema, dict) else schema
