"""Finds fields that a schema lacks, also within structs: Arrow leaves such values out without a word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["unknown_columns", "unknown_in_values"]

_Find = Callable[[Any], "str | None"]


def unknown_columns(own: Iterable[pa.Field], known: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    """Yield the paths of the columns, and of the fields of structs, that others lack.

    Example:
        >>> own = pa.schema({"id": pa.int64(), "at": pa.struct([("x", pa.int64()), ("y", pa.int64())])})
        >>> list(unknown_columns(own, pa.schema({"at": pa.struct([("x", pa.int64())])})))
        ['id', 'at.y']
    """
    columns = {field.name: field.type for field in known}
    for field in own:
        column = columns.get(field.name)
        if column is None:
            yield before + field.name
        else:
            yield from _unknown_within(field.type, column, f"{before}{field.name}.")


def _unknown_within(own: pa.DataType, known: pa.DataType, before: str) -> Iterator[str]:
    """Yield the unknown fields of structs, also of those in lists and maps; these add nothing to the path."""
    if pa.types.is_struct(own) and pa.types.is_struct(known):
        yield from unknown_columns(list(own), list(known), before)
    else:
        for inner, column in zip(_items(own), _items(known), strict=False):
            yield from _unknown_within(inner, column, before)


def _items(data_type: pa.DataType) -> list[pa.DataType]:
    """Return the types of what a list or map holds; none for other types."""
    if pa.types.is_map(data_type):
        return [data_type.key_type, data_type.item_type]
    is_list = data_type.num_fields == 1 and not pa.types.is_struct(data_type)
    return [data_type.value_type] if is_list else []


def unknown_in_values(values: Sequence[Any], field: pa.Field) -> str | None:
    """Return the path of the first field of dicts that a column's structs lack; None if there is none.

    Example:
        >>> field = pa.field("at", pa.list_(pa.struct([("x", pa.int64())])))
        >>> unknown_in_values([None, [{"x": 1}, {"y": 2}]], field)
        'at.y'
    """
    find = _finder(field.type, f"{field.name}.")
    return next(filter(None, map(find, values)), None) if find else None


def _finder(data_type: pa.DataType, before: str) -> _Find | None:
    """Return what finds an unknown field in a value of this type; None if it has no structs."""
    if pa.types.is_struct(data_type):
        return _of_structs({field.name: _finder(field.type, f"{before}{field.name}.") for field in data_type}, before)
    if pa.types.is_map(data_type):
        return _of_maps(_finder(data_type.item_type, before))
    items = _items(data_type)
    return _of_lists(_finder(items[0], before)) if items else None


def _of_structs(fields: dict[str, _Find | None], before: str) -> _Find:
    inner = {name: find for name, find in fields.items() if find}

    def find(value: Any) -> str | None:
        if not isinstance(value, dict):
            return None
        if not value.keys() <= fields.keys():
            return before + str(next(name for name in value if name not in fields))
        return next(filter(None, (found(value.get(name)) for name, found in inner.items())), None)

    return find


def _of_lists(items: _Find | None) -> _Find | None:
    if items is None:
        return None
    # Other values than lists are refused, or converted, by Arrow.
    return lambda value: next(filter(None, map(items, value)), None) if isinstance(value, list | tuple) else None


def _of_maps(items: _Find | None) -> _Find | None:
    if items is None:
        return None

    def find(value: Any) -> str | None:
        if isinstance(value, dict):
            return next(filter(None, map(items, value.values())), None)
        pairs = value if isinstance(value, list | tuple) else ()
        return next(filter(None, (items(pair[1]) for pair in pairs if isinstance(pair, tuple) and len(pair) > 1)), None)

    return find
