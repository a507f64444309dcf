"""Writes manifests with exact partition values that every reader accepts; pyiceberg 0.12's own don't always."""

from __future__ import annotations

import io
import json
import struct
from functools import lru_cache
from typing import Any, Self, TypeVar

from pyiceberg.avro import file as avro_file
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.avro.reader import DoubleReader, UUIDReader
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV1,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import SnapshotSummaryCollector
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from volley.formats.avro_blocks import AvroContainer
from volley.formats.avro_bounds import Bounds
from volley.formats.input_file import InputFile as File
from volley.iceberg.layout.partitions import path_of, summaries
from volley.iceberg.pyiceberg_private.forms import Form, FormedFile

__all__ = ["CheckedAvroFile", "SummaryCollector", "manifest_writer"]

D = TypeVar("D", bound=StructProtocol)

# Some 64 KB, like Avro's own writers: wide tables have entries of a kilobyte.
_BLOCK_ENTRIES = 128
# A table has one kind of manifest for each of its partition specs.
_FORMS = 256
# The version whose entries have all fields, and the ids of two of them.
_ALL_FIELDS: Any = 3
_DATA_FILE_ID, _REFERENCED_FILE_ID = 2, 143
_EQUALITY_IDS, _EQUALITY_ID = 135, 136
_SUMMARIES = [field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION].fields].index(507)


class CheckedAvroFile(avro_file.AvroFile[D]):
    """Reads an Avro file like pyiceberg's class."""

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
    file = AvroContainer(File(name, len(content), lambda: io.BytesIO(content)), io.BytesIO(content))
    bounds = Bounds(json.loads(file.schema))
    for block in file.blocks():
        at = 0
        for _ in range(block.count):
            _, at = bounds.walk(block.data, at)
        if at != len(block.data):
            raise ValueError(f"block {block.number} has {len(block.data) - at:,} bytes left over")


def _read_double(self: DoubleReader, decoder: BinaryDecoder) -> float:
    """Read a double with all its digits: pyiceberg's compiled decoder returns it as a 4-byte float.

    These values are used to plan and compare files and to write other manifests: 0.1 would become 0.10000000149 and
    1e300 infinity, and no reader would find the rows of such a partition again.
    """
    (value,) = struct.unpack("<d", decoder.read(8))
    return float(value)


def _read_uuid(self: UUIDReader, decoder: BinaryDecoder) -> Any:
    """Read a UUID as bytes, like pyiceberg's literals and bounds: its own reader's value equals neither."""
    return decoder.read(16)


# pyiceberg has no option for other readers. A version without these faults reads the same with them.
DoubleReader.read = _read_double  # type: ignore[method-assign]
UUIDReader.read = _read_uuid  # type: ignore[method-assign]


class _Exact(ManifestWriter):
    """The common part of all manifest writers."""

    @property
    def _partition_fields(self) -> tuple[NestedField, ...]:
        """The fields of partition values, which are nullable, like in Iceberg's own writer."""
        fields = self._spec.partition_type(self._schema).fields
        return tuple(field.model_copy(update={"required": False}) for field in fields)

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return _ManifestOutput(self._output_file, _form_of_data(self.version, self._partition_fields), self._meta)

    def to_manifest_file(self) -> ManifestFile:
        partitions, self._partitions = self._partitions, []
        manifest = super().to_manifest_file()
        manifest[_SUMMARIES] = summaries(self._partition_fields, partitions)
        return manifest


class _ManifestWriterV1(_Exact, ManifestWriterV1):
    pass


class _ManifestWriterV2(_Exact, ManifestWriterV2):
    """Writes manifests of data files.

    Args:
        rewritten_at: The sequence number of new files; None = that of their snapshot.
    """

    def __init__(self, *arguments: Any, rewritten_at: int | None = None) -> None:
        super().__init__(*arguments)
        self._rewritten_at = rewritten_at

    def add_entry(self, entry: ManifestEntry) -> ManifestWriter:
        values = entry.data_file._data
        # A file that pyiceberg describes lacks the last fields.
        values += [None] * (len(DATA_FILE_TYPE[_ALL_FIELDS].fields) - len(values))
        if entry.status == ManifestEntryStatus.ADDED and entry.sequence_number is None:
            entry = ManifestEntry.from_args(
                status=entry.status,
                snapshot_id=entry.snapshot_id,
                sequence_number=self._rewritten_at,
                data_file=entry.data_file,
            )
        return super().add_entry(entry)


