"""Passes VolleyErrors from executors to the driver through Spark, which sends only text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from volley.errors import VolleyError

__all__ = ["CarriedError", "carried", "find_carried"]

_MARK = "volley-error "
_LINE = re.compile(rf"{_MARK}(\{{.*\}})")


class CarriedError(Exception):
    """A VolleyError as one line of JSON; its cause is the error itself."""

    def __init__(self, error: VolleyError) -> None:
        super().__init__(_MARK + error.to_json())


@contextmanager
def carried() -> Iterator[None]:
    """Turn a VolleyError that the block raises into a CarriedError, which survives Spark.

    Raises:
        CarriedError: If the block raises a VolleyError.
    """
    try:
        yield
    except VolleyError as error:
        raise CarriedError(error) from error


def find_carried(text: str) -> VolleyError | None:
    """Return the last carried error in Spark's error text; None if there is none."""
    lines = _LINE.findall(text)
    return VolleyError.from_json(lines[-1]) if lines else None
