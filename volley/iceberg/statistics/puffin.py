"""Writes Puffin files: the form of Iceberg's statistics files (Puffin specification)."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from importlib.metadata import version

from pyiceberg.table.statistics import BlobMetadata

__all__ = ["puffin"]

_MAGIC = b"PFA1"


def puffin(blobs: Sequence[tuple[BlobMetadata, bytes]]) -> tuple[bytes, int]:
    """Return the bytes of a file with these blobs, and the size of its footer."""
    described, offset = list[dict[str, object]](), len(_MAGIC)
    for metadata, content in blobs:
        described.append({**metadata.model_dump(), "offset": offset, "length": len(content)})
        offset += len(content)
    written_by = {"created-by": f"Volley {version('volley-stream')}"}
    payload = json.dumps({"blobs": described, "properties": written_by}).encode()
    # The four bytes after the payload's size are flags: nothing is compressed.
    footer = _MAGIC + payload + struct.pack("<i", len(payload)) + bytes(4) + _MAGIC
    return b"".join([_MAGIC, *(content for _, content in blobs), footer]), len(footer)
