"""How an epoch's rows change a table, as plain values: append, overwrite, upsert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from volley.errors import ConfigError, near

__all__ = ["Append", "CommitMode", "Overwrite", "Upsert", "commit_mode"]


@dataclass(frozen=True)
class Append:
    """Add the rows; what is there stays as it is."""


@dataclass(frozen=True)
class Overwrite:
    """Replace what is there by the rows."""


@dataclass(frozen=True)
class Upsert:
    """Replace the rows that have the same keys, add the others.

    Args:
        key_fields: The columns that tell whether two rows are the same; kept as a tuple.

    Raises:
        ConfigError: If there is no key, or one is named twice.

    Example:
        >>> Upsert(["id", "event_date"])
        Upsert(key_fields=('id', 'event_date'))
    """

    key_fields: Sequence[str]

    def __post_init__(self) -> None:
        keys = (self.key_fields,) if isinstance(self.key_fields, str) else tuple(self.key_fields)
        if not keys or not all(isinstance(key, str) and key for key in keys) or len(set(keys)) < len(keys):
            raise ConfigError(f"key_fields are {keys!r}", hint='name each key column once: Upsert(["id"])')
        object.__setattr__(self, "key_fields", keys)


CommitMode = Append | Overwrite | Upsert


def commit_mode(value: CommitMode | str) -> CommitMode:
    """A mode by its name, or as it is.

    Raises:
        ConfigError: If there is no such mode, or it needs more than its name.

    Example:
        >>> commit_mode("append")
        Append()
    """
    if isinstance(value, Append | Overwrite | Upsert):
        return value
    if value == "upsert":
        raise ConfigError("commit_mode 'upsert' needs key fields", hint='Upsert(["id"])')
    named: dict[str, CommitMode] = {"append": Append(), "overwrite": Overwrite()}
    if not isinstance(value, str) or value not in named:
        raise ConfigError(f"commit_mode {value!r} is unknown", hint=near(str(value), [*named, "upsert"]))
    return named[value]
