"""The options of each file format: frozen values that check themselves, without Arrow."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

from volley.checks import count_or_zero, flag, keep, names, one_of, optional
from volley.errors import ConfigError
from volley.formats.contract import INFER, RESCUED, Contract, contract_of
from volley.types.names import READ, unknown_directives
from volley.types.schemas import check_schema, column_names

__all__ = [
    "KEEPING",
    "CsvOptions",
    "JsonOptions",
    "NoOptions",
    "OnUnknown",
    "Policy",
    "check_columns",
    "fate_of_unknown",
    "kept_in",
    "on_unknown",
    "parts_of",
    "policy_of",
    "value_schema",
]

# The columns of formats whose columns are not declared, or are no fields of JSON.
_PLAIN = {"avro": (), "protobuf": (), "string": ("value",), "raw": ("value",)}

OnUnknown = Literal["warn", "keep", "rescue", "evolve", "fail", "drop"]
"""What a source does with fields that its schema lacks."""

Policy = OnUnknown | Contract
"""The same, and what it does with values that don't fit."""

KEEPING = ("keep", "rescue")
"""The choices that add a column for what is in no other."""


def on_unknown(name: str, value: Any) -> Policy:
    """Return what to do with unknown fields; ``"ignore"`` is the name that ``"drop"`` had in Volley 0.2.

    Raises:
        ConfigError: If the value is unknown.
    """
    if isinstance(value, Contract):
        return value
    if isinstance(value, Mapping):
        return _contract(name, value)
    value = "drop" if value == "ignore" else value
    checked: Any = one_of(get_args(OnUnknown))(name, value)
    policy: OnUnknown = checked
    return policy


def _contract(name: str, values: Mapping[str, Any]) -> Contract:
    known = Contract.__dataclass_fields__
    for key in values:
        one_of([*known])(name, key)
    return Contract(**values)


def policy_of(schema: Any, policy: Policy, value_format: str = "json") -> tuple[Any, Policy]:
    """Return a schema without the word ``"infer"``, and what to do with unknown fields.

    Raises:
        ConfigError: If nothing is declared, and unknown fields don't become columns; or a row of changes is to be
            rescued; or a contract names a part of a column.
    """
    if schema == INFER and policy == "warn":
        policy = "evolve"
    if value_format == "debezium":
        # A value that a later message leaves unchanged would be in no column.
        policy = Contract(types="evolve") if policy == "evolve" else policy
        if isinstance(policy, Contract) and (policy.rescues or policy.types == "drop"):
            raise ConfigError(
                f"on_unknown={policy!r}: a change has all values of its row, or is a bad row",
                hint='Contract(types="evolve"), or types="fail"; its fates are "evolve", "drop" and "fail"',
            )
    if schema != INFER:
        _check_fates(schema, policy)
        return schema, policy
    contract = contract_of(policy)
    if contract is None or contract.new_columns != "evolve":
        raise ConfigError(
            f"schema={INFER!r} declares no column, and on_unknown={policy!r} makes none",
            hint='on_unknown="evolve", or Contract(new_columns="evolve", …); or declare the columns',
        )
    return (), policy


def _check_fates(schema: Any, policy: Policy) -> None:
    parts = [name for name in policy.columns if "." in name] if isinstance(policy, Contract) else []
    columns = column_names(check_schema(schema)) if parts and schema is not None else []
    for name in parts:
        column = name.partition(".")[0]
        if column in columns:
            raise ConfigError(
                f"columns names {name!r}: a fate is one of a whole column", hint=f"{column!r}: its parts share its fate"
            )


def kept_in(policy: Policy, unknown: str, value_format: str = "json") -> str | None:
    """Return the column that keeps what is in no other, given its name for unknown fields; None if there is none."""
    if policy == "keep":
        return unknown
    if value_format == "debezium" and isinstance(policy, Contract):
        return None
    return RESCUED if policy == "rescue" or contract_of(policy) else None


