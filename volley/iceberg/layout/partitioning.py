"""How a new table is partitioned, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from volley.checks import one_of
from volley.errors import ConfigError, near

__all__ = ["Partitioning", "Transform", "partitioning"]

_WIDE = ("bucket", "truncate")
_GRANULARITIES = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class Transform:
    """One partition field: a column, and what is made of its values.

    Args:
        kind: identity, bucket, truncate, year, month, day or hour.
        field: The column.
        width: The number of buckets, or the length to truncate to; None for the other kinds.
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


@dataclass(frozen=True, repr=False)
class Partitioning:
    """How a table is partitioned when it is made; an existing table's own spec wins.

    Args:
        transforms: The partition fields in order; () = none; None = what the table has (the default).

    Raises:
        ConfigError: If a partition field is given twice.

    Example:
        >>> Partitioning.bucket("user_id", n=64)
        Partitioning(bucket[64](user_id))
    """

    transforms: tuple[Transform, ...] | None = None

    def __post_init__(self) -> None:
        for each in self.transforms or ():
            if (self.transforms or ()).count(each) > 1:
                raise ConfigError(f"partition field {each} is given twice", hint="give it once")

    @classmethod
    def none(cls) -> Partitioning:
        """No partitions."""
        return cls(())

    @classmethod
    def table_default(cls) -> Partitioning:
        """What the table has; none if it is made."""
        return cls(None)

    @classmethod
    def identity(cls, *fields: str) -> Partitioning:
        """By the fields' values. Not for bytes of a fixed length: Iceberg's Java library can't read such manifests."""
        return cls._of("identity", fields)

    @classmethod
    def bucket(cls, *fields: str, n: int = 16) -> Partitioning:
        """By the hash of each field, in `n` buckets: for columns with many values."""
        return cls._of("bucket", fields, n)

    @classmethod
    def truncate(cls, *fields: str, width: int) -> Partitioning:
        """By the fields' first `width` characters, or numbers rounded down to multiples of it."""
        return cls._of("truncate", fields, width)

    @classmethod
    def time(cls, *fields: str, granularity: str = "day") -> Partitioning:
        """By the year, month, day or hour of dates and timestamps."""
        one_of(_GRANULARITIES)("granularity", granularity)
        return cls._of(granularity, fields)

    @classmethod
    def _of(cls, kind: str, fields: Sequence[str], width: int | None = None) -> Partitioning:
        if not fields:
            raise ConfigError(f"partitioning by {kind} needs a field", hint='name one or more: "region", "country"')
        return cls(tuple(Transform(kind, field, width) for field in fields))

    def __repr__(self) -> str:
        if not self.transforms:
            return f"Partitioning.{'none' if self.transforms == () else 'table_default'}()"
        return f"Partitioning({', '.join(map(str, self.transforms))})"


def partitioning(value: Partitioning | str | Iterable[Partitioning]) -> Partitioning:
    """A partitioning by its name, as it is, or several one after the other.

    Raises:
        ConfigError: If there is no such strategy, or it needs more than its name.

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
    return Partitioning(tuple(each for part in parts for each in part.transforms or ()))


def _named(name: str) -> Partitioning:
    if name in ("identity", "bucket", "truncate", "time"):
        raise ConfigError(f"partitioning {name!r} needs fields", hint=f'Partitioning.{name}("column")')
    named = {"none": Partitioning.none(), "table_default": Partitioning.table_default()}
    if name not in named:
        known = [*named, "identity", "bucket", "truncate", "time"]
        raise ConfigError(f"partitioning {name!r} is unknown", hint=near(name, known))
    return named[name]
