"""Checks schemas as users write them, when a pipeline is built. Imports Arrow only for an Arrow schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from volley.errors import ConfigError
from volley.types.names import Parser, check_names, check_type, fields_of

if TYPE_CHECKING:
    from volley.types.names import CheckedSchema, SchemaLike

__all__ = ["check_schema", "column_names", "schema_setting"]


def check_schema(schema: SchemaLike) -> Any:
    """Check a schema and return it in a hashable form that `arrow_schema` accepts.

    Args:
        schema: A text such as ``"id long, name string"``, a dict of names and types, a dataclass, a pydantic model or
            a `pyarrow.Schema`.

    Raises:
        ConfigError: If it is not a schema, has an unknown type or no column, or a column name is empty or not unique.
        SourceError: If an Arrow type has no counterpart in Spark and Iceberg.

    Example:
        >>> check_schema({"id": int, "tags": list[str]})
        (('id', 'long'), ('tags', 'array<string>'))
    """
    if isinstance(schema, str):
        check_names([name for name, _ in Parser(schema).columns()], schema)
        return schema
    if type(schema).__module__.partition(".")[0] == "pyarrow" and type(schema).__name__ == "Schema":
        from volley.types.arrow import canonical_schema

        canonical_schema(schema)
        return schema
    if fields := fields_of(schema):
        schema = fields
    pairs = tuple(schema.items()) if isinstance(schema, Mapping) else schema
    if (
        not isinstance(pairs, tuple)
        or not pairs
        or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    ):
        raise ConfigError(
            f"a schema is a text, a dict, a dataclass, a pydantic model or a pyarrow.Schema, not {schema!r} of type "
            f"{type(schema).__name__}",
            hint='for example "id long, name string", or {"id": int, "name": str}',
        )
    check_names([name for name, _ in pairs], "the schema")
    return tuple((name, check_type(type_like)) for name, type_like in pairs)


def schema_setting(name: str, schema: Any) -> Any:
    """Check a setting that is a schema; see `check_schema`."""
    return check_schema(schema)


def column_names(schema: CheckedSchema) -> list[str]:
    """Return the names of a schema's columns."""
    if isinstance(schema, str):
        return [name for name, _ in Parser(schema).columns()]
    if isinstance(schema, Mapping | tuple):
        return list(dict(schema))
    names: list[str] = schema.names
    return names
