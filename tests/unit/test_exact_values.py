"""Values of another type than their column's are brought to it without a change, or refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volley import ExpressionError, FileSource, SourceContext, SourceError, col
from volley.columns.batches import check_values, conform
from volley.columns.expressions import compile_expression
from volley.contracts.rows import BadRow
from volley.types.arrow import arrow_type

# Ten times this is beyond 128 bits, a hundred times a number of 38 digits again.
_MOST = Decimal("9" * 38)
_WIDE = Decimal("1280865068139399865160949")


def conformed(values: list[Any], source: pa.DataType, target: pa.DataType) -> list[Any]:
    batch = pa.record_batch({"a": pa.array(values, source)})
    found: list[Any] = conform(batch, pa.schema({"a": target})).column(0).to_pylist()
    return found


def cast(value: Any, source: pa.DataType, target: str) -> Any:
    batch = pa.record_batch({"a": pa.array([value], source)})
    return compile_expression(col("a").cast(target).node, batch.schema).evaluate(batch)[0].as_py()


def read(folder: Path, name: str, text: str, schema: str) -> list[Any]:
    """The rows of a file; each that can't be read is an error instead."""
    (folder / name).write_text(text)
    reader = FileSource(folder / name, schema=schema).open(SourceContext(str(folder / "state")))
    splits = reader.splits({"files": 0}, reader.latest_offset({"files": 0}, None, None))
    rows: list[Any] = []
    for split in splits:
        for found in reader.read_tolerant(split):
            rows += ["bad"] if isinstance(found, BadRow) else found.batch.to_pylist()
    return rows


DIGITS = st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda each: each[1] <= each[0])


@settings(deadline=None)
@given(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-(10**22), 10**22), DIGITS, DIGITS)
def test_decimals_keep_their_value_or_are_refused(unscaled: int, own: tuple[int, int], other: tuple[int, int]) -> None:
    with localcontext(prec=100):
        value = Decimal(unscaled % 10 ** own[0]).scaleb(-own[1])
        fits = value == round(value, other[1]) and abs(value) < Decimal(10) ** (other[0] - other[1])
        try:
            assert conformed([value], pa.decimal128(*own), pa.decimal128(*other)) == [value]
        except SourceError:
            assert not fits
        rounded = value.quantize(Decimal(1).scaleb(-other[1]), ROUND_HALF_UP)
        try:
            assert cast(value, pa.decimal128(*own), f"decimal({other[0]},{other[1]})") == rounded
        except ExpressionError:
            assert abs(rounded) >= Decimal(10) ** (other[0] - other[1])


