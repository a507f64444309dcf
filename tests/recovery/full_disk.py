"""A local disk that is full as soon as a test says so, to drivers and executors alike."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.fsspec import FsspecFileIO, FsspecOutputFile

ROOM = "disk.room"
"""The property that names a file; once it exists, each file on the disk has room for the bytes that it says."""


class FillingDisk(FsspecFileIO):
    """Local files, until there is no room."""

    def new_output(self, location: str) -> FsspecOutputFile:
        return _Output(super().new_output(location), Path(self.properties[ROOM]))


class _Output(FsspecOutputFile):
    def __init__(self, plain: FsspecOutputFile, room: Path) -> None:
        super().__init__(plain.location, plain._fs)
        self._room = room

    def create(self, overwrite: bool = False) -> Any:
        stream: Any = super().create(overwrite)
        real = stream.write

        def write(data: Any) -> Any:
            if self._room.exists() and stream.tell() + len(data) > int(self._room.read_text()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(data)

        stream.write = write
        return stream
