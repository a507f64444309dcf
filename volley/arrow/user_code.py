"""Errors in functions that users give: their own line first."""

from __future__ import annotations

import traceback
from pathlib import Path

from volley.errors import JobError, VolleyError

__all__ = ["failed"]

_HERE = str(Path(__file__).parents[1])


def failed(place: str, error: Exception, given: str) -> VolleyError:
    """The error for a function that has raised one, with the line of the function that did it.

    Args:
        place: The step or sink that called the function.
        error: What it raised; one of ours is given back as it is.
        given: What it was called with, in words.
    """
    if isinstance(error, VolleyError):
        return error
    return JobError(
        f"{_line(error)}{place} failed on {given}: {type(error).__name__}: {error}",
        hint="mend the function, then start again",
    )


def _line(error: Exception) -> str:
    """The line of the user's function that failed: the last one in the file of the first frame that is not ours."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_HERE)]
    if not frames:
        return ""
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    # A cell has a file of its own, whose name nobody knows.
    return f"{'notebook cell, line ' if 'ipykernel' in last.filename else f'{last.filename}:'}{last.lineno}: "
