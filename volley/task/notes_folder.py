"""A folder where tasks of the general path leave what they note while they read, and the driver takes it.

Spark reads a Python data source in tasks of its own, from which nothing but rows leads to the driver.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from volley.notes import LostInput, Note, UnknownField
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.private import make_folder
from volley.storage.remembered import MALFORMED, malformed
from volley.storage.state_formats import UNKNOWN_FIELDS

__all__ = ["NotesFolder"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NotesFolder:
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

    def leave(self, notes: Sequence[Note]) -> None:
        """Leave a task's notes for the driver; where its folder can't be reached, warn of them in the worker's log."""
        if not notes:
            return
        try:
            self._write(notes)
        except Exception as error:
            # The rows are read: a warning that does not arrive must not fail them.
            for note in notes:
                _log.warning("%s (the driver does not know: %s)", note, error)

    def _write(self, notes: Sequence[Note]) -> None:
        """Write a file, unless there is one with notes of the same subjects."""
        files, folder = filesystem(self.url, {})
        if "file" in files.protocol and not files.isdir(folder):
            raise FileNotFoundError(f"this machine has no folder {folder}")
        subjects = hashlib.sha256("\n".join(sorted(note.subject for note in notes)).encode(errors="surrogatepass"))
        path = f"{folder}/{subjects.hexdigest()[:32]}.json"
        if not files.exists(path):
            create_durably(files, path, UNKNOWN_FIELDS.dump([asdict(note) for note in notes]))

    def take(self) -> tuple[Note, ...]:
        """Return what tasks have left since the last call, on the driver.

        Raises:
            StorageError: If a file is damaged, or a newer Volley wrote it; the next call goes on behind it.
            OSError: If the folder can't be read.
        """
        files, folder = filesystem(self.url, {})
        files.invalidate_cache(folder)
        paths = sorted(files.ls(folder, detail=False)) if files.exists(folder) else []
        return tuple(note for path in paths if path.endswith(".json") for note in _taken(files, path))


def _taken(files: Any, path: str) -> list[Note]:
    """Return the notes of a file, and delete it."""
    data = files.cat_file(path)
    files.rm_file(path)
    try:
        loaded = UNKNOWN_FIELDS.load(data, path)
        return [LostInput(**values) if "lost" in values else UnknownField(**values) for values in loaded]
    except MALFORMED as error:
        raise malformed(path, error) from error
