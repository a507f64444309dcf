"""Puffin files: blobs with a footer that describes them (https://iceberg.apache.org/puffin-spec/)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

__all__ = ["VECTOR_MAGIC", "puffin"]

_MAGIC = b"PFA1"
VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
"""The first bytes of a deletion vector, within its blob."""


def puffin(blobs: Sequence[tuple[Mapping[str, Any], bytes]]) -> tuple[bytes, list[int], int]:
    """Return the bytes of a file with some blobs, where each of them starts, and the size of the footer.

    Args:
        blobs: Each blob's metadata without its place, and its content.
    """
    described, starts, offset = list[dict[str, Any]](), list[int](), len(_MAGIC)
    for metadata, content in blobs:
        described.append({**metadata, "offset": offset, "length": len(content)})
        starts.append(offset)
        offset += len(content)
    written_by = {"created-by": f"Volley {version('volley-stream')}"}
    payload = json.dumps({"blobs": described, "properties": written_by}).encode()
    # The four bytes after the payload's size are flags: nothing is compressed.
    footer = _MAGIC + payload + struct.pack("<i", len(payload)) + bytes(4) + _MAGIC
    return b"".join([_MAGIC, *(content for _, content in blobs), footer]), starts, len(footer)
