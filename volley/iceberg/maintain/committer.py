"""Commits the epochs of a sink whose table the job maintains."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.reports import MaintenanceReport
from volley.contracts.sink import SinkContext
from volley.errors import ConfigError, near
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.commit.loop import Commit
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.aging import check_time
from volley.iceberg.maintain.maintainer import Maintainer, MaintenanceThread
from volley.iceberg.maintain.unneeded import owns_files
from volley.iceberg.modes import Maintenance

__all__ = ["MaintainingCommitter", "open_committer"]

_log = logging.getLogger(__name__)


def open_committer(
    catalog: Catalog,
    table: Table,
    config: IcebergSinkConfig,
    context: SinkContext,
    thread: MaintenanceThread | None = None,
) -> IcebergCommitter:
    """Return the committer of a table, which maintains it if the sink's settings say so.

    Args:
        thread: Maintains the table, and others; None = one of its own.
    """
    if config.maintenance is None:
        return IcebergCommitter(catalog, table, config, context)
    _check_ttl(config, config.maintenance, table, context)
    thread = thread or MaintenanceThread(f"volley-maintenance-{config.table_name}")
    return MaintainingCommitter(catalog, table, config, context, _possible(config.maintenance, table), thread)


def _check_ttl(config: IcebergSinkConfig, maintenance: Maintenance, table: Table, context: SinkContext) -> None:
    """Raise ConfigError if no column, of the table or of the rows, can tell the age of rows that is asked for."""
    if (column := maintenance.row_ttl_column) is None:
        return
    if check_time(config.table_name, column, table.schema()) is None and column not in context.schema.names:
        raise ConfigError(
            f"table {config.table_name} has no column {column!r}, which is to tell the age of rows",
            hint=near(column, [field.name for field in table.schema().fields]),
        )


def _possible(maintenance: Maintenance, table: Table) -> Maintenance:
    """Return maintenance without the expiry of snapshots where the table does not allow it."""
    expires = maintenance.expire_after is not None or maintenance.retain_most is not None
    if not expires or owns_files(table):
        return maintenance
    _log.warning(
        "table %s: maintenance expires no snapshots, since the table's property gc.enabled is false",
        ".".join(table.name()),
    )
    return replace(maintenance, expire_after=None, retain_most=None)


class MaintainingCommitter(IcebergCommitter):
    """Commits epochs, and maintains the table beside them."""

    def __init__(
        self,
        catalog: Catalog,
        table: Table,
        config: IcebergSinkConfig,
        context: SinkContext,
        maintenance: Maintenance,
        thread: MaintenanceThread,
    ) -> None:
        super().__init__(catalog, table, config, context)
        self._maintainer = Maintainer(config, maintenance, context, thread)

    def start(self) -> None:
        self._maintainer.start()

    def stop(self) -> None:
        self._maintainer.stop()

    @property
    def maintenance(self) -> MaintenanceReport:
        """What the maintenance has done lately, and when more is due."""
        return self._maintainer.report

    def finish(self, epoch: Epoch, results: Sequence[WriteResult], commit: Commit[Any]) -> None:
        super().finish(epoch, results, commit)
        self._maintainer.committed(self._delete_files(epoch))

    def _delete_files(self, epoch: Epoch) -> int:
        """Return how many delete files the epoch has added to the table."""
        snapshot = self.snapshot(epoch)
        return int(snapshot.summary.get("added-delete-files") or 0) if snapshot and snapshot.summary else 0