def fate_of_unknown(policy: Policy, column: str, by_row: bool = True) -> str:
    """Return what becomes of fields that a source's schema lacks, as a clause.

    Args:
        policy: What to do with them.
        column: The column that keeps them.
        by_row: True: rows have fields of their own; False: all rows of a file have the same.

    Example:
        >>> fate_of_unknown("keep", "file_unknown")
        'fields that the schema lacks are kept in file_unknown'
    """
    if contract := contract_of(policy):
        return str(contract)
    fates = {
        "warn": "are left out, and each is warned of once",
        "keep": f"are kept in {column}",
        "rescue": f"and values that don't fit it are kept in {RESCUED}",
        "fail": "make their row a bad row" if by_row else "are an error",
        "drop": "are left out without a warning",
    }
    return f"fields that the schema lacks {fates[str(policy)]}"


def value_schema(value_format: str, schema: Any) -> Any:
    """Return the schema of messages in a hashable form; None if they have one column.

    Args:
        value_format: ``"json"`` or a format of changes; or ``"string"`` or ``"raw"``, which have the column ``value``.
        schema: The schema as the user gave it.

    Raises:
        ConfigError: If the format needs a schema and there is none, or takes none.
    """
    if value_format not in ("string", "raw"):
        if schema is None:
            name = "JSON" if value_format == "json" else value_format
            ways = ' or "infer"' if value_format in ("json", "debezium") else ""
            raise ConfigError(
                f"{name} needs a schema", hint=f'schema="id long, name string"{ways}; or value_format="raw"'
            )
        return check_schema(schema)
    if schema is not None:
        raise ConfigError(f"value_format={value_format!r} has one column, value; no schema", hint="leave schema out")
    return None


