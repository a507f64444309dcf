"""Partitionings of new tables, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from volley.checks import one_of
from volley.errors import ConfigError, brief_methods, near
from volley.html_table import text_html

__all__ = ["Granularity", "Partitioning", "Transform", "partitioning"]

_WIDE = ("bucket", "truncate")
Granularity = Literal["year", "month", "day", "hour"]
_GRANULARITIES = get_args(Granularity)


@dataclass(frozen=True)
class Transform:
    """One partition field: a column and the transform of its values.

    Args:
        kind: identity, bucket, truncate, year, month, day or hour.
        field: The column.
        width: The number of buckets, or the length to truncate to; None for other transforms.
    """

    kind: str
    field: str
    width: int | None = None

    def __post_init__(self) -> None:
        kinds = ("identity", *_WIDE, *_GRANULARITIES)
        one_of(kinds)("partition transform", self.kind)
        if not isinstance(self.field, str) or not self.field:
            raise ConfigError(f"partition field {self.field!r} is not a column name", hint=f'{self.kind}("region")')
        fits = isinstance(self.width, int) and not isinstance(self.width, bool) and self.width > 0
        wide = self.kind in _WIDE
        if (wide and not fits) or (not wide and self.width is not None):
            raise ConfigError(
                f"partition transform {self} has the width {self.width!r}",
                hint="bucket and truncate take a whole number above 0, the others none",
            )

    def __str__(self) -> str:
        return f"{self.kind}({self.field})" if self.width is None else f"{self.kind}[{self.width}]({self.field})"


@brief_methods
@dataclass(frozen=True, repr=False)
class Partitioning:
    """The partitioning of a new table; build one with the class methods. An existing table keeps its own spec.

    Args:
        transforms: The partition fields in order; () = none; None = the existing table's (the default).

    Raises:
        ConfigError: If a partition field is given twice.

    Example:
        >>> Partitioning.bucket("user_id", n=64)
        Partitioning(bucket[64](user_id))
    """

    transforms: tuple[Transform, ...] | None = None

    def __post_init__(self) -> None:
        for transform in self.transforms or ():
            if (self.transforms or ()).count(transform) > 1:
                raise ConfigError(f"partition field {transform} is given twice", hint="give it once")

    @classmethod
    def none(cls) -> Partitioning:
        """Return a partitioning without partitions."""
        return cls(())

    @classmethod
    def table_default(cls) -> Partitioning:
        """Return the existing table's partitioning; a new table gets no partitions."""
        return cls(None)

    @classmethod
    def identity(cls, *fields: str) -> Partitioning:
        """Partition by the values of each field; not fixed-length bytes: Iceberg's Java library can't read those."""
        return cls._of("identity", fields)

    @classmethod
    def bucket(cls, *fields: str, n: int = 16) -> Partitioning:
        """Partition by the hash of each field, in `n` buckets: for columns with many values."""
        return cls._of("bucket", fields, n)

    @classmethod
    def truncate(cls, *fields: str, width: int) -> Partitioning:
        """Partition by the first `width` characters of each field, or by numbers rounded down to multiples of it."""
        return cls._of("truncate", fields, width)

    @classmethod
    def time(cls, *fields: str, granularity: Granularity = "day") -> Partitioning:
        """Partition by the year, month, day or hour of each field, a date or timestamp."""
        one_of(_GRANULARITIES)("granularity", granularity)
        return cls._of(granularity, fields)

    @classmethod
    def _of(cls, kind: str, fields: Sequence[str], width: int | None = None) -> Partitioning:
        if not fields:
            raise ConfigError(f"partitioning by {kind} needs a field", hint='name one or more: "region", "country"')
        return cls(tuple(Transform(kind, field, width) for field in fields))

    _repr_html_ = text_html

    def __repr__(self) -> str:
        if not self.transforms:
            return f"Partitioning.{'none' if self.transforms == () else 'table_default'}()"
        return f"Partitioning({', '.join(map(str, self.transforms))})"


def partitioning(value: Partitioning | str | Iterable[Partitioning]) -> Partitioning:
    """Return the partitioning of a name, the partitioning itself, or several combined.

    Example:
        >>> partitioning([Partitioning.time("at"), Partitioning.bucket("user_id")])
        Partitioning(day(at), bucket[16](user_id))
    """
    if isinstance(value, Partitioning):
        return value
    if isinstance(value, str):
        return _named(value)
    parts = tuple(value) if isinstance(value, Sequence) else (value,)
    if not all(isinstance(part, Partitioning) for part in parts):
        raise ConfigError(f"partitioning {value!r} is not a list of partitionings", hint='[Partitioning.time("at")]')
    return Partitioning(tuple(transform for part in parts for transform in part.transforms or ()))


def _named(name: str) -> Partitioning:
    if name in ("identity", "bucket", "truncate", "time"):
        raise ConfigError(f"partitioning {name!r} needs fields", hint=f'Partitioning.{name}("column")')
    named = {"none": Partitioning.none(), "table_default": Partitioning.table_default()}
    if name not in named:
        known = [*named, "identity", "bucket", "truncate", "time"]
        raise ConfigError(f"partitioning {name!r} is unknown", hint=near(name, known))
    return named[name]
