"""How an epoch's rows change a table, as plain values: append, overwrite, upsert."""

from __future__ import annotations

from dataclasses import dataclass

from volley.errors import ConfigError, near

__all__ = ["CommitMode"]

_KINDS = ("append", "overwrite", "upsert")


@dataclass(frozen=True)
class CommitMode:
    """Append rows, replace what is there, or replace rows by key.

    Args:
        kind: append, overwrite or upsert.
        key_fields: The columns that make a row the same, for upsert.
    """

    kind: str
    key_fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(f"commit_mode {self.kind!r} is unknown", hint=near(self.kind, _KINDS))
        if (self.kind == "upsert") != bool(self.key_fields):
            raise ConfigError(f"commit_mode {self.kind} with key_fields {self.key_fields}", hint="upsert takes some")

    @classmethod
    def of(cls, value: CommitMode | str) -> CommitMode:
        """A mode by its name, or as it is."""
        return value if isinstance(value, CommitMode) else cls(value)

    @classmethod
    def upsert(cls, *key_fields: str) -> CommitMode:
        """Replace the rows that have the same keys."""
        return cls("upsert", key_fields)
