"""The epochs of a table whose rows wait until it can take them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

from volley.columns.schema_bytes import read_schema
from volley.contracts.epoch import Epoch
from volley.iceberg.route.parking import ParkedRows, delete_parked
from volley.storage.state_formats import BACKLOG
from volley.store.journal import Journal

__all__ = ["Backlog"]


class Backlog:
    """The parked epochs of one table, the oldest first, each a durable entry that lists the files of its rows.

    An epoch that is in the backlog is as safe as in the table: the source may let go of its rows.

    Args:
        url: The URL of its folder.
        query_id: The query id of the epochs.

    Raises:
        StorageError: If a file is damaged, or a newer Volley wrote it.
    """

    def __init__(self, url: str, query_id: str) -> None:
        self._journal = Journal(url, BACKLOG, partial(_parked, query_id), "{:012}.json")
        self.epochs: dict[Epoch, Sequence[ParkedRows]] = dict(self._journal.entries().values())

    @property
    def rows(self) -> int:
        """The rows that wait."""
        return sum(file.rows for files in self.epochs.values() for file in files)

    def add(self, epoch: Epoch, parked: Sequence[ParkedRows]) -> None:
        """Add an epoch durably; replaces what a driver that died has written for it.

        Raises:
            OSError: If the file can't be written.
        """
        listed = [(file.url, file.rows, base64.b64encode(file.schema).decode()) for file in parked]
        record = {"epoch": epoch.number, "offsets": epoch.offsets, "run": epoch.run, "files": listed}
        self._journal.replace({epoch.number: record})
        self.epochs[epoch] = parked

    def remove(self, epoch: Epoch) -> None:
        """Remove an epoch that is in the table, with the files of its rows."""
        self._journal.delete(epoch.number)
        delete_parked(self.epochs.pop(epoch))


def _parked(query_id: str, number: int, record: dict[str, Any]) -> tuple[Epoch, Sequence[ParkedRows]]:
    parked = [ParkedRows(url, rows, base64.b64decode(schema)) for url, rows, schema in record["files"]]
    for file in parked:
        read_schema(file.schema)
    return Epoch(query_id, record["epoch"], record["offsets"], record.get("run")), parked
