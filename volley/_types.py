"""Names of types ↔ Arrow types, the types that Spark and Iceberg share, and batches brought to a schema."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from volley.errors import ConfigError, SourceError, near

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    SchemaLike: TypeAlias = "pa.Schema | str | Mapping[str, TypeLike] | tuple[tuple[str, TypeLike], ...]"

__all__ = [
    "TypeLike",
    "arrow_schema",
    "arrow_type",
    "canonical_schema",
    "canonical_type",
    "check_schema",
    "check_type",
    "column_names",
    "conform",
    "schema_setting",
    "type_name",
]

TypeLike = str | type
"""What names a type: a text such as ``"long"``, or a Python type such as `int`."""

_PYTHON = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    date: "date",
    time: "time",
    datetime: "timestamp",
    UUID: "uuid",
}
_SIMPLE = {
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
    "time": "time",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "uuid": "uuid",
}
_OTHER_NAMES = {"bool": "boolean", "integer": "int", "bigint": "long", "list": "array"}
_NAMES = (*_SIMPLE, *_OTHER_NAMES, "decimal", "array", "map", "struct")
_DIGITS = "precision is 1 to 38, scale 0 to the precision"
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([A-Za-z_0-9]+)|(.))")


@dataclass(frozen=True)
class _Type:
    """A parsed type: its plain name, its numbers (decimal) or its fields (nested types)."""

    name: str
    numbers: tuple[int, ...] = ()
    fields: tuple[tuple[str, _Type], ...] = ()


class _Parser:
    """A recursive parser of ``decimal(10,2)``, ``array<string>``, ``struct<a: int, b: map<string, long>>``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [
            (m[1] is not None, m[2] or m[3] if m[1] is None else m[1].replace("``", "`"))
            for m in _TOKEN.finditer(text.rstrip())
        ]
        self._at = 0

    def only_type(self) -> _Type:
        parsed = self._type()
        self._end()
        return parsed

    def columns(self) -> tuple[tuple[str, _Type], ...]:
        columns = tuple(self._fields(separator=None))
        self._end()
        return columns

    def _type(self) -> _Type:
        name = self._next("a type").lower()
        name = _OTHER_NAMES.get(name, name)
        if name in _SIMPLE:
            return _Type(name)
        if name == "decimal":
            return self._decimal()
        if name in ("array", "map", "struct"):
            self._expect("<")
            made = self._nested(name)
            self._expect(">")
            return made
        raise ConfigError(f"unknown type {name!r} in {self._text!r}", hint=near(name, _NAMES))

    def _decimal(self) -> _Type:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not _fits(precision, scale):
            raise ConfigError(f"decimal({precision},{scale}) in {self._text!r} is out of range", hint=_DIGITS)
        return _Type("decimal", numbers=(precision, scale))

    def _nested(self, name: str) -> _Type:
        if name == "array":
            return _Type("array", fields=(("element", self._type()),))
        if name == "map":
            key = self._type()
            self._expect(",")
            return _Type("map", fields=(("key", key), ("value", self._type())))
        fields = tuple(self._fields(separator=":"))
        _check_names([name for name, _ in fields], self._text)
        return _Type("struct", fields=fields)

    def _fields(self, separator: str | None) -> Iterator[tuple[str, _Type]]:
        while True:
            name = self._next("a column name")
            if separator and self._peek() == separator:
                self._expect(separator)
            yield name, self._type()
            if self._peek() != ",":
                return
            self._expect(",")

    def _peek(self) -> str | None:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else None

    def _next(self, wanted: str) -> str:
        quoted, token = self._tokens[self._at] if self._at < len(self._tokens) else (False, "")
        if not quoted and not re.fullmatch(r"[A-Za-z_0-9]+", token):
            raise self._wrong(wanted)
        self._at += 1
        return token

    def _number(self) -> int:
        if minus := self._peek() == "-":
            self._expect("-")
        token = self._next("a number")
        if not token.isdigit():
            raise ConfigError(f"{token!r} in {self._text!r} is not a number", hint="for example decimal(10,2)")
        return -int(token) if minus else int(token)

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._wrong(repr(token))
        self._at += 1

    def _end(self) -> None:
        if self._peek() is not None:
            raise self._wrong("the end")

    def _wrong(self, wanted: str) -> ConfigError:
        found = "the end" if self._peek() is None else repr(self._peek())
        return ConfigError(
            f"{self._text!r} is not a type or schema: expected {wanted}, found {found}",
            hint='write "id long, name string, tags array<string>"; types: ' + ", ".join(_NAMES),
        )


