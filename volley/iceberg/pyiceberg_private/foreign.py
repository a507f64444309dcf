"""Reads table metadata that pyiceberg refuses and other engines take: unknown types, identifiers that are no UUIDs.

Such a table can be read, but not changed: what pyiceberg does not know would be lost.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from pydantic import ValidationError as InvalidModel
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import NestedField

# Importing it makes pyiceberg know the types of format version 3.
from volley.iceberg.pyiceberg_private import types
from volley.iceberg.schema.foreign_types import UnreadableType

__all__ = ["REFUSED", "mend", "read_foreign"]

REFUSED = (InvalidModel, ValidationError, UnicodeDecodeError)
"""What pyiceberg raises for metadata that it refuses."""

_GZIP = b"\x1f\x8b"

assert types


def read_foreign(io: FileIO, location: str, refusal: Exception) -> tuple[TableMetadata, str]:
    """Return the metadata in a file that pyiceberg refuses, and why it does.

    Args:
        refusal: The error of pyiceberg; raised again if the metadata can't be mended.
    """
    with io.new_input(location).open() as stream:
        content = stream.read()
    try:
        metadata = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        reason = mend(metadata)
        return TableMetadataUtil.parse_obj(metadata), reason
    except (*REFUSED, ValueError, TypeError, KeyError, AttributeError):
        raise refusal from refusal.__cause__


def mend(metadata: dict[str, Any]) -> str:
    """Change metadata that pyiceberg refuses, as JSON has them, to what it takes; return why it refuses them."""
    faults = [*_types(metadata), *_partition_ids(metadata), *_identifier(metadata)]
    # Readers don't need statistics; pyiceberg refuses all metadata for one that is incomplete.
    metadata["statistics"] = metadata["partition-statistics"] = []
    return "; ".join(dict.fromkeys(faults)) or "statistics are incomplete"


def _types(metadata: dict[str, Any]) -> Iterator[str]:
    for schema in [*metadata.get("schemas", ()), *filter(None, [metadata.get("schema")])]:
        for field in schema["fields"]:
            unknown: list[str] = []
            field["type"] = _known(field["type"], unknown)
            yield from (f"column {field['name']!r} has the type {name}" for name in unknown)


def _known(data_type: Any, unknown: list[str]) -> Any:
    """Return a type with objects in place of the names that pyiceberg does not know, which are added to `unknown`."""
    if isinstance(data_type, str):
        return _named(data_type, unknown)
    parts = {key: _known(data_type[key], unknown) for key in ("element", "key", "value") if key in data_type}
    fields = [{**field, "type": _known(field["type"], unknown)} for field in data_type.get("fields", ())]
    return {**data_type, **parts, **({"fields": fields} if "fields" in data_type else {})}


def _named(name: str, unknown: list[str]) -> Any:
    try:
        NestedField(1, "", name)
    except (ValueError, ValidationError):
        unknown.append(name)
        return UnreadableType(name)
    return name


def _partition_ids(metadata: dict[str, Any]) -> Iterator[str]:
    """Number partition fields as the specification does for metadata of format version 1 that has no numbers."""
    for spec in metadata.get("partition-specs", ()):
        for number, field in enumerate(spec["fields"], PARTITION_FIELD_ID_START):
            if "field-id" not in field:
                field["field-id"] = number
                yield "its partition fields have no ids"


def _identifier(metadata: dict[str, Any]) -> Iterator[str]:
    name = metadata.get("table-uuid")
    try:
        UUID(name)
    except (ValueError, TypeError, AttributeError):
        if isinstance(name, str):
            metadata["table-uuid"] = str(uuid5(NAMESPACE_OID, name))
            yield f"its table-uuid {name!r} is none"
