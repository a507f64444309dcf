"""Makes manifests for tests: by Volley's writer, and by hand in any form that Avro allows."""

from __future__ import annotations

import binascii
import bz2
import io
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from volley.iceberg.pyiceberg_private.manifests import DeleteManifestWriter, manifest_writer

IO = PyArrowFileIO()
SYNC = bytes(range(16))


def _snappy(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, "snappy", asbytes=True)
    return packed + binascii.crc32(data).to_bytes(4, "big")


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "snappy": _snappy,
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
    "bzip2": bz2.compress,
}


def avro(schema: Any, records: Iterable[Any], codec: str = "null", named: Any = None, in_block: int = 2) -> bytes:
    """An Avro file.

    Args:
        schema: The schema.
        records: What it contains.
        codec: Its compression.
        named: The schema in its header, with other names; None = the same.
        in_block: The number of records in a block.
    """
    parsed = fastavro.parse_schema(schema)
    out = io.BytesIO(b"Obj\x01")
    out.seek(0, io.SEEK_END)
    header = {"avro.schema": json.dumps(named or schema).encode(), "avro.codec": codec.encode()}
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, header)
    out.write(SYNC)
    rest = list(records)
    while rest:
        block, rest = rest[:in_block], rest[in_block:]
        data = io.BytesIO()
        for record in block:
            fastavro.schemaless_writer(data, parsed, record)
        fastavro.schemaless_writer(out, "long", len(block))
        fastavro.schemaless_writer(out, "bytes", CODECS[codec](data.getvalue()))
        out.write(SYNC)
    return out.getvalue()


def manifest_of(path: Path, content: bytes, **attributes: Any) -> ManifestFile:
    """A manifest list's entry for a file with this content."""
    path.write_bytes(content)
    values = {
        **{"manifest_path": str(path), "manifest_length": len(content), "partition_spec_id": 0, "sequence_number": 7},
        **{"content": ManifestContent.DATA, "min_sequence_number": 1, "added_snapshot_id": 70},
        **attributes,
    }
    return ManifestFile.from_args(**values)


def data_file(path: str, spec: PartitionSpec, partition: Any, **attributes: Any) -> DataFile:
    file = DataFile.from_args(
        **{
            **{"content": DataFileContent.DATA, "file_path": path, "file_format": FileFormat.PARQUET},
            **{"partition": partition, "record_count": 10, "file_size_in_bytes": 1000},
            **attributes,
        }
    )
    file.spec_id = spec.spec_id
    return file


def write_manifest(
    path: Path, spec: PartitionSpec, schema: Schema, entries: Iterable[ManifestEntry], version: int = 2, **options: Any
) -> ManifestFile:
    """A manifest by Volley's writer.

    Args:
        path: Its file.
        spec: The spec of the partitions.
        schema: The table's schema.
        entries: Its entries, as they are.
        version: The format version.
        options: `deletes`, `codec`, `snapshot_id`.
    """
    arguments = spec, schema, IO.new_output(str(path)), options.get("snapshot_id", 70), options.get("codec", "gzip")
    writer = DeleteManifestWriter(*arguments) if options.get("deletes") else manifest_writer(version, *arguments)
    with writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()
