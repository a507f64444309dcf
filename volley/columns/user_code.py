"""Errors in users' functions, with the failing line of the function first."""

from __future__ import annotations

import traceback
from pathlib import Path

from volley.errors import JobError, VolleyError

__all__ = ["failed"]

_PACKAGE = str(Path(__file__).parents[1])


def failed(place: str, error: Exception, argument: str) -> VolleyError:
    """Return the error for a user's function that raised, with the line that raised.

    Args:
        error: What it raised; a VolleyError is returned unchanged.
    """
    if isinstance(error, VolleyError):
        return error
    return JobError(
        f"{_line(error)}{place} failed on {argument}: {type(error).__name__}: {error}",
        hint="mend the function, then start again",
    )


def _line(error: Exception) -> str:
    """Return the failing line of the user's function: the last one in the file of the first frame outside Volley."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)]
    if not frames:
        return ""
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    # A notebook cell is compiled as a temporary file, whose name means nothing to the user.
    return f"{'notebook cell, line ' if 'ipykernel' in last.filename else f'{last.filename}:'}{last.lineno}: "
