"""Where a program or a document has a step: its file and line, which an error of the step names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import NamedTuple, Protocol

from volley.errors import VolleyError

__all__ = ["Place", "caller", "naming", "written_at"]

_PACKAGE = __name__.partition(".")[0]


class Place(NamedTuple):
    """A line of a program, or a place in a document: that has a column, too."""

    file: str
    line: int
    column: int | None = None

    def __str__(self) -> str:
        if self.column is not None:
            return f"{self.file}:{self.line}:{self.column}"
        # A notebook cell is compiled as a temporary file, whose name means nothing to the user.
        in_cell = "ipykernel" in self.file or self.file.startswith("<ipython-input")
        return f"notebook cell, line {self.line}" if in_cell else f"{self.file}:{self.line}"


_document: ContextVar[Place | None] = ContextVar("document", default=None)


class _Step(Protocol):
    """The part of a node that is named."""

    @property
    def place(self) -> Place | None: ...


@contextmanager
def written_at(place: Place) -> Iterator[None]:
    """Take a place of a document for that of all steps which are built in the block."""
    before = _document.set(place)
    try:
        yield
    finally:
        _document.reset(before)


def caller() -> Place | None:
    """Return the line of the program that has called Volley, or the place of the document that has the step."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(f"{_PACKAGE}.config"):
            return _document.get()
        if module.partition(".")[0] != _PACKAGE:
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


class naming:
    """Name the line of the program that has a step in the VolleyErrors of the block."""

    def __init__(self, step: _Step) -> None:
        self._place = step.place

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, of: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, VolleyError) and error.place is None and self._place is not None:
            error.place = str(self._place)
