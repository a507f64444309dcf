"""Upgrades a table to a newer version of Iceberg's format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate

from volley.errors import ConfigError
from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE
from volley.iceberg.schema.types import check_row_ids
from volley.iceberg.table import TableRef

__all__ = ["upgrade_table"]

_VERSIONS = (2, 3)


def upgrade_table(ref: TableRef, format_version: int) -> int:
    """Upgrade a table, and return the version that it had.

    Raises:
        ConfigError: If the version is unknown, or older than the table's, or a column has a name that it reserves.
        VolleyError: As for `commit_to`.
    """
    if isinstance(format_version, bool) or format_version not in _VERSIONS:
        raise ConfigError(f"format_version is {format_version!r}", hint="2 or 3")
    if format_version >= ROW_IDS_SINCE:
        ref.require("format_3", f"table {ref.name} can't become of format version {format_version}")
    upgrade = _Upgrade(ref.name, format_version)
    commit = commit_to(ref, upgrade)
    return commit.staged.before if commit.staged else format_version


@dataclass(frozen=True)
class _StagedUpgrade(Staged):
    before: int


@dataclass(frozen=True)
class _Upgrade(Stage[_StagedUpgrade]):
    action = "upgrading the format"

    name: str
    format_version: int

    def stage(self, table: Table) -> _StagedUpgrade | None:
        if table.format_version > self.format_version:
            raise ConfigError(
                f"table {self.name} has format version {table.format_version}: it can't become {self.format_version}",
                hint="no table goes back; copy its rows to a new one",
            )
        if table.format_version == self.format_version:
            return None
        if self.format_version >= ROW_IDS_SINCE:
            check_row_ids(table.schema())
        transaction, update = table.transaction(), dict[str, Any](format_version=self.format_version)
        stage(transaction, UpgradeFormatVersionUpdate(**update))
        return _StagedUpgrade(transaction, table.format_version)

    def landed(self, table: Table, staged: _StagedUpgrade) -> bool:
        return table.format_version >= self.format_version
