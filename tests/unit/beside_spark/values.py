"""Calls on values of any type, conditions, lists, maps and structs."""

from __future__ import annotations

from tests.unit.beside_spark.case import Call, cases
from tests.unit.beside_spark.rows import NAN
from volley import array, coalesce, col, murmur3, struct, when, xxhash64

__all__ = ["VALUES"]

s, t, x, b, c, v, w, u, p, r = map(col, "stxbcvwupr")
_NAN = "double('NaN')"

_CONDITIONS: list[Call] = [
    ("and_", b & c, "b and c"),
    ("or_", b | c, "b or c"),
    ("not_", ~b, "not b"),
    ("eq", b == c, "b = c"),
    ("when", when(b).then(1).otherwise(2), "case when b then 1 else 2 end"),
    ("when", when(b).then(1).when(c).then(2), "case when b then 1 when c then 2 end"),
    ("coalesce", coalesce(b, c), "coalesce(b, c)"),
    ("murmur3", murmur3(b), "hash(b)"),
    ("xxhash64", xxhash64(b, c), "xxhash64(b, c)"),
]

_MIXED: list[Call] = [
    ("when", when(x > 0).then(1).otherwise(x), "case when x > 0 then 1 else x end"),
    ("coalesce", coalesce(x, 1), "coalesce(x, 1)"),
]

_TEXTS: list[Call] = [
    ("coalesce", coalesce(s, t, "none"), "coalesce(s, t, 'none')"),
    ("array", array(s, t), "array(s, t)"),
    ("struct", struct(a=s, b=t), "named_struct('a', s, 'b', t)"),
]

_LISTS: list[Call] = [
    ("list.length", v.list.length(), "size(v)"),
    ("list.get", v.list.get(0), "get(v, 0)"),
    ("list.get", v.list.get(-1), "try_element_at(v, -1)"),
    ("list.get", v.list.get(-5), "try_element_at(v, -5)"),
    ("list.join", w.list.join("+"), "array_join(w, '+')"),
    ("list.contains", v.list.contains(2), "array_contains(v, 2L)"),
    ("list.contains", w.list.contains("a"), "array_contains(w, 'a')"),
    ("list.contains", u.list.contains(NAN), f"array_contains(u, {_NAN})"),
    ("list.contains", u.list.contains(0.0), "array_contains(u, 0d)"),
    ("list.contains", u.list.contains(-0.0), "array_contains(u, -0d)"),
]

_MAPS: list[Call] = [
    ("map.length", p.map.length(), "size(p)"),
    ("map.keys", p.map.keys(), "map_keys(p)"),
    ("map.values", p.map.values(), "map_values(p)"),
    ("map.get", p.map.get("a"), "p['a']"),
    ("map.contains", p.map.contains("a"), "map_contains_key(p, 'a')"),
]

_STRUCTS: list[Call] = [("field", r["b"], "r.b"), ("is_null", r.is_null(), "r is null")]

VALUES = [
    *cases("truths", _CONDITIONS),
    *cases("doubles", _MIXED),
    *cases("texts", _TEXTS),
    *cases("lists", _LISTS),
    *cases("maps", _MAPS),
    *cases("structs", _STRUCTS),
]
