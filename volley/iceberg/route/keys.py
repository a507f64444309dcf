"""The key columns of each table of a routed sink, and the commit mode that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from volley.checks import names
from volley.errors import ConfigError
from volley.iceberg.modes import Append, CommitMode, Upsert

__all__ = ["KeyFields", "KeyFieldsLike"]

PRIMARY_KEY = "primary_key"
KeyFieldsLike = Sequence[str] | Mapping[str, Sequence[str]] | Literal["primary_key"] | None
"""Key columns as users write them: of all tables, by table, the rows' own primary keys, or none."""


@dataclass(frozen=True, repr=False)
class KeyFields:
    """The key columns of each table.

    Args:
        mode: The commit mode of tables without keys of their own.
        by_table: Key columns by the table's name, with or without its namespace; ``""`` = all tables.
        own: True if packed rows tell the primary key of their table.

    Example:
        >>> keys = KeyFields.of({"orders": ["id"]}, Append())
        >>> keys.mode_of(("lake", "orders"), ()).key_fields, keys.mode_of(("lake", "clicks"), ())
        (('id',), Append())
    """

    mode: CommitMode
    by_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    own: bool = False

    @classmethod
    def of(cls, fields: KeyFieldsLike, mode: CommitMode) -> KeyFields:
        """Return the keys that a user has given.

        Raises:
            ConfigError: If they are not columns.
        """
        if fields is None and not (isinstance(mode, Upsert) and not mode.keys):
            return cls(mode)
        if fields is None or fields == PRIMARY_KEY:
            return cls(mode, own=True)
        by_table = fields if isinstance(fields, Mapping) else {"": fields}
        keys = cls(mode, {table: names("key_fields", columns) for table, columns in by_table.items()})
        for columns in keys.by_table.values():
            _upsert(mode, columns)
        return keys

    @property
    def modes(self) -> list[CommitMode]:
        """The commit modes that are known before a row is."""
        return [_upsert(self.mode, columns) for columns in self.by_table.values()] if self.by_table else [self.mode]

    def mode_of(self, identifier: Sequence[str], own: Sequence[str]) -> CommitMode:
        """Return the commit mode of a table.

        Args:
            identifier: Its namespace and name.
            own: The primary key that its packed rows tell; empty = none.
        """
        if not self.own and not self.by_table:
            return self.mode
        names = (".".join(identifier), identifier[-1], "")
        columns = own if self.own else next((self.by_table[name] for name in names if name in self.by_table), ())
        return _upsert(self.mode, columns) if columns else Append()

    def __repr__(self) -> str:
        if self.own or not self.by_table:
            return f"key_fields={PRIMARY_KEY!r}" if self.own else repr(self.mode)
        fields = {table: list(columns) for table, columns in self.by_table.items()}
        return f"key_fields={fields.get('', fields)!r}"


def _upsert(mode: CommitMode, columns: Sequence[str]) -> Upsert:
    if not columns:
        raise ConfigError("key_fields name no column", hint='key_fields=["id"]; leave a table out to append to it')
    return replace(mode, key_fields=columns) if isinstance(mode, Upsert) else Upsert(columns)
