"""Logical types that are added to the footers of Parquet files: pyarrow reads them, and the same rows."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley.formats.parquet_annotations import VARIANT, annotated, geography, geometry
from volley.formats.thrift import Malformed
from volley.formats.variant_columns import STORED
from volley.iceberg.write.annotated import Annotated


def rows() -> pa.Table:
    variant = {"metadata": b"\x01\x00\x00", "value": b"\x00"}
    columns = {
        "id": pa.array([1, 2]),
        "v": pa.array([variant, None], STORED),
        "list": pa.array([[variant, None], None], pa.list_(STORED)),
        "in": pa.array([{"g": b"x", "v": None}, None], pa.struct([("g", pa.binary()), ("v", STORED)])),
        "map": pa.array([[("k", b"y")], []], pa.map_(pa.string(), pa.binary())),
    }
    fields = [pa.field(name, column.type, metadata={"PARQUET:field_id": "7"}) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


ANNOTATIONS = {
    "v": VARIANT,
    "list.list.element": VARIANT,
    "in.g": geometry("EPSG:4326"),
    "in.v": VARIANT,
    "map.key_value.value": geography("OGC:CRS84", "karney"),
}


def test_the_types_are_in_the_footer_and_the_rows_are_the_same() -> None:
    sink = io.BytesIO()
    pq.write_table(rows(), sink, store_schema=False)
    plain, file = sink.getvalue(), annotated(sink.getvalue(), ANNOTATIONS)
    assert len(file) > len(plain)
    read = pq.ParquetFile(io.BytesIO(file))
    shown = str(read.schema)
    assert shown.count("(Variant(1))") == 3
    assert "optional group field_id=7 v (Variant(1))" in shown
    assert "g (Geometry(crs=EPSG:4326))" in shown
    assert "value (Geography(crs=, algorithm=karney))" in shown
    assert read.read().to_pylist() == pq.read_table(io.BytesIO(plain)).to_pylist() == rows().to_pylist()
    # Without annotations, nothing changes.
    assert annotated(plain, {}) == plain


def test_a_stream_adds_them_as_the_file_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "a.parquet").open("wb") as stream:
        sink = Annotated(stream, ANNOTATIONS)
        writer = pq.ParquetWriter(sink, rows().schema, store_schema=False, write_page_index=True)
        for _ in range(3):
            writer.write_table(rows())
        with sink.end():
            writer.close()
        assert sink.tell() == stream.tell()
    read = pq.ParquetFile(tmp_path / "a.parquet")
    assert str(read.schema).count("(Variant(1))") == 3
    assert read.read().to_pylist() == rows().to_pylist() * 3
    assert read.metadata.row_group(1).column(0).has_offset_index


@pytest.mark.parametrize("end", [b"", b"PAR1", b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PARE"])
def test_what_is_no_end_of_a_file_is_refused(end: bytes) -> None:
    with pytest.raises(Malformed):
        annotated(end, ANNOTATIONS)


def test_a_column_that_the_file_lacks_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(rows(), sink)
    with pytest.raises(Malformed, match="no column 'other'"):
        annotated(sink.getvalue(), {"other": VARIANT})
