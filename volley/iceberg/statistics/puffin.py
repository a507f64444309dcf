"""Writes Puffin files: the form of Iceberg's statistics files (Puffin specification)."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

__all__ = ["Blob", "puffin"]

_MAGIC = b"PFA1"


@dataclass(frozen=True)
class Blob:
    """A part of a Puffin file.

    Args:
        type: Its type, such as ``"apache-datasketches-theta-v1"``.
        fields: The ids of the fields that it was computed from.
        snapshot_id: The snapshot that it was computed from.
        sequence_number: That of the snapshot.
        properties: Its properties.
        content: Its bytes.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str]
    content: bytes


def puffin(blobs: Sequence[Blob]) -> tuple[bytes, int]:
    """Return the bytes of a file with these blobs, and the size of its footer."""
    described, offset = list[dict[str, object]](), len(_MAGIC)
    for blob in blobs:
        place = {"offset": offset, "length": len(blob.content)}
        origin = {"snapshot-id": blob.snapshot_id, "sequence-number": blob.sequence_number}
        described.append(
            {"type": blob.type, "fields": blob.fields, **origin, **place, "properties": dict(blob.properties)}
        )
        offset += len(blob.content)
    written_by = {"created-by": f"Volley {version('volley-stream')}"}
    payload = json.dumps({"blobs": described, "properties": written_by}).encode()
    # The four bytes after the payload's size are flags: nothing is compressed.
    footer = _MAGIC + payload + struct.pack("<i", len(payload)) + bytes(4) + _MAGIC
    return b"".join([_MAGIC, *(blob.content for blob in blobs), footer]), len(footer)
