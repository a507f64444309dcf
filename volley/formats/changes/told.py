"""The columns that messages tell by the schema of Kafka Connect which each carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from volley.contracts.rows import Seen
from volley.errors import SourceError
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.unwrap import wires_of
from volley.formats.changes.wire import as_told, column_type
from volley.formats.inferred import Inferred
from volley.types.arrow import type_name

__all__ = ["NO_SCHEMA", "columns_told", "dropped_columns", "faults_of_columns", "told_columns"]

NO_SCHEMA = (
    "it carries no schema, which columns that are inferred are taken from: value.converter.schemas.enable=true has the "
    "connector write them; or declare the columns"
)
# The types of MySQL's and MariaDB's times are durations.
_DURATIONS = (b"io.debezium.connector.mysql", b"io.debezium.connector.mariadb")

Told = tuple[Seen, ...]


def told_columns(schema: bytes, path: tuple[str, ...], options: ChangeOptions) -> Told:
    """Return the columns of rows, and the fields and items within them, with their types.

    Args:
        schema: The schema of messages, as JSON.
        path: The fields that have a row; empty = messages are rows.
        options: What the schema does not tell.

    Raises:
        SourceError: If it is no schema of Kafka Connect.
    """
    return _seen(schema, path, tuple(sorted(options.wire.items())))


def columns_told(schema: bytes, path: tuple[str, ...], options: ChangeOptions) -> pa.Schema:
    """Return the columns of rows, with their types; arguments and errors as of `told_columns`."""
    return _told(schema, path, tuple(sorted(options.wire.items())))


@lru_cache(maxsize=1_000)
def _seen(schema: bytes, path: tuple[str, ...], wire: tuple[tuple[str, str], ...]) -> Told:
    return tuple(seen for column in _told(schema, path, wire) for seen in _leaves((column.name,), column.type))


@lru_cache(maxsize=1_000)
def _told(schema: bytes, path: tuple[str, ...], wire: tuple[tuple[str, str], ...]) -> pa.Schema:
    wires, others = dict(wires_of(schema, path)), dict(wire)
    is_duration = any(name in schema for name in _DURATIONS)
    columns = list[tuple[str, pa.DataType]]()
    for name, own in wires.items():
        # Names of fields that a transformation adds to flattened rows begin with two underscores.
        if path or not name.startswith("__"):
            written = as_told(own, others[name]) if name in others else own
            try:
                columns.append((name, column_type(written, is_duration)))
            except (KeyError, ValueError) as error:
                raise SourceError(f"the schema of the message has no type of Kafka Connect for {name!r}") from error
    return pa.schema(columns)


def _leaves(path: tuple[str | None, ...], data_type: pa.DataType) -> Iterator[Seen]:
    if pa.types.is_struct(data_type):
        for part in data_type:
            yield from _leaves((*path, part.name), part.type)
    elif pa.types.is_list(data_type):
        yield from _leaves((*path, None), data_type.value_type)
    else:
        yield Seen(path, type_name(data_type))


def dropped_columns(told: Iterable[Seen], columns: Inferred) -> frozenset[str]:
    """Return the columns that a contract leaves out, whole or in part."""
    contract = columns.contract
    return frozenset(seen.column for seen in told if contract.of_field(seen.column) == "drop" and not columns.has(seen))


def faults_of_columns(told: Iterable[Seen], columns: Inferred) -> list[str]:
    """Return why columns that a message tells can't be read: a contract or their name forbids it."""
    faults = list[str]()
    for seen in told:
        fate = columns.contract.of_field(seen.column)
        if fate == "drop" or columns.has(seen):
            continue
        if fate == "fail":
            faults.append(f"field {seen.column[:100]!r} is not in the schema")
        else:
            faults.append(
                f"field {seen.column[:100]!r} can be no column: its name is empty, too long, has a dot or is another "
                "one's; it has more levels than a table takes; or its column is of another kind"
            )
    return faults
