"""Rows sorted many at a time: which are bad, why, and what the others hold are the same as if each is read alone."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from volley import FileSource, SourceContext, SourceError
from volley.contracts.rows import BadRow
from volley.formats.input_file import Columns, InputFile
from volley.formats.json import parsed, quick_reader
from volley.formats.json_lines import salvaged
from volley.formats.json_parser import JsonParser
from volley.types.arrow import arrow_schema, canonical_schema

TYPES = {
    "id": "long",
    "i": "int",
    "name": "string",
    "at": "timestamp",
    "nt": "timestamp_ntz",
    "d": "date",
    "x": "double",
    "f": "float",
    "b": "boolean",
    "dec": "decimal(5,2)",
    "t": "time",
    "bin": "binary",
}
NESTED = {
    "l": "array<int>",
    "s": "struct<a: long, b: string, c: array<double>>",
    "ls": "array<struct<a: int, d: date>>",
}
NUMBERS = [
    *(
        "0",
        "-0",
        "1",
        "-2.25",
        "1.50",
        "1.505",
        "99999",
        "1234.5",
        "0.001",
        "1e3",
        "1e-5",
        "1E2",
        "01",
        "+1",
        ".5",
        "1.",
    ),
    *("9223372036854775807", "9223372036854775808", "2147483648", "3.5e38", "1.8e308", "1e309", "-1e999", "9" * 30),
    *("NaN", "Infinity", "-Infinity", "Inf", "-NaN", "-", "1e"),
]
TEXTS = [
    *("", "x", "a b", " 7 ", "é", "true", "TRUE", "NA", "2024-01-01", "2024-02-30", " 2024-01-01", "0004-02-29"),
    *("1900-02-29", "2024-13-01", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00", "2024-01-01T24:00:00"),
    *("2024-01-01T12", "2024-01-01T12:30+0100", "2024-01-01T12:30+01", "2024-01-01T00:00:00.123456789Z"),
    *("2024-01-01T00:00:60", "2024-01-01T00:00:00.", "12:00", "12", "25:00:00", "12:00:00.5", "12:60:00"),
    *("0x1F", "1_0", "inf", "nan", "1,5", "31.12.2024"),
]
VALUES = [*("true", "false", "null", "nul", "[]", "{}", "[1]", '["a"]', "[null]", "[1, 2.5]", "[[1]]", '{"a": 1}')]
VALUES += ['{"a": "x"}', '{"a": 1, "a": 2}', '{"b": "x", "c": [1, "y"]}', '{"zz": 1}', '[{"a": 1}]', '[{"d": "x"}]']
VALUES += [rf'"{text}"' for text in (r"\ud800", r"\ud83d\ude00", r"a\u0000b", r"a\nb")]

json_values = st.sampled_from([*NUMBERS, *VALUES, *(f'"{text}"' for text in TEXTS)])
fields = st.tuples(st.sampled_from([*TYPES, *NESTED, "zz", "ID"]), json_values).map(
    lambda pair: f'"{pair[0]}": {pair[1]}'
)
objects = st.lists(fields, max_size=3).map(lambda pairs: "{" + ", ".join(pairs) + "}")
others = st.sampled_from(["[1]", "5", "null", "{", "}", '{"id": 1} x', '{"id": 1}{"id": 2}', "\ufeff{}", "{} null"])
lines = st.one_of(*[objects] * 9, others, objects.map(lambda text: text[:-2] or "{"))


@example(texts=[r'{"d": "a\nb"}'], policy="drop")
@given(texts=st.lists(lines, min_size=1, max_size=12), policy=st.sampled_from(["drop", "warn", "fail", "keep"]))
def test_json_objects_are_sorted_as_if_each_is_parsed_alone(texts: list[str], policy: str) -> None:
    known = canonical_schema(arrow_schema(", ".join(f"{name} {kind}" for name, kind in (TYPES | NESTED).items())))
    schema = known.append(pa.field("rest", pa.string())) if policy == "keep" else known
    values = [text.encode() for text in texts]
    found = JsonParser(Columns(known, policy, "rest"), schema).sort(values, "a.json")
    alone = JsonParser(Columns(known, policy, "rest"), schema)
    faults, numbers, batches = {}, [], []
    for number, value in enumerate(values):
        try:
            rows = alone.parse(value, "a.json")
        except (pa.ArrowException, SourceError) as error:
            faults[number] = alone.fault([value]) or str(error)
            continue
        batches += rows
        numbers += [number] * sum(batch.num_rows for batch in rows)
    assert {**found.faults}.keys() == faults.keys()
    assert [*found.numbers] == numbers
    assert not numbers or pa.Table.from_batches(found.batches).equals(pa.Table.from_batches(batches)) or _has_nan(texts)
    for number, text in enumerate(texts):
        # Of several faults, either may be told; a field that is in no column may have a damaged value, too.
        told = [some.get(number, "") for some in (found.faults, faults)]
        if text.count(":") == 1 and sum("none of the columns" in fault for fault in told) != 1:
            assert told[0] == told[1]


QUOTES = [*("", ":", "{}"), r"a\"b", r"\u0022", r"\"", r"\\", r"a\\\"b"]
numbers = st.one_of(st.integers(-(2**64), 2**64), st.floats(allow_nan=False, allow_infinity=False)).map(repr)
quick_values = st.one_of(json_values, numbers, st.sampled_from([f'"{text}"' for text in QUOTES]))


@given(data=st.data())
def test_objects_that_are_read_without_arrow_are_what_it_reads(data: st.DataObject) -> None:
    kinds = {name: kind for name, kind in (TYPES | NESTED).items() if name not in ("f", "dec", "bin")}
    schema = canonical_schema(arrow_schema(", ".join(f"{name} {kind}" for name, kind in kinds.items())))
    names, colon = st.sampled_from([*kinds] * 9 + ["zz"]), data.draw(st.sampled_from([":", ": ", " : "]))
    pairs = st.tuples(names, quick_values).map(lambda pair: f'"{pair[0]}"{colon}{pair[1]}')
    objects = st.lists(pairs, max_size=3).map(lambda texts: ("{" + ",".join(texts) + "}").encode())
    texts = data.draw(st.lists(objects, min_size=1, max_size=12))
    reader = quick_reader(schema)
    assert reader
    batches, good, others = reader.sort(texts)
    assert sorted([*good, *others]) == [*range(len(texts))]
    found = [each for batch in batches for each in _rows(batch)]
    assert repr(found) == repr(
        [each for number in good for batch in parsed(texts[number], schema, "error") for each in _rows(batch)]
    )


def _has_nan(texts: list[str]) -> bool:
    return any("NaN" in text for text in texts)


DIALECTS: list[dict[str, Any]] = [
    {},
    {"null_values": ["NA"]},
    {"delimiter": ";", "decimal_point": ","},
    {"date_formats": ["%d.%m.%Y"]},
    {"quote": None},
]
csv_values = st.sampled_from([*NUMBERS, *TEXTS, "1\udcff", "9" * 60])


@given(data=st.data(), dialect=st.sampled_from(DIALECTS))
def test_csv_rows_are_sorted_as_if_each_is_a_file(
    data: st.DataObject, dialect: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, delimiter = tmp_path_factory.mktemp("csv"), dialect.get("delimiter", ",")
    names = data.draw(st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=3, unique=True))
    width = st.sampled_from([len(names) + 1] * 8 + [len(names), len(names) + 2])
    cells = csv_values.map(lambda text: f'"{text}"' if delimiter in text and "quote" not in dialect else text)
    rows = [
        delimiter.join(data.draw(st.lists(cells, min_size=count, max_size=count)))
        for count in data.draw(st.lists(width, min_size=1, max_size=6))
    ]
    schema = ", ".join(f"{name} {TYPES[name]}" for name in names)
    header = delimiter.join([*names, "extra"])

    def source(name: str, lines: list[str]) -> Any:
        (folder / name).write_text("\n".join([header, *lines, ""]), errors="surrogateescape")
        reader = FileSource(folder / name, schema=schema, options=dialect, on_unknown="drop")
        return reader.open(SourceContext(str(folder / f"{name}-state")))

    expected: list[Any] = []
    for number, row in enumerate(rows):
        reader = source(f"{number}.csv", [row])
        try:
            expected += [batch.to_pydict() for split in _splits(reader) for batch in reader.read(split)]
        except SourceError as error:
            expected.append(error.message.partition(", line 2: ")[2])
    reader = source("all.csv", rows)
    items = [item for split in _splits(reader) for item in reader.read_tolerant(split)]
    found = [each for item in items for each in ([item.error] if isinstance(item, BadRow) else _rows(item.batch))]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert other.startswith(one) if isinstance(one, str) else repr(one) == repr(other)


NARROWER: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "l": (pa.int64(), "int", [1, -5, 2**31, -(2**40), None]),
    "x": (pa.float64(), "long", [1.0, -0.0, 1.5, 2.0**63, -(2.0**63), float("nan"), float("inf"), None]),
    "s": (pa.string(), "double", ["1.5", "x", "1e400", "", None]),
    "at": (pa.string(), "timestamp", ["2024-01-01T00:00:00.123456789Z", "2024-02-30T00:00:00Z", "x", "1.5", None]),
    "d": (pa.decimal128(38, 2), "decimal(5,1)", [Decimal("1.50"), Decimal("1.55"), Decimal(10) ** 30, None]),
    "n": (
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.float64())}),
        "struct<b: array<int>, a: int>",
        [{"a": 1, "b": [1.0, None]}, {"a": 2**40, "b": [0.5, 1.5]}, {"a": 2, "b": [1.0, 2.5, 0.5]}, {"a": None}, None],
    ),
    "m": (pa.map_(pa.string(), pa.int64()), "map<string, int>", [[("k", 1)], [("k", 2**31)], [], None]),
    "ls": (
        pa.list_(pa.struct({"a": pa.string()})),
        "array<struct<a: date>>",
        [[{"a": "2024-01-01"}, None], [{"a": "no"}, {"a": "x"}], [], None],
    ),
}


@given(data=st.data())
def test_rows_with_types_of_their_own_are_sorted_as_if_each_is_a_file(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, batches = tmp_path_factory.mktemp("typed"), data.draw(st.sampled_from([1, 3, 100]))
    names = data.draw(st.lists(st.sampled_from([*NARROWER]), min_size=1, max_size=3, unique=True))
    rows = [
        {name: data.draw(st.sampled_from(NARROWER[name][2])) for name in names}
        for _ in range(data.draw(st.integers(1, 8)))
    ]
    own = pa.schema([(name, NARROWER[name][0]) for name in names])
    schema = ", ".join(f"{name} {NARROWER[name][1]}" for name in names)

    def found(name: str, rows: list[dict[str, Any]]) -> list[Any]:
        pq.write_table(pa.Table.from_pylist(rows, own), folder / name)
        reader = FileSource(folder / name, schema=schema).open(SourceContext(str(folder / f"{name}-state")))
        items = [item for split in _splits(reader) for item in reader.read_tolerant(split)]
        return [
            each
            for item in items
            for each in ([(item.payload, item.error)] if isinstance(item, BadRow) else _rows(item.batch))
        ]

    expected = [each for number, row in enumerate(rows) for each in found(f"{number}.parquet", [row])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("volley.formats.rows._ROWS", batches)
        assert repr(found("all.parquet", rows)) == repr(expected)


GOOD_LINES = [
    *('{"id": 1, "name": "x"}', '{"id": null, "at": "2024-01-01T00:00:00Z"}', '{"s": {"a": 4}, "x": 1.5}', "{}"),
    *('{"name": "\\"id\\": x"}', '{"name": "y", "id": 2, "other": [1, "a"]}', '{ "id" :\t7 }', '{"id": -0}'),
]
ODD_LINES = [
    *('{"id": "x"}', '{"id": 1.5}', '{"id": 99999999999999999999}', '{"id": 1, "id": 2}', '{"at": "day"}', "what"),
    *("", "  ", "\r", "{", "}", '{"s":', '{"a": 5}}', '{"s": {"a": 5}', '{"id": 1', '"name": "a"}', "null", "-"),
    *('{"id": 1}{"id": 2}', '{"id": 1} x', ' {"id": 7}', '{"id": 7} ', '{"id": 7}\r', '\ufeff{"id": 8}', "[1]", "\v"),
    *('[{"id": 1}]', '{"zz": 5}', '{"s": {"a": "q"}}', '{"name": "a', 'b"}', '{"x": "NaN"}', '{"x": 1e999}'),
    # An object that goes on, whose second line is one, too.
    '{"s":\n{"id": 4}\n}',
    *('{"name": "\udcff"}', '{"id": Inf}', '{"x": -0}', '{"zz": 1e400, "id": 1}', '{"at": "2024-13-41T99"}'),
]


@given(data=st.data())
def test_lines_are_sorted_alike_whatever_was_bad_before(data: st.DataObject) -> None:
    lines = st.sampled_from(GOOD_LINES) | st.sampled_from(GOOD_LINES) | st.sampled_from(ODD_LINES)
    text = "\n".join(data.draw(st.lists(lines, min_size=2, max_size=12))).encode(errors="surrogateescape")
    on_unknown = data.draw(st.sampled_from(["warn", "drop", "keep", "rescue", "fail"]))
    names = ["id", "name", "at", "x", "s"]
    schema = canonical_schema(arrow_schema(", ".join(f"{name} {(TYPES | NESTED)[name]}" for name in names)))
    rows = schema.append(pa.field("unknown", pa.string())) if on_unknown in ("keep", "rescue") else schema

    def found(before: list[str]) -> list[Any]:
        parser = JsonParser(Columns(schema, on_unknown, "unknown"), rows)
        if before:
            parser.sort([line.encode() for line in before], "before")
        items = [*salvaged(InputFile("file", 0, nullcontext), text, 0, parser)] if text.strip() else []
        return [
            each
            for item in items
            for each in (
                [item]
                if isinstance(item, BadRow)
                else zip(map(item.position, range(item.batch.num_rows)), map(repr, _rows(item.batch)), strict=True)
            )
        ]

    bad = ['{"id": "x"}', '{"at": "day"}', '{"x": "x"}', '{"s": 1}', "{"]
    assert found(data.draw(st.lists(st.sampled_from(bad), min_size=1))) == found([])


def _splits(reader: Any) -> list[Any]:
    start = reader.initial_offset()
    return list(reader.splits(start, reader.latest_offset(start, None, None)))


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    return [batch.slice(row, 1).to_pydict() for row in range(batch.num_rows)]
