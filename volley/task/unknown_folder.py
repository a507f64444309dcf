"""A folder where tasks of the general path leave the unknown fields that they have met, and the driver takes them.

Spark reads a Python data source in tasks of its own, from which nothing but rows leads to the driver.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.private import make_folder
from volley.storage.remembered import MALFORMED, malformed
from volley.storage.state_formats import UNKNOWN_FIELDS
from volley.unknown_fields import UnknownField

__all__ = ["UnknownFolder"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnknownFolder:
    """The folder of one source, beside its other state.

    Args:
        url: Its fsspec URL.
    """

    url: str

    def make(self) -> None:
        """Make the folder, on the driver.

        Raises:
            OSError: If it can't be made.
        """
        make_folder(*filesystem(self.url, {}))

    def leave(self, fields: Sequence[UnknownField]) -> None:
        """Leave a task's fields for the driver; where its folder can't be reached, warn of them in the worker's log."""
        if not fields:
            return
        try:
            self._write(fields)
        except Exception as error:
            # The rows are read: a warning that does not arrive must not fail them.
            for unknown in fields:
                _log.warning("%s; its values are left out (the driver does not know: %s)", unknown, error)

    def _write(self, fields: Sequence[UnknownField]) -> None:
        """Write a file, unless there is one with the same names."""
        files, folder = filesystem(self.url, {})
        if "file" in files.protocol and not files.isdir(folder):
            raise FileNotFoundError(f"this machine has no folder {folder}")
        names = hashlib.sha256("\n".join(sorted(field.name for field in fields)).encode(errors="surrogatepass"))
        path = f"{folder}/{names.hexdigest()[:32]}.json"
        if not files.exists(path):
            create_durably(files, path, UNKNOWN_FIELDS.dump([asdict(field) for field in fields]))

    def take(self) -> tuple[UnknownField, ...]:
        """Return what tasks have left since the last call, on the driver.

        Raises:
            StorageError: If a file is damaged, or a newer Volley wrote it; the next call goes on behind it.
            OSError: If the folder can't be read.
        """
        files, folder = filesystem(self.url, {})
        files.invalidate_cache(folder)
        paths = sorted(files.ls(folder, detail=False)) if files.exists(folder) else []
        return tuple(field for path in paths if path.endswith(".json") for field in _taken(files, path))


def _taken(files: Any, path: str) -> list[UnknownField]:
    """Return the fields of a file, and delete it."""
    data = files.cat_file(path)
    files.rm_file(path)
    try:
        return [UnknownField(**values) for values in UNKNOWN_FIELDS.load(data, path)]
    except MALFORMED as error:
        raise malformed(path, error) from error
