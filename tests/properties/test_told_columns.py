"""Columns from the schemas that Debezium's messages carry: by value, and the same however a stream is cut."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.tiers import nightly
from volley import Contract
from volley.contracts.rows import taken_seen, taken_tallies
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.contract import DROPPED
from volley.formats.framing import Tombstone
from volley.formats.inferred import Inferred
from volley.formats.rows import Sorted

EVOLVE = Contract(types="evolve")
TIME, DATA, KAFKA = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
SOURCE = {"connector": "postgresql", "snapshot": "false", "sequence": '["1","2"]'}


def connect(name: str, kind: str, logical: str = "", **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": True, **({"name": logical} if logical else {}), **more}


def message(fields: Sequence[dict[str, Any]], row: dict[str, Any], op: str = "c", server: str = "") -> bytes:
    struct = {"type": "struct", "fields": list(fields), "optional": True, "name": "t.Value"}
    places = [{**struct, "field": "before"}, {**struct, "field": "after"}]
    source = connect("source", "struct", f"io.debezium.connector.{server}.Source", fields=[]) if server else None
    parts = [*places, connect("op", "string"), *([source] if source else [])]
    schema = {"type": "struct", "fields": parts, "name": "t.Envelope", "optional": False}
    before, after = (row, None) if op == "d" else (None, row)
    return json.dumps(
        {"schema": schema, "payload": {"op": op, "before": before, "after": after, "source": SOURCE}}
    ).encode()


def flat(fields: Sequence[dict[str, Any]], row: dict[str, Any]) -> bytes:
    own = [connect("__op", "string"), connect("__deleted", "string")]
    schema = {"type": "struct", "fields": [*fields, *own], "optional": False, "name": "t.Value"}
    return json.dumps({"schema": schema, "payload": {**row, "__op": "c", "__deleted": "false"}}).encode()


def decoder(columns: Inferred, **options: Any) -> ChangeValues:
    return ChangeValues(columns.schema, "debezium", ChangeOptions(**options), "drop", inferred=columns)


def read(
    values: Sequence[bytes],
    cuts: Sequence[int] = (),
    contract: Contract = EVOLVE,
    declared: pa.Schema | None = None,
    **options: Any,
) -> tuple[Inferred, list[dict[str, Any]], list[str]]:
    """Return the columns, rows and faults of a stream, each piece of which is an epoch of two tasks."""
    columns = Inferred("stream", declared or pa.schema([]), contract, ChangeOptions(**options).added)
    rows, faults = list[dict[str, Any]](), list[str]()
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        middle = (start + end) // 2
        for _ in range(2):
            taken_seen()
            seen, parts = list[Any](), list[Sorted]()
            for at, to in ((start, middle), (middle, end)):
                parts.append(decoder(columns, **options).sort(values[at:to]))
                seen += taken_seen()
            if not seen:
                rows += [row for part in parts for row in part.batch.to_pylist()]
                faults += [fault for part in parts for fault in part.faults.values()]
                break
            columns = columns.with_seen(each for told in seen for each in told.seen)
        else:
            raise AssertionError("an epoch's messages tell something new when they are read again")
    return columns, [{name: row.get(name) for name in columns.schema.names} for row in rows], faults


VARIABLE = {"fields": [connect("scale", "int32"), connect("value", "bytes")]}
GEOMETRY = {"fields": [connect("wkb", "bytes"), connect("srid", "int32")]}
TEN_DIGITS = {"parameters": {"scale": "2", "connect.decimal.precision": "10"}}
TYPES = [
    ("bytes", KAFKA + "Decimal", TEN_DIGITS, "AeI6", "decimal(10,2)", Decimal("1234.50")),
    ("bytes", KAFKA + "Decimal", {"parameters": {"scale": "2"}}, "AeI6", "decimal(38,2)", Decimal("1234.50")),
    ("int64", TIME + "MicroTimestamp", {}, 1774747800123456, "timestamp_ntz", datetime(2026, 3, 29, 1, 30, 0, 123456)),
    (
        "string",
        TIME + "ZonedTimestamp",
        {},
        "2026-03-29T01:30:00Z",
        "timestamp",
        datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
    ),
    ("int32", TIME + "Date", {}, 1, "date", date(1970, 1, 2)),
    ("int64", TIME + "MicroTime", {}, 3_600_000_000, "time", time(1)),
    ("int16", "", {}, 7, "int", 7),
    ("int64", "", {}, 2**40, "long", 2**40),
    ("float", "", {}, 0.5, "float", 0.5),
    ("double", "", {}, 0.1, "double", 0.1),
    ("boolean", "", {}, True, "boolean", True),
    ("string", DATA + "Json", {}, '{"a": 1}', "string", '{"a": 1}'),
    ("string", DATA + "Uuid", {}, "00000000-0000-0000-0000-000000000001", "uuid", None),
    ("bytes", "", {}, "AAE=", "binary", b"\0\1"),
    ("array", "", {"items": {"type": "int32", "optional": True}}, [1, None], "array<int>", [1, None]),
    ("struct", DATA + "VariableScaleDecimal", VARIABLE, {"scale": 1, "value": "MDk="}, "string", "1234.5"),
    ("struct", DATA + "geometry.Geometry", GEOMETRY, {"wkb": "AAE=", "srid": 1}, "binary", b"\0\1"),
    (
        "map",
        "",
        {"keys": {"type": "string"}, "values": {"type": "string"}},
        {"a": "b"},
        "map<string, string>",
        [("a", "b")],
    ),
]


@pytest.mark.parametrize(("kind", "logical", "more", "written", "name", "value"), TYPES, ids=[t[4] for t in TYPES])
def test_a_column_has_the_type_that_the_schema_tells(
    kind: str, logical: str, more: dict[str, Any], written: Any, name: str, value: Any
) -> None:
    fields = [connect("id", "int32"), connect("v", kind, logical, **more)]
    columns, rows, faults = read([message(fields, {"id": 1, "v": written}), message(fields, {"id": 2, "v": None})])
    assert not faults
    assert [each.type for each in columns.seen if each.column == "v"] == [name] or name.startswith("array")
    assert rows[1] == {"id": 2, "v": None}
    assert rows[0]["v"] == value or name == "uuid"
    assert str(rows[0]["v"]) == written or name != "uuid"


def test_times_of_mysql_and_mariadb_are_durations_and_wire_tells_what_no_schema_does() -> None:
    fields = [connect("at", "int64", TIME + "MicroTime"), connect("big", "int64"), connect("hex", "string")]
    row = {"at": 3020399999999, "big": -1, "hex": "00ff"}
    columns, rows, faults = read([message(fields, row, server="mysql")], wire={"big": "unsigned", "hex": "hex"})
    assert (rows, faults) == ([{"at": 3020399999999, "big": 2**64 - 1, "hex": b"\0\xff"}], [])
    assert columns.schema.field("big").type == pa.decimal128(20, 0)


def test_a_schema_that_changes_adds_columns_and_widens_them() -> None:
    money = {"parameters": {"scale": "2", "connect.decimal.precision": "6"}}
    more = {"parameters": {"scale": "2", "connect.decimal.precision": "12"}}
    first = [connect("id", "int32"), connect("m", "bytes", KAFKA + "Decimal", **money), connect("gone", "string")]
    later = [connect("id", "int64"), connect("m", "bytes", KAFKA + "Decimal", **more), connect("new", "string")]
    values = [
        message(first, {"id": 1, "m": "AeI6", "gone": "x"}),
        message(later, {"id": 2**40, "m": "AOjUpQ+g", "new": "y"}),
    ]
    for cuts in ([], [1]):
        columns, rows, faults = read(values, cuts)
        assert not faults
        assert columns.schema == pa.schema(
            {"id": pa.int64(), "m": pa.decimal128(12, 2), "gone": pa.string(), "new": pa.string()}
        )
        assert rows == [
            {"id": 1, "m": Decimal("1234.50"), "gone": "x", "new": None},
            {"id": 2**40, "m": Decimal("9999999999.04"), "gone": None, "new": "y"},
        ]


def test_fates_by_the_contract() -> None:
    fields = [connect("id", "int32"), connect("debug", "string"), connect("secret", "string")]
    contract = Contract(types="fail", columns={"debug": "drop", "secret": "fail"})
    columns, rows, faults = read(
        [message(fields[:2], {"id": 1, "debug": "x"}), message(fields, {"id": 2})], [], contract
    )
    assert (columns.schema.names, rows) == (["id"], [{"id": 1}])
    assert faults == ["field 'secret' is not in the schema"]
    widened = [message([connect("id", "int64")], {"id": 5}), message([connect("id", "int64")], {"id": 2**40})]
    columns, rows, faults = read([message(fields[:1], {"id": 1}), *widened], [1], contract)
    assert (columns.schema, rows) == (pa.schema({"id": pa.int32()}), [{"id": 1}, {"id": 5}])
    assert "1099511627776" in faults[0]


def test_values_that_a_contract_drops_are_counted() -> None:
    """Values of rows count, and a part of a struct counts as one; nulls, deletions and bad rows do not count."""
    address = connect("address", "struct", "own", fields=[connect("city", "string"), connect("zip", "string")])
    fields = [connect("id", "int32"), connect("debug", "string"), address]
    contract = Contract(types="fail", columns={"debug": "drop", "address": "drop"})
    declared = pa.schema({"id": pa.int32(), "address": pa.struct({"city": pa.string()})})
    taken_tallies()
    values = [
        message(fields, {"id": 1, "debug": "x", "address": {"city": "a", "zip": "b"}}),
        message(fields, {"id": 2, "debug": None, "address": None}),
        message(fields, {"id": 3, "debug": "x", "address": None}, "u"),
        message(fields, {"id": 1, "debug": "x", "address": None}, "d"),
        message(fields, {"id": "wrong", "debug": "x", "address": None}),
    ]
    _, rows, faults = read(values, [2], contract, declared)
    assert [row["id"] for row in rows] == [1, 2, 3, 1]
    assert len(faults) == 1
    assert taken_tallies() == {DROPPED: 3}


def test_values_of_messages_without_a_schema_that_a_contract_drops_are_counted() -> None:
    declared = pa.schema({"id": pa.int32()})
    after = {"id": 1, "debug": "x", "__own": "y", "null": None}
    value = json.dumps({"op": "c", "before": None, "after": after, "source": SOURCE}).encode()
    taken_tallies()
    _, rows, _ = read([value, value], [], Contract(new_columns="drop", types="fail"), declared)
    assert (len(rows), taken_tallies()) == (2, {DROPPED: 2})


def test_what_can_be_no_column_is_a_bad_row_by_name() -> None:
    fields = [connect("id", "int32"), connect("a.b", "string"), connect("ID", "string")]
    _, rows, faults = read(
        [message(fields[:1], {"id": 1}), message(fields[:2], {"id": 2}), message([fields[0], fields[2]], {"id": 3})]
    )
    assert rows == [{"id": 1}]
    assert [fault.partition(":")[0] for fault in faults] == [
        "field 'a.b' can be no column",
        "field 'ID' can be no column",
    ]
    _, rows, faults = read([message(fields[:1], {"id": 1}), b'{"op": "c", "after": {"id": 2}}'])
    assert rows == [{"id": 1}]
    assert faults[0].startswith("it carries no schema")
    # A column of the format has this name.
    _, rows, faults = read([message([connect("_op", "string")], {"_op": "x"})])
    assert "'_op' can be no column" in faults[0]


def test_messages_without_a_row_tell_no_columns() -> None:
    schema = {"type": "struct", "fields": [{"field": "ts_ms", "type": "int64"}]}
    heartbeat = json.dumps({"schema": schema, "payload": {"ts_ms": 1}}).encode()
    later = message([connect("id", "int32")], {"id": 1}, "d")
    for cuts in ([], [1]):
        columns, rows, faults = read([heartbeat, later], cuts, key_fields=["id"])
        assert (columns.schema, rows, faults) == (pa.schema({"id": pa.int32()}), [{"id": 1}], [])


def test_what_is_rescued_in_json_is_an_ordinary_column_of_changes() -> None:
    columns, rows, faults = read([message([connect("rescued", "string")], {"rescued": "x"})])
    assert (columns.schema.names, rows, faults) == (["rescued"], [{"rescued": "x"}], [])


def test_flattened_rows_and_keys_of_tombstones() -> None:
    fields = [connect("id", "int32"), connect("v", "string")]
    key = {"schema": {"type": "struct", "fields": [connect("id", "int32")]}, "payload": {"id": 7}}
    tombstone: Any = Tombstone(json.dumps(key).encode())
    options: dict[str, Any] = {"flattened": True, "key_fields": ["id"], "tombstones": "delete"}
    for values in ([tombstone, flat(fields, {"id": 1, "v": "x"})], [flat(fields, {"id": 1, "v": "x"}), tombstone]):
        for cuts in ([], [1]):
            columns, rows, faults = read(values, cuts, **options)
            assert not faults
            assert columns.schema == pa.schema({"id": pa.int32(), "v": pa.string()})
            assert sorted(rows, key=lambda row: row["id"]) == [{"id": 1, "v": "x"}, {"id": 7, "v": None}]


def test_declared_columns_keep_their_type_beside_told_ones() -> None:
    fields = [connect("id", "int32"), connect("at", "int64", TIME + "MicroTime"), connect("v", "string")]
    declared = pa.schema({"id": pa.int64(), "at": pa.int64()})
    columns, rows, faults = read([message(fields, {"id": 1, "at": 5, "v": "x"})], declared=declared)
    assert columns.schema == pa.schema({"id": pa.int64(), "at": pa.int64(), "v": pa.string()})
    assert (rows, faults) == ([{"id": 1, "at": 5, "v": "x"}], [])


KINDS: list[tuple[dict[str, Any], list[Any]]] = [
    (connect("", "int32"), [1, -7]),
    (connect("", "int64"), [2**40, 3]),
    (connect("", "string"), ["x", ""]),
    (connect("", "bytes", KAFKA + "Decimal", parameters={"scale": "2", "connect.decimal.precision": "6"}), ["AeI6"]),
    (connect("", "bytes", KAFKA + "Decimal", parameters={"scale": "2", "connect.decimal.precision": "9"}), ["AeI6"]),
    (connect("", "struct", "own", fields=[connect("p", "int32"), connect("q", "string")]), [{"p": 1, "q": "x"}]),
    (connect("", "struct", "own", fields=[connect("p", "int64"), connect("r", "boolean")]), [{"p": 2, "r": True}]),
    (connect("", "array", items={"type": "string", "optional": True}), [["x"], []]),
]


@pytest.mark.parametrize("block", [0, *map(nightly, range(1, 40))])
def test_columns_and_rows_are_the_same_however_a_stream_is_cut(block: int) -> None:
    for seed in range(block * 8, block * 8 + 8):
        chosen = random.Random(seed)
        tables = list[list[tuple[dict[str, Any], list[Any]]]]()
        for _ in range(4):
            names = chosen.sample(["a", "b", "c", "A", "d"], chosen.randrange(1, 5))
            tables.append(
                [({**kind, "field": name}, values) for name in names for kind, values in [chosen.choice(KINDS)]]
            )
        values = list[bytes]()
        for _ in range(chosen.randrange(2, 12)):
            fields = chosen.choice(tables)
            row = {field["field"]: chosen.choice(of_kind) for field, of_kind in fields}
            values.append(message([field for field, _ in fields], row, chosen.choice("crud")))
        whole = read(values)
        for cuts in ([*range(1, len(values))], sorted(chosen.sample(range(len(values)), 2))):
            columns, rows, faults = read(values, cuts)
            assert columns.schema == whole[0].schema, seed
            in_table = [{name: row.get(name) for name in whole[0].schema.names} for row in rows]
            assert [_plain(row) for row in in_table] == [_plain(row) for row in whole[1]], seed
            assert sorted(faults) == sorted(whole[2]), seed


def _plain(value: Any) -> Any:
    """Return a value without the fields that came later, which a table reads as null."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return value
