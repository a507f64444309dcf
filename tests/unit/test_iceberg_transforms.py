"""The vectorised transforms: equal to pyiceberg's, row by row, and to the specification's test vectors."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from volley import SchemaMismatchError
from volley.iceberg.layout.layout import transformed

# Appendix B of the specification; a number of buckets of 2^31 - 1 shows all of a hash but its sign.
VECTORS: list[tuple[pa.DataType, Any, int]] = [
    (pa.int32(), 34, 2017239379),
    (pa.int64(), 34, 2017239379),
    (pa.decimal128(9, 2), Decimal("14.20"), -500754589),
    (pa.date32(), date(2017, 11, 16), -653330422),
    (pa.time64("us"), time(22, 31, 8), -662762989),
    (pa.timestamp("us"), datetime(2017, 11, 16, 22, 31, 8), -2047944441),
    (pa.timestamp("us"), datetime(2017, 11, 16, 22, 31, 8, 1), -1207196810),
    (pa.timestamp("us", "UTC"), datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), -2047944441),
    (pa.timestamp("us", "UTC"), datetime(2017, 11, 16, 22, 31, 8, 1, tzinfo=UTC), -1207196810),
    (pa.string(), "iceberg", 1210000089),
    (pa.binary(16), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (pa.binary(4), b"\x00\x01\x02\x03", -188683207),
    (pa.binary(), b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("kind", "value", "expected"), VECTORS, ids=[str(kind) for kind, _, _ in VECTORS])
def test_hashes_of_the_specification(kind: pa.DataType, value: Any, expected: int) -> None:
    whole = BucketTransform[Any](2**31 - 1)
    assert transformed(whole, pa.array([value], kind)).to_pylist() == [(expected & (2**31 - 1)) % (2**31 - 1)]


EPOCH = datetime(1970, 1, 1)
INTS = st.integers(-(2**31), 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
DATES = st.dates(date(1, 1, 2))
TEXTS = st.text(max_size=40) | st.integers(28, 36).map("ä".__mul__) | st.integers(60, 68).map("a".__mul__)
BYTES = st.binary(max_size=20) | st.binary(min_size=60, max_size=68)

COLUMNS: dict[str, tuple[pa.DataType, IcebergType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), IntegerType(), INTS),
    "long": (pa.int64(), LongType(), LONGS),
    "decimal(9,2)": (pa.decimal128(9, 2), DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    "decimal(38,5)": (
        pa.decimal128(38, 5),
        DecimalType(38, 5),
        st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-5, Context(prec=40))),
    ),
    "date": (pa.date32(), DateType(), DATES),
    "time": (pa.time64("us"), TimeType(), st.times()),
    "timestamp": (pa.timestamp("us"), TimestampType(), TIMES),
    "timestamptz": (pa.timestamp("us", "UTC"), TimestamptzType(), TIMES.map(lambda at: at.replace(tzinfo=UTC))),
    "string": (pa.string(), StringType(), TEXTS),
    "binary": (pa.binary(), BinaryType(), BYTES),
    "fixed": (pa.binary(7), FixedType(7), st.binary(min_size=7, max_size=7)),
    "uuid": (pa.uuid(), UUIDType(), st.uuids()),
}
HASHED = sorted(COLUMNS)
TRUNCATED = ["int", "long", "decimal(9,2)", "decimal(38,5)", "string", "binary"]


def check(name: str, transform: Transform[Any, Any], values: list[Any], skip: int) -> None:
    """Ours on the whole array, which begins somewhere in its buffers, against pyiceberg's on each value."""
    kind, iceberg, _ = COLUMNS[name]
    array = pa.array([*values[:skip], *values], kind)[min(skip, len(values)) :]
    theirs = transform.transform(iceberg)
    assert transformed(transform, array).to_pylist() == [theirs(value) for value in values]


def column(names: list[str]) -> Any:
    """A column's name, and values of its type with nulls among them."""
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), st.lists(st.none() | COLUMNS[name][2], max_size=6))
    )


@given(column(HASHED), st.integers(1, 2**31 - 1), st.integers(0, 3))
def test_buckets_are_pyicebergs(column: tuple[str, list[Any]], buckets: int, skip: int) -> None:
    check(column[0], BucketTransform(buckets), column[1], skip)