class _ManifestWriterV3(_ManifestWriterV2):
    version = _ALL_FIELDS


class _OfDeletes(_ManifestWriterV2):
    """Writes manifests of delete files, with the data file that each refers to; pyiceberg reads them but has no writer.

    Version 2 has this field too; pyiceberg writes it in version 3 only.
    """

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return _ManifestOutput(self._output_file, _form_of_deletes(self.version, self._partition_fields), self._meta)


class _OfDeletesV3(_OfDeletes):
    version = _ALL_FIELDS


def manifest_writer(
    format_version: int, *arguments: Any, of_deletes: bool = False, rewritten_at: int | None = None
) -> ManifestWriter:
    """Return a writer of manifests.

    Args:
        arguments: Those of pyiceberg's writers.
        of_deletes: True for manifests of delete files.
        rewritten_at: The sequence number of new data files; None = that of their snapshot.
    """
    if format_version == 1:
        return _ManifestWriterV1(*arguments)
    has_row_ids = format_version >= _ALL_FIELDS
    if of_deletes:
        return (_OfDeletesV3 if has_row_ids else _OfDeletes)(*arguments)
    return (_ManifestWriterV3 if has_row_ids else _ManifestWriterV2)(*arguments, rewritten_at=rewritten_at)


class _ManifestOutput(FormedFile[ManifestEntry]):
    """An Avro file with blocks of many entries: pyiceberg compresses each alone, which makes manifests four times as
    large and slower to read."""

    def __enter__(self) -> Self:
        super().__enter__()
        self._block: list[ManifestEntry] = []
        return self

    def write_block(self, objects: list[ManifestEntry]) -> None:
        self._block += objects
        if len(self._block) >= _BLOCK_ENTRIES:
            self._flush()

    def _flush(self) -> None:
        if self._block:
            super().write_block(self._block)
            self._block = []

    def __exit__(self, *exception: Any) -> None:
        self._flush()
        length = self.tell()
        super().__exit__(*exception)
        self.output_file = _Written(self.output_file.location, length)


class _Written(OutputFile):
    """A file that has been written, whose length the storage need not be asked for."""

    def __init__(self, location: str, length: int) -> None:
        super().__init__(location)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def exists(self) -> bool:
        return True

    def to_input_file(self) -> InputFile:
        raise NotImplementedError

    def create(self, overwrite: bool = False) -> OutputStream:
        raise NotImplementedError


@lru_cache(_FORMS)
def _form_of_data(version: Any, partition: tuple[NestedField, ...]) -> Form:
    # pyiceberg's description of a file lacks the fields that only version 3 has.
    described = max(version, DEFAULT_READ_VERSION)
    return Form.of("manifest_entry", _entries(version, partition), _entries(described, partition))


@lru_cache(_FORMS)
def _form_of_deletes(version: Any, partition: tuple[NestedField, ...]) -> Form:
    entries = _entries(_ALL_FIELDS, partition)
    data_file = entries.find_type(_DATA_FILE_ID)
    assert isinstance(data_file, StructType)
    known = {field.field_id for field in DATA_FILE_TYPE[version].fields} | {_REFERENCED_FILE_ID}
    fields = StructType(*(field for field in data_file.fields if field.field_id in known))
    return Form.of("manifest_entry", manifest_entry_schema_with_data_file(version, fields), entries)


def _entries(version: Any, partition: tuple[NestedField, ...]) -> Schema:
    """Return the schema of entries with partition values of these fields.

    pyiceberg has longs for the ids of equality deletes, which are ints in Iceberg: its Java library can't read longs.
    """
    described = data_file_with_partition(StructType(*partition), version)
    ids = {"field_type": ListType(_EQUALITY_ID, IntegerType(), element_required=True)}
    fields = (field.model_copy(update=ids if field.field_id == _EQUALITY_IDS else {}) for field in described.fields)
    return manifest_entry_schema_with_data_file(version, StructType(*fields))


class SummaryCollector(SnapshotSummaryCollector):
    """Counts the changes of a snapshot by partition, also for dates outside the range of Python's."""

    def update_partition_metrics(
        self, partition_spec: PartitionSpec, file: Any, is_add_file: bool, schema: Schema
    ) -> None:
        metrics = self.partition_metrics[path_of(partition_spec, schema, file.partition)]
        (metrics.add_file if is_add_file else metrics.remove_file)(file)
