"""Avro files whose schema, writers and header pyiceberg would work out anew for each file, though they are the same."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, TypeVar

from pyiceberg.avro import file as avro_file
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_writer, resolve_reader, resolve_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.io import OutputFile
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

__all__ = ["Form", "FormedFile"]

D = TypeVar("D", bound=StructProtocol)

_AVRO_SCHEMA = "avro.schema"
_SYNC_BYTES = 16
# A table has one kind of manifest for each of its partition specs.
_FORMS = 256
# In characters; a longer one is worked out anew.
_LONGEST_SCHEMA = 1 << 16


@dataclass(frozen=True)
class Form:
    """The form of the records of a file.

    pyiceberg may name two types of partition fields alike, in a schema that Java and DuckDB can't read: here each has a
    name of its own.

    Args:
        avro: The schema of the file, as Avro's JSON.
        writer: Writes a record.
    """

    name: str
    schema: Schema
    avro: str
    writer: Writer

    @classmethod
    def of(cls, name: str, file_schema: Schema, record_schema: Schema) -> Self:
        """Return the form of records of one schema in files of another."""
        avro = AvroSchemaConversion().iceberg_to_avro(file_schema, schema_name=name)
        for number, named_type in enumerate(_named_types(avro)):
            named_type["name"] = f"{named_type['name']}_{number}"
        return cls(name, file_schema, json.dumps(avro), resolve_writer(record_schema, file_schema))


class FormedFile(AvroOutputFile[D]):
    """An Avro file of records of a form."""

    def __init__(self, output_file: OutputFile, form: Form, metadata: dict[str, str]) -> None:
        self.output_file = output_file
        self.file_schema = form.schema
        self.schema_name = form.name
        self.sync_bytes = os.urandom(_SYNC_BYTES)
        self.writer = form.writer
        self.metadata = metadata
        self._avro = form.avro

    def encoded(self, record: D) -> bytes:
        """Return a record as bytes."""
        content = io.BytesIO()
        self.writer.write(BinaryEncoder(content), record)
        return content.getvalue()

    def write_block(self, objects: list[D]) -> None:
        self.write_encoded([self.encoded(record) for record in objects])

    def write_encoded(self, records: Sequence[bytes]) -> None:
        """Write a block of records."""
        block = b"".join(records)
        if codec := self.compression_codec():
            block, _ = codec.compress(block)
        self.encoder.write_int(len(records))
        self.encoder.write_int(len(block))
        self.encoder.write(block)
        self.encoder.write(self.sync_bytes)

    def _write_header(self) -> None:
        codec = self.metadata.get(AVRO_CODEC_KEY, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT)
        codec = CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec)
        meta = {**self.metadata, _AVRO_SCHEMA: self._avro, AVRO_CODEC_KEY: codec}
        _header_writer().write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


def _schema(self: AvroFileHeader) -> Schema:
    """Return the schema in a file's header; files of one kind have the same one."""
    text = self.meta.get(_AVRO_SCHEMA, "")
    return _schema_of(text) if 0 < len(text) <= _LONGEST_SCHEMA else _worked_out(self)


_worked_out = AvroFileHeader.get_schema
AvroFileHeader.get_schema = _schema  # type: ignore[method-assign]


@lru_cache(_FORMS)
def _schema_of(text: str) -> Schema:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _reader(file_schema: Any, read_schema: Any, read_types: Any, read_enums: Any) -> Reader:
    """Return what reads records of one schema as another; it keeps nothing of a file."""
    key = id(file_schema), id(read_schema), *read_types.items(), *read_enums.items()
    known = _readers.get(key)
    if known is None:
        # The schemas are kept, so that no others get their ids.
        known = file_schema, read_schema, resolve_reader(file_schema, read_schema, read_types, read_enums)
        if len(_readers) >= _FORMS:
            # Other threads may read at the same time.
            _readers.clear()
        _readers[key] = known
    return known[-1]


_readers: dict[tuple[Any, ...], tuple[Any, Any, Reader]] = {}
avro_file.resolve_reader = _reader  # type: ignore[attr-defined,assignment]


@lru_cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)


def _named_types(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the fixed-length types of an Avro schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "fixed":
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for item in schema:
            yield from _named_types(item)
