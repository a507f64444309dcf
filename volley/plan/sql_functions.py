"""The functions that SQL texts can call, by their names in SQL."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import count
from typing import Any
from uuid import UUID

from volley.errors import ExpressionError
from volley.plan.choices import coalesce, concat_str, greatest, least, murmur3, xxhash64
from volley.plan.expressions import Expr, lit, now

__all__ = ["FIRST_CONSTANT", "FUNCTIONS", "LITERALS", "PARTS", "arguments_of", "like", "substring"]

Build = Callable[..., Expr]

_ANY, _CHARACTER, _RE2 = "%", "_", frozenset(r"\.+*?()|[]{}^$")
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

FIRST_CONSTANT = ("date_trunc", "ltrim", "rtrim")
"""Those whose first argument may come as a Python value, too."""
_SPECIAL = re.escape("\\.+*?()|[]{}^$")
_PLAIN = re.compile(rf"(?:[^{_SPECIAL}]|\\[^0-9A-Za-z]|\[[^\\^\]]\])+", re.DOTALL)
_ABSENT = object()
_QUOTED = re.compile(r"\\(.)|\[(.)\]", re.DOTALL)
_REPLACEMENT = re.compile(
    r"\$(?P<group>[0-9])(?![0-9])|\\(?P<kept>[0-9\\])|\\(?P<quoted>[^0-9\\])|(?P<text>[^$\\])", re.S
)

# A group of a pattern, or what may have a parenthesis that begins none.
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|(?P<group>\((?!\?))", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?P?<\w")
_DIRECTIVES = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSSSSS": "%f"}
_FORMAT = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>[^']*)'|(?P<marks>[^A-Za-z'#\[\]{}]+)")


def like(text: Expr, pattern: Any, escape: str = "", ignore_case: bool = False) -> Expr:
    """Return true if the whole text fits a pattern of SQL.

    Args:
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


def substring(text: Expr, start: Any, length: Any = None) -> Expr:
    """Return a part of a text; as in SQL, positions count from 1, and negative ones from the end."""
    if type(start) is not int or start == 0:
        raise ExpressionError(f"substring starts at {start!r}", hint="a whole number: 1 is the first character")
    return text.str.slice(start - 1 if start > 0 else start, length)


def _regexp_replace(text: Expr, pattern: Any, other: Any) -> Expr:
    r"""Return a text with another one in the place of each match; ``$1`` in it is the first group, ``\$`` a ``$``."""
    if not isinstance(other, str):
        return text.str.replace_pattern(pattern, other)
    if unread := _REPLACEMENT.sub("", other):
        raise ExpressionError(
            f"regexp_replace puts {other!r} in, of which {unread!r} can't be read",
            hint=r"$1 to $9 are the groups, $0 is the match; write \$ for a dollar sign, \\ for a backslash",
        )
    return text.str.replace_pattern(pattern, _REPLACEMENT.sub(_in_re2, other))


def _in_re2(part: re.Match[str]) -> str:
    kept = part["group"] or part["kept"]
    return f"\\{kept}" if kept else part["quoted"] or part["text"]


def _split(text: Expr, separator: Any) -> Expr:
    """Return the parts of a text between separators; one with characters of patterns is refused: Spark reads one."""
    if not isinstance(separator, str) or not separator:
        return text.str.split(separator)
    if not _PLAIN.fullmatch(separator):
        raise ExpressionError(
            f"split takes a text, not the pattern {separator!r}",
            hint="put a character that patterns have into brackets, as '[.]' or '[|]', to split at the character",
        )
    return text.str.split(_QUOTED.sub(lambda quoted: quoted[1] or quoted[2], separator))


def _split_part(text: Expr, separator: Any, part: Any) -> Expr:
    """Return a part of a text between separators, counted from 1, or from the end; "" if the text has fewer."""
    if type(part) is not int or part == 0:
        raise ExpressionError(
            f"split_part takes part {part!r}", hint="a whole number: 1 is the first part, -1 the last"
        )
    return coalesce(text.str.split(separator).list.get(part - 1 if part > 0 else part), _empty(text))


def _regexp_extract(text: Expr, pattern: Any, group: Any = 1) -> Expr:
    """Return what a group of a pattern matches first, 0 = the whole pattern; "" without a match."""
    if not isinstance(pattern, str) or _NAMED_GROUP.search(pattern):
        raise ExpressionError(
            f"regexp_extract takes the pattern {pattern!r}", hint="a constant text, whose groups are numbered: ([0-9]+)"
        )
    numbers = count(1)

    def opened(found: re.Match[str]) -> str:
        if not found["group"]:
            return found[0]
        return "(?P<value>" if next(numbers) == group else "(?:"

    named = _GROUP.sub(opened, pattern)
    if type(group) is not int or not 0 <= group < next(numbers):
        raise ExpressionError(
            f"regexp_extract takes group {group!r} of {pattern!r}", hint="groups count from 1; 0 is all that matches"
        )
    return coalesce(text.str.extract(named if group else f"(?P<value>{named})", "value"), _empty(text))


