"""On random tables, specs, filters and delete files, plans have every file with a matching row, and are pyiceberg's."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from tests.iceberg.planned_tables import PlannedTable

DAY = 86_400_000_000
TYPES: dict[str, tuple[PrimitiveType, list[Any]]] = {
    "whole": (IntegerType(), [-3, -1, 0, 1, 2, 7]),
    "long": (LongType(), [-(2**40), -1, 0, 5, 2**40]),
    "text": (StringType(), ["", "a", "ab", "abc", "b", "日本"]),
    "score": (DoubleType(), [-2.5, 0.0, 1.5, math.nan]),
    "day": (DateType(), [-400, -1, 0, 1, 365]),
    "moment": (TimestampType(), [-DAY - 1, -1, 0, DAY, 400 * DAY]),
    "money": (DecimalType(9, 2), [Decimal("-1.23"), Decimal("0.00"), Decimal("4.56")]),
    "flag": (BooleanType(), [False, True]),
}
NAMES = list(TYPES)
SCHEMA = Schema(*(NestedField(number, name, TYPES[name][0]) for number, name in enumerate(NAMES, 1)))
TRANSFORMS: list[tuple[str, Transform[Any, Any]]] = [
    *((name, IdentityTransform()) for name in NAMES),
    *((name, BucketTransform(3)) for name in ("whole", "long", "text", "day", "moment", "money")),
    *((name, TruncateTransform(2)) for name in ("whole", "long", "text", "money")),
    *((name, transform()) for name in ("day", "moment") for transform in (YearTransform, MonthTransform, DayTransform)),
    *(("moment", HourTransform()), ("text", VoidTransform())),
]
FLAGS = st.booleans()
Row = dict[str, Any]


@st.composite
def specs(draw: st.DrawFn) -> list[PartitionSpec]:
    ids = count(1000)
    chosen = draw(st.lists(st.lists(st.sampled_from(TRANSFORMS), max_size=2, unique_by=str), min_size=1, max_size=2))
    return [
        PartitionSpec(
            *(
                PartitionField(SCHEMA.find_field(name).field_id, next(ids), transform, f"{name} {number}")
                for number, (name, transform) in enumerate(parts)
            ),
            spec_id=spec_id,
        )
        for spec_id, parts in enumerate(chosen)
    ]


def partition_of(spec: PartitionSpec, row: Row) -> list[Any]:
    return [
        field.transform.transform(SCHEMA.find_field(field.source_id).field_type)(
            row[SCHEMA.find_field(field.source_id).name]
        )
        for field in spec.fields
    ]


def rows() -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({name: st.none() | st.sampled_from(values) for name, (_, values) in TYPES.items()})


# Filters, and what they mean: SQL's logic of three values, and Spark's NaN, which is greater than all other numbers.


@dataclass(frozen=True)
class Filter:
    expression: BooleanExpression
    matches: Callable[[Row], bool | None]

    def __repr__(self) -> str:
        return repr(self.expression)


def _order(value: Any) -> Any:
    return (1, 0) if value != value else (0, value)


COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, literal: value == literal,
    NotEqualTo: lambda value, literal: value != literal,
    LessThan: lambda value, literal: _order(value) < _order(literal),
    LessThanOrEqual: lambda value, literal: _order(value) <= _order(literal),
    GreaterThan: lambda value, literal: _order(value) > _order(literal),
    GreaterThanOrEqual: lambda value, literal: _order(value) >= _order(literal),
}


def _unless_null(name: str, matches: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[name] is None else matches(row[name])


KINDS = {"score": ["compare", "in", "null", "nan"], "text": ["compare", "in", "null", "prefix", "prefix"]}


@st.composite
def predicates(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(NAMES))
    term = Reference(name)
    literals = st.sampled_from([value for value in TYPES[name][1] if value == value])
    positive = draw(st.booleans())
    build: Any
    match draw(st.sampled_from(KINDS.get(name, ["compare", "in", "null"]))):
        case "compare":
            build, literal = draw(st.sampled_from(list(COMPARISONS))), draw(literals)
            compare = COMPARISONS[build]
            return Filter(build(term, literal), _unless_null(name, lambda value: compare(value, literal)))
        case "in":
            build, values = In if positive else NotIn, draw(st.lists(literals, min_size=1, max_size=3))
            return Filter(build(term, values), _unless_null(name, lambda value: (value in values) == positive))
        case "null":
            build = IsNull if positive else NotNull
            return Filter(build(term), lambda row: (row[name] is None) == positive)
        case "nan":
            build = IsNaN if positive else NotNaN
            return Filter(build(term), _unless_null(name, lambda value: (value != value) == positive))
        case _:
            build, literal = StartsWith if positive else NotStartsWith, draw(literals)
            matches = _unless_null(name, lambda value: value.startswith(literal) == positive)
            return Filter(build(term, literal), matches)


def _not(inner: Filter) -> Filter:
    def matches(row: Row) -> bool | None:
        value = inner.matches(row)
        return None if value is None else not value

    return Filter(Not(inner.expression), matches)


def _both(left: Filter, right: Filter) -> Filter:
    def matches(row: Row) -> bool | None:
        values = {left.matches(row), right.matches(row)}
        return False if False in values else None if None in values else True

    return Filter(And(left.expression, right.expression), matches)


def _either(left: Filter, right: Filter) -> Filter:
    def matches(row: Row) -> bool | None:
        values = {left.matches(row), right.matches(row)}
        return True if True in values else None if None in values else False

    return Filter(Or(left.expression, right.expression), matches)


def filters() -> st.SearchStrategy[Filter]:
    return st.recursive(
        predicates(),
        lambda inner: st.one_of(inner.map(_not), st.builds(_both, inner, inner), st.builds(_either, inner, inner)),
        max_leaves=4,
    )


# Statistics, as much of them as a writer may write.


@st.composite
def statistics(draw: st.DrawFn, in_file: list[Row]) -> dict[str, Any]:
    found: dict[str, dict[int, Any]] = {}
    for number, name in enumerate(NAMES, 1):
        values = [row[name] for row in in_file]
        present = [value for value in values if value is not None and value == value]
        if draw(FLAGS):
            found.setdefault("value_counts", {})[number] = len(values)
            found.setdefault("null_value_counts", {})[number] = values.count(None)
            if name == "score" and draw(FLAGS):
                found.setdefault("nan_value_counts", {})[number] = sum(value != value for value in values)
        if draw(FLAGS) and present:
            low, high = draw(bounds(name, min(present), max(present)))
            found.setdefault("lower_bounds", {})[number] = low
            found.setdefault("upper_bounds", {})[number] = high
    return found


@st.composite
def bounds(draw: st.DrawFn, name: str, low: Any, high: Any) -> tuple[bytes, bytes]:
    """Serialized bounds; short ones are those of a column before its promotion, or of text that is cut off."""
    is_short = draw(FLAGS)
    if is_short and name == "long" and max(abs(low), abs(high)) < 2**31:
        return struct.pack("<i", low), struct.pack("<i", high)
    if is_short and name == "text" and high:
        return low[:1].encode(), chr(ord(high[0]) + 1).encode()
    return to_bytes(TYPES[name][0], low), to_bytes(TYPES[name][0], high)


@dataclass
class Case:
    """A table, and the rows of each of its data files."""

    fill: Callable[[PlannedTable], None]
    specs: list[PartitionSpec]
    rows: dict[str, list[Row]]
    partitions: dict[str, list[Any]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    parts = draw(specs())
    manifests: list[list[tuple[str, dict[str, Any]]]] = []
    in_files: dict[str, list[Row]] = {}
    partitions: dict[str, list[Any]] = {}
    for spec in parts:
        manifests_of_spec: int = draw(st.integers(1, 2))
        for _ in range(manifests_of_spec):
            by_partition: dict[str, list[Row]] = {}
            for row in draw(st.lists(rows(), min_size=1, max_size=6)):
                by_partition.setdefault(repr(partition_of(spec, row)), []).append(row)
            files = []
            for in_file in by_partition.values():
                path = f"file {len(in_files)}"
                in_files[path], partitions[path] = in_file, partition_of(spec, in_file[0])
                attributes = {"number": draw(st.integers(1, 3)), "spec_id": spec.spec_id, "record_count": len(in_file)}
                files.append((path, {**attributes, **draw(statistics(in_file))}))
            manifests.append(files)
    deletes = []
    for path in draw(st.lists(st.sampled_from(sorted(in_files)), max_size=4)):
        spec_id = next(attributes["spec_id"] for files in manifests for name, attributes in files if name == path)
        paths = draw(st.sampled_from([None, (path, path), ("file 0", "file 2"), ("file 1", "file 99")]))
        deletes.append((path, spec_id, paths, draw(st.integers(1, 4))))

    def fill(table: PlannedTable) -> None:
        for files in manifests:
            table.add(*(table.entry(path, partitions[path], **attributes) for path, attributes in files))
        for number, (path, spec_id, paths, sequence) in enumerate(deletes):
            options = {"number": sequence, "spec_id": spec_id}
            table.add(table.positions(f"delete {number}", paths, partitions[path], **options))

    return Case(fill, parts, in_files, partitions)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("table")


@given(case=cases(), filters=st.lists(filters(), min_size=1, max_size=4))
def test_no_file_too_few(case: Case, filters: list[Filter], folders: Callable[[], Path]) -> None:
    table = PlannedTable(folders(), SCHEMA, case.specs)
    case.fill(table)
    for row_filter in filters:
        planned = table.planned(row_filter.expression)
        matching = {path for path, rows in case.rows.items() if any(map(row_filter.matches, rows))}
        assert matching <= planned.keys(), row_filter
        theirs = table.by_pyiceberg(row_filter.expression)
        if theirs is None:
            continue
        text = repr(row_filter)
        # "not like" of a file all of whose texts start so: pyiceberg keeps it if it knows the number of nulls, and only
        # then. It keeps a file of nulls and NaN alone, and leaves out one with NaN for a filter on greater numbers.
        if "StartsWith" not in text and "score" not in text:
            assert planned.keys() == theirs.keys(), row_filter
        for path in planned.keys() & theirs.keys():
            # In pyiceberg no partition equals that of NaN.
            assert theirs[path] <= planned[path]
            if not any(value != value for value in case.partitions[path]):
                assert planned[path] == theirs[path]
