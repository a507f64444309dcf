"""Tells OpenLineage of the maintenance of tables: of actions that did something, and of those that failed."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from volley.errors import VolleyError
from volley.iceberg.table import TableRef
from volley.lineage.events import Part
from volley.lineage.work import Known, Work

__all__ = ["told"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Action = Callable[Concatenate[TableRef, _P], _T]


def told(action: str, has_done: Callable[[Any], bool]) -> Callable[[_Action[_P, _T]], _Action[_P, _T]]:
    """Return a decorator of a function that maintains a table.

    Args:
        action: Its name.
        has_done: Returns True if what the function returns is not nothing.
    """

    def decorated(function: _Action[_P, _T]) -> _Action[_P, _T]:
        @wraps(function)
        def run(ref: TableRef, /, *args: _P.args, **options: _P.kwargs) -> _T:
            def known() -> Known:
                part = Part(ref.dataset())
                return Known([part], [part])

            work = Work.of(f"{ref.name}.{action}", "MAINTENANCE", known)
            if work is None:
                return function(ref, *args, **options)
            try:
                done = function(ref, *args, **options)
            except VolleyError as error:
                work.fail(error)
                raise
            if has_done(done):
                work.complete()
            return done

        return run

    return decorated