def _empty(text: Expr) -> Expr:
    """Return "", of null null."""
    return text.str.slice(0, 0)


def _get(items: Expr, position: Any) -> Expr:
    if type(position) is not int or position < 0:
        raise ExpressionError(f"get takes the item at {position!r}", hint="a whole number: 0 is the first item")
    return items.list.get(position)


def _date_format(moment: Expr, format: Any) -> Expr:
    """Return a time as a text, by the letters of Spark's formats that are numbers of one width."""
    parts = list(_FORMAT.finditer(format)) if isinstance(format, str) else []
    known = all(part["letters"] is None or part["letters"] in _DIRECTIVES for part in parts)
    if not known or "".join(part[0] for part in parts) != format:
        raise ExpressionError(
            f"date_format takes the format {format!r}",
            hint=f"a constant text of {', '.join(_DIRECTIVES)}; other letters stand in quotes",
        )
    return moment.dt.format("".join(map(_directive, parts)))


def _directive(part: re.Match[str]) -> str:
    if part["letters"]:
        return _DIRECTIVES[part["letters"]]
    text = part["marks"] or part["quoted"] or "'"
    return text.replace("%", "%%")


def _trim_start(characters: Any, text: Any = _ABSENT) -> Expr:
    """Return a text without blanks at its start, or without characters that stand before it: ``ltrim('x', text)``."""
    chosen, trimmed = _trimmed("ltrim", "leading", characters, text)
    return trimmed.str.strip_start(chosen)


def _trim_end(characters: Any, text: Any = _ABSENT) -> Expr:
    """Return a text without blanks at its end, or without characters that stand before it: ``rtrim('x', text)``."""
    chosen, trimmed = _trimmed("rtrim", "trailing", characters, text)
    return trimmed.str.strip_end(chosen)


def _trimmed(name: str, side: str, characters: Any, text: Any) -> tuple[str, Expr]:
    """Return the characters and the text; of a single argument, which is the text, blanks."""
    if text is _ABSENT:
        characters, text = " ", characters
    if not isinstance(characters, str):
        raise ExpressionError(
            f"{name} takes the characters, a constant text, before the text, as in Spark",
            hint=f"write trim({side} 'x' from name)",
        )
    return characters, text if isinstance(text, Expr) else lit(text)


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
    "ltrim": _trim_start,
    "rtrim": _trim_end,
    "btrim": lambda text, characters=" ": text.str.strip(characters),
    "length": lambda text: text.str.length(),
    "char_length": lambda text: text.str.length(),
    "octet_length": lambda text: text.str.byte_length(),
    "substr": substring,
    "left": lambda text, length: text.str.slice(0, length),
    "replace": lambda text, part, other: text.str.replace(part, other),
    "regexp_replace": _regexp_replace,
    "regexp_like": lambda text, pattern: text.str.matches(pattern),
    "starts_with": lambda text, prefix: text.str.starts_with(prefix),
    "ends_with": lambda text, suffix: text.str.ends_with(suffix),
    "contains": lambda text, part: text.str.contains(part),
    "regexp_extract": _regexp_extract,
    "split": _split,
    "split_part": _split_part,
    "reverse": lambda text: text.str.reverse(),
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "date_trunc": _date_trunc,
    "date_format": _date_format,
    "get": _get,
    "array_length": lambda items: items.list.length(),
    "array_contains": lambda items, value: items.list.contains(value),
    "array_join": lambda items, separator="": items.list.join(separator),
    "json_path": lambda text, path: text.str.json_path(path),
    "strftime": lambda moment, format: moment.dt.format(format),
    "hash": lambda *values: murmur3(*values),
    **dict.fromkeys(("now", "current_timestamp"), now),
    "current_date": lambda: now().cast("date"),
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


def arguments_of(name: str, build: Build) -> str:
    """Return how a function is called, such as ``left(text, length)``."""
    shown = [
        f"{'…' if parameter.kind is parameter.VAR_POSITIONAL else ''}{parameter.name}"
        for parameter in inspect.signature(build).parameters.values()
    ]
    return f"{name}({', '.join(shown)})"


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(text) from error


def _naive(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return moment


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


LITERALS: dict[str, Callable[[str], Any]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": _instant,
    "timestamp_ntz": _naive,
    "decimal": _decimal,
    # Expressions compare the texts of UUIDs.
    "uuid": lambda text: str(UUID(text)),
}
"""The constants that are written as a type and a text, such as ``date '2024-01-01'``."""