@given(column(TRUNCATED), st.integers(1, 300), st.integers(0, 3))
def test_truncated_values_are_pyicebergs(column: tuple[str, list[Any]], width: int, skip: int) -> None:
    name, values = column
    least = {"int": -(2**31), "long": -(2**63)}.get(name)
    kept = [value for value in values if least is None or value is None or value >= least + width]
    check(name, TruncateTransform(width), kept, skip)


@given(column(["date", "timestamp", "timestamptz"]), st.sampled_from(["year", "month", "day", "hour"]))
def test_times_are_pyicebergs(column: tuple[str, list[Any]], unit: str) -> None:
    name, values = column
    if (name, unit) == ("date", "hour"):
        return
    made = {"year": YearTransform, "month": MonthTransform, "day": DayTransform, "hour": HourTransform}[unit]()
    check(name, made, values, 1)


def test_the_moment_before_1970_is_in_1969() -> None:
    before = pa.array([EPOCH - timedelta(microseconds=1), EPOCH], pa.timestamp("us"))
    for transform in (YearTransform[Any](), MonthTransform[Any](), DayTransform[Any](), HourTransform[Any]()):
        assert transformed(transform, before).to_pylist() == [-1, 0]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
def test_no_number_is_filed_above_itself(kind: pa.DataType) -> None:
    """Java's library wraps around here: no reader finds such a row by a range, and pyiceberg not even by its value."""
    least = -(2 ** (kind.bit_width - 1))
    assert transformed(TruncateTransform(2), pa.array([least, None], kind)).to_pylist() == [least, None]
    with pytest.raises(SchemaMismatchError, match="is beyond its type"):
        transformed(TruncateTransform(10), pa.array([0, least], kind))


def test_hours_beyond_those_of_a_partition_are_refused() -> None:
    most = 2**31 * 3_600_000_000
    assert transformed(HourTransform(), pa.array([most - 1, -most], pa.timestamp("us"))).to_pylist() == [
        2**31 - 1,
        -(2**31),
    ]
    for beyond in (most, -most - 1):
        with pytest.raises(SchemaMismatchError, match="more hours from 1970"):
            transformed(HourTransform(), pa.array([beyond], pa.timestamp("us")))


def test_truncate_counts_characters_not_bytes() -> None:
    assert transformed(TruncateTransform(2), pa.array(["äöü", "😀😀😀"])).to_pylist() == ["äö", "😀😀"]


@given(column(HASHED))
def test_identity_and_void(column: tuple[str, list[Any]]) -> None:
    name, values = column
    array = pa.array(values, COLUMNS[name][0])
    assert transformed(VoidTransform(), array).to_pylist() == [None] * len(values)
    if name != "uuid":
        assert transformed(IdentityTransform(), array).equals(array)


def test_the_lowest_time_has_a_partition_too() -> None:
    lowest = pa.array([-(2**63), 2**63 - 1], pa.int64()).view(pa.timestamp("us"))
    found = [transformed(each, lowest).to_pylist() for each in (YearTransform[Any](), DayTransform[Any]())]
    assert found == [[-292278, 292277], [-(2**63) // 86_400_000_000, (2**63 - 1) // 86_400_000_000]]


@pytest.mark.parametrize(("kind", "value", "width"), [((2, 0), "-99", 1000), ((38, 0), "-" + "9" * 38, 50)])
def test_a_decimal_that_has_no_partition_is_refused(kind: tuple[int, int], value: str, width: int) -> None:
    for place in (0, 1, 2):
        values = [Decimal(1), None]
        values.insert(place, Decimal(value))
        with pytest.raises(SchemaMismatchError, match="is beyond its type"):
            transformed(TruncateTransform[Any](width), pa.array(values, pa.decimal128(*kind)))


def test_a_decimal_may_have_a_digit_more_in_its_partition() -> None:
    values = pa.array([Decimal("-99.99")], pa.decimal128(4, 2))
    assert transformed(TruncateTransform[Any](50), values).to_pylist() == [Decimal("-100.00")]
