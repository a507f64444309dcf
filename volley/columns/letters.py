"""What a dead letter has: its columns, and what an error tells of the step and the column at fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from volley.contracts.reports import DeadLetter
from volley.errors import message_of
from volley.plan.expression_nodes import ExprNode, column_names
from volley.secrets import redact

__all__ = [
    *("LEFT", "REPLAYED", "SCHEMA", "Blame", "ColumnFault", "blame_of", "blaming", "column_in", "only_column"),
    *("payload_of", "shown"),
]

SCHEMA = pa.schema(
    {
        "payload": pa.string(),
        "error": pa.string(),
        "position": pa.string(),
        "epoch": pa.int64(),
        "job": pa.string(),
        "time": pa.timestamp("us", "UTC"),
        "step": pa.string(),
        "column": pa.string(),
        "source": pa.string(),
        "format": pa.string(),
        "sinks": pa.string(),
        "replayed": pa.timestamp("us", "UTC"),
    }
)
"""The columns of a dead letter. Up to 0.2.0 it had the first five: in older tables the others are null."""

REPLAYED = "replayed"
"""The column of the time of a replay, and the tally of letters whose rows have passed."""
LEFT = "left"
"""The tally of a job's letters that can't be read again."""

_MOST_SHOWN = 300
_NOTED = "_volley_blame"
# How the library's own messages begin that name a column; a user's text may follow.
_NAMED = re.compile(r"""(?:key )?(?:column|field) (?:'((?:[^'\\]|\\.)+)'|"([^"]+)")""")
_NAMED_BY_ARROW = re.compile(r"JSON parse error: Column\(/([^/)]+)")


@dataclass(frozen=True)
class Blame:
    """The step and the column that are at fault; None = not known.

    Args:
        step: The step as text.
        column: The column whose value is at fault, if it is one alone.
    """

    step: str | None = None
    column: str | None = None


class ColumnFault(str):
    """Why a row is bad, which does not name the column that it is about."""

    column: str

    @classmethod
    def of(cls, reason: str, column: str) -> ColumnFault:
        """Return a reason that knows its column."""
        fault = cls(reason)
        fault.column = column
        return fault


class _Step(Protocol):
    """The part of a node that is named."""

    @property
    def brief(self) -> str: ...


class blaming:
    """Note on the errors of the block which step or which column is at fault, unless it is known already.

    Args:
        step: The step.
        column: The column's name.
    """

    def __init__(self, step: _Step | None = None, column: str | None = None) -> None:
        self._step = step
        self._column = column

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, of: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            return
        known = _noted(error)
        if known.step is None and self._step is not None:
            known = replace(known, step=self._step.brief)
        vars(error)[_NOTED] = replace(known, column=known.column or self._column)


def blame_of(error: BaseException) -> Blame:
    """Return which step and column an error is about.

    Example:
        >>> blame_of(ValueError("column 'price' has nulls")).column
        'price'
    """
    known = _noted(error)
    return replace(known, column=column_in(message_of(error)) or known.column)


def _noted(error: BaseException) -> Blame:
    known: Any = vars(error).get(_NOTED)
    return known if isinstance(known, Blame) else Blame()


def column_in(reason: str) -> str | None:
    """Return the column that a reason begins with; None if it names none there.

    Example:
        >>> column_in("column 'id' of type string does not fit long: …"), column_in("not JSON")
        ('id', None)
    """
    if isinstance(reason, ColumnFault):
        return reason.column
    named = _NAMED.match(reason) or _NAMED_BY_ARROW.match(reason)
    return None if named is None else next(filter(None, named.groups()))


def payload_of(value: bytes, format: str) -> tuple[str, str]:
    """Return the bytes of a bad row as a payload, and its format: only ``text`` if it is not UTF-8.

    Example:
        >>> payload_of(b'{"id": 1}', "json"), payload_of(b"\\xff", "json")
        (('{"id": 1}', 'json'), ('\ufffd', 'text'))
    """
    try:
        return value.decode(), format
    except UnicodeDecodeError:
        return value.decode(errors="replace"), "text"


def shown(letter: Mapping[str, Any]) -> DeadLetter:
    """Return a letter as a job's status shows it: cut, secrets masked."""
    texts = {
        name: redact(letter[name])[:_MOST_SHOWN] for name in ("payload", "error", "position", "step") if letter[name]
    }
    others = {name: letter[name] for name in ("epoch", "time", "column", "source")}
    return DeadLetter(**{"payload": "", "error": "", "position": "", **texts, **others})


def only_column(node: ExprNode) -> str | None:
    """Return the column that an expression uses, if it is one alone."""
    names = column_names(node)
    return names.pop() if len(names) == 1 else None
