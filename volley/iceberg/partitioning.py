"""How a new table is partitioned, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from volley.errors import ConfigError, near

__all__ = ["Partitioning", "Transform"]

_KINDS = ("identity", "bucket", "truncate", "year", "month", "day", "hour")


@dataclass(frozen=True)
class Transform:
    """One partition field: a column and what is made of it.

    Args:
        kind: identity, bucket, truncate, year, month, day or hour.
        field: The column.
        width: The number of buckets, or the width to truncate to.
    """

    kind: str
    field: str
    width: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(f"partition transform {self.kind!r} is unknown", hint=near(self.kind, _KINDS))
        if not self.field:
            raise ConfigError(f"partition transform {self.kind} needs a field", hint='for example identity("region")')
        if (self.kind in ("bucket", "truncate")) != (self.width is not None) or (self.width or 1) < 1:
            raise ConfigError(
                f"{self.kind}({self.field!r}) has the width {self.width}", hint="bucket and truncate take one"
            )


@dataclass(frozen=True)
class Partitioning:
    """A strategy: ``none``, ``table_default`` (what the table has), or a list of transforms.

    Example:
        >>> Partitioning.bucket("user_id", n=64).transforms[0].width
        64
    """

    strategy: str
    transforms: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        strategies = ("none", "table_default", "transforms")
        if self.strategy not in strategies:
            raise ConfigError(f"partitioning {self.strategy!r} is unknown", hint=near(self.strategy, strategies))

    @classmethod
    def of(cls, value: Partitioning | str | list[Transform]) -> Partitioning:
        """A strategy's name, transforms, or a partitioning as it is."""
        if isinstance(value, Partitioning):
            return value
        return cls(value) if isinstance(value, str) else cls("transforms", tuple(value))

    @classmethod
    def identity(cls, *fields: str) -> Partitioning:
        """By the values of the fields."""
        return cls("transforms", tuple(Transform("identity", field) for field in fields))

    @classmethod
    def bucket(cls, *fields: str, n: int = 16) -> Partitioning:
        """By the hashes of the fields, in `n` buckets each."""
        return cls("transforms", tuple(Transform("bucket", field, n) for field in fields))

    @classmethod
    def time(cls, *fields: str, granularity: str = "day") -> Partitioning:
        """By the year, month, day or hour of the fields."""
        return cls("transforms", tuple(Transform(granularity, field) for field in fields))
