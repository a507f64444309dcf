"""Reads Avro files by pyiceberg once their lengths and counts have been checked: its decoder does not check them."""

from __future__ import annotations

import io
import json
from typing import Any, Self, TypeVar

from pyiceberg.avro import file as theirs
from pyiceberg.io import InputFile
from pyiceberg.typedef import StructProtocol

from volley.formats.avro_blocks import AvroFile
from volley.formats.avro_bounds import Bounds
from volley.formats.input_file import InputFile as File

__all__ = ["CheckedAvroFile"]

D = TypeVar("D", bound=StructProtocol)


class CheckedAvroFile(theirs.AvroFile[D]):
    """Reads an Avro file like pyiceberg's class.

    Raises:
        SourceError: When it is opened, if a block or a value is damaged or too large.
        ValueError: Likewise.
        EOFError: Likewise.
    """

    def __enter__(self) -> Self:
        with self.input_file.open() as stream:
            content = stream.read()
        _check(content, self.input_file.location)
        self.input_file = _Content(self.input_file.location, content)
        super().__enter__()
        return self


class _Content(InputFile):
    """A file that has been read."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:
        return io.BytesIO(self._content)


def _check(content: bytes, name: str) -> None:
    file = AvroFile(File(name, len(content), lambda: io.BytesIO(content)), io.BytesIO(content))
    bounds = Bounds(json.loads(file.schema))
    for block in file.blocks():
        at = 0
        for _ in range(block.count):
            _, at = bounds.walk(block.data, at)
        if at != len(block.data):
            raise ValueError(f"block {block.number} has {len(block.data) - at:,} bytes left over")
