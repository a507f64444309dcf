"""Finds the lines of a text that are likely to be no good JSON objects: by their looks, and by what was bad before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from volley.columns.letters import column_in

__all__ = ["LikelyBad", "ObjectLines"]

_NEWLINE, _BEGIN, _END = b"\n{}"
# How a line may begin that begins an object: with blanks, or a byte order mark, before it.
_MAY_BEGIN = np.isin(np.arange(256), list(b"{ \t\r\n\v\f\xef"))
_SPACES = r"[ \t\r\n]*"
_MOST_COLUMNS = 4
_MOST_FAILURES = 2
_DIGITS = {32: 9, 64: 18}
_DAY = "[0-9]{4}-[01][0-9]-[0-3][0-9]"
# How values of a type begin. Those that begin so and are bad end the search for what is likely.
_LOOKS: tuple[tuple[str, str], ...] = (
    *(("is_floating", "-?[0-9]"), ("is_boolean", "true|false"), ("is_decimal", '-?[0-9]|"')),
    *(("is_list", r"\["), ("is_struct", r"\{")),
    *(("is_timestamp", f'-?[0-9]|"{_DAY}[T "]'), ("is_date", f'"{_DAY}"'), ("is_time", '"[0-2][0-9]')),
)


class LikelyBad:
    """Remembers which columns had bad values: where one was bad, others are.

    What it finds is looked at by itself, and what it does not find is refused by Arrow: it makes nothing good or bad.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._types = {field.name: field.type for field in schema}
        self._patterns: dict[str, re.Pattern[bytes]] = {}
        self._failures: int | None = None

    @property
    def has_learned(self) -> bool:
        """True once there was a bad row."""
        return self._failures is not None

    @property
    def is_hopeful(self) -> bool:
        """True if bad rows can be found; False if there was none, or others were bad than it had found."""
        return self._failures is not None and self._failures < _MOST_FAILURES

    def learn(self, faults: Iterable[str]) -> None:
        """Look for values that their columns refuse, from now on, where faults name such a column."""
        for fault in faults:
            self._failures = self._failures or 0
            if len(self._patterns) == _MOST_COLUMNS:
                return
            column = column_in(fault)
            if column is not None and column in self._types and column not in self._patterns:
                self._patterns[column] = _unlike(column, self._types[column])

    def note(self, succeeded: bool) -> None:
        """Note whether all rows were good that it had not found, and most bad that it had."""
        self._failures = 0 if succeeded else (self._failures or 0) + 1

    def places_in(self, text: bytes) -> Iterator[int]:
        """Yield the places of values that are likely to be bad."""
        return (match.start() for pattern in self._patterns.values() for match in pattern.finditer(text))


def _unlike(name: str, data_type: pa.DataType) -> re.Pattern[bytes]:
    """Return a pattern of a field with a value that does not look like one of its type."""
    quoted = re.escape(json.dumps(name, ensure_ascii=False))
    return re.compile(rf"{quoted}{_SPACES}:(?!{_SPACES}(?:null|{_look(data_type)}))".encode())


def _look(data_type: pa.DataType) -> str:
    if pa.types.is_integer(data_type):
        return rf"-?[0-9]{{1,{_DIGITS[data_type.bit_width]}}}[ \t\r\n,}}]"
    return next((look for kind, look in _LOOKS if getattr(pa.types, kind)(data_type)), '"')


class ObjectLines:
    """The lines of a text, in groups: between two of them one object has ended and another begins, or there is none.

    Args:
        apart: True: each line is a group of its own.
    """

    def __init__(self, text: bytes, apart: bool) -> None:
        characters = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(characters == _NEWLINE)
        self._text = text
        self._ends = newlines if text.endswith(b"\n") else np.append(newlines, len(text))
        self._starts = np.concatenate(([0], self._ends[:-1] + 1))
        begun = characters[self._starts] == _BEGIN
        ended = characters[np.maximum(self._ends - 1, 0)] == _END
        is_object = begun & ended
        if apart or is_object.all():
            self._firsts, self._kept = np.arange(len(is_object) + 1), is_object
            self._group = self._firsts[:-1]
            return
        first = np.ones(len(self._starts), bool)
        first[1:] = begun[1:] & ended[:-1]
        may_go_on = ~is_object & _MAY_BEGIN[characters[self._starts]]
        # Where no line can begin an object that goes on, each line stands for itself.
        first |= ~np.logical_or.reduceat(may_go_on, np.flatnonzero(first))[np.cumsum(first) - 1]
        # The first line of each group, and the line behind the last group.
        self._firsts = np.append(np.flatnonzero(first), len(first))
        self._group = np.cumsum(first) - 1
        self._kept = is_object[self._firsts[:-1]] & (np.diff(self._firsts) == 1)

    def __len__(self) -> int:
        return len(self._starts)

    def leave_out(self, places: Iterable[int]) -> None:
        """Leave out the groups at these places of the text."""
        lines = np.searchsorted(self._starts, np.fromiter(places, np.int64), "right") - 1
        self._kept[self._group[lines]] = False

    @property
    def kept(self) -> list[int]:
        """The numbers of the lines that look like objects and were not left out."""
        numbers: list[int] = self._firsts[:-1][self._kept].tolist()
        return numbers

    @property
    def others(self) -> list[tuple[int, int]]:
        """The other groups: the numbers of their first lines, and of those behind their last."""
        groups = np.flatnonzero(~self._kept)
        return [*zip(self._firsts[groups].tolist(), self._firsts[groups + 1].tolist(), strict=True)]

    def lines(self, first: int, end: int) -> bytes:
        """Return the text of some lines, without the newline at its end."""
        return self._text[self._starts[first] : self._ends[end - 1]]

    def text_of_kept(self) -> bytes:
        """Return the text of the lines that are kept."""
        edges: npt.NDArray[np.int64] = np.flatnonzero(np.diff(self._kept, prepend=False, append=False))
        firsts = self._starts[self._firsts[edges[::2]]].tolist()
        ends = self._ends[self._firsts[edges[1::2]] - 1].tolist()
        view = memoryview(self._text)
        return b"\n".join([view[start:end] for start, end in zip(firsts, ends, strict=True)])