@pytest.mark.parametrize("source", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("target", [pa.int32(), pa.int64()])
def test_hexadecimal_texts_are_no_ints(source: pa.DataType, target: pa.DataType) -> None:
    assert conformed(["-5", None, "007"], source, target) == [-5, None, 7]
    for text in ("0x10", "0X1f", "0x80000000", "0xffffffffffffffff"):
        with pytest.raises(SourceError, match="'a'"):
            conformed(["1", text], source, target)


@pytest.mark.parametrize("to", ["int", "long", "double", "decimal(10,2)", "boolean", "date", "timestamp", "time"])
@pytest.mark.parametrize("text", ["1", " 007 ", "\u00a01", "1\u2003", "+-1", "10", "10:30", "2024-01-31 10"])
def test_a_cast_takes_the_texts_that_try_cast_takes(text: str, to: str) -> None:
    batch = pa.record_batch({"a": [text]})
    taken = compile_expression(col("a").try_cast(to).node, batch.schema).evaluate(batch)[0].as_py()
    try:
        assert cast(text, pa.string(), to) == taken
    except ExpressionError:
        assert taken is None


@pytest.mark.parametrize("value", [10**18, 2 * 10**18, -(2**63), 390233302])
def test_a_long_is_no_decimal_that_has_no_room_for_it(value: int) -> None:
    with pytest.raises(ExpressionError, match=r"cast from long to decimal\(38,30\)"):
        cast(value, pa.int64(), "decimal(38,30)")
    assert cast(7, pa.int64(), "decimal(38,30)") == 7


@pytest.mark.parametrize(
    ("name", "line"), [("a.csv", "{}\n"), ("a.json", '{{"a": {}}}\n'), ("a.json", '{{"a": "{}"}}\n')]
)
@pytest.mark.parametrize("kind", ["decimal(5,2)", "decimal(38,2)", "decimal(38,38)", "decimal(18,6)"])
def test_decimals_in_text_are_exact_or_bad(name: str, line: str, kind: str, tmp_path: Path) -> None:
    texts = ["1", "-1.5", "999.99", "12345", "99999", "1234.5", "0.25", "1.105", "1e2", "-0.00", str(_MOST)]
    texts += [str(_WIDE), f"-{_WIDE}", "1e35", "1e36", "1e37", "1e70", "9" * 39, "9" * 60, "9" * 77, "9" * 80, "1e-3"]
    text = ("a\n" if name == "a.csv" else "") + "".join(line.format(each) for each in texts)
    rows = read(tmp_path, name, text, f"a {kind}")
    precision, scale = arrow_type(kind).precision, arrow_type(kind).scale
    with localcontext(prec=200):
        for each, row in zip(texts, rows, strict=True):
            value = Decimal(each)
            fits = value == round(value, scale) and abs(value) < Decimal(10) ** (precision - scale)
            assert row == ({"a": value} if fits else "bad"), each


def test_decimals_in_nested_json_are_exact_or_bad(tmp_path: Path) -> None:
    lines = ['{"a": [{"b": 1.5}]}', f'{{"a": [{{"b": {_MOST}}}]}}', '{"a": [{"b": null}, null]}', '{"a": null}']
    rows = read(tmp_path, "a.json", "\n".join(lines), "a array<struct<b: decimal(38,2)>>")
    assert rows == [{"a": [{"b": Decimal("1.50")}]}, "bad", {"a": [{"b": None}, None]}, {"a": None}]


NESTED: list[Callable[[pa.DataType], pa.DataType]] = [
    lambda kind: kind,
    lambda kind: pa.list_(kind),
    lambda kind: pa.struct({"other": pa.int32(), "b": kind}),
]
_NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def within(kind: pa.DataType, value: Any) -> Any:
    return [value, None] if pa.types.is_list(kind) else {"b": value, "other": 1} if pa.types.is_struct(kind) else value


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize(
    ("source", "target", "kept", "refused"),
    [
        (pa.decimal128(38, 0), "decimal(38,18)", [Decimal(5)], [_WIDE, -_WIDE, _MOST]),
        (pa.float64(), "decimal(9,4)", [0.5, 19.99, -1.2345], [0.00001, 1.23456, math.nan, 1e300, 1e-300]),
        (pa.float32(), "decimal(9,4)", [0.5], [1.0000001]),
        (pa.float64(), "float", [0.5, math.inf, -math.inf], [1e39, -1e300]),
        (pa.float64(), "long", [2.0], [2.5, 1e300]),
        (pa.float64(), "boolean", [], [1.0, 0.5]),
        (pa.int64(), "boolean", [], [5, 1]),
        (pa.int64(), "timestamp", [], [1_700_000_000]),
        (pa.int64(), "time", [], [5]),
        (pa.int32(), "date", [], [19000]),
        (pa.timestamp("us", "UTC"), "long", [], [_NOON]),
        (pa.timestamp("us", "UTC"), "date", [], [_NOON]),
        (pa.timestamp("us", "UTC"), "time", [], [_NOON]),
        (pa.date32(), "timestamp_ntz", [date(2024, 1, 1)], []),
        (pa.date32(), "int", [], [date(2024, 1, 1)]),
        (pa.time64("us"), "long", [], [time(1)]),
        (pa.string(), "double", ["1.5"], ["1e400"]),
        (pa.decimal128(9, 4), "double", [Decimal("1.2345")], []),
        (pa.decimal128(9, 4), "long", [Decimal(2)], [Decimal("2.5")]),
        (pa.binary(), "string", [b"x"], [b"\xff"]),
    ],
)
def test_other_types_keep_their_value_or_are_refused(
    source: pa.DataType, target: str, kept: list[Any], refused: list[Any], nested: Any
) -> None:
    own, other = nested(source), nested(arrow_type(target))
    for value in kept:
        (found,) = conformed([within(own, value)], own, other)
        wanted = conformed([value], source, arrow_type(target))[0]
        assert found == within(own, wanted)
        # As what the number's own text says, not as what a multiplication by a rounded 0.0001 gives.
        numbers = isinstance(value, float | Decimal) and isinstance(wanted, float | Decimal)
        assert not numbers or repr(float(value)) == repr(float(wanted))
    for value in refused:
        with pytest.raises(SourceError, match=r"column 'a' of type .* does not fit"):
            conformed([within(own, value)], own, other)
    if kept:
        assert conformed([None], own, other) == [None]


def test_structs_are_matched_by_name_whatever_else_changes() -> None:
    own = pa.struct({"x": pa.string(), "b": pa.float64(), "id": pa.binary(16)})
    other = pa.struct({"new": pa.list_(pa.date32()), "b": pa.decimal128(5, 2), "id": pa.uuid()})
    value = UUID(int=7)
    found = conformed([{"x": "x", "b": 1.5, "id": value.bytes}, None], own, other)
    assert found == [{"new": None, "b": Decimal("1.50"), "id": value}, None]


def beyond(value: int, kind: pa.Decimal128Type) -> pa.Array:
    """A decimal with more digits than its type has, as Arrow's CSV reader makes it."""
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(value.to_bytes(16, "little", signed=True))])


@pytest.mark.parametrize("nested", ["plain", "list", "struct", "map", "sliced"])
def test_decimals_beyond_their_type_are_bad_rows(nested: str, tmp_path: Path) -> None:
    kind = pa.decimal128(20, 2)
    makers: dict[str, Callable[[pa.Array], pa.Array]] = {
        "plain": lambda each: each,
        "list": lambda each: pa.ListArray.from_arrays([0, len(each)], each),
        "struct": lambda each: pa.StructArray.from_arrays([each], ["b"]),
        "map": lambda each: pa.MapArray.from_arrays([0, len(each)], pa.array(["k"] * len(each)), each),
        "sliced": lambda each: pa.concat_arrays([pa.array([Decimal(1)], kind), each]).slice(1),
    }
    made = makers[nested]
    check_values(pa.record_batch({"a": made(beyond(10**20 - 1, kind))}))
    bad = pa.record_batch({"a": made(beyond(10**20, kind))})
    with pytest.raises(SourceError, match="column 'a' has a decimal of more digits than its type"):
        check_values(bad)


def test_a_parquet_file_with_such_a_decimal_has_a_bad_row(tmp_path: Path) -> None:
    kind = pa.decimal128(5, 2)
    values = pa.concat_arrays([pa.array([Decimal("1.50")], kind), beyond(123450, kind)])
    pq.write_table(pa.table({"a": values}), tmp_path / "a.parquet")
    (batch,) = pq.ParquetFile(tmp_path / "a.parquet").iter_batches()
    assert batch.column(0).to_pylist() == [Decimal("1.50"), Decimal("1234.50")]
    with pytest.raises(SourceError, match="more digits than its type"):
        check_values(batch)
