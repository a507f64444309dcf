"""Functions of texts, lists and maps: the namespaces .str, .list and .map of expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from volley.errors import ExpressionError, near
from volley.plan import parameters
from volley.plan.elsewhere import Namespace
from volley.plan.parameters import steps_of
from volley.types.names import READ

__all__ = ["Lists", "Maps", "Strings"]

E = TypeVar("E")


class Strings(Namespace[E]):
    """Functions of texts; positions and lengths are in characters (Unicode code points), from 0.

    Patterns are regular expressions of RE2: https://github.com/google/re2/wiki/Syntax.

    Example:
        >>> from volley import col
        >>> col("name").str.strip().str.lower()
        col('name').str.strip('').str.lower()
    """

    _name = "str"
    _elsewhere: ClassVar[Mapping[str, str]] = {
        "to_lowercase": "lower()",
        "to_uppercase": "upper()",
        "len_chars": "length()",
        "len": "length()",
        "len_bytes": "byte_length()",
        "strip_chars": "strip()",
        "trim": "strip()",
        "lstrip": "strip_start()",
        "ltrim": "strip_start()",
        "strip_chars_start": "strip_start()",
        "rstrip": "strip_end()",
        "rtrim": "strip_end()",
        "strip_chars_end": "strip_end()",
        "startswith": 'starts_with("a")',
        "endswith": 'ends_with("a")',
        "substring": "slice(0, 3)",
        "substr": "slice(0, 3)",
        "zfill": 'pad_start(5, "0")',
        "rjust": "pad_start(5)",
        "lpad": "pad_start(5)",
        "ljust": "pad_end(5)",
        "rpad": "pad_end(5)",
        "to_datetime": "to_timestamp(format)",
        "strptime": "to_timestamp(format) or to_date(format)",
        "replace_all": "replace(part, other), of all occurrences",
        "regexp_replace": "replace_pattern(pattern, other)",
        "replace_regex": "replace_pattern(pattern, other)",
        "rlike": "matches(pattern)",
        "match": "matches(pattern)",
        "regexp_extract": 'extract("(?P<name>…)", "name")',
        "json_path_match": 'json_path("$.a")',
        "get_json_object": 'json_path("$.a")',
        "concat": "volley.concat_str(a, b)",
        "cat": "volley.concat_str(a, b)",
        "join": "list.join() of a list",
        "to_int": "to_integer()",
        "to_float": "to_double()",
    }

    def lower(self) -> E:
        """Return the text in lower case, by Unicode's rules for single characters."""
        return self._record("str_lower")

    def upper(self) -> E:
        """Return the text in upper case, by Unicode's rules for single characters."""
        return self._record("str_upper")

    def strip(self, characters: str = "") -> E:
        """Return the text without these characters at both ends; "" = white space."""
        return self._record("str_strip", parameters.text("characters", characters))

    def strip_start(self, characters: str = "") -> E:
        """Return the text without these characters at its start; "" = white space."""
        return self._record("str_strip_start", parameters.text("characters", characters))

    def strip_end(self, characters: str = "") -> E:
        """Return the text without these characters at its end; "" = white space."""
        return self._record("str_strip_end", parameters.text("characters", characters))

    def length(self) -> E:
        """Return the number of characters."""
        return self._record("str_length")

    def byte_length(self) -> E:
        """Return the number of bytes of a text in UTF-8, or of a binary value."""
        return self._record("str_byte_length")

    def slice(self, start: int, length: int | None = None) -> E:
        """Return a part of the text.

        Args:
            start: The first character; a negative one counts from the end, also to before the text.
            length: The most characters; None = up to the end. Those before the text count: of "ABC", two from -4 are
                "A".
        """
        whole = parameters.number("start", start), None if length is None else parameters.number("length", length, 0)
        return self._record("str_slice", *whole)

    def replace(self, part: str, other: str) -> E:
        """Return the text with another one in the place of each occurrence of a part."""
        return self._record("str_replace", parameters.text("part", part, least=1), parameters.text("other", other))

    def replace_pattern(self, pattern: str, other: str) -> E:
        r"""Return the text with another one in the place of each match; ``\1`` in it is the first group."""
        return self._record("str_replace_pattern", parameters.text("pattern", pattern), parameters.text("other", other))

    def matches(self, pattern: str) -> E:
        """Return true if the pattern matches anywhere in the text; ``^`` and ``$`` bind it to the ends."""
        return self._record("str_matches", parameters.text("pattern", pattern))

    def extract(self, pattern: str, group: str) -> E:
        """Return what a named group of a pattern matches first, null without a match.

        Args:
            pattern: A pattern with named groups, such as ``"(?P<year>[0-9]{4})"``.
            group: The group's name.
        """
        groups = re.findall(r"\(\?P?<(\w+)>", parameters.text("pattern", pattern))
        if group not in groups:
            raise ExpressionError(
                f"the pattern {pattern!r} has no group named {group!r}",
                hint=near(group, groups) if groups else 'name it: "(?P<name>…)"',
            )
        return self._record("str_extract", pattern, group)

    def starts_with(self, prefix: str) -> E:
        """Return true if the text starts with a prefix."""
        return self._record("starts_with", parameters.text("prefix", prefix))

    def ends_with(self, suffix: str) -> E:
        """Return true if the text ends with a suffix."""
        return self._record("str_ends_with", parameters.text("suffix", suffix))

    def contains(self, part: str) -> E:
        """Return true if the text contains a part."""
        return self._record("contains", parameters.text("part", part))

    def split(self, separator: str) -> E:
        """Return the parts of the text between separators, as a list."""
        return self._record("str_split", parameters.text("separator", separator, least=1))

    def pad_start(self, length: int, character: str = " ") -> E:
        """Return the text with characters before it, up to a length; a longer one stays."""
        return self._record("str_pad_start", parameters.number("length", length, 0), parameters.character(character))

    def pad_end(self, length: int, character: str = " ") -> E:
        """Return the text with characters behind it, up to a length; a longer one stays."""
        return self._record("str_pad_end", parameters.number("length", length, 0), parameters.character(character))

    def reverse(self) -> E:
        """Return the characters in reversed order."""
        return self._record("str_reverse")

    def to_date(self, format: str = "%Y-%m-%d") -> E:
        """Return the date that a text names, null if it does not fit the format.

        Args:
            format: As for C's ``strptime``: ``%Y``, ``%m``, ``%d``, ``%b``, ``%j``, …. ``%Y`` is a year of four
                digits. ``%a``, a day of the week, is not compared with the date.
        """
        return self._record("str_to_date", parameters.directives(format, READ, least=1))

    def to_timestamp(self, format: str = "%Y-%m-%d %H:%M:%S") -> E:
        """Return the wall-clock time that a text names, in whole seconds; null if it does not fit the format.

        Texts in ISO 8601, with ``T``, fractions or offsets, are read by ``cast("timestamp")``.

        Args:
            format: As for C's ``strptime``: ``%Y``, ``%m``, ``%d``, ``%H``, ``%M``, ``%S``, …. ``%Y`` is a year of four
                digits. With ``%z``, an offset from UTC, the result is an instant.
        """
        return self._record("str_to_timestamp", parameters.directives(format, READ, least=1))

    def to_integer(self) -> E:
        """Return the whole number that a text is, blanks around it left out; null if it is none, or beyond 64 bits."""
        return self._record("str_to_integer")

    def to_double(self) -> E:
        """Return the number that a text is, such as ``1.5`` or ``2e-3``; null if it is none."""
        return self._record("str_to_double")

    def to_decimal(self, precision: int, scale: int) -> E:
        """Return the decimal that a text is; null if it is no number, or needs more digits before or behind the point.

        Args:
            precision: The number of digits, at most 38.
            scale: How many of them are behind the point.
        """
        if not (type(precision) is type(scale) is int and 0 <= scale <= precision and 1 <= precision <= 38):
            raise ExpressionError(f"there is no decimal({precision}, {scale})", hint="0 to 38 digits, such as (10, 2)")
        return self._record("str_to_decimal", precision, scale)

    def json_path(self, path: str) -> E:
        """Return a value out of a JSON text, as a text; null if it has none there, or is no JSON.

        Texts come without quotes, numbers as they are written, objects and arrays as compact JSON. Of a name that an
        object has twice, the last value counts.

        Args:
            path: ``$`` for the whole, then names and places: ``"$.customer.tags[0]"``, ``'$["first name"]'``.
        """
        steps_of(parameters.text("path", path))
        return self._record("str_json_path", path)


