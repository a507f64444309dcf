"""Every kind of file that Volley reads and that others, or a disk, may have changed."""

from __future__ import annotations

import csv
import datetime
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from tests.fuzz.avro import AvroMessages, avro_bytes
from tests.fuzz.protobuf import ProtobufMessages
from tests.fuzz.sealed import SEALED
from tests.fuzz.target import Target
from volley import FileSource, IcebergStorage, SourceContext
from volley.iceberg import IcebergTable, TableRef

__all__ = ["TARGETS"]

_DECLARED = "id long, name string, at timestamp, price double, cost decimal(10,2), tags list<string>"
_ROWS = pa.table(
    {
        "id": pa.array([*range(20)], pa.int64()),
        "name": [f"name {i}" if i % 5 else None for i in range(20)],
        "at": pa.array([datetime.datetime(2026, 1, 1, i, tzinfo=datetime.UTC) for i in range(20)]),
        "price": [i / 4 for i in range(20)],
        "cost": pa.array(range(20), pa.decimal128(10, 2)),
        "tags": [["a", "b"][: i % 3] for i in range(20)],
    }
)


def rows_of(source: FileSource, state: Path) -> pa.Table:
    """Return the rows that a job would read of a source from the beginning."""
    reader = source.open(SourceContext(str(state)))
    start = reader.initial_offset()
    end = reader.latest_offset(start, None, None)
    batches = [batch for split in reader.splits(start, end) for batch in reader.read(split)]
    return pa.Table.from_batches(batches, reader.schema)


@contextmanager
def _empty(folder: Path) -> Iterator[Path]:
    """Make a folder that is gone afterwards."""
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Files(Target):
    """Files of a file source.

    Args:
        name: The target's name.
        format: The files' format.
        data: The bytes of a file.
        schema: The declared schema; None = inferred.
    """

    name: str
    format: Any
    data: bytes
    schema: str | None = _DECLARED

    def make(self, folder: Path) -> list[Path]:
        (folder / "in").mkdir()
        file = folder / "in" / f"1.{self.format}"
        file.write_bytes(self.data)
        return [file]

    def read(self, folder: Path) -> Any:
        source = FileSource(str(folder / "in"), format=self.format, schema=self.schema)
        with _empty(folder / "state") as state:
            return rows_of(source, state)


class JsonTexts(Files):
    """Objects with a whole number and a text; judged by Python's json, which finds where each object ends."""

    def is_right(self, value: Any, original: Any, file: Path) -> bool:
        text, expected = file.read_bytes().decode().strip(), []
        while text:
            row, end = json.JSONDecoder().raw_decode(text)
            expected.append({"id": row.get("id"), "name": row.get("name")})
            text = text[end:].strip()
        return bool(value.to_pylist() == expected)


class CsvTexts(Files):
    """CSV with texts only; judged by Python's csv."""

    def is_right(self, value: Any, original: Any, file: Path) -> bool:
        text = file.read_bytes().decode(errors="surrogateescape")
        # The header is the first line that is not empty.
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        named = [dict(zip(rows[0], row, strict=False)) for row in rows[1:]]
        expected = [{name: row.get(name) or None for name in ("a", "b")} for row in named]
        return [{name: cell or None for name, cell in row.items()} for row in value.to_pylist()] == expected


def _ref(folder: Path) -> TableRef:
    return TableRef("db", "t", IcebergStorage.Local(str(folder / "lake")))


class Lake(Target):
    """A table of format 2 with a snapshot that deletes rows; all of its files may be mutated.

    Args:
        name: The target's name.
        pattern: The files to mutate.
    """

    def __init__(self, name: str, pattern: str) -> None:
        self.name = name
        self._pattern = pattern

    def make(self, folder: Path) -> list[Path]:
        catalog = _ref(folder).load_catalog()
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", _ROWS.schema, properties={"format-version": "2"})
        table.append(_ROWS)
        table.append(_ROWS)
        table.delete("id = 3")
        catalog.close()
        return sorted((folder / "lake").rglob(self._pattern))

    def read(self, folder: Path) -> Any:
        return IcebergTable(_ref(folder)).to_arrow()


def _parquet() -> bytes:
    sink = io.BytesIO()
    pa.parquet.write_table(_ROWS, sink)
    return sink.getvalue()


def _json() -> bytes:
    return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in _ROWS.to_pylist())


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Files("json", "json", _json()),
        Files("json, inferred", "json", _json(), None),
        JsonTexts(
            "json, judged", "json", b'{"id": 1, "name": "a"}\n{"name": "b \\u00e9", "id": -2}\n', "id long, name string"
        ),
        CsvTexts("csv, judged", "csv", b'a,b\n1,x\n"2, 3","y ""z"""\n', "a string, b string"),
        Files(
            "csv", "csv", b"id,price,at\n1,2.5,2026-01-01T00:00:00Z\n2,,\n", "id long, price decimal(9,2), at timestamp"
        ),
        Files("parquet", "parquet", _parquet()),
        Files("avro", "avro", avro_bytes("null"), None),
        Files("avro, compressed", "avro", avro_bytes("deflate"), "id long, tags list<string>, sizes map<string, int>"),
        AvroMessages("avro messages", "*.message"),
        AvroMessages("schemas of avro messages", "schema.json"),
        ProtobufMessages("protobuf messages", "*.message"),
        ProtobufMessages("schemas of protobuf messages", "schema.json"),
        # Not ORC: for some damaged files, Arrow's reader of it (26.0.1) ends the process by a signal.
        Lake("metadata of tables", "00003-*.metadata.json"),
        Lake("manifests and their lists", "*.avro"),
        Lake("data files of tables", "*.parquet"),
        *SEALED,
    )
}
