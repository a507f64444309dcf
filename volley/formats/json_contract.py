"""Parses JSON objects by a contract: new fields become columns, what fits none is rescued, dropped or a bad row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.contracts.rows import tally
from volley.errors import SourceError
from volley.formats.contract import DROPPED, RESCUED, RESCUED_VALUES, Contract
from volley.formats.input_file import Columns
from volley.formats.json import is_rounded, parsed, quick_reader
from volley.formats.json_faults import ObjectCheck, is_odd
from volley.formats.json_objects import Fields, Names, Number, encoded, names_of, rest_of
from volley.formats.json_parser import Good, JsonParser, Likely, UnitsOf
from volley.formats.json_rescue import Rescue
from volley.formats.json_seen import Sight, has_value
from volley.formats.rows import Sorted

if TYPE_CHECKING:
    from volley.formats.json_columns import ObjectReader

__all__ = ["ContractParser", "parser_of"]

_ERRORS = (pa.ArrowException, SourceError)
_LONGEST_NAME = 100
# A double holds each whole number of 15 digits.
_LONG_NUMBER = re.compile(rb"[0-9]{16}")
_LARGEST_WHOLE = float(2**53)


def parser_of(columns: Columns, schema: pa.Schema, epoch: str | None) -> JsonParser:
    """Return the parser of objects with these columns; see `JsonParser`."""
    return (JsonParser if columns.sight is None else ContractParser)(columns, schema, epoch)


@dataclass
class ContractParser(JsonParser):
    """Parses by the contract of `columns`, and notes what is new for the next plan of the job."""

    def parse(self, text: bytes, place: str) -> list[pa.RecordBatch]:
        batches = [self._shaped(batch) for batch in parsed(text, self._wide, "error", (), self.epoch, lenient=False)]
        if _LONG_NUMBER.search(text) and any(map(_may_be_rounded, batches)):
            raise SourceError("a double would round a whole number")
        self._sight.note()
        return [self._kept(batch, None) for batch in batches]

    def sort(self, texts: Sequence[bytes], place: str, alone: bool = False) -> Sorted:
        return self.sort_quickly(texts, place, alone)

    def sort_likely(self, text: bytes, place: str, units: UnitsOf, alone: bool = False) -> Likely | None:
        return None

    def sort_quickly(self, texts: Sequence[bytes], place: str, alone: bool = False) -> Sorted:
        batches, numbers, others = self._quick(texts)
        unread = [texts[number] for number in others]
        if self._sight.look(unread) and not self._sight.news and (rows := self._parsed_again(texts, place, alone)):
            return rows
        if self._sight.news:
            self._sight.note()
            return self._without_values(texts)
        self._counts.clear()
        rest = self._sorted(unread, place, alone)
        for number in rest.numbers:
            for name, count in self._counts[number].items():
                tally(name, count)
        return self._with_others([self._kept(batch, None) for batch in batches], numbers, rest, others)

    def _quick(self, texts: Sequence[bytes]) -> tuple[list[pa.RecordBatch], list[int], list[int]]:
        """Return the rows of objects that have nothing but their columns, their numbers, and those of others."""
        wide = self._wide
        if wide not in self._readers:
            self._readers[wide] = quick_reader(wide) if self.epoch is None else None
        if reader := self._readers[wide]:
            batches, numbers, others = reader.sort(texts)
            if not any(map(_may_be_rounded, batches)):
                return [*map(self._shaped, batches)], numbers, others
        return [], [], [*range(len(texts))]

    def _parsed_again(self, texts: Sequence[bytes], place: str, alone: bool) -> Sorted | None:
        """Return the rows of texts, now that fields without a type are known; None if there is more to it."""
        if alone and not all(text.startswith(b"{") and text.endswith(b"}") for text in texts):
            return None
        try:
            batches = self.parse(b"\n".join(texts), place)
        except _ERRORS:
            return None
        is_whole = sum(batch.num_rows for batch in batches) == len(texts)
        return Sorted(batches, range(len(texts)), {}) if is_whole else None

    def _without_values(self, texts: Sequence[bytes]) -> Sorted:
        """Return rows of nulls: their task writes none, since the epoch is read again with more columns."""
        columns = [pa.nulls(len(texts), field.type) for field in self.schema]
        return Sorted([pa.RecordBatch.from_arrays(columns, schema=self.schema)], range(len(texts)), {})

    def _judged(self, number: int, text: bytes) -> Good | str:
        return self._settled(number, text, surely=False)

    def _rescued(self, number: int, text: bytes, alone: bool) -> Good | None:
        judged = self._settled(number, text, surely=True)
        if isinstance(judged, str) or (alone and len(judged.objects) > 1):
            return None
        return judged if self._rescue.fits(judged.text) else None

    def _settled(self, number: int, text: bytes, surely: bool) -> Good | str:
        """Return a text with what has a column, and the rest to keep; or why it is bad.

        Args:
            surely: True: Arrow is asked which values fit.
        """
        objects = self._objects_in(text)
        if not isinstance(objects, list):
            return objects or "nested too deep"
        rows, rests = list[Fields](), list[str | None]()
        self._counts[number] = counts = Counter[str]()
        for fields in objects:
            if not isinstance(fields, tuple):
                return "not a JSON object"
            try:
                known, rest = self._divided(fields, counts, surely)
            except RecursionError:
                return "nested too deep"
            except SourceError as error:
                return error.message
            rows.append(known)
            rests.append(rest)
        return Good(number, text, "\n".join(map(encoded, rows)).encode(errors="surrogatepass"), rows, rests)

    def _divided(self, fields: Fields, counts: Counter[str], surely: bool) -> tuple[Fields, str | None]:
        """Return the fields of an object that fit their columns, and the JSON of those that are rescued.

        Raises:
            SourceError: If the contract makes the row a bad one, or a value can't be kept.
        """
        declared, types = self._declared, self._types
        # What has no value in it is null in a column that nobody has declared, whatever its type.
        fields = tuple(pair for pair in fields if pair[0] in declared or has_value(pair[1]))
        known = tuple(
            (name, _pruned(value, types[name], declared.get(name))) for name, value in fields if name in types
        )
        fits = self._rescue.fitting(known) if surely else self._likely_to_fit(known)
        fits = {name for name, value in known if name in fits and not _rounds(value, self._types[name])}
        kept = []
        for name, value in fields:
            if name in fits:
                continue
            fate = self._contract.of_value(name) if name in self._names else self._contract.of_field(name)
            if fate == "fail":
                raise SourceError(self._fault_of(name, known))
            counts[DROPPED if fate == "drop" else RESCUED_VALUES] += 1
            if fate != "drop":
                kept.append((name, value))
        return tuple(pair for pair in known if pair[0] in fits), rest_of(tuple(kept), ())

    def _likely_to_fit(self, known: Fields) -> Collection[str]:
        odd = is_odd(encoded(known).encode(errors="surrogatepass"))
        if self._check.fault(known, odd) is None:
            return {name for name, _ in known}
        counts = Counter(name for name, _ in known)
        return {pair[0] for pair in known if counts[pair[0]] == 1 and self._check.fault((pair,), odd) is None}

    def _fault_of(self, name: str, known: Fields) -> str:
        """Return why a contract makes a row with a field bad."""
        if name not in self._names:
            return f"field {name[:_LONGEST_NAME]!r} is not in the schema"
        pairs = tuple(pair for pair in known if pair[0] == name)
        value = encoded(pairs[0][1])[:_LONGEST_NAME]
        return self._check.fault(pairs, is_odd=True) or f"column {name!r}: {value} does not fit it"

    def _parsed(self, text: bytes, unexpected: str) -> list[pa.RecordBatch]:
        return [self._shaped(batch) for batch in parsed(text, _with_one(self._known), "ignore", (), self.epoch)]

    def _shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with their columns, and one in the place of what is rescued, as there may be no other.

        In columns that nobody has declared, lists and objects without a value in them are null.
        """
        columns = [
            narrowed(batch.column(field.name), field.type, self._declared.get(field.name)) for field in self._known
        ]
        return pa.RecordBatch.from_arrays([*columns, pa.nulls(batch.num_rows)], schema=_with_one(self._known))

    def _kept(self, batch: pa.RecordBatch, rests: list[str | None] | None) -> pa.RecordBatch:
        column = pa.nulls(batch.num_rows, pa.string()) if rests is None else pa.array(rests, pa.string())
        return pa.RecordBatch.from_arrays([*batch.columns[:-1], column], schema=self.schema)

    @property
    def _sight(self) -> Sight:
        sight = self.columns.sight
        assert sight is not None
        return sight

    @property
    def _contract(self) -> Contract:
        return self._sight.columns.contract

    @property
    def _wide(self) -> pa.Schema:
        """The columns to read, and fields that were seen beside them."""
        return _with_one(self._sight.wide)

    @cached_property
    def _readers(self) -> dict[pa.Schema, ObjectReader | None]:
        return {}

    @cached_property
    def _counts(self) -> dict[int, Counter[str]]:
        return {}

    @cached_property
    def _declared(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self._sight.columns.declared}

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self._known}

    @cached_property
    def _names(self) -> Names:
        return names_of(self._known)

    @cached_property
    def _check(self) -> ObjectCheck:
        return ObjectCheck(self._known, "fail", (), self.epoch)

    @cached_property
    def _rescue(self) -> Rescue:
        return Rescue(self._known, self.epoch, refuses=True)


