"""Functions of lists and maps: the namespaces ``.list`` and ``.map`` of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from volley.plan import parameters
from volley.plan.elsewhere import Namespace

__all__ = ["Lists", "Maps"]

E = TypeVar("E")


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
