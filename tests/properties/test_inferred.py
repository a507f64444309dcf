"""Streams of JSON objects cut in any place: inferred columns and all rows are the same, and nothing is lost."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.tiers import nightly
from volley import Contract, SourceError
from volley.contracts.rows import taken_seen
from volley.formats.decoders import contract_values
from volley.formats.inferred import Inferred

DECLARED = {
    "infer": pa.schema([]),
    "hints": pa.schema({"a": pa.decimal128(12, 2), "s": pa.struct({"a": pa.int64()}), "n": pa.int32()}),
}
CONTRACTS = {
    "infer": Contract(),
    "hints": Contract(types="evolve", columns={"b": "drop", "c": "rescue"}),
}
NAMES = ["a", "b", "c", "s", "n", "A", "x.y", "rescued", ""]


class Stream:
    """Objects at random: each field mostly has values of one type, which another stream does not share."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.usual = {name: self.random.randrange(9) for name in (*NAMES, "p", "q")}
        self.objects = [self._object(3, NAMES) for _ in range(self.random.randrange(1, 40))]

    def _object(self, depth: int, names: Sequence[str]) -> dict[str, Any]:
        chosen = self.random.sample(names, self.random.randrange(len(names) + 1))
        return {name: self._value(self.usual[name] if self.random.random() < 0.8 else None, depth) for name in chosen}

    def _value(self, kind: int | None, depth: int) -> Any:
        kind = self.random.randrange(9) if kind is None else kind
        match kind:
            case 0:
                return self.random.choice([0, -1, 7, 2**31, 2**53 + 1, -(2**63), 2**63, 2**70, 10**40])
            case 1:
                return self.random.choice([0.5, -1.25, 1e300, 3, 2**53 + 1, 123456789.25, 1e-7])
            case 2:
                return self.random.choice([True, False, None])
            case 3:
                return self.random.choice(["", "x", "2026-01-01T00:00:00Z", 'é\n"', "1.5", None])
            case 4:
                return None
            case 5 | 6 if depth:
                kinds = [self.random.randrange(9)] * 3
                return [self._value(each, depth - 1) for each in kinds[: self.random.randrange(4)]]
            case 7 | 8 if depth:
                return self._object(depth - 1, ["p", "q", "a", "x.y"])
        return self.random.choice([1, "t", None])


def read(texts: Sequence[bytes], cuts: Sequence[int], name: str) -> tuple[Inferred, list[dict[str, Any]]]:
    """Return the columns and rows of a stream, each piece of which is an epoch of two tasks that begin anew."""
    columns = Inferred("stream", DECLARED[name], CONTRACTS[name], ["kafka_offset", "rescued"])
    rows = list[dict[str, Any]]()
    for start, end in zip([0, *cuts], [*cuts, len(texts)], strict=True):
        middle = (start + end) // 2
        for _ in range(2):
            # Tasks of one epoch know nothing of one another.
            taken_seen()
            parts = [(at, to) for at, to in ((start, middle), (middle, end)) if at < to]
            batches, seen = list[pa.RecordBatch](), list[Any]()
            for at, to in parts:
                batches.append(contract_values(columns).decode(texts[at:to]))
                seen += taken_seen()
            if not seen:
                rows += [row for batch in batches for row in batch.to_pylist()]
                break
            columns = columns.with_seen(each for told in seen for each in told.seen)
        else:
            raise AssertionError("an epoch's rows teach something new when they are read again")
    whole = pa.struct([*columns.schema, pa.field("rescued", pa.string())])
    return columns, [in_table(row, whole) for row in rows]


def in_table(value: Any, data_type: pa.DataType) -> Any:
    """Return a value as a table reads it once it has all columns: fields that came later are null."""
    if value is None:
        return None
    if pa.types.is_struct(data_type):
        return {field.name: in_table(value.get(field.name), field.type) for field in data_type}
    return [in_table(item, data_type.value_type) for item in value] if pa.types.is_list(data_type) else value


def cut(stream: Stream, texts: Sequence[bytes]) -> list[int]:
    return sorted(stream.random.sample(range(len(texts) + 1), min(len(texts), stream.random.randrange(6))))


