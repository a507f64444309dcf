"""Types of format version 3 in schemas of pyiceberg 0.12: ``variant``, which it lacks, and references of geometries.

Also defaults of columns of nanoseconds, for which it reads no metadata. By the specification references have no quotes,
as ``geometry(EPSG:4326)``; pyiceberg reads and writes them with quotes, which Iceberg's Java library takes for a part
of the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import pyiceberg.types as types_of_iceberg
from pyiceberg.conversions import from_json, to_json
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions.literals import LongLiteral
from pyiceberg.types import (
    DEFAULT_GEOGRAPHY_ALGORITHM,
    DEFAULT_GEOGRAPHY_CRS,
    DEFAULT_GEOMETRY_CRS,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    TimestampNanoType,
    TimestamptzNanoType,
)

from volley.errors import ConfigError
from volley.iceberg.schema.foreign_types import VariantType
from volley.iceberg.schema.nanoseconds import NanosecondsLiteral, of_text, text_of

__all__ = ["named"]

_VARIANT = "variant"
# A reference may be in quotes, as pyiceberg has written it.
_GEO = re.compile(r"(?:geometry|geography)(?:\(\s*['\"]?([^,'\"()]+?)['\"]?\s*(?:,\s*['\"]?(\w+)['\"]?\s*)?\))?")


def named(name: str) -> IcebergType:
    """Return the type of this name in the metadata of tables; raise ConfigError if there is none."""
    try:
        return NestedField(field_id=1, name="", field_type=name).field_type
    except (ValueError, ValidationError) as error:
        raise ConfigError(
            f"{name!r} is no type of Iceberg", hint='"variant", "geometry(EPSG:4326)" or "geography(EPSG:4326, karney)"'
        ) from error


def _known(value: Any) -> Any:
    return VariantType() if value == _VARIANT else value


def _knowing(init: Callable[..., None], *names: str) -> Callable[..., None]:
    """Return the constructor of a type or field that takes ``variant`` for a type, among arguments of some names."""

    @wraps(init)
    def constructor(self: IcebergType, *args: Any, **data: Any) -> None:
        data |= {name: _known(data[name]) for name in names if name in data}
        init(self, *args, **data)

    return constructor


def _parts(name: Any) -> tuple[str | None, str | None]:
    match = _GEO.fullmatch(str(name).strip())
    if match is None:
        raise ValidationError(f"Could not parse {name} into a geometry or geography")
    return match[1], match[2]


def _geometry(name: Any) -> str:
    return _parts(name)[0] or DEFAULT_GEOMETRY_CRS


def _geography(name: Any) -> tuple[str, str]:
    reference, algorithm = _parts(name)
    return reference or DEFAULT_GEOGRAPHY_CRS, algorithm or DEFAULT_GEOGRAPHY_ALGORITHM


def _geometry_name(self: GeometryType) -> str:
    return "geometry" if self.crs == DEFAULT_GEOMETRY_CRS else f"geometry({self.crs})"


def _geography_name(self: GeographyType) -> str:
    if self.algorithm != DEFAULT_GEOGRAPHY_ALGORITHM:
        return f"geography({self.crs}, {self.algorithm})"
    return "geography" if self.crs == DEFAULT_GEOGRAPHY_CRS else f"geography({self.crs})"


def _name_by(kind: type[GeometryType | GeographyType], name: Callable[[Any], str]) -> None:
    """Let a type be shown and written by a name."""
    kind.__str__ = name  # type: ignore[method-assign]
    kind.__pydantic_decorators__.model_serializers["ser_model"].func = name
    kind.model_rebuild(force=True)


def _nanoseconds(data_type: IcebergType, value: str | int) -> int:
    """Return a default as nanoseconds since 1970."""
    number = of_text(value, data_type) if isinstance(value, str) else value
    if number is None:
        raise ValueError(f"default {value!r} is no {data_type}")
    return number


def _literal(self: LongLiteral, data_type: IcebergType) -> NanosecondsLiteral:
    return NanosecondsLiteral(self.value)


for _kind in (TimestampNanoType, TimestamptzNanoType):
    vars(LongLiteral)["to"].register(_kind, _literal)
    from_json.register(_kind, _nanoseconds)  # type: ignore[arg-type]
    to_json.register(_kind, text_of)  # type: ignore[arg-type]
NestedField.__init__ = _knowing(NestedField.__init__, "type", "field_type")  # type: ignore[method-assign]
ListType.__init__ = _knowing(ListType.__init__, "element", "element_type")  # type: ignore[method-assign]
MapType.__init__ = _knowing(MapType.__init__, "value", "value_type")  # type: ignore[method-assign]
types_of_iceberg._parse_geometry_type = _geometry  # type: ignore[assignment]
types_of_iceberg._parse_geography_type = _geography  # type: ignore[assignment]
_name_by(GeometryType, _geometry_name)
_name_by(GeographyType, _geography_name)
