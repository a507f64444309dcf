"""Parquet files as others write them: what they hold is read as it is, or refused by name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import FileSource, SourceContext, SourceError


def rows_of(path: Path, schema: str | None = None) -> list[dict[str, Any]]:
    reader = FileSource(path, schema=schema).open(SourceContext(str(path.parent / "state")))
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


@pytest.mark.parametrize("schema", [None, "at timestamp_ntz"])
def test_old_timestamps_of_96_bits_are_read_in_any_year(schema: str | None, tmp_path: Path) -> None:
    times = [datetime(1, 1, 1), datetime(1600, 2, 29, 1, 2, 3, 4), datetime(2024, 1, 1), datetime(9999, 12, 31), None]
    table = pa.table({"at": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert [row["at"] for row in rows_of(tmp_path / "a.parquet", schema)] == times


def test_a_column_that_is_there_twice_is_not_read_as_nulls(tmp_path: Path) -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    pq.write_table(pa.Table.from_arrays(columns, names=["a", "a", "b"]), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="column 'a' is there 2 times"):
        rows_of(tmp_path / "a.parquet", "a long, b long")
    assert rows_of(tmp_path / "a.parquet", "b long") == [{"b": 3}]


def test_a_field_that_is_there_twice_is_not_read_as_one_of_them(tmp_path: Path) -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(pa.table({"a": twice}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="field 'x' is there twice"):
        rows_of(tmp_path / "a.parquet", "a struct<x: long>")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string(), 2), pa.list_view(pa.string()), pa.large_list(pa.list_(pa.binary(), 2))], ids=str
)
def test_lists_of_all_kinds_have_texts_in_dictionaries(kind: pa.DataType, tmp_path: Path) -> None:
    value = [["x", "y"], ["x", "z"]] if pa.types.is_large_list(kind) else ["x", "y"]
    table = pa.table({"before": ["a", "b"], "list": pa.array([value, None], kind), "behind": ["c", "c"]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet") == table.to_pylist()


@pytest.mark.parametrize("schema", [None, "a long"])
@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowIndexError, pa.ArrowMemoryError, OverflowError, OSError]
)
def test_errors_of_arrow_name_the_file(
    error: type[Exception], schema: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*values: Any) -> Any:
        raise error("a length of 1 is damaged")

    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    monkeypatch.setattr("volley.formats.parquet.fitting", fail)
    with pytest.raises(SourceError, match=r"a\.parquet can't be read: .*a length of 1 is damaged") as caught:
        rows_of(tmp_path / "a.parquet", schema)
    assert caught.value.hint