class Lists(Namespace[E]):
    """Functions of lists; positions count from 0.

    Example:
        >>> from volley import col
        >>> col("tags").list.contains("new")
        col('tags').list.contains('new')
    """

    _name = "list"
    _elsewhere: ClassVar[Mapping[str, str]] = {
        "len": "length()",
        "size": "length()",
        "first": "get(0)",
        "last": "get(-1)",
        "explode": 'stream.explode("name")',
        "array_contains": "contains(1)",
        "getItem": "get(0)",
    }

    def length(self) -> E:
        """Return the number of items, nulls included."""
        return self._record("list_length")

    def get(self, position: int) -> E:
        """Return the item at a position, a negative one counted from the end; null if the list is too short."""
        return self._record("list_get", parameters.number("position", position))

    def contains(self, value: Any) -> E:
        """Return true if an item equals a constant, NaN included; null without one if an item is null."""
        return self._record("list_contains", value)

    def join(self, separator: str = "") -> E:
        """Return the items as one text, with a separator between them; nulls are passed over."""
        return self._record("list_join", parameters.text("separator", separator))


class Maps(Namespace[E]):
    """Functions of maps.

    Example:
        >>> from volley import col
        >>> col("labels").map.get("country")
        col('labels').map.get('country')
    """

    _name = "map"
    _elsewhere: ClassVar[Mapping[str, str]] = {
        "len": "length()",
        "size": "length()",
        "getItem": 'get("key")',
        "map_keys": "keys()",
        "map_values": "values()",
        "contains_key": 'contains("key")',
    }

    def length(self) -> E:
        """Return the number of keys."""
        return self._record("map_length")

    def keys(self) -> E:
        """Return the keys as a list, in the map's order."""
        return self._record("map_keys")

    def values(self) -> E:
        """Return the values as a list, in the order of the keys."""
        return self._record("map_values")

    def get(self, key: Any) -> E:
        """Return the value of a constant key; null without it. Of a key that is there twice, the last value counts."""
        return self._record("map_get", key)

    def contains(self, key: Any) -> E:
        """Return true if the map has a constant key."""
        return self._record("map_contains", key)
