"""Makes manifests for tests: by Volley's writer, and by hand in any form that Avro allows."""

from __future__ import annotations

import binascii
import bz2
import io
import json
import zlib
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from volley.iceberg.pyiceberg_private.manifests import manifest_writer

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


def manifest_of(path: Path, data: bytes, **attributes: Any) -> ManifestFile:
    """A manifest list's entry for a file with this content."""
    path.write_bytes(data)
    values = {
        **{"manifest_path": str(path), "manifest_length": len(data), "partition_spec_id": 0, "sequence_number": 7},
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
    writer = manifest_writer(version, *arguments, of_deletes=bool(options.get("deletes")))
    with writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()


_MAP = {"type": "array", "logicalType": "map"}
_DECIMAL = {"type": "fixed", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}


def _map(name: str, number: int, value: Any) -> dict[str, Any]:
    fields = [
        {"name": "key", "type": "int", "field-id": number + 1000},
        {"name": "value", "type": value, "field-id": number + 2000},
    ]
    items = {"type": "record", "name": f"k{number}", "fields": fields}
    return {"name": name, "type": ["null", {**_MAP, "items": items}], "field-id": number, "default": None}


def _list(name: str, number: int, item: str) -> dict[str, Any]:
    items = {"type": "array", "items": item, "element-id": number + 1000}
    return {"name": name, "type": ["null", items], "field-id": number, "default": None}


def avro_field(name: str, number: int, data_type: Any) -> dict[str, Any]:
    return {"name": name, "type": data_type, "field-id": number}


def java_schema(version: int) -> dict[str, Any]:
    """As Iceberg's Java library writes it."""
    partition = {
        "type": "record",
        "name": "r102",
        "fields": [
            avro_field("day", 1000, ["null", {"type": "int", "logicalType": "date"}]),
            avro_field("money", 1001, ["null", {**_DECIMAL, "name": "d"}]),
            avro_field("more", 1002, ["null", {**_DECIMAL, "name": "e"}]),
        ],
    }
    old = [avro_field("block_size_in_bytes", 105, "long")]
    file = [
        *([] if version == 1 else [avro_field("content", 134, "int")]),
        avro_field("file_path", 100, "string"),
        avro_field("file_format", 101, "string"),
        avro_field("partition", 102, partition),
        avro_field("record_count", 103, "long"),
        avro_field("file_size_in_bytes", 104, "long"),
        *(old if version == 1 else []),
        _map("column_sizes", 108, "long"),
        _map("value_counts", 109, "long"),
        _map("null_value_counts", 110, "long"),
        _map("nan_value_counts", 137, "long"),
        _map("lower_bounds", 125, "bytes"),
        _map("upper_bounds", 128, "bytes"),
        avro_field("key_metadata", 131, ["null", "bytes"]),
        _list("split_offsets", 132, "long"),
        _list("equality_ids", 135, "int"),
        avro_field("sort_order_id", 140, ["null", "int"]),
    ]
    if version == 3:
        file += [
            avro_field("first_row_id", 142, ["null", "long"]),
            avro_field("referenced_data_file", 143, ["null", "string"]),
            avro_field("content_offset", 144, ["null", "long"]),
            avro_field("content_size_in_bytes", 145, ["null", "long"]),
        ]
    numbers = [
        avro_field("sequence_number", 3, ["null", "long"]),
        avro_field("file_sequence_number", 4, ["null", "long"]),
    ]
    fields = [
        avro_field("status", 0, "int"),
        avro_field("snapshot_id", 1, "long" if version == 1 else ["null", "long"]),
        *([] if version == 1 else numbers),
        avro_field("data_file", 2, {"type": "record", "name": "r2", "fields": file}),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def java_record(version: int, number: int = 0, **changes: Any) -> dict[str, Any]:
    pairs = [{"key": 1, "value": 3}, {"key": 2, "value": number}]
    texts = [{"key": 1, "value": b"a"}, {"key": 2, "value": b""}]
    file = {
        **{"content": 0, "file_path": f"s3://b/{number}", "file_format": "parquet"},
        "partition": {"day": number, "money": Decimal("1.23"), "more": None},
        **{"record_count": 5, "file_size_in_bytes": 600, "block_size_in_bytes": 1, "column_sizes": pairs},
        **{"value_counts": pairs, "null_value_counts": pairs[:1], "nan_value_counts": []},
        **{"lower_bounds": texts, "upper_bounds": None, "split_offsets": [4, 8], "equality_ids": None},
        **{"key_metadata": b"secret", "sort_order_id": 1, "first_row_id": 5},
        **{"referenced_data_file": "s3://b/data", "content_offset": 4, "content_size_in_bytes": 40},
    }
    file.update({name: value for name, value in changes.items() if name in file})
    entry = {"status": 1, "snapshot_id": 12, "sequence_number": 3, "file_sequence_number": 4, "data_file": file}
    return {**entry, **{name: value for name, value in changes.items() if name in entry}}
