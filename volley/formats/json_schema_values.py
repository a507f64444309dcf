"""Decodes JSON by a JSON Schema: whole numbers written as 5.0, maps, and values of any type as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from volley.formats import json as json_format
from volley.formats.json_schema import Items, Members, Node, Plain, Struct, Text, Whole, columns_of, merged, text_of
from volley.formats.messages import JsonValues, TooManyError, Values, decode_errors
from volley.formats.registered import Registered
from volley.formats.rows import Sorted
from volley.types.arrow import canonical_schema

__all__ = ["JsonSchemaValues", "from_text", "merged_texts", "to_text"]

# A long has 19 digits.
_DIGITS = 20
_Rewrite = Callable[[bytes], bytes]
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_NULL = b"null"


def to_text(schema: Registered) -> str:
    """Return a schema, with what it refers to, as one text of JSON."""
    return json.dumps(_as_json(schema))


def from_text(text: str | bytes) -> Registered:
    """Return the schema of such a text."""
    return _from_json(json.loads(text))


def merged_texts(kept: bytes, latest: bytes) -> bytes:
    """Return the text of the schema that has the columns of two; the first one itself if it has all of them.

    Raises:
        ConfigError: If the second one is no schema of an object with properties.
    """
    own = columns_of(from_text(kept))
    columns = merged(own, columns_of(from_text(latest)))
    return kept if columns == own else to_text(Registered("JSON", text_of(columns))).encode()


def _as_json(schema: Registered) -> dict[str, Any]:
    references = [[name, _as_json(reference)] for name, reference in schema.references]
    return {"kind": schema.kind, "text": schema.text, "references": references}


def _from_json(value: Mapping[str, Any]) -> Registered:
    references = tuple((name, _from_json(reference)) for name, reference in value["references"])
    return Registered(value["kind"], value["text"], references)


@dataclass(frozen=True)
class JsonSchemaValues:
    """Decodes values that are JSON objects of a schema; a tombstone becomes a row of nulls.

    Args:
        on_unknown: What to do with fields that the schema lacks: ``"warn"``, ``"keep"``, ``"fail"`` or ``"drop"``.
    """

    format: ClassVar[str] = "json"
    rows_vary: ClassVar[bool] = False
    registered: Registered
    on_unknown: str
    unknown: str = "unknown"

    @cached_property
    def schema(self) -> pa.Schema:
        schema = canonical_schema(pa.schema([(name, _type(node, _LOGICAL)) for name, node in self._root.fields]))
        return schema.append(pa.field(self.unknown, pa.string())) if self.on_unknown == "keep" else schema

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        try:
            return self._decoded(values, self._others, place)
        except TooManyError:
            raise
        except decode_errors:
            # A whole number may be written as 5.0.
            return self._decoded(values, self._all, place)

    def sort(self, values: Values, place: str = "") -> Sorted:
        rows = self._inner.sort(_rewritten(values, self._all), place)
        return replace(rows, batches=[*map(self._logical, rows.batches)])

    def fault(self, value: bytes | None, error: Exception) -> str:
        (rewritten,) = _rewritten([value], self._all)
        return self._inner.fault(rewritten, error)

    def _decoded(self, values: Values, rewrite: _Rewrite | None, place: str) -> pa.RecordBatch:
        return self._logical(self._inner.decode(_rewritten(values, rewrite), place))

    def _logical(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.schema):
            return batch
        arrays = [_converted(column, field.type) for column, field in zip(batch.columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @cached_property
    def _root(self) -> Struct:
        return columns_of(self.registered)

    @cached_property
    def _others(self) -> _Rewrite | None:
        """What rewrites maps and texts."""
        return _rewrite(self._root, wholes=False)

    @cached_property
    def _all(self) -> _Rewrite | None:
        """What rewrites whole numbers, too."""
        return _rewrite(self._root, wholes=True)

    @cached_property
    def _inner(self) -> JsonValues:
        schema = canonical_schema(pa.schema([(name, _type(node, _PHYSICAL)) for name, node in self._root.fields]))
        json_format.check(schema)
        return JsonValues(schema, self.on_unknown, self.unknown)

    def __getstate__(self) -> dict[str, Any]:
        return {"registered": self.registered, "on_unknown": self.on_unknown, "unknown": self.unknown}


def _entries(value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", value)]))


def _map(value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), value)


_LOGICAL, _PHYSICAL = _map, _entries


def _type(node: Node, of_map: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    match node:
        case Plain(data_type):
            return data_type
        case Whole():
            return pa.int64()
        case Struct(fields):
            return pa.struct([(name, _type(inner, of_map)) for name, inner in fields])
        case Items(item):
            return pa.list_(_type(item, of_map))
        case Members(value):
            return of_map(_type(value, of_map))
    return pa.string()


def _rewritten(values: Values, rewrite: _Rewrite | None) -> Values:
    """Return objects in the form that JSON's reader knows; what is none is unchanged."""
    if rewrite is None:
        return values
    rewritten: list[bytes | None] = []
    for value in values:
        try:
            rewritten.append(value if value is None else rewrite(value))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            # Its reader says why.
            rewritten.append(value)
    return rewritten


