"""What users write as texts: types such as ``decimal(10,2)``, Python types, directives of times. Imports no Arrow."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from volley.errors import ConfigError, near

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    CheckedSchema: TypeAlias = "pa.Schema | str | Mapping[str, TypeLike] | tuple[tuple[str, TypeLike], ...]"
    SchemaLike: TypeAlias = "CheckedSchema | type"

__all__ = [
    *(
        "DIGITS",
        "MICROSECONDS",
        "MOMENTS",
        "NANOSECONDS",
        "READ",
        "SIMPLE",
        "TABLE_TYPES",
        "ParsedType",
        "Parser",
        "TypeLike",
        "check_names",
        "check_type",
        "decimal_fits",
    ),
    *("fields_of", "unknown_directives"),
]

TypeLike = str | type
"""A type: a text such as ``"long"``, or a Python type such as `int` or ``list[str]``."""

SIMPLE = {
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
_NAMES = (*SIMPLE, *_OTHER_NAMES, "decimal", "array", "map", "struct")
MOMENTS = ("timestamp", "timestamp_ntz")
MICROSECONDS, NANOSECONDS = 6, 9
"""The digits behind the second of ``timestamp``, and of ``timestamp(9)``."""
TABLE_TYPES = {"variant": "string", "geometry": "binary", "geography": "binary", "unknown": "string"}
"""Types that columns of tables have, and what columns of streams are where a table's are that."""
DIGITS = "precision is 1 to 38, scale 0 to the precision"
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([A-Za-z_0-9]+)|(.))")
READ = "aAbBdDeFhHIjmMpRSTyYz%"
"""Directives of formats by which texts are read: those that alone say the same in any locale."""


@dataclass(frozen=True)
class ParsedType:
    """A parsed type: its name, and its numbers or its fields (nested types).

    Args:
        numbers: Precision and scale of a decimal; the digits of a second where they are not those of microseconds.
    """

    name: str
    numbers: tuple[int, ...] = ()
    fields: tuple[tuple[str, ParsedType], ...] = ()


class Parser:
    """A recursive-descent parser: ``decimal(10,2)``, ``array<string>``, ``struct<a: int, b: map<string, long>>``.

    Args:
        of_tables: True: also knows `TABLE_TYPES`, with what stands in brackets as a part of their name.
    """

    def __init__(self, text: str, of_tables: bool = False) -> None:
        self._text = text
        self._of_tables = of_tables
        self._tokens = [
            (m[1] is not None, m[2] or m[3] if m[1] is None else m[1].replace("``", "`"))
            for m in _TOKEN.finditer(text.rstrip())
        ]
        self._position = 0

    def only_type(self) -> ParsedType:
        """Parse the whole text as one type."""
        parsed = self._type()
        self._end()
        return parsed

    def columns(self) -> tuple[tuple[str, ParsedType], ...]:
        """Parse the whole text as columns: names, each with a type."""
        columns = tuple(self._fields(separator=None))
        self._end()
        return columns

    def _type(self) -> ParsedType:
        name = self._next("a type").lower()
        name = _OTHER_NAMES.get(name, name)
        if name in MOMENTS and self._peek() == "(":
            return self._moment(name)
        if name in SIMPLE:
            return ParsedType(name)
        if name == "decimal":
            return self._decimal()
        if name in ("array", "map", "struct"):
            self._expect("<")
            nested = self._nested(name)
            self._expect(">")
            return nested
        if name in TABLE_TYPES and self._of_tables:
            return ParsedType(name + self._brackets())
        raise ConfigError(f"unknown type {name!r} in {self._text!r}", hint=self._other(name))

    def _other(self, name: str) -> str:
        """Return the way out of a type that is not known."""
        if name in TABLE_TYPES:
            return (
                f"columns of tables have it: SchemaEvolution(…).add(column, {name!r}); "
                f"that of a stream is then a {TABLE_TYPES[name]}"
            )
        return near(name, (*_NAMES, *TABLE_TYPES) if self._of_tables else _NAMES)

    def _brackets(self) -> str:
        """Parse what stands in brackets behind a name, as it is; return it with them, empty if there are none."""
        if self._peek() != "(":
            return ""
        first = self._position
        while self._peek() not in (")", None):
            self._position += 1
        self._expect(")")
        return "".join(token for _, token in self._tokens[first : self._position])

    def _moment(self, name: str) -> ParsedType:
        self._expect("(")
        digits = self._number()
        self._expect(")")
        if digits not in (MICROSECONDS, NANOSECONDS):
            raise ConfigError(
                f"{name}({digits}) in {self._text!r} is no type",
                hint=f"{name} has microseconds, {name}({NANOSECONDS}) nanoseconds",
            )
        return ParsedType(name, numbers=(NANOSECONDS,) if digits == NANOSECONDS else ())

    def _decimal(self) -> ParsedType:
        self._expect("(")
        precision = self._number()
        self._expect(",")
        scale = self._number()
        self._expect(")")
        if not decimal_fits(precision, scale):
            raise ConfigError(f"decimal({precision},{scale}) in {self._text!r} is out of range", hint=DIGITS)
        return ParsedType("decimal", numbers=(precision, scale))

    def _nested(self, name: str) -> ParsedType:
        if name == "array":
            return ParsedType("array", fields=(("element", self._type()),))
        if name == "map":
            key = self._type()
            self._expect(",")
            return ParsedType("map", fields=(("key", key), ("value", self._type())))
        fields = tuple(self._fields(separator=":"))
        check_names([name for name, _ in fields], self._text)
        return ParsedType("struct", fields=fields)

    def _fields(self, separator: str | None) -> Iterator[tuple[str, ParsedType]]:
        while True:
            name = self._next("a column name")
            if separator and self._peek() == separator:
                self._expect(separator)
            yield name, self._type()
            if self._peek() != ",":
                return
            self._expect(",")

    def _peek(self) -> str | None:
        return self._tokens[self._position][1] if self._position < len(self._tokens) else None

    def _next(self, expected: str) -> str:
        quoted, token = self._tokens[self._position] if self._position < len(self._tokens) else (False, "")
        if not quoted and not re.fullmatch(r"[A-Za-z_0-9]+", token):
            raise self._error(expected)
        self._position += 1
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
            raise self._error(repr(token))
        self._position += 1

    def _end(self) -> None:
        if self._peek() is not None:
            raise self._error("the end")

    def _error(self, expected: str) -> ConfigError:
        token = "the end" if self._peek() is None else repr(self._peek())
        return ConfigError(
            f"{self._text!r} is not a type or schema: expected {expected}, found {token}",
            hint='write "id long, name string, tags array<string>"; types: ' + ", ".join(_NAMES),
        )


