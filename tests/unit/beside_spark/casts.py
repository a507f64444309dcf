"""Casts between types that both have."""

from __future__ import annotations

from collections.abc import Iterator

from tests.unit.beside_spark.case import SparkCase
from volley import col

__all__ = ["CASTS"]

_NUMBERS = ("int", "bigint", "float", "double", "decimal(7,2)", "decimal(20,0)")

_TARGETS = {
    "numbers in texts c": (*_NUMBERS, "boolean"),
    "truths in texts c": ("boolean",),
    "dates in texts c": ("date",),
    "moments in texts c": ("timestamp", "timestamp_ntz", "date"),
    "times in texts c": ("time",),
    "ints i": ("string", *_NUMBERS, "boolean"),
    "longs i": ("string", *_NUMBERS, "boolean"),
    "doubles x": ("string", *_NUMBERS, "boolean"),
    "floats x": ("string", *_NUMBERS, "decimal(38,10)", "boolean"),
    "decimals m": ("string", *_NUMBERS, "decimal(9,1)", "boolean"),
    "long decimals m": ("string", "bigint", "double", "decimal(38,0)"),
    "decimals below one m": ("string", "int", "double", "decimal(38,0)", "decimal(38,10)", "decimal(3,3)"),
    "floats of many digits x": ("int", "double", "decimal(38,10)", "decimal(38,0)", "decimal(10,0)"),
    "dates d": ("string", "timestamp", "timestamp_ntz"),
    "instants z": ("string", "date", "timestamp_ntz"),
    "clocks z": ("string", "date", "timestamp"),
    "times k": ("string",),
    "truths b": ("string", "int", "double"),
    "texts s": ("binary",),
    "bytes y": ("string",),
}
"""The types that a column is cast to."""


def _casts() -> Iterator[SparkCase]:
    for place, targets in _TARGETS.items():
        rows, name = place.rsplit(" ", 1)
        for target in targets:
            ours = "long" if target == "bigint" else target
            yield SparkCase(rows, "cast", col(name).cast(ours), f"cast({name} as {target})")
            yield SparkCase(rows, "try_cast", col(name).try_cast(ours), f"try_cast({name} as {target})")


CASTS = list(_casts())