def same(column: Any, written: Any) -> bool:
    """Return True if a column has what was written: nothing but lists and objects without values in them is lost."""
    if isinstance(written, dict):
        has = {name: value for name, value in written.items() if is_value(value)}
        if isinstance(column, str):
            return bool(json.loads(column) == written)
        return (column or {}).keys() >= has.keys() and all(same(column[name], has[name]) for name in has)
    if isinstance(written, list):
        if isinstance(column, str):
            return bool(json.loads(column) == written)
        return (not is_value(written) and not column) or (
            len(column) == len(written) and all(map(same, column, written))
        )
    if isinstance(column, str) and not isinstance(written, str):
        return bool(json.loads(column) == written)
    if isinstance(column, Decimal):
        return column == Decimal(str(written))
    return bool(column == written) and isinstance(column, bool) == isinstance(written, bool)


def is_value(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(is_value, value.values() if isinstance(value, dict) else value))
    return value is not None


def check(seed: int) -> None:
    stream = Stream(seed)
    name = "hints" if seed % 3 == 0 else "infer"
    texts = [json.dumps(each, ensure_ascii=seed % 2 == 0).encode() for each in stream.objects]
    columns, rows = read(texts, [], name)
    for cuts in ([*range(1, len(texts))], cut(stream, texts), cut(stream, texts)):
        others, other_rows = read(texts, cuts, name)
        assert others.schema == columns.schema
        assert others.seen == columns.seen or name == "hints"
        assert other_rows == rows
    for written, row in zip(stream.objects, rows, strict=True):
        rescued = json.loads(row["rescued"] or "{}")
        for field, value in written.items():
            if field in rescued:
                assert rescued[field] == value, "kept as it was written"
                assert row.get(field) is None or field == "rescued", "in one place only"
            elif field == "rescued":
                assert not is_value(value)
            elif name != "hints" or field != "b":
                assert same(row.get(field), value), (field, value, row)


@pytest.mark.parametrize("block", [0, *map(nightly, range(1, 100))])
def test_columns_and_rows_are_the_same_however_a_stream_is_cut(block: int) -> None:
    """A thousand streams at night; ten of them before."""
    for seed in range(block * 10, block * 10 + 10):
        try:
            check(seed)
        except (AssertionError, SourceError) as error:
            error.add_note(f"stream {seed}")
            raise


NO_TYPE = {
    "long number": "1" + "0" * 40,
    "name of no column": '{"x.y": 1, "p": null}',
    "in a list": '[[], [{"x.y": {"p": 1}}]]',
    "deep": '{"p": ' * 12 + "1" + "}" * 12,
}


@pytest.mark.parametrize("value", NO_TYPE.values(), ids=NO_TYPE)
@pytest.mark.parametrize("later", ['"x"', "null", "[1]", '{"p": "x"}', "7"])
def test_a_first_value_that_no_other_type_holds_is_text(value: str, later: str) -> None:
    """Whether what comes later is in the same epoch or not."""
    texts = [f'{{"s": {each}}}'.encode() for each in (value, later)]
    columns, rows = read(texts, [], "infer")
    others, other_rows = read(texts, [1], "infer")
    assert (others.schema, other_rows) == (columns.schema, rows)
    assert same(rows[0]["s"], json.loads(value))
    assert rows[0]["rescued"] is None


@pytest.mark.parametrize("others", ["payload", "ids"])
def test_fields_that_can_be_no_columns_leave_room_for_those_that_can(others: str) -> None:
    """An object in a column of texts, or a map, has other keys in each row: only so many fields are kept in mind."""
    declared = pa.schema({"payload": pa.string(), "ids": pa.map_(pa.string(), pa.int64())})
    columns = Inferred("stream", declared, Contract())
    objects: list[Any] = [{others: {f"k{number}-{more}": more for more in range(1_000)}} for number in range(11)]
    values = contract_values(columns)
    for known in objects:
        # Each is beside a value that does not fit, so that it is looked at.
        values.decode([json.dumps({**known, "ids" if others == "payload" else "payload": [1]}).encode()])
    taken_seen()
    values.decode([b'{"late": 1}'])
    (seen,) = taken_seen()
    assert columns.with_seen(seen.seen).schema.names == ["payload", "ids", "late"]