def decimal_fits(precision: int, scale: int) -> bool:
    """Return True if Spark and Iceberg support a decimal of this precision and scale."""
    return 1 <= precision <= 38 and 0 <= scale <= precision


def check_names(names: list[Any], where: str) -> None:
    """Check the names of columns or of a struct's fields.

    Args:
        where: The schema or struct, as errors name it.

    Raises:
        ConfigError: If a name is empty, not unique or has a NUL character.
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a column of {where!r} has the name {name!r}", hint="give each column a name")
        # Arrow passes names as C strings: a NUL would cut off the name, and lose the column's values.
        if "\0" in name:
            raise ConfigError(f"column {name!r} has a NUL character in its name", hint="rename it")
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ConfigError(f"column {twice[0]!r} stands twice in {where!r}", hint="rename one of them")


_PYTHON: dict[Any, str] = {
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


def check_type(type_like: TypeLike) -> str:
    """Return the name of a type.

    Besides a text, accepts a Python type: `bool`, `int`, `float`, `str`, `bytes`, `date`, `time`, `datetime`, `UUID`,
    a list or dict of such types, a dataclass, a pydantic model, or any of these ``| None``.

    Raises:
        ConfigError: If there is no such type.

    Example:
        >>> check_type("decimal(10,2)"), check_type(int), check_type(dict[str, list[float]])
        ('decimal(10,2)', 'long', 'map<string, array<double>>')
    """
    if isinstance(type_like, str):
        Parser(type_like).only_type()
        return type_like
    return _python_name(type_like)


def _python_name(python_type: Any) -> str:
    if python_type is Decimal:
        raise ConfigError("Decimal does not say how many digits a column has", hint='for example "decimal(10,2)"')
    if isinstance(python_type, type) and python_type in _PYTHON:
        return _PYTHON[python_type]
    origin, arguments = typing.get_origin(python_type), typing.get_args(python_type)
    if origin is typing.Annotated:
        return check_type(next((text for text in arguments[1:] if isinstance(text, str)), arguments[0]))
    if origin in (typing.Union, types.UnionType):
        (python_type, *others) = [argument for argument in arguments if argument is not type(None)]
        if not others:
            return check_type(python_type)
    if origin is list and arguments:
        return f"array<{check_type(arguments[0])}>"
    if origin is dict and arguments:
        return f"map<{check_type(arguments[0])}, {check_type(arguments[1])}>"
    if (fields := fields_of(python_type)) is not None:
        quoted = (f"`{name.replace('`', '``')}`: {check_type(inner)}" for name, inner in fields.items())
        return f"struct<{', '.join(quoted)}>"
    raise ConfigError(
        f"{python_type!r} is not a type",
        hint='a text such as "long" or "array<string>", or ' + ", ".join(simple.__name__ for simple in _PYTHON),
    )


def fields_of(model: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass or pydantic model with their annotations; None for any other object.

    Raises:
        ConfigError: If an annotation names a class that can't be found.
    """
    if not isinstance(model, type):
        return None
    if dataclasses.is_dataclass(model):
        names = [field.name for field in dataclasses.fields(model)]
    elif not (names := list(getattr(model, "model_fields", ()))):
        return None
    try:
        hints = typing.get_type_hints(model, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"{model.__qualname__} has an annotation that is not known: {error}",
            hint="define the class before the schema is used, at the top of a module",
        ) from error
    return {name: hints[name] for name in names}


def unknown_directives(format: str, known: str) -> list[str]:
    """Return the directives of a format that are not among some letters.

    Example:
        >>> unknown_directives("%d.%m.%Y %Q", READ)
        ['%Q']
    """
    return sorted({directive for directive in re.findall("%.?", format, re.DOTALL) if directive[1:] not in set(known)})