def check_type(kind: TypeLike) -> str:
    """The name of a type that is named by a text or a Python type. Needs no Arrow.

    Raises:
        ConfigError: If there is no such type.
    """
    if kind is Decimal:
        raise ConfigError("Decimal does not say how many digits a column has", hint='for example "decimal(10,2)"')
    name = _PYTHON.get(kind, kind) if isinstance(kind, type) else kind
    if not isinstance(name, str):
        raise ConfigError(
            f"{kind!r} is not a type",
            hint='a text such as "long" or "array<string>", or ' + ", ".join(each.__name__ for each in _PYTHON),
        )
    _Parser(name).only_type()
    return name


def check_schema(schema: SchemaLike) -> Any:
    """A hashable form of a schema that `arrow_schema` takes. Needs no Arrow unless it is given.

    Raises:
        ConfigError: If it is not a schema, names an unknown type, has no column, or one that is named twice or not
            at all.
        SourceError: If an Arrow type has no counterpart in Spark and Iceberg.
    """
    if isinstance(schema, str):
        _check_names([name for name, _ in _Parser(schema).columns()], schema)
        return schema
    if type(schema).__module__.partition(".")[0] == "pyarrow" and type(schema).__name__ == "Schema":
        canonical_schema(schema)
        return schema
    pairs = tuple(schema.items()) if isinstance(schema, Mapping) else schema
    if (
        not isinstance(pairs, tuple)
        or not pairs
        or not all(isinstance(each, tuple) and len(each) == 2 for each in pairs)
    ):
        raise ConfigError(
            f"a schema is a text, a dict or a pyarrow.Schema, not {schema!r} of type {type(schema).__name__}",
            hint='for example "id long, name string", or {"id": int, "name": str}',
        )
    _check_names([name for name, _ in pairs], "the schema")
    return tuple((name, check_type(kind)) for name, kind in pairs)


def schema_setting(name: str, schema: Any) -> Any:
    """`check_schema` as the check of a setting."""
    return check_schema(schema)


def column_names(schema: SchemaLike) -> list[str]:
    """The names of a schema's columns. Needs no Arrow."""
    if isinstance(schema, str):
        return [name for name, _ in _Parser(schema).columns()]
    if isinstance(schema, Mapping | tuple):
        return list(dict(schema))
    names: list[str] = schema.names
    return names


def arrow_type(kind: TypeLike) -> pa.DataType:
    """The Arrow type of a name such as ``long``, ``decimal(10,2)`` or ``array<string>``, or of a Python type."""
    return _arrow(_Parser(check_type(kind)).only_type())


def arrow_schema(schema: SchemaLike) -> pa.Schema:
    """The Arrow schema of a text, a dict of names and types, or of what `check_schema` made of it."""
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        return pa.schema([pa.field(name, _arrow(parsed)) for name, parsed in _Parser(schema).columns()])
    pairs = schema.items() if isinstance(schema, Mapping) else schema
    return pa.schema([pa.field(name, arrow_type(text)) for name, text in pairs])


def _arrow(parsed: _Type) -> pa.DataType:
    import pyarrow as pa

    fields = [(name, _arrow(inner)) for name, inner in parsed.fields]
    match parsed.name:
        case "decimal":
            return pa.decimal128(*parsed.numbers)
        case "array":
            return pa.list_(fields[0][1])
        case "map":
            return pa.map_(fields[0][1], fields[1][1])
        case "struct":
            return pa.struct([pa.field(name, inner) for name, inner in fields])
        case "time":
            return pa.time64("us")
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "timestamp_ntz":
            return pa.timestamp("us")
    made: pa.DataType = getattr(pa, _SIMPLE[parsed.name])()
    return made


def _fits(precision: int, scale: int) -> bool:
    return 1 <= precision <= 38 and 0 <= scale <= precision


