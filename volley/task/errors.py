"""Carries VolleyErrors from executors to the driver, through Spark, which sends text only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from volley.errors import VolleyError

__all__ = ["CarriedError", "carried", "find_carried"]

_MARK = "volley-error "
_LINE = re.compile(rf"{_MARK}(\{{.*\}})")


class CarriedError(Exception):
    """A VolleyError as one line of JSON; its traceback has the error itself as the cause."""

    def __init__(self, error: VolleyError) -> None:
        super().__init__(_MARK + error.to_json())


@contextmanager
def carried() -> Iterator[None]:
    """Raise a VolleyError in a form that survives Spark.

    Raises:
        CarriedError: If a VolleyError is raised.
    """
    try:
        yield
    except VolleyError as error:
        raise CarriedError(error) from error


def find_carried(text: str) -> VolleyError | None:
    """Return the last error that was carried in a text of Spark's; None if there is none."""
    lines = _LINE.findall(text)
    return VolleyError.from_json(lines[-1]) if lines else None
