"""Calls on texts and bytes."""

from __future__ import annotations

from tests.unit.beside_spark.case import Call, cases
from volley import col, concat_str, greatest, least, murmur3, xxhash64

__all__ = ["TEXTS"]

s, t, c, f, y = map(col, "stcfy")

_CALLS: list[Call] = [
    ("str.lower", s.str.lower(), "lower(s)"),
    ("str.upper", s.str.upper(), "upper(s)"),
    ("str.strip", s.str.strip(), "trim(s)"),
    ("str.strip", s.str.strip("xa"), "trim(both 'xa' from s)"),
    ("str.strip_start", s.str.strip_start(), "ltrim(s)"),
    ("str.strip_start", s.str.strip_start("xa"), "ltrim('xa', s)"),
    ("str.strip_end", s.str.strip_end(), "rtrim(s)"),
    ("str.strip_end", s.str.strip_end("xa"), "rtrim('xa', s)"),
    ("str.length", s.str.length(), "length(s)"),
    ("str.byte_length", s.str.byte_length(), "octet_length(s)"),
    ("str.slice", s.str.slice(0, 2), "substring(s, 1, 2)"),
    ("str.slice", s.str.slice(2), "substring(s, 3)"),
    ("str.slice", s.str.slice(1, 0), "substring(s, 2, 0)"),
    ("str.slice", s.str.slice(-3), "substring(s, -3)"),
    ("str.slice", s.str.slice(-4, 2), "substring(s, -4, 2)"),
    ("str.slice", s.str.slice(-30, 29), "substring(s, -30, 29)"),
    ("str.replace", s.str.replace("a", "--"), "replace(s, 'a', '--')"),
    ("str.replace_pattern", s.str.replace_pattern("[a-z]", "<>"), "regexp_replace(s, '[a-z]', '<>')"),
    ("str.replace_pattern", s.str.replace_pattern("(.)(.)", r"\2\1"), "regexp_replace(s, '(.)(.)', '$2$1')"),
    ("str.replace_pattern", s.str.replace_pattern("^", "-"), "regexp_replace(s, '^', '-')"),
    ("str.replace_pattern", s.str.replace_pattern("$", "-"), "regexp_replace(s, '$', '-')"),
    ("str.replace_pattern", s.str.replace_pattern("x*", "-"), "regexp_replace(s, 'x*', '-')"),
    ("str.replace_pattern", s.str.replace_pattern(".", "_"), "regexp_replace(s, '.', '_')"),
    ("str.replace_pattern", s.str.replace_pattern(r"\s", "_"), r"regexp_replace(s, r'\s', '_')"),
    ("str.replace_pattern", s.str.replace_pattern(r"\w", "_"), r"regexp_replace(s, r'\w', '_')"),
    ("str.replace_pattern", s.str.replace_pattern(r"\b", "_"), r"regexp_replace(s, r'\b', '_')"),
    ("str.replace_pattern", s.str.replace_pattern(r"\p{L}", "L"), r"regexp_replace(s, r'\p{L}', 'L')"),
    ("str.replace_pattern", s.str.replace_pattern("(?i)A", "_"), "regexp_replace(s, '(?i)A', '_')"),
    ("str.replace_pattern", s.str.replace_pattern("a", "$1"), r"regexp_replace(s, 'a', r'\$1')"),
    ("str.matches", s.str.matches("^a"), "s rlike '^a'"),
    ("str.matches", s.str.matches("b$"), "s rlike 'b$'"),
    ("str.matches", s.str.matches(""), "s rlike ''"),
    ("str.extract", s.str.extract("(?P<g>[a-z]+)", "g"), "regexp_extract(s, '([a-z]+)', 1)"),
    ("str.extract", s.str.extract("(?P<g>x)?a", "g"), "regexp_extract(s, '(x)?a', 1)"),
    ("starts_with", s.starts_with("a"), "startswith(s, 'a')"),
    ("starts_with", s.starts_with(""), "startswith(s, '')"),
    ("str.ends_with", s.str.ends_with("c"), "endswith(s, 'c')"),
    ("contains", s.contains(","), "contains(s, ',')"),
    ("str.split", s.str.split(","), "split(s, ',')"),
    ("str.split", s.str.split("."), r"split(s, r'\.')"),
    ("str.pad_start", s.str.pad_start(4, "0"), "lpad(s, 4, '0')"),
    ("str.pad_end", s.str.pad_end(4), "rpad(s, 4)"),
    ("str.reverse", s.str.reverse(), "reverse(s)"),
    ("concat_str", concat_str(s, t), "concat(s, t)"),
    ("concat_str", concat_str(s, t, separator=","), "concat_ws(',', s, t)"),
    ("greatest", greatest(s, t), "greatest(s, t)"),
    ("least", least(s, t), "least(s, t)"),
    ("null_if", s.null_if(t), "nullif(s, t)"),
    ("eq", s == t, "s = t"),
    ("lt", s < t, "s < t"),
    ("is_in", s.is_in("a", ""), "s in ('a', '')"),
    ("md5", s.md5(), "md5(s)"),
    ("sha256", s.sha256(), "sha2(s, 256)"),
    ("murmur3", murmur3(s, t), "hash(s, t)"),
    ("xxhash64", xxhash64(s, t), "xxhash64(s, t)"),
]

_BYTES: list[Call] = [
    ("md5", y.md5(), "md5(y)"),
    ("sha256", y.sha256(), "sha2(y, 256)"),
    ("str.byte_length", y.str.byte_length(), "octet_length(y)"),
    ("lt", y < b"b", "y < x'62'"),
    ("murmur3", murmur3(y), "hash(y)"),
    ("xxhash64", xxhash64(y), "xxhash64(y)"),
]

_NUMBERS: list[Call] = [
    ("str.to_integer", c.str.to_integer(), "try_cast(c as bigint)"),
    ("str.to_double", c.str.to_double(), "try_cast(c as double)"),
    ("str.to_decimal", c.str.to_decimal(7, 2), "try_cast(c as decimal(7,2))"),
]

_PATHS = ("$", "$.a", "$.a.b", "$.a.b[1]", "$.a[0]", "$[0]", "$.a[0].b")

TEXTS = [
    *cases("texts", _CALLS),
    *cases("bytes", _BYTES),
    *cases("numbers in texts", _NUMBERS),
    *cases("documents", [("str.json_path", f.str.json_path(path), f'get_json_object(f, "{path}")') for path in _PATHS]),
]