def _with_one(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the column of what is rescued, without a type."""
    return schema if RESCUED in schema.names else schema.append(pa.field(RESCUED, pa.null()))


def _pruned(value: Any, data_type: pa.DataType, declared: pa.DataType | None) -> Any:
    """Return a value without fields that nobody has declared and that have no value in them.

    Args:
        declared: The type of it that is declared; None = none is.
    """
    if isinstance(value, list) and pa.types.is_list(data_type):
        item = declared.value_type if declared is not None and pa.types.is_list(declared) else None
        return [_pruned(each, data_type.value_type, item) for each in value]
    if not isinstance(value, tuple) or not pa.types.is_struct(data_type):
        return value
    types = {field.name: field.type for field in data_type}
    known = {} if declared is None else {field.name: field.type for field in declared}
    return tuple(
        (name, _pruned(inner, types.get(name, pa.null()), known.get(name)))
        for name, inner in value
        if name in known or has_value(inner)
    )


def _rounds(value: Any, data_type: pa.DataType) -> bool:
    """Return True if a double in a column would round a whole number."""
    if isinstance(value, list) and pa.types.is_list(data_type):
        return any(_rounds(item, data_type.value_type) for item in value)
    if isinstance(value, tuple) and pa.types.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        return any(_rounds(inner, types[name]) for name, inner in value if name in types)
    return isinstance(value, Number) and pa.types.is_floating(data_type) and is_rounded(value)


def _may_be_rounded(batch: pa.RecordBatch) -> bool:
    return any(map(_has_large_double, batch.columns))


def _has_large_double(array: pa.Array) -> bool:
    if pa.types.is_list(array.type):
        return _has_large_double(array.flatten())
    if pa.types.is_struct(array.type):
        return any(map(_has_large_double, array.flatten()))
    if not pa.types.is_floating(array.type):
        return False
    return bool((pc.max(pc.abs(array)).as_py() or 0) >= _LARGEST_WHOLE)


def narrowed(array: pa.Array, data_type: pa.DataType, declared: pa.DataType | None) -> pa.Array:
    """Return an array without the fields that its type lacks; null where a list or object has no value in it.

    Args:
        declared: The type that is declared, whose empty lists and objects stay what they are; None = there is none.
    """
    if pa.types.is_list(data_type):
        item = declared.value_type if declared is not None and pa.types.is_list(declared) else None
        values = narrowed(array.values, data_type.value_type, item)
        array = pa.Array.from_buffers(
            data_type, len(array), array.buffers()[:2], offset=array.offset, children=[values]
        )
        return array if declared is not None else _null_unless(_lists_with_values(array), array)
    if pa.types.is_struct(data_type):
        of = {field.name: field.type for field in declared} if declared is not None else {}
        fields = [narrowed(array.field(field.name), field.type, of.get(field.name)) for field in data_type]
        is_null = array.is_null()
        if declared is None:
            is_null = pc.or_(is_null, _all_null(fields))
        return pa.StructArray.from_arrays(fields, fields=list(data_type), mask=is_null)
    return array


def _lists_with_values(lists: pa.ListArray) -> npt.NDArray[np.bool_]:
    parents = pc.list_parent_indices(lists).to_numpy()
    valid = lists.flatten().is_valid().to_numpy(zero_copy_only=False)
    return np.bincount(parents[valid], minlength=len(lists)) > 0


def _null_unless(keep: npt.NDArray[np.bool_], array: pa.Array) -> pa.Array:
    if keep.all() or not (array.is_valid().to_numpy(zero_copy_only=False) & ~keep).any():
        return array
    return pc.if_else(pa.array(keep), array, pa.scalar(None, array.type))


def _all_null(arrays: Sequence[pa.Array]) -> pa.Array:
    return reduce(pc.and_, (array.is_null() for array in arrays))
