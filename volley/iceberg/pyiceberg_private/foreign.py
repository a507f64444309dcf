"""Reads table metadata that pyiceberg refuses and other engines take.

These have unknown types, identifiers that are no UUIDs, or transforms of several columns. Such a table can be read, but
not changed: what pyiceberg does not know would be lost.
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
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import UnknownTransform
from pyiceberg.types import NestedField

from volley.errors import CatalogError

# Importing it makes pyiceberg know the types of format version 3.
from volley.iceberg.pyiceberg_private import types
from volley.iceberg.pyiceberg_private.dropped import keys_of, transforms_of_several
from volley.iceberg.schema.foreign_types import UnreadableType

__all__ = ["REFUSED", "check_unencrypted", "mend", "read_foreign", "read_metadata"]

REFUSED = (InvalidModel, ValidationError, UnicodeDecodeError)
"""What pyiceberg raises for metadata that it refuses."""

_ENCRYPTED = "encryption.key-id"
_GZIP = b"\x1f\x8b"

assert types


def read_metadata(name: str, io: FileIO, location: str) -> TableMetadata:
    """Return the metadata in a file, also if pyiceberg refuses them.

    Args:
        name: The name of the table.

    Raises:
        CatalogError: If the table is encrypted.
    """
    try:
        return FromInputFile.table_metadata(io.new_input(location))
    except REFUSED as refusal:
        return read_foreign(name, io, location, refusal)[0]


def read_foreign(name: str, io: FileIO, location: str, refusal: Exception) -> tuple[TableMetadata, str]:
    """Return the metadata in a file that pyiceberg refuses, and why it does.

    Args:
        name: The name of the table.
        refusal: The error of pyiceberg; raised again if the metadata can't be mended.

    Raises:
        CatalogError: If the table is encrypted.
    """
    with io.new_input(location).open() as stream:
        content = stream.read()
    try:
        metadata = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
        reason = mend(name, metadata)
        return TableMetadataUtil.parse_obj(metadata), reason
    except (*REFUSED, ValueError, TypeError, KeyError, AttributeError):
        raise refusal from refusal.__cause__


def mend(name: str, metadata: dict[str, Any]) -> str:
    """Change metadata that pyiceberg refuses, as JSON has them, to what it takes; return why it refuses them.

    Raises:
        CatalogError: If the table is encrypted.
    """
    for key, place in keys_of(metadata):
        raise _encrypted(name, key, place)
    faults = [*_types(metadata), *_partition_ids(metadata), *_transforms(metadata), *_identifier(metadata)]
    # Readers don't need statistics; pyiceberg refuses all metadata for one that is incomplete.
    metadata["statistics"] = metadata["partition-statistics"] = []
    return "; ".join(dict.fromkeys(faults)) or "statistics are incomplete"


def check_unencrypted(name: str, metadata: TableMetadata) -> None:
    """Raise CatalogError if a property says that the table is encrypted, whose manifests can't be read."""
    if (key := metadata.properties.get(_ENCRYPTED)) is not None:
        raise _encrypted(name, key, f"table property {_ENCRYPTED}")


def _encrypted(name: str, key: str, place: str) -> CatalogError:
    return CatalogError(
        f"table {name} is encrypted with the key {key!r} ({place}), and can't be read",
        hint="copy it to a table without encryption by an engine that has the key",
    )


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


def _transforms(metadata: dict[str, Any]) -> Iterator[str]:
    """Make transforms of several columns unknown ones, by which no filter skips files."""
    for kind, field in transforms_of_several(metadata):
        columns = field["source-ids"]
        named = f"{field['transform']} of columns {', '.join(map(str, columns))}"
        field |= {"source-id": columns[0], "transform": UnknownTransform(named)}
        yield f"a {kind} field has the transform {named}"


def _identifier(metadata: dict[str, Any]) -> Iterator[str]:
    name = metadata.get("table-uuid")
    try:
        UUID(name)
    except (ValueError, TypeError, AttributeError):
        if isinstance(name, str):
            metadata["table-uuid"] = str(uuid5(NAMESPACE_OID, name))
            yield f"its table-uuid {name!r} is none"
