"""The functions that SQL texts can call, by their names in SQL."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from volley.errors import ExpressionError
from volley.plan.choices import coalesce, concat_str, greatest, least, murmur3, xxhash64
from volley.plan.expressions import Expr, lit
from volley.plan.sql_texts import regexp_replace, split, substring, trim_end, trim_start

__all__ = ["FIRST_CONSTANT", "FUNCTIONS", "LITERALS", "PARTS", "arguments_of", "like"]

Build = Callable[..., Expr]

_ANY, _CHARACTER, _RE2 = "%", "_", frozenset(r"\.+*?()|[]{}^$")


def like(text: Expr, pattern: Any, escape: str = "", ignore_case: bool = False) -> Expr:
    """Return true if the whole text fits a pattern of SQL.

    Args:
        text: The text.
        pattern: ``%`` = any characters, ``_`` = one.
        escape: The character that makes the next one stand for itself; "" = none.
        ignore_case: True compares letters without regard to their case.
    """
    if not isinstance(pattern, str):
        raise ExpressionError(f"like {pattern!r}", hint="the pattern is a constant text")
    parts = _parts(pattern, escape)
    texts = [part for part, is_wildcard in parts if not is_wildcard]
    shape = "".join(part if is_wildcard else "x" for part, is_wildcard in parts)
    if not ignore_case and shape in ("", "x"):
        return text.eq("".join(texts))
    if not ignore_case and shape in ("x%", "%x", "%x%"):
        match = {"x%": text.starts_with, "%x": text.str.ends_with, "%x%": text.contains}
        return match[shape](texts[0])
    regex = {_ANY: ".*", _CHARACTER: "."}
    body = "".join(regex[part] if is_wildcard else _quoted(part) for part, is_wildcard in parts)
    return text.str.matches(f"(?s{'i' if ignore_case else ''})^{body}$")


def _parts(pattern: str, escape: str) -> list[tuple[str, bool]]:
    """Return the wildcards of a pattern (True) and the texts between them (False)."""
    parts: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for character in characters:
        is_wildcard = character in (_ANY, _CHARACTER)
        if character == escape:
            character = next(characters, "")
            if not character:
                raise ExpressionError(f"like {pattern!r} ends with the escape character", hint="write it twice")
            is_wildcard = False
        if not is_wildcard and parts and not parts[-1][1]:
            parts[-1] = (parts[-1][0] + character, False)
        else:
            parts.append((character, is_wildcard))
    return parts


def _quoted(text: str) -> str:
    return "".join(f"\\{character}" if character in _RE2 else character for character in text)


def _round(number: Expr, digits: int = 0) -> Expr:
    return number.round(digits)


def _date_trunc(unit: Any, moment: Any) -> Expr:
    return _value(moment).dt.truncate(unit)


def _to_date(text: Expr, format: str | None = None) -> Expr:
    return text.cast("date") if format is None else text.str.to_date(format)


def _to_timestamp(text: Expr, format: str | None = None) -> Expr:
    return text.cast("timestamp") if format is None else text.str.to_timestamp(format)


def _value(value: Any) -> Expr:
    return value if isinstance(value, Expr) else lit(value)


PARTS: dict[str, Build] = {
    "year": lambda moment: moment.dt.year(),
    "quarter": lambda moment: moment.dt.quarter(),
    "month": lambda moment: moment.dt.month(),
    "week": lambda moment: moment.dt.iso_week(),
    "day": lambda moment: moment.dt.day(),
    "isodow": lambda moment: moment.dt.weekday(),
    "doy": lambda moment: moment.dt.day_of_year(),
    "hour": lambda moment: moment.dt.hour(),
    "minute": lambda moment: moment.dt.minute(),
    "second": lambda moment: moment.dt.second(),
    "epoch": lambda moment: moment.dt.epoch_seconds(),
}
"""The parts of a date or time, for ``extract(part from …)``."""

_NAMED: dict[str, Build] = {
    "coalesce": coalesce,
    "ifnull": lambda value, other: coalesce(value, other),
    "nvl": lambda value, other: coalesce(value, other),
    "nullif": lambda value, other: value.null_if(other),
    "greatest": greatest,
    "least": least,
    "concat": lambda *texts: concat_str(*texts),
    "lower": lambda text: text.str.lower(),
    "upper": lambda text: text.str.upper(),
    "ltrim": trim_start,
    "rtrim": trim_end,
    "btrim": lambda text, characters=" ": text.str.strip(characters),
    "length": lambda text: text.str.length(),
    "char_length": lambda text: text.str.length(),
    "octet_length": lambda text: text.str.byte_length(),
    "substr": substring,
    "left": lambda text, length: text.str.slice(0, length),
    "replace": lambda text, part, other: text.str.replace(part, other),
    "regexp_replace": regexp_replace,
    "regexp_like": lambda text, pattern: text.str.matches(pattern),
    "starts_with": lambda text, prefix: text.str.starts_with(prefix),
    "ends_with": lambda text, suffix: text.str.ends_with(suffix),
    "contains": lambda text, part: text.str.contains(part),
    "split": split,
    "reverse": lambda text: text.str.reverse(),
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "date_trunc": _date_trunc,
    "array_length": lambda items: items.list.length(),
    "array_contains": lambda items, value: items.list.contains(value),
    "array_join": lambda items, separator="": items.list.join(separator),
    "json_path": lambda text, path: text.str.json_path(path),
    "strftime": lambda moment, format: moment.dt.format(format),
    "hash": lambda *values: murmur3(*values),
    "xxhash64": lambda *values: xxhash64(*values),
    "uuid5": lambda text, namespace="oid": text.uuid5(namespace),
    "md5": lambda value: value.md5(),
    "sha256": lambda value: value.sha256(),
    "is_nan": lambda number: number.is_nan(),
    "abs": lambda number: number.abs(),
    "sign": lambda number: number.sign(),
    "floor": lambda number: number.floor(),
    "ceil": lambda number: number.ceil(),
    "ceiling": lambda number: number.ceil(),
    "round": _round,
    "mod": lambda number, divisor: number.mod(divisor),
    "sqrt": lambda number: number.sqrt(),
    "exp": lambda number: number.exp(),
    "ln": lambda number: number.ln(),
    "log10": lambda number: number.log10(),
    "power": lambda number, exponent: number.power(exponent),
}

FUNCTIONS: dict[str, Build] = _NAMED | PARTS
"""Each function, by its name in lower case. It takes expressions first; constants come as Python values."""

FIRST_CONSTANT = ("date_trunc", "ltrim", "rtrim")
"""Those whose first argument may come as a Python value, too."""


def arguments_of(name: str, build: Build) -> str:
    """Return how a function is called, such as ``left(text, length)``."""
    shown = [
        f"{'…' if each.kind is each.VAR_POSITIONAL else ''}{each.name}"
        for each in inspect.signature(build).parameters.values()
    ]
    return f"{name}({', '.join(shown)})"


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(text) from error


def _naive(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        raise ValueError(text)
    return found


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


LITERALS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _naive,
    "decimal": _decimal,
}
"""The constants that are written as a type and a text, such as ``date '2024-01-01'``."""
