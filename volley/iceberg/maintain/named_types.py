"""Types of columns by their names, also those that only tables have."""

from __future__ import annotations

from typing import cast

from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from volley.errors import ConfigError
from volley.iceberg.pyiceberg_private.types import named
from volley.iceberg.schema.types import iceberg_type
from volley.types.arrow import arrow_of
from volley.types.names import TABLE_TYPES, ParsedType, Parser

__all__ = ["type_named"]

_NO_ID = -1


def type_named(text: str) -> IcebergType:
    """Return the type of a table's column by its name, such as ``long``, ``variant`` or ``array<geometry(EPSG:4326)>``.

    Raises:
        ConfigError: If there is no such type.

    Example:
        >>> str(type_named("map<string, variant>"))
        'map<string, variant>'
    """
    return cast(IcebergType, assign_fresh_schema_ids(_parsed(Parser(text, of_tables=True).only_type())))


def _parsed(parsed: ParsedType) -> IcebergType:
    inner = [NestedField(_NO_ID, name, _parsed(part), required=False) for name, part in parsed.fields]
    match parsed.name:
        case "array":
            return ListType(_NO_ID, inner[0].field_type, element_required=False)
        case "map":
            if _is_of_tables(key := parsed.fields[0][1]):
                raise ConfigError(f"the keys of a map can't be {key.name}", hint='for example "map<string, variant>"')
            return MapType(_NO_ID, inner[0].field_type, _NO_ID, inner[1].field_type, value_required=False)
        case "struct":
            return StructType(*inner)
    return named(parsed.name) if _is_of_tables(parsed) else iceberg_type(arrow_of(parsed))


def _is_of_tables(parsed: ParsedType) -> bool:
    return parsed.name.partition("(")[0] in TABLE_TYPES
