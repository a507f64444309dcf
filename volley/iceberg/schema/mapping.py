"""Properties of a table: numbers, and the name mapping, by which columns of files without field ids are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField

from volley.errors import CatalogError, ConfigError
from volley.iceberg.schema.types import fields_in

__all__ = ["Names", "mapped_fields", "names_given_to_others", "number_in"]

_PROPERTY = "schema.name-mapping.default"


def number_in(properties: Mapping[str, str], name: str, least: int = 1) -> int | None:
    """Return a property that is a whole number, of this size at least; None if the table does not have it."""
    text = properties.get(name)
    if text is None or (text.isdecimal() and int(text) >= least):
        return text if text is None else int(text)
    raise ConfigError(f"table property {name} is {text!r}", hint=f"a whole number, {least} or more")


class Owner(NamedTuple):
    """The column that a name mapping gives a name to.

    Args:
        field_id: Its field id; None = columns of this name are not read.
        reason: Why no other column may have the name.
    """

    field_id: int | None
    reason: str


Names = dict[tuple[int | None, str], Owner]
"""By the id of the field around it (None = the table) and the name."""


def mapped_fields(metadata: TableMetadata) -> tuple[MappedField, ...]:
    """Return the table's name mapping; nothing without one."""
    try:
        mapping = metadata.name_mapping()
    except ValueError as error:
        raise CatalogError(
            f"property {_PROPERTY} of the table in {metadata.location} is no name mapping: {error}",
            hint='correct it, as [{"field-id": 1, "names": ["id"]}], or remove it if all data files have field ids',
        ) from error
    return tuple(mapping.root) if mapping else ()


def names_given_to_others(metadata: TableMetadata) -> Names:
    """Return the names that the mapping gives to a column that has another name now, or none any more.

    A column that got such a name would take over the values that the other column has in files without field ids.
    """
    current = {field.field_id: field.name for _, field in fields_in(metadata.schema().as_struct())}
    taken: Names = {}
    for parent, name, field_id in _given(mapped_fields(metadata), None):
        if field_id is None or current.get(field_id) != name:
            taken[parent, name] = Owner(field_id, _reason(field_id, current))
    return taken


def _reason(field_id: int | None, current: dict[int, str]) -> str:
    owner = f"column {current[field_id]!r}" if field_id in current else "a column that was dropped"
    return (
        f"the table's property {_PROPERTY} gives this name to {owner}, whose values in files without field ids it "
        "would take over: choose another name, or take the name out of the property if no file needs it"
    )


def _given(fields: Sequence[MappedField], parent: int | None) -> Iterator[tuple[int | None, str, int | None]]:
    for field in fields:
        for name in field.names:
            yield parent, name, field.field_id
        yield from _given(field.fields, field.field_id)
