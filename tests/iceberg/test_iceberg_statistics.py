"""Bounds never leave out a row: neither where Parquet tells none, nor where readers order values in two ways."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, NestedField, PrimitiveType, StringType, UUIDType

from tests.iceberg.conftest import Make
from tests.iceberg.test_iceberg_writer import commit, write
from volley.iceberg.layout.partitions import bounds, uuid_bounds


def found(table: Table, column: str, value: Any) -> list[Any]:
    """What pyiceberg finds by a filter on the value, having left out files by their bounds."""
    wanted = EqualTo(term=Reference(column), value=value)
    return list(table.scan(row_filter=wanted).to_arrow()[column].to_pylist())


def test_a_row_group_whose_values_are_too_long_for_parquets_statistics_counts_too(make: Make) -> None:
    long = "z" * 5000
    table = make("text string")
    commit(table, write(table, pa.table({"text": ["a", "b", long, "c"]}), row_group_rows=2))
    assert found(table, "text", long) == [long]
    assert found(table, "text", "c") == ["c"]


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
@given(
    values=st.lists(st.text(st.sampled_from("a\ud7ff\ue000\uffff\U0010ffff"), max_size=6), min_size=1),
    length=st.integers(1, 4),
)
def test_bounds_that_are_cut_short_have_all_values_between_them(
    kind: PrimitiveType, values: list[str], length: int
) -> None:
    encoded = sorted(value.encode() for value in values)
    low, high = bounds(kind, encoded[0], encoded[-1], length)
    assert low is not None
    assert low <= encoded[0]
    assert high is None or encoded[-1] <= high


def java(value: bytes) -> tuple[int, int]:
    """What `java.util.UUID.compareTo` compares."""
    return int.from_bytes(value[:8], "big", signed=True), int.from_bytes(value[8:], "big", signed=True)


_HALF = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 1]))


@given(st.lists(st.tuples(_HALF, _HALF), min_size=1))
def test_bounds_of_uuids_have_all_values_between_them_in_both_orders(halves: list[tuple[int, int]]) -> None:
    values = sorted(UUID(int=high << 64 | low).bytes for high, low in halves)
    if made := uuid_bounds(values[0], values[-1]):
        low, high = made
        assert all(low <= value <= high and java(low) <= java(value) <= java(high) for value in values)


def test_uuids_of_one_time_have_bounds() -> None:
    assert uuid_bounds(UUID(int=5 << 64).bytes, UUID(int=7 << 64 | 1 << 63).bytes)


def test_files_tell_nothing_of_uuids_that_iceberg_in_java_would_take_wrong(make: Make) -> None:
    table = make(Schema(NestedField(1, "id", UUIDType())))
    values = [UUID(int=1).bytes, UUID(int=2**127).bytes]
    result = write(table, pa.table({"id": pa.array(values, pa.binary(16))}))
    assert result.committables[0].data_file.lower_bounds == {}
