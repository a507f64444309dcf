"""Parses texts of JSON objects for files and messages alike: what becomes of fields that are in no column."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.columns import Columns, Names, names_of, objects_of, unknown_in
from volley.formats.json import fault, parsed
from volley.unknown_fields import note_unknown

__all__ = ["JsonParser"]

_MANY = 10
_FEW = 5
_LONGEST_NAME = 100
_UNEXPECTED = "unexpected field"


@dataclass
class JsonParser:
    """Parses texts one after the other; notes the names of unknown fields for a warning.

    The first text with unknown fields is looked at more closely than later ones, as most rows have the same fields.

    Args:
        columns: All columns that the objects can have, and what to do with other fields.
        schema: The columns to read, the one for other fields among them.
    """

    columns: Columns
    schema: pa.Schema
    _seen: set[str] = field(default_factory=set)

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
        is_whole = self.columns.on_unknown == "keep" or len(self._known) == len(self.columns.schema)
        if is_whole and not self._seen:
            try:
                # Costs nothing if there are no unknown fields, and little if the first object has one.
                return [self._kept(batch, None) for batch in self._parsed(text, "error")]
            except pa.ArrowInvalid as error:
                if _UNEXPECTED not in str(error):
                    raise
        batches = self._parsed(text, "ignore")
        if self.columns.on_unknown == "keep":
            return self._with_rests(batches, text)
        self._note(text, place, surely=is_whole and not self._seen)
        return batches

    def fault(self, lines: list[bytes]) -> str | None:
        """Return the reason why the last of these lines can't be parsed; None if all can."""
        reason = fault(lines, self._known, self._unexpected, self._required)
        if reason and _UNEXPECTED in reason:
            names = [*unknown_in(lines[-1], self._names)]
            return f"field {names[0][:_LONGEST_NAME]!r} is not in the schema" if names else reason
        return reason

    @cached_property
    def _known(self) -> pa.Schema:
        return pa.schema([field for field in self.schema if field.name != self.columns.kept_in])

    @cached_property
    def _names(self) -> Names:
        return names_of(self.columns.schema)

    @property
    def _unexpected(self) -> str:
        return "error" if self.columns.on_unknown == "fail" else "ignore"

    @property
    def _required(self) -> Collection[str]:
        """The columns of which each object needs one; none if all other fields are kept."""
        return () if self.columns.on_unknown == "keep" else self.columns.schema.names

    def _parsed(self, text: bytes, unexpected: str) -> list[pa.RecordBatch]:
        return parsed(text, self._known, unexpected, self._required)

    def _note(self, text: bytes, place: str, surely: bool) -> None:
        """Note the unknown fields of a text; `surely` = it has some."""
        lines = text.split(b"\n")
        names = self._unknown_in(lines, _MANY if surely else _FEW)
        if surely and not names:
            names = self._unknown_in(lines, len(lines))
        note_unknown(sorted(names - self._seen), place, can_keep=True)
        self._seen |= names

    def _unknown_in(self, lines: Sequence[bytes], count: int) -> set[str]:
        """Return the names of unknown fields in some lines, evenly spread."""
        step = -(-len(lines) // count)
        return {name for line in lines[::step] for name in unknown_in(line, self._names)}

    def _with_rests(self, batches: list[pa.RecordBatch], text: bytes) -> list[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        rests = _rests(objects_of(text, rows), set(self._known.names))
        if len(rests) != rows:
            raise SourceError("unknown fields can't be told apart: write one object a line")
        taken = iter(rests)
        return [self._kept(batch, [next(taken) for _ in range(batch.num_rows)]) for batch in batches]

    def _kept(self, batch: pa.RecordBatch, rests: list[str | None] | None) -> pa.RecordBatch:
        """Return the batch with the column for other fields, if there is one."""
        name = self.columns.kept_in
        if name is None or name not in self.schema.names:
            return batch
        column = pa.nulls(batch.num_rows, pa.string()) if rests is None else pa.array(rests, pa.string())
        return batch.append_column(pa.field(name, pa.string()), column)


def _rests(objects: Iterable[bytes], known: Collection[str]) -> list[str | None]:
    """Return, for each object, its fields that are not known, as JSON; None without any."""
    decode: Callable[[str], dict[str, Any]] = json.JSONDecoder(parse_float=_finite).decode
    try:
        rests = [
            {name: value for name, value in decode(text.decode("utf-8-sig")).items() if name not in known}
            for text in objects
        ]
    except RecursionError as error:
        raise SourceError("nested too deep") from error
    except ValueError as error:
        # Arrow has parsed the text: Python rejects only integers of thousands of digits.
        raise SourceError(str(error).partition(":")[0]) from error
    return [json.dumps(rest, ensure_ascii=False) if rest else None for rest in rests]


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise SourceError("a number is too large for a double")
    return value
