"""The epochs of a table whose rows wait until it can take them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from volley.arrow.schema_bytes import read_schema
from volley.epoch import Epoch
from volley.iceberg.route.parking import ParkedRows, delete_parked
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, malformed
from volley.storage.state_formats import BACKLOG

__all__ = ["Backlog"]


@dataclass
class Backlog:
    """The parked epochs of one table, the oldest first, each a durable file that lists the files of its rows.

    An epoch that is in the backlog is as safe as in the table: the source may let go of its rows.

    Args:
        url: The URL of its folder.
        epochs: The files of each epoch.
    """

    url: str
    epochs: dict[Epoch, Sequence[ParkedRows]]

    @classmethod
    def load(cls, url: str, query_id: str) -> Backlog:
        """Read the backlog of a folder; empty if there is no folder.

        Raises:
            StorageError: If a file is damaged.
        """
        files, folder = filesystem(url, {})
        paths = sorted(files.ls(folder, detail=False)) if files.exists(folder) else []
        epochs: dict[Epoch, Sequence[ParkedRows]] = {}
        for path in (path for path in paths if path.endswith(".json")):
            try:
                record: dict[str, Any] = BACKLOG.load(files.cat_file(path), path)
                parked = [ParkedRows(url, rows, base64.b64decode(schema)) for url, rows, schema in record["files"]]
                for file in parked:
                    read_schema(file.schema)
                epochs[Epoch(query_id, record["epoch"], record["offsets"], record.get("run"))] = parked
            except MALFORMED as error:
                raise malformed(path, error) from error
        return cls(url, epochs)

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
        write_durably(*self._file(epoch), BACKLOG.dump(record))
        self.epochs[epoch] = parked

    def remove(self, epoch: Epoch) -> None:
        """Remove an epoch that is in the table, with the files of its rows."""
        files, path = self._file(epoch)
        files.rm_file(path)
        delete_parked(self.epochs.pop(epoch))

    def _file(self, epoch: Epoch) -> tuple[Any, str]:
        return filesystem(f"{self.url}/{epoch.number:012}.json", {})