def _rewrite(node: Node, wholes: bool) -> _Rewrite | None:
    """Return what turns a value into the form that JSON's reader knows; None if it is that already.

    Args:
        wholes: Whether whole numbers may be written as 5.0.
    """
    match node:
        case Whole() if wholes:
            return _whole
        case Text():
            return _text
        case Struct(fields):
            inner = {name: rewrite for name, field in fields if (rewrite := _rewrite(field, wholes))}
            return (lambda value: _object(value, inner)) if inner else None
        case Items(item):
            of_item = _rewrite(item, wholes)
            return (lambda value: _items(value, of_item)) if of_item else None
        case Members(value):
            of_value = _rewrite(value, wholes)
            return lambda value: _members(value, of_value)
    return None


def _whole(value: bytes) -> bytes:
    if value.isdigit() or value[:1] not in b"-0123456789":
        return value
    try:
        number = Decimal(value.decode())
    except InvalidOperation:
        return value
    is_whole = number.adjusted() < _DIGITS and number == number.to_integral_value()
    return str(int(number)).encode() if is_whole else value


def _text(value: bytes) -> bytes:
    return value if value == _NULL else msgspec.json.encode(value.decode())


def _object(value: bytes, inner: Mapping[str, _Rewrite]) -> bytes:
    if value.lstrip()[:1] != b"{":
        return value
    parts = [
        b"%b:%b" % (_key(name), raw if (rewrite := inner.get(name)) is None else rewrite(bytes(raw)))
        for name, raw in _OBJECT.decode(value).items()
    ]
    return b"{%b}" % b",".join(parts)


@lru_cache(maxsize=10_000)
def _key(name: str) -> bytes:
    return msgspec.json.encode(name)


def _items(value: bytes, rewrite: _Rewrite) -> bytes:
    if value[:1] != b"[":
        return value
    return b"[%b]" % b",".join([rewrite(bytes(raw)) for raw in _ARRAY.decode(value)])


def _members(value: bytes, rewrite: _Rewrite | None) -> bytes:
    if value[:1] != b"{":
        return value
    parts = [
        b'{"key":%b,"value":%b}' % (msgspec.json.encode(name), raw if rewrite is None else rewrite(bytes(raw)))
        for name, raw in _OBJECT.decode(value).items()
    ]
    return b"[%b]" % b",".join(parts)


def _converted(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return an array with lists of entries as maps."""
    if array.type.equals(data_type):
        return array
    if pa.types.is_map(data_type):
        keys, values = array.flatten().flatten()
        values = _converted(values, data_type.item_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, values, type=data_type)
    if pa.types.is_list(data_type):
        items = _converted(array.flatten(), data_type.value_type)
        return pa.ListArray.from_arrays(_offsets(array), items, type=data_type)
    fields = [data_type.field(number) for number in range(data_type.num_fields)]
    arrays = [_converted(inner, field.type) for inner, field in zip(array.flatten(), fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null())


def _offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of lists, those of a null being null."""
    lengths = pc.cumulative_sum(array.value_lengths().fill_null(0))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), lengths])
    mask = pa.concat_arrays([array.is_null(), pa.array([False])])
    return pa.array(ends.to_numpy(), mask=mask.to_numpy(zero_copy_only=False))