def type_name(kind: pa.DataType) -> str:
    """The name of an Arrow type, as `arrow_type` takes it; Arrow's own name for types that have none here."""
    import pyarrow as pa

    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + ">"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    return next((name for name in _SIMPLE if _arrow(_Type(name)) == kind), str(kind))


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the types that Arrow, Spark and Iceberg share, without metadata.

    Narrow integers are widened, time zones become UTC, times microseconds, dictionaries and views plain.

    Raises:
        SourceError: If a column's type has no counterpart; names it.
        ConfigError: If the name of a column, or of a field in a struct, is there twice, is empty, or can't be passed
            on.
    """
    import pyarrow as pa

    _check_names(schema.names, "the schema")
    return pa.schema([pa.field(field.name, _canonical_field(field)) for field in schema])


def _canonical_field(field: pa.Field) -> pa.DataType:
    try:
        return canonical_type(field.type)
    except SourceError as error:
        raise SourceError(f"column {field.name!r}: {error.message}", hint=error.hint) from error


def canonical_type(kind: pa.DataType) -> pa.DataType:
    """One type in the form that Arrow, Spark and Iceberg share. See `canonical_schema`."""
    import pyarrow as pa

    t = pa.types
    if (plain := _canonical_plain(kind)) is not None:
        return plain
    if t.is_dictionary(kind):
        return canonical_type(kind.value_type)
    if t.is_map(kind):
        return pa.map_(canonical_type(kind.key_type), canonical_type(kind.item_type))
    if t.is_struct(kind):
        _check_fields(kind)
        return pa.struct([pa.field(field.name, canonical_type(field.type)) for field in kind])
    if t.is_decimal(kind) and _fits(kind.precision, kind.scale):
        return pa.decimal128(kind.precision, kind.scale)
    if t.is_decimal(kind):
        raise SourceError(f"{type_name(kind)} is out of range", hint=_DIGITS)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_list_view(kind):
        return pa.list_(canonical_type(kind.value_type))
    raise SourceError(
        f"type {kind} has no counterpart in Spark and Iceberg",
        hint="declare another schema for the source, or convert the column before",
    )


def _canonical_plain(kind: pa.DataType) -> pa.DataType | None:
    """The canonical form of a type without fields; None for nested and impossible ones."""
    import pyarrow as pa

    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    for matches, made in (
        (t.is_int64, pa.int64()),
        (t.is_uint32, pa.int64()),
        (t.is_uint64, pa.decimal128(20, 0)),
        (t.is_integer, pa.int32()),
        (t.is_float16, pa.float32()),
        (t.is_time, pa.time64("us")),
        (t.is_date, pa.date32()),
        (t.is_string, pa.string()),
        (t.is_large_string, pa.string()),
        (t.is_string_view, pa.string()),
        (t.is_null, pa.string()),
        (t.is_binary, pa.binary()),
        (t.is_large_binary, pa.binary()),
        (t.is_binary_view, pa.binary()),
    ):
        if matches(kind):
            return made
    same = t.is_boolean(kind) or t.is_floating(kind) or t.is_fixed_size_binary(kind) or kind == pa.uuid()
    return kind if same else None


def conform(batch: pa.RecordBatch, schema: pa.Schema, dictionaries: bool = False) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`: by name, cast where types differ, nulls where one is missing.

    A batch that fits is returned as it is.

    Args:
        batch: The batch.
        schema: The wanted columns.
        dictionaries: True: a column that is a dictionary of a few values of the wanted type stays one.

    Raises:
        SourceError: If a value can't be cast without loss; names the column.
    """
    from volley._encoded import assembled

    if batch.schema.equals(schema):
        return batch
    return assembled([_column(batch, field, dictionaries) for field in schema], schema)


def _column(batch: pa.RecordBatch, field: pa.Field, dictionaries: bool) -> pa.Array:
    import pyarrow as pa

    from volley._encoded import stays
    from volley._uuids import recast

    indices = batch.schema.get_all_field_indices(field.name)
    if not indices:
        return pa.nulls(batch.num_rows, field.type)
    if len(indices) > 1:
        raise SourceError(f"column {field.name!r} is there {len(indices)} times", hint="rename all but one of them")
    column = batch.column(indices[0])
    if column.type == field.type or (dictionaries and stays(column, field.type)):
        return column
    try:
        return recast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(
            f"column {field.name!r} of type {column.type} does not fit {type_name(field.type)}: {error}",
            hint="declare a wider type for the column, or cast it before",
        ) from error


def _check_fields(struct: pa.DataType) -> None:
    if not struct.num_fields:
        raise SourceError(
            "a struct without fields can't be kept: Parquet and Iceberg have none",
            hint="declare a schema that leaves the column out or names its fields",
        )
    _check_names([field.name for field in struct], str(struct))


def _check_names(names: list[Any], where: str) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a column of {where!r} has the name {name!r}", hint="give each column a name")
        # Arrow hands names on as C strings: what comes after a NUL would be lost, and the column's values with it.
        if "\0" in name:
            raise ConfigError(f"column {name!r} has a NUL character in its name", hint="rename it")
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ConfigError(f"column {twice[0]!r} stands twice in {where!r}", hint="rename one of them")
