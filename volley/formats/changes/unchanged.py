"""Tells which values an update leaves out: those with a placeholder in their place, and fields that are not there."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.types.arrow import is_any_list

__all__ = ["Placeholder", "lists_of"]

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Placeholder:
    """Finds the placeholder of values that have not changed, in all forms that types and handling modes give it.

    Example:
        >>> Placeholder("__debezium_unavailable_value").mask(pa.array(["a", "__debezium_unavailable_value"])).tolist()
        [False, True]
    """

    def __init__(self, text: str) -> None:
        data = text.encode()
        encoded = base64.b64encode(data).decode()
        objects = [
            json.dumps({text: text}, separators=separators, ensure_ascii=ascii)
            for separators in ((",", ":"), (", ", ": "))
            for ascii in (True, False)
        ]
        urlsafe = base64.urlsafe_b64encode(data).decode()
        self._texts = pa.array([text, encoded, urlsafe, urlsafe.rstrip("="), *objects])
        self._items = pa.array([text, encoded, _name_uuid(data)])
        self._bytes, self._data, self._text = pa.array([data]), data, text

    def mask(self, values: pa.Array) -> Mask:
        """Return for each value whether it is the placeholder."""
        t = pa.types
        if t.is_string(values.type):
            return _mask(pc.is_in(values, self._texts))
        if t.is_binary(values.type):
            return _mask(pc.is_in(values, self._bytes))
        if is_any_list(values.type):
            return self._lists(values)
        if t.is_map(values.type):
            own = {self._text: self._text}
            return np.array([value is not None and dict(value) == own for value in values.to_pylist()], np.bool_)
        return np.zeros(len(values), np.bool_)

    def _lists(self, values: pa.Array) -> Mask:
        item, lengths = values.type.value_type, pc.list_value_length(values)
        if pa.types.is_integer(item) or pa.types.is_floating(item):
            return self._where(values, lengths, len(self._data), lambda value: [*map(int, value)] == [*self._data])
        if pa.types.is_string(item) or pa.types.is_binary(item):
            known = {*self._items.to_pylist(), self._data}
            return self._where(values, lengths, 1, lambda value: value[0] in known)
        return np.zeros(len(values), np.bool_)

    @staticmethod
    def _where(values: pa.Array, lengths: pa.Array, length: int, is_one: Callable[[list[Any]], bool]) -> Mask:
        """Return the mask of lists of a length that are one; the others are not looked at."""
        mask = _mask(pc.equal(lengths, length))
        for row in np.flatnonzero(mask):
            value = values[int(row)].as_py()
            mask[row] = None not in value and is_one(value)
        return mask


def _name_uuid(data: bytes) -> str:
    """Return Java's UUID.nameUUIDFromBytes of bytes."""
    return str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))


def _mask(values: pa.Array) -> Mask:
    mask: Mask = np.array(values.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    return mask


def lists_of(masks: Mapping[str, Mask], count: int) -> pa.Array:
    """Return for each row the names whose masks have it, as a list; null for a row that has all its values.

    Example:
        >>> lists_of({"a": np.array([True, False]), "b": np.array([True, False])}, 2).to_pylist()
        [['a', 'b'], None]
    """
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if not masks:
        return pa.nulls(count, pa.list_(pa.string()))
    names, table = pa.array(list(masks)), np.stack(list(masks.values()), axis=1)
    sizes = table.sum(axis=1)
    offsets = pa.array(np.concatenate(([0], np.cumsum(sizes))), pa.int32())
    return pa.ListArray.from_arrays(offsets, names.take(pa.array(np.nonzero(table)[1])), mask=pa.array(sizes == 0))
