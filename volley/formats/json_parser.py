"""Parses texts of JSON objects for files and messages alike: what becomes of fields that are in no column."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from volley.contracts.rows import note_unknown
from volley.errors import SourceError, message_of
from volley.formats.input_file import Columns
from volley.formats.json import fault, parsed, quick_reader
from volley.formats.json_faults import ObjectCheck, is_odd
from volley.formats.json_likely import LikelyBad, ObjectLines
from volley.formats.json_objects import (
    LONG_LINE,
    Fields,
    Names,
    decoded,
    fields_of,
    names_of,
    objects_of,
    rests_in,
    some_lines,
    unknown_in,
    why_no_object,
)
from volley.formats.json_rescue import Rescue
from volley.formats.rows import Sorted, in_order, sort_good

if TYPE_CHECKING:
    from volley.formats.json_columns import ObjectReader

__all__ = ["Good", "JsonParser", "Likely", "UnitsOf"]

_MANY = 10
_FEW = 5
_LONGEST_NAME = 100
_MOST_NAMES = 1_000
_UNEXPECTED = "unexpected field"
_NOT_APART = "unknown fields can't be told apart: write one object a line"
# The number of the first bad row, which Arrow's message ends in.
_ROW = re.compile(r" in row (\d+)$")
# With more than one bad text in so many, it is faster to look at each.
_SPARSE = 32
# If most of so many that msgspec refuses are good, it is slower than to look where they are not.
_SAMPLE = 64
_MOST_DIGITS = 4_000
_ERRORS = (pa.ArrowException, SourceError)


class Good(NamedTuple):
    """A text that seems good.

    Args:
        objects: Its objects; one without fields if Python can't tell.
        rests: Their fields to keep, as JSON.
    """

    number: int
    source: bytes
    text: bytes
    objects: list[Fields]
    rests: list[str | None]


UnitsOf: TypeAlias = Callable[[int, bytes], Iterable[tuple[int, bytes]]]
"""Returns the units of some lines, with the numbers of their first lines, given that of the first of all."""


class Likely(NamedTuple):
    """Sorted units, and the texts of those that were looked at by themselves, by their numbers."""

    rows: Sorted
    texts: dict[int, bytes]


@dataclass
class JsonParser:
    """Parses texts one after the other; notes the names of unknown fields for a warning.

    The first text with unknown fields is looked at more closely than later ones, as most rows have the same fields.

    Args:
        columns: All columns that the objects can have, and what to do with other fields.
        schema: The columns to read, the one for other fields among them.
        epoch: The unit of numbers that are timestamps; None = there are none.
    """

    columns: Columns
    schema: pa.Schema
    epoch: str | None = None
    _seen: set[str] = field(default_factory=set)

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached properties: what they hold is made for a schema, and can't be pickled.
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def parse(self, text: bytes, place: str) -> list[pa.RecordBatch]:
        """Return the objects of a text as rows.

        Args:
            text: The objects, separated by white space.
            place: Where they are from, for the warning.

        Raises:
            SourceError: If a value doesn't fit, or an object has none of the columns.
            pyarrow.ArrowInvalid: If the text is no JSON, or has a field that it must not have.
        """
        if self.columns.on_unknown in ("fail", "drop"):
            return self._parsed(text, self._unexpected)
        is_whole = self.columns.keeps or len(self._known) == len(self.columns.schema)
        if is_whole and not self._seen and not (self.columns.seen and self._starts_with_unknown(text)):
            try:
                # Costs nothing if there are no unknown fields, and little if the first object has one.
                return [self._kept(batch, None) for batch in self._parsed(text, "error")]
            except pa.ArrowInvalid as error:
                if _UNEXPECTED not in str(error):
                    raise
                self._remember(self._unknown_in(some_lines(text, 1)))
        batches = self._parsed(text, "ignore")
        if self.columns.keeps:
            return self._with_rests(batches, text)
        self._note(text, place, surely=is_whole and not self._seen)
        return batches

    def sort(self, texts: Sequence[bytes], place: str, alone: bool = False) -> Sorted:
        """Sort texts of which some are bad: about ten microseconds each, however many are.

        Args:
            texts: Texts of one object each, or of several.
            place: Where they are from, for the warning.
            alone: True: a text of several is bad.
        """
        by_arrow = None
        if (quick := self.sort_quickly(texts, place, alone)) is None and not self.columns.rescues:
            by_arrow = self._sorted_by_arrow(texts, place)
        return quick or by_arrow or self._sorted(texts, place, alone)

    def sort_quickly(self, texts: Sequence[bytes], place: str, alone: bool = False) -> Sorted | None:
        """Sort texts as `sort` does, at the speed of `parse` however many there are.

        Returns:
            None if they have types, or fields, that are left to `parse`.
        """
        if self._reader is None:
            return None
        batches, numbers, others = self._reader.sort(texts)
        sample = self._sorted([texts[number] for number in others[:_SAMPLE]], place, alone)
        if len(sample.numbers) * 2 > _SAMPLE:
            self._reader = None
            return None
        rest = sample
        if len(others) > _SAMPLE:
            rest = self._sorted([texts[number] for number in others], place, alone)
        return self._with_others([self._kept(batch, None) for batch in batches], numbers, rest, others)

    def sort_likely(self, text: bytes, place: str, units: UnitsOf, alone: bool = False) -> Likely | None:
        """Sort the lines of a text of which some are bad as others were before: `parse` reads the rest.

        Args:
            place: Where the text is from, for the warning.
            alone: True: each line is a unit, and one of several objects is bad.

        Returns:
            What has become of units, each by the number of its first line, from 0; None if there are bad ones of
            another kind.
        """
        if not self._likely.is_hopeful:
            return None
        lines = ObjectLines(text, alone)
        lines.leave_out(self._likely.places_in(text))
        numbers, others = lines.kept, list[tuple[int, bytes]]()
        if len(numbers) * 2 < len(lines):
            return None
        try:
            batches = self.parse(lines.text_of_kept(), place) if numbers else []
        except _ERRORS:
            batches = []
        if sum(batch.num_rows for batch in batches) != len(numbers):
            self._likely.note(succeeded=False)
            return None
        for first, end in lines.others:
            others += units(first, lines.lines(first, end))
        rest = self._sorted([unit for _, unit in others], place, alone)
        self._likely.note(len(rest.numbers) <= _SAMPLE + len(rest.faults))
        return Likely(self._with_others(batches, numbers, rest, [number for number, _ in others]), dict(others))

    def _with_others(
        self, batches: list[pa.RecordBatch], numbers: list[int], rest: Sorted, others: Sequence[int]
    ) -> Sorted:
        """Return rows together with what has become of others, given their numbers."""
        faults = {others[number]: fault for number, fault in rest.faults.items()}
        self._likely.learn(faults.values())
        if not rest.numbers:
            return Sorted(batches, numbers, faults)
        known, added = np.array(numbers, np.int64), [others[number] for number in rest.numbers]
        places = np.searchsorted(known, added)
        order = np.insert(np.arange(len(known)), places, np.arange(len(known), len(known) + len(added)))
        rows = in_order(pa.Table.from_batches([*batches, *rest.batches]).combine_chunks(), order)
        return Sorted(rows.combine_chunks().to_batches(), np.insert(known, places, added).tolist(), faults)

    def _sorted_by_arrow(self, texts: Sequence[bytes], place: str) -> Sorted | None:
        """Sort texts of which few are bad: Arrow tells the first one. None if many are, or it does not tell which.

        Texts that start and end as objects can't be the halves of one.
        """
        if not all(text.startswith(b"{") and text.endswith((b"}", b"}\r")) for text in texts):
            return None
        numbers, faults, done = [*range(len(texts))], dict[int, str](), 0
        while done < len(numbers):
            try:
                batches = self.parse(b"\n".join(texts[number] for number in numbers[done:]), place)
            except SourceError:
                return None
            except pa.ArrowException as error:
                row = _ROW.search(str(error))
                if row is None or done + int(row[1]) < _SPARSE * len(faults):
                    return None
                done += int(row[1])
                judged = self._judged(numbers[done], texts[numbers[done]]) if done < len(numbers) else None
                if not isinstance(judged, str):
                    return None
                faults[numbers.pop(done)] = judged
                continue
            if done == 0:
                rows = sum(batch.num_rows for batch in batches)
                return Sorted(batches, numbers, faults) if rows == len(numbers) else None
            # All are good, but read in several calls: read them in one.
            done = 0
        return None

    def _sorted(self, texts: Sequence[bytes], place: str, alone: bool) -> Sorted:
        """Sort texts by looking at each, and rescue what does not fit, if it is to be."""
        rows = self._looked_at(texts, place, alone)
        if not (self.columns.rescues and rows.faults):
            return rows
        rescued = [unit for number in rows.faults if (unit := self._rescued(number, texts[number], alone))]
        if not rescued:
            return rows
        added = self._rows(rescued)
        faults = {number: fault for number, fault in rows.faults.items() if number not in {*added.numbers}}
        batches = [batch for batch in (*rows.batches, *added.batches) if batch.num_rows]
        numbers = np.array([*rows.numbers, *added.numbers], np.int64)
        table = in_order(pa.Table.from_batches(batches).combine_chunks(), np.argsort(numbers, kind="stable"))
        return Sorted(table.combine_chunks().to_batches(), np.sort(numbers).tolist(), faults)

    def _rescued(self, number: int, text: bytes, alone: bool) -> Good | None:
        """Return an object without the values that don't fit, which are kept; None if it stays bad."""
        found = self._rescue.rescue(text)
        unit = Good(number, text, found.text, [found.fields], [found.rest]) if found else None
        return None if unit and alone and _not_alone(unit) else unit

    def _looked_at(self, texts: Sequence[bytes], place: str, alone: bool) -> Sorted:
        """Sort texts by looking at each; Arrow reads those that seem good."""
        faults: dict[int, str] = {}
        good = []
        for number, text in enumerate(texts):
            judged = self._judged(number, text)
            if alone and isinstance(judged, Good):
                judged = _not_alone(judged) or judged
            if isinstance(judged, Good):
                good.append(judged)
            else:
                faults[number] = judged

        def why(index: int, error: Exception) -> str:
            return self.fault([texts[good[index].number]]) or message_of(error)

        numbers = [unit.number for unit in good]
        rows = sort_good(faults, numbers, lambda start, end: self._rows(good[start:end]), why, _ERRORS)
        self._note_in([unit for unit in good if unit.number not in rows.faults], place)
        return rows

    def _judged(self, number: int, text: bytes) -> Good | str:
        """Return a text that seems good, or why it is bad."""
        objects = self._objects_in(text)
        if not isinstance(objects, list):
            return objects or Good(number, text, text, [()], [None])
        check, odd = self._check, is_odd(text)
        for fields in objects:
            is_object = isinstance(fields, tuple)
            fault = check.fault(fields, odd) if is_object else "not a JSON object"
            if fault:
                # What Python reads as one short object is one, unless digits of a number are too many for it.
                is_one = is_object and len(objects) == 1 and len(text) < _MOST_DIGITS and text.startswith(b"{")
                return fault if is_one else why_no_object(text) or fault
        rests: list[str | None]
        try:
            rests = self._rests_of(text, len(objects)) if self._have_rests(objects) else [None for _ in objects]
        except SourceError as error:
            return error.message
        plain = text.removeprefix(BOM_UTF8)
        return Good(number, text, check.readable(objects, plain) if odd else plain, objects, rests)

    @staticmethod
    def _objects_in(text: bytes) -> list[Any] | str | None:
        """Return the values of a text, or why it has none; None if Python can't tell."""
        try:
            return decoded(text.decode().removeprefix("\ufeff"))
        except UnicodeDecodeError as error:
            return why_no_object(text) or f"not UTF-8 ({error.reason})"
        except RecursionError:
            return None
        except ValueError:
            return None if b"\0" in text else why_no_object(text)

    def _have_rests(self, objects: Iterable[Fields]) -> bool:
        is_kept = self.columns.keeps
        return is_kept and any(name not in self._known.names for fields in objects for name, _ in fields)

    def _rests_of(self, text: bytes, count: int) -> list[str | None]:
        rests = rests_in(objects_of(text, count), set(self._known.names))
        if len(rests) != count:
            raise SourceError(_NOT_APART)
        return rests

    def _rows(self, good: Sequence[Good]) -> Sorted:
        """Return the rows of texts; raise if Arrow refuses one of them."""
        batches = self._parsed(b"\n".join(unit.text for unit in good), self._unexpected)
        numbers = [unit.number for unit in good for _ in unit.objects]
        if sum(batch.num_rows for batch in batches) != len(numbers):
            raise SourceError("not one JSON object")
        if self.columns.keeps:
            rests = iter([rest for unit in good for rest in unit.rests])
            batches = [self._kept(batch, [next(rests) for _ in range(batch.num_rows)]) for batch in batches]
        return Sorted(batches, numbers, {})

    def fault(self, lines: list[bytes]) -> str | None:
        """Return the reason why the last of these lines can't be parsed; None if all can."""
        reason = fault(lines, self._known, self._unexpected, self._required, self.epoch)
        if reason and _UNEXPECTED in reason:
            names = [*unknown_in(fields_of(lines[-1]), self._names)]
            return f"field {names[0][:_LONGEST_NAME]!r} is not in the schema" if names else reason
        return reason

    @cached_property
    def _reader(self) -> ObjectReader | None:
        return quick_reader(self._known) if self.epoch is None else None

    @cached_property
    def _rescue(self) -> Rescue:
        return Rescue(self._known, self.epoch)

    @cached_property
    def _likely(self) -> LikelyBad:
        return LikelyBad(self._known)

    @property
    def knows_faults(self) -> bool:
        """True once there was a bad row."""
        return self._likely.has_learned

    @cached_property
    def _known(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name != self.columns.kept_in])

    @cached_property
    def _names(self) -> Names:
        return names_of(self.columns.schema)

    @cached_property
    def _check(self) -> ObjectCheck:
        return ObjectCheck(self._known, self.columns.on_unknown, self._required, self.epoch)

    @property
    def _unexpected(self) -> str:
        return "error" if self.columns.on_unknown == "fail" else "ignore"

    @property
    def _required(self) -> Collection[str]:
        """The columns of which each object needs one; none if all other fields are kept."""
        return () if self.columns.keeps else self.columns.schema.names

    def _parsed(self, text: bytes, unexpected: str) -> list[pa.RecordBatch]:
        return parsed(text, self._known, unexpected, self._required, self.epoch)

    def _note(self, text: bytes, place: str, surely: bool) -> None:
        """Note the unknown fields of a text; `surely` = it has some."""
        names = self._unknown_in(some_lines(text, _MANY if surely and not self.columns.seen else _FEW))
        if surely and not names:
            names = self._unknown_in(text.split(b"\n"))
        self._note_names(names, place)

    def _note_in(self, good: Sequence[Good], place: str) -> None:
        if self.columns.on_unknown == "warn":
            objects = (fields for unit in good for fields in unit.objects)
            self._note_names({name for fields in objects for name in unknown_in(fields, self._names)}, place)

    def _note_names(self, names: set[str], place: str) -> None:
        note_unknown(sorted(names - self._seen), place, can_keep=True)
        if len(self._seen) < _MOST_NAMES:
            self._seen |= names
        self._remember(names)

    def _remember(self, names: set[str]) -> None:
        if len(self.columns.seen) < _MOST_NAMES:
            self.columns.seen.update(names)

    def _unknown_in(self, lines: Iterable[bytes]) -> set[str]:
        return {name for line in lines for name in unknown_in(fields_of(line), self._names)}

    def _starts_with_unknown(self, text: bytes) -> bool:
        """Return True if the first object has an unknown field: Arrow need not look whether one has."""
        line, end, _ = text[:LONG_LINE].partition(b"\n")
        return bool(end or len(text) < LONG_LINE) and bool(self._unknown_in([line]))

    def _with_rests(self, batches: list[pa.RecordBatch], text: bytes) -> list[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        taken = iter(self._rests_of(text, rows))
        return [self._kept(batch, [next(taken) for _ in range(batch.num_rows)]) for batch in batches]

    def _kept(self, batch: pa.RecordBatch, rests: list[str | None] | None) -> pa.RecordBatch:
        """Return the batch with the column for other fields, if there is one."""
        name = self.columns.kept_in
        if name is None or name not in self.schema.names:
            return batch
        column = pa.nulls(batch.num_rows, pa.string()) if rests is None else pa.array(rests, pa.string())
        return batch.append_column(pa.field(name, pa.string()), column)


def _not_alone(good: Good) -> str | None:
    """Return why a text is not one object and nothing else, not even a byte order mark."""
    if not (good.source.startswith(b"{") and good.source.endswith(b"}")):
        return "not a JSON object"
    return "several JSON objects in one message" if len(good.objects) > 1 else None