def parts_of(include: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of a message to add as columns.

    Raises:
        ConfigError: If one is not among the known ones, or given twice.
    """
    parts = names("include", include)
    for number, part in enumerate(parts):
        one_of(known)("include", part)
        if part in parts[:number]:
            raise ConfigError(f"include names {part!r} twice", hint="once is enough")
    return parts


def check_columns(value_format: str, schema: Any, policy: Policy, unknown: str, added: Iterable[str]) -> None:
    """Check that the columns of messages have names of their own.

    Args:
        value_format: The format of values, such as ``"json"``.
        schema: Their schema.
        policy: What to do with unknown fields of JSON.
        unknown: The column that keeps them.
        added: The columns that are added.

    Raises:
        ConfigError: If two columns have one name, or the policy does not apply to the format.
    """
    column = kept_in(policy, unknown, value_format)
    takes_none = value_format in _PLAIN or (column is not None and value_format != "json")
    if policy != "warn" and takes_none:
        raise ConfigError(f"on_unknown={policy!r} is for JSON, not for {value_format}", hint="leave it out")
    values = _PLAIN[value_format] if value_format in _PLAIN else [] if schema is None else column_names(schema)
    columns = [*values, *added, *([] if column is None else [column])]
    for number, name in enumerate(columns):
        if name in columns[:number]:
            raise ConfigError(
                f"column {name!r} is there twice: in the schema, or in what the settings add",
                hint="leave one out, or name it otherwise",
            )


@dataclass(frozen=True)
class NoOptions:
    """The options of formats that have none."""

    @property
    def undivided(self) -> str | None:
        """Why a large file can't be read in parts; None if it can."""
        return None


@dataclass(frozen=True)
class JsonOptions(NoOptions):
    """The options of JSON files.

    Args:
        encoding: The encoding of the text, one of Python's, such as ``"latin-1"``; None = UTF-8.
        epoch: The unit of numbers since 1970 in columns of timestamps: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None =
            there are texts only.

    Raises:
        ConfigError: If an option is wrong.
    """

    encoding: str | None = None
    epoch: Literal["s", "ms", "us", "ns"] | None = None

    def __post_init__(self) -> None:
        keep(self, encoding=optional(_encoding), epoch=optional(one_of(("s", "ms", "us", "ns"))))

    @property
    def undivided(self) -> str | None:
        # In UTF-8, no other character has the byte of a line end.
        return None if self.encoding is None else "not in UTF-8"


@dataclass(frozen=True)
class CsvOptions(JsonOptions):
    """The options of CSV files.

    Args:
        encoding: The encoding of the text, one of Python's, such as ``"latin-1"``; None = UTF-8.
        epoch: The unit of numbers since 1970 in columns of timestamps: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None =
            there are none.
        header: True: the first row has the names of the columns. None = True without `column_names`.
        column_names: The names of the columns of files without a header, in their order; None = those of the schema.
        skip_rows: The number of lines before the header, or before the first row, to leave out.
        delimiter: The character between two fields.
        quote: The character around fields that have delimiters, quotes or newlines in them; a quote within is doubled.
            None = fields are never quoted.
        escape: The character before one that stands for itself, such as ``"\\\\"``; None = there is none.
        null_values: Texts that are null in columns of any type if they are not quoted, such as ``["NA"]``; an empty
            field without quotes always is.
        decimal_point: The character before the fraction of a number.
        date_formats: Formats of dates and timestamps as of C's ``strptime``, such as ``"%d.%m.%Y"``, in the order in
            which they are tried, before ISO 8601. Times without ``%z`` are in UTC.
        newlines_in_values: False declares that no field has a newline: large files are then read in parts.

    Raises:
        ConfigError: If an option is wrong.

    Example:
        >>> CsvOptions(delimiter=";", decimal_point=",", column_names=["id", "price"]).has_header
        False
    """

    header: bool | None = None
    column_names: Sequence[str] | None = None
    skip_rows: int = 0
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_values: Sequence[str] = ()
    decimal_point: str = "."
    date_formats: Sequence[str] = ()
    newlines_in_values: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, header=optional(flag), newlines_in_values=flag, skip_rows=count_or_zero)
        keep(self, delimiter=_character, decimal_point=_character, quote=optional(_character))
        keep(self, escape=optional(_character), null_values=_texts, date_formats=_formats)
        keep(self, column_names=optional(_column_names))
        self._check_header()
        self._check_characters()

    @property
    def has_header(self) -> bool:
        """True if the file's first row has the names of its columns."""
        return self.column_names is None if self.header is None else self.header

    @property
    def undivided(self) -> str | None:
        if self.newlines_in_values and (self.quote or self.escape):
            return "fields may have newlines; newlines_in_values=False says that none has"
        return super().undivided

    def _check_header(self) -> None:
        if self.header and self.column_names is not None:
            raise ConfigError(
                "column_names are those of files without a header, and header is True",
                hint="leave out header=True; a header's names are taken from the file; skip_rows=1 leaves it out",
            )

    def _check_characters(self) -> None:
        used = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        for one, other in combinations(used, 2):
            if used[one] == used[other] is not None:
                raise ConfigError(
                    f"{one} and {other} are both {used[one]!r}", hint="a doubled quote needs no escape: leave it out"
                )
        if escaped := [text for text in self.null_values if self.escape and self.escape in text]:
            raise ConfigError(
                f"null_values has {escaped[0]!r} with the escape, which is taken out of a field before it is compared",
                hint=f'without "escape", {escaped[0]!r} is null, and escapes stay in the texts',
            )
        if self.decimal_point.isdigit() or self.decimal_point == self.quote:
            raise ConfigError(f"decimal_point {self.decimal_point!r} can't be one", hint='"." or ","')


def _encoding(name: str, value: Any) -> str:
    try:
        codecs.lookup(str(value))
    except LookupError as error:
        raise ConfigError(f"{name} {value!r} is unknown", hint='one of Python\'s, such as "latin-1"') from error
    return str(value)


def _character(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1 or not value.isascii() or value in "\r\n":
        raise ConfigError(f"{name} {value!r} is not one character of ASCII", hint='for example ";" or "\\t"')
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{name} {value!r} is not a list of texts", hint='for example ["NA", "NULL"]')
    return tuple(value)


def _column_names(name: str, value: Any) -> tuple[str, ...]:
    columns = names(name, value)
    if len(set(columns)) < len(columns) or not columns:
        raise ConfigError(f"{name} {list(columns)} don't name each column once", hint='for example ["id", "name"]')
    return columns


def _formats(name: str, value: Any) -> tuple[str, ...]:
    formats = names(name, value)
    for item in formats:
        if unknown := unknown_directives(item, READ):
            known = " ".join(f"%{directive}" for directive in sorted(READ))
            raise ConfigError(f"{name} has {item!r} with {', '.join(unknown)}", hint=f"known: {known}")
    return formats
