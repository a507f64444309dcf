"""The options of formats of changes, such as Debezium's envelope, and the columns that they add; without Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from volley.checks import flag, keep, mapping, names, one_of, optional, text
from volley.errors import ConfigError, near
from volley.formats.change_shape import SOURCE_FIELDS, Unwrap, unwrap
from volley.formats.contract import contract_of
from volley.formats.options import NoOptions, Policy
from volley.types.schemas import column_names

__all__ = [
    *("CHANGES", "OPERATION", "SEQUENCE", "SOURCE_FIELDS", "UNCHANGED", "WIRES", "ChangeFormat", "ChangeOptions"),
    "check_options",
]

ChangeFormat = Literal["debezium", "maxwell", "canal", "dms", "airbyte", "olake", "changes"]
CHANGES: tuple[str, ...] = get_args(ChangeFormat)
"""The formats whose messages are changes of rows."""

OPERATION, SEQUENCE, UNCHANGED = "_op", "_seq", "_unchanged"
"""The columns that each of them adds: what happened, the place in the log of the database, and the columns without a
value."""

_OF_ROWS = ("snapshot", "ts_ms")

WIRES = (
    *("plain", "text", "base64", "base64url", "hex", "unsigned"),
    *("Bits", "Date", "Decimal", "Enum", "EnumSet", "IsoDate", "IsoTime", "IsoTimestamp", "MicroTime"),
    *("MicroTimestamp", "NanoTime", "NanoTimestamp", "Time", "Timestamp", "VariableScaleDecimal", "ZonedTimestamp"),
)
"""How values of a column may be written."""


@dataclass(frozen=True)
class ChangeOptions(NoOptions):
    """The options of a format of change events.

    Args:
        key_fields: The columns of the primary key. `Upsert()` takes them from the stream, and a deletion has these
            columns alone: of its other values, Debezium's default identity makes some up. Empty = none are known.
        wire: How the values of a column are written, where messages have no schema that tells it: by column, the last
            part of the name of Debezium's or Kafka Connect's logical type, such as ``"MicroTimestamp"`` or
            ``"Decimal"``; ``"plain"`` (as JSON has them), ``"text"`` (as JSON strings), ``"base64"``, ``"base64url"``,
            ``"hex"``, or ``"unsigned"``: a 64-bit number whose negative values are 2^64 too small.
        flattened: True: messages are rows, of Debezium's ``ExtractNewRecordState``, with ``__op``, ``__deleted`` and
            what ``add.fields`` adds.
        documents: True: messages are MongoDB's envelopes, whose rows are texts of extended JSON: fields of documents
            are the columns, ``_id`` is the key.
        packed: True: messages are changes of many tables, each with the schema of its table: the one declared column,
            of bytes, has the rows of a table, packed, for ``routed(…, rows=…)``. Columns are those that the schemas
            tell, and keys those of Kafka's records; `source` tells the tables apart, of flattened rows by
            ``add.fields``.
        placeholder: The text in place of a value that has not changed; None = Debezium's own default, or OLake's.
        unrepresentable: What to do with values that Iceberg does not have, such as infinite dates and the time 24:00:
            ``"fail"`` makes the message a bad row, ``"null"`` writes a null.
        truncations: What to do with the truncation of a table: ``"fail"`` makes the message a bad row, ``"skip"``
            leaves it out.
        tombstones: What to do with a message without a value among flattened rows: ``"fail"`` makes it a bad row, as it
            may be all that tells of a deletion; ``"delete"`` takes it as that of the record's key, of Kafka alone: for
            ``tombstone``, Debezium's default, and ``delete-to-tombstone``; ``"skip"`` leaves it out: for
            ``rewrite-with-tombstone``, which writes a row for each deletion, too.
        row_end: The column of a system-versioned table of MariaDB with the end of a row's time, a timestamp: versions
            that have ended, which come as insertions of the same key, are left out, and an update that ends a row is
            its deletion. None = the table is not versioned.
        source: What to add of the place of a change as columns ``source_…``, out of ``"connector"``, ``"name"``,
            ``"db"``, ``"schema"``, ``"table"``, ``"collection"``, ``"snapshot"``, ``"ts_ms"``. Of the format
            ``"changes"``, what its `unwrap` tells is added.
        unwrap: Of the format ``"changes"``, the shape of messages: ``fields``, ``operation``, and, as needed, ``row``,
            ``before``, ``sequence`` and ``source``. See `Unwrap`.

    Raises:
        ConfigError: If an option is wrong.

    Example:
        >>> ChangeOptions(key_fields=["id"], wire={"at": "MicroTimestamp"}).key_fields
        ('id',)
    """

    key_fields: Sequence[str] = ()
    wire: Mapping[str, str] = field(default_factory=dict, hash=False)
    flattened: bool = False
    documents: bool = False
    packed: bool = False
    placeholder: str | None = None
    unrepresentable: Literal["fail", "null"] = "fail"
    truncations: Literal["fail", "skip"] = "fail"
    tombstones: Literal["fail", "delete", "skip"] = "fail"
    row_end: str | None = None
    source: Sequence[str] = ()
    unwrap: Unwrap | None = field(default=None, metadata={"keys": Unwrap})

    def __post_init__(self) -> None:
        keep(
            self,
            key_fields=names,
            wire=mapping,
            flattened=flag,
            documents=flag,
            packed=flag,
            source=names,
            placeholder=optional(text),
        )
        keep(self, row_end=optional(text), unwrap=optional(unwrap))
        keep(self, unrepresentable=one_of(("fail", "null")), truncations=one_of(("fail", "skip")))
        keep(self, tombstones=one_of(("fail", "delete", "skip")))
        for part in self.source:
            one_of(SOURCE_FIELDS if self.unwrap is None else tuple(self.unwrap.source))("source", part)
        if self.unwrap is not None and not self.source:
            object.__setattr__(self, "source", tuple(self.unwrap.source))
        for column, wire in self.wire.items():
            if wire not in WIRES:
                raise ConfigError(f"wire of column {column!r} is {wire!r}", hint=near(str(wire), WIRES))

    @property
    def added(self) -> list[str]:
        """The names of the columns that are added to those of the row."""
        of_rows = [] if self.packed else [OPERATION, SEQUENCE, UNCHANGED]
        return [*of_rows, *(f"source_{part}" for part in self.source)]

    @property
    def undivided(self) -> str | None:
        return None

    def check(self, value_format: str, schema: Any, is_open: bool = False) -> None:
        """Check that the options fit the columns.

        Args:
            value_format: One of `CHANGES`.
            schema: The declared columns, of `check_schema`; None = those of a registry, which are not known yet.
            is_open: True: messages tell further ones.

        Raises:
            ConfigError: If they name another column, or a column's values could be read in two ways.
        """
        self._check_shape(value_format, schema)
        if self.flattened and value_format != "debezium":
            raise ConfigError(f"flattened is for debezium, not for {value_format}", hint="leave it out")
        if self.documents and (value_format != "debezium" or self.flattened or schema is None or is_open):
            raise ConfigError(
                "documents are the rows of MongoDB's envelopes in JSON, whose schemas do not tell their fields",
                hint='format debezium, without flattened and registry; declare the columns: "_id string, name string"',
            )
        if self.tombstones != "fail" and not self.flattened:
            raise ConfigError(
                f"tombstones={self.tombstones!r} is for flattened rows",
                hint="leave it out: of others, each deletion has a message of its own, and tombstones are left out",
            )
        if self.packed:
            self._check_packed(value_format, schema)
            return
        if self.tombstones == "delete" and not self.key_fields:
            raise ConfigError("tombstones are deletions, and no key is known", hint='"key_fields": ["id"]')
        if schema is None:
            return
        columns = column_names(schema)
        ends = () if self.row_end is None else (self.row_end,)
        for name, listed in (("key_fields", self.key_fields), ("wire", self.wire), ("row_end", ends)):
            for column in listed:
                if column not in columns and not is_open:
                    raise ConfigError(f"{name} names {column!r}, which is no column", hint=near(column, columns))
        if twice := [name for name in self.added if name in columns]:
            raise ConfigError(
                f"column {twice[0]!r} is there twice: in the schema, and added by {value_format}",
                hint="leave it out of the schema",
            )

    def _check_shape(self, value_format: str, schema: Any) -> None:
        if (value_format == "changes") != (self.unwrap is not None):
            missing = "has no unwrap, which tells the shape of its messages"
            raise ConfigError(
                f"{value_format} {missing if self.unwrap is None else 'has a shape of its own, and no unwrap'}",
                hint='format "changes" with options={"unwrap": {"fields": "op string", "operation": "op"}}',
            )
        if self.unwrap is not None and schema:
            # Slow to import.
            from volley.types.arrow import arrow_schema, canonical_schema

            self.unwrap.check(canonical_schema(arrow_schema(schema)), self.wire)

    def _check_packed(self, value_format: str, schema: Any) -> None:
        others = {"key_fields": self.key_fields, "documents": self.documents}
        if value_format != "debezium" or any(others.values()):
            beside = next((name for name, value in others.items() if value), value_format)
            raise ConfigError(
                f"packed rows are those of Debezium's messages with a schema, not of {beside}",
                hint="leave it out: keys are those of Kafka's records, or the sink's: routed(…, key_fields=…)",
            )
        if self.tombstones == "delete":
            raise ConfigError(
                "a record's key does not tell the table that a tombstone deletes from",
                hint='delete.tombstone.handling.mode=rewrite, or rewrite-with-tombstone and tombstones="skip"',
            )
        if by_row := [name for name in self.source if name in _OF_ROWS]:
            raise ConfigError(f"source names {by_row[0]!r}, which differs by row", hint='["schema", "table"]')
        if schema is None or not _is_bytes(schema):
            raise ConfigError("packed rows need one column of bytes", hint='schema="rows binary"')


def _is_bytes(schema: Any) -> bool:
    # Slow to import.
    import pyarrow as pa

    from volley.types.arrow import arrow_schema

    return [column.type for column in arrow_schema(schema)] == [pa.binary()]


def check_options(
    value_format: str, schema: Any, options: Mapping[str, Any], policy: Policy, has_keys: bool = False
) -> list[str]:
    """Check the options of messages, and return the columns that their format adds to those of the schema.

    Args:
        policy: What to do with fields that the schema lacks.
        has_keys: True: messages have keys beside their values.

    Raises:
        ConfigError: If an option is wrong, or the format has none.
    """
    if value_format not in CHANGES:
        if options:
            raise ConfigError(
                f"options are those of formats of changes, not of {value_format}",
                hint=f"leave them out; such formats are {', '.join(CHANGES)}",
            )
        return []
    known = [option.name for option in fields(ChangeOptions)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{value_format} has no option {option!r}", hint=near(option, known))
    checked = ChangeOptions(**options)
    contract = contract_of(policy)
    if checked.packed and contract is not None:
        raise ConfigError("packed rows have the columns that messages tell", hint="leave on_unknown out")
    checked.check(value_format, schema, contract is not None and contract.new_columns == "evolve")
    if checked.tombstones == "delete" and not has_keys:
        raise ConfigError("tombstones are deletions of a record's key, which is in Kafka alone", hint="KafkaSource")
    return checked.added
