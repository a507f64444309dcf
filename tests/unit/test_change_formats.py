"""Reads the changes of Maxwell, Canal, AWS DMS, Airbyte and OLake, as their documentation has them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema


def read(value_format: str, schema: str, messages: list[Any], **options: Any) -> Sorted:
    decoder = ChangeValues(arrow_schema(schema), value_format, ChangeOptions(**options), "warn")
    return decoder.sort([json.dumps(message).encode() for message in messages])


def changes(result: Sorted, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in ("_op", *columns)) for row in result.batch.to_pylist()]


MAXWELL = {"database": "test", "table": "e", "ts": 1477053217, "xid": 23396, "commit": True, "server_id": 23042}


def maxwell(kind: str, data: Any, **more: Any) -> dict[str, Any]:
    return {**MAXWELL, "type": kind, "data": data, **more}


def test_maxwell() -> None:
    created = {"id": 1, "m": 4.2341, "c": "2016-10-21 05:33:37.523000", "comment": "I am a creature of light."}
    messages = [
        maxwell("insert", created, position="master.000006:800911", xoffset=1),
        maxwell("update", {**created, "m": 5.444}, old={"m": 4.2341}, position="master.000006:800911", xoffset=10),
        maxwell("update", {**created, "id": 2}, old={"id": 1}, position="master.000010:4"),
        maxwell("delete", {**created, "id": 2}, position="master.000010:90"),
        maxwell("update", {"id": 3, "m": 1.5}),
        maxwell("bootstrap-insert", {"id": 9}),
        {**MAXWELL, "type": "bootstrap-start", "data": {}},
        {**MAXWELL, "type": "table-create", "def": {}, "sql": "create table e (id int)"},
    ]
    schema = "id long, m double, c timestamp_ntz, comment string"
    result = read("maxwell", schema, messages, key_fields=["id"], source=["db", "table", "ts_ms"])
    assert changes(result, "id", "m") == [
        *(("i", 1, 4.2341), ("u", 1, 5.444), ("d", 1, None), ("u", 2, 4.2341), ("d", 2, None)),
        *(("u", 3, 1.5), ("r", 9, None)),
    ]
    assert result.batch["c"][0].as_py() == datetime(2016, 10, 21, 5, 33, 37, 523000)
    assert result.batch["_unchanged"].to_pylist()[5] == ["c", "comment"]
    places = result.batch["_seq"].to_pylist()
    assert places[:5] == sorted(places[:5])
    assert places[5:] == [None, bytes(24)]
    assert result.batch["source_ts_ms"][0].as_py() == 1477053217000
    assert not result.faults
    assert read("maxwell", schema, [maxwell("split", {"id": 1})]).faults == {0: "what happened is not known: 'split'"}


def canal(kind: str, data: Any, old: Any = None, **more: Any) -> dict[str, Any]:
    names = {"database": "db", "table": "t", "es": 1589373515000, "id": 4, "isDdl": False, "pkNames": ["id"]}
    return {**names, "type": kind, "data": data, "old": old, **more}


def test_canal() -> None:
    first = {"id": "1", "at": "2020-05-13 17:26:27", "day": "2020-05-13", "price": "1.50", "active": "1"}
    second = {"id": "2", "at": None, "day": None, "price": None, "active": "0"}
    messages = [
        canal("INSERT", [first, second]),
        canal("UPDATE", [first, {**second, "id": "3"}], [{"price": "1"}, {"id": "2"}]),
        canal("DELETE", [first]),
        canal("ALTER", None, isDdl=True),
        canal("INSERT", [{"id": "one"}]),
        canal("TRUNCATE", None, isDdl=True),
    ]
    schema = "id long, at timestamp_ntz, day date, price decimal(10,2), active boolean"
    result = read("canal", schema, messages, key_fields=["id"], source=["table"])
    assert changes(result, "id", "price", "active") == [
        *(("i", 1, Decimal("1.50"), True), ("i", 2, None, False), ("u", 1, Decimal("1.50"), True)),
        *(("d", 2, None, None), ("u", 3, None, False), ("d", 1, None, None)),
    ]
    assert (result.batch["at"][0].as_py(), result.batch["day"][0].as_py()) == (
        datetime(2020, 5, 13, 17, 26, 27),
        date(2020, 5, 13),
    )
    assert result.numbers == [0, 0, 1, 1, 1, 2]
    assert list(result.faults) == [4, 5]
    assert result.faults[4].startswith("column 'id'")
    assert read("canal", schema, messages[5:], truncations="skip").faults == {}


def test_canal_writes_all_values_as_texts() -> None:
    """Bytes as characters of ISO 8859-1."""
    schema = "id long, active boolean, data binary, day date, at timestamp, price decimal(20,0), rate double"
    schema += ", doc string, many array<int>"
    first = {"id": "1", "active": "0", "data": "\u00ff\u0001é", "day": "2020-05-13", "at": "2020-05-13 17:26:27.5"}
    first |= {"price": "18446744073709551615", "rate": "1.5E10", "doc": '{"a":1}', "many": "[1, null]"}
    bad = [{"id": "2", "active": "2"}, {"id": "3", "active": "yes"}, {"id": "4", "data": "€"}]
    bad += [{"id": "5", "many": text} for text in ("{}", "1", "[", '["x"]')]
    result = read("canal", schema, [canal("INSERT", [row]) for row in (first, *bad)])
    assert changes(result, *first) == [
        (
            *("i", 1, False, b"\xff\x01\xe9", date(2020, 5, 13), datetime(2020, 5, 13, 17, 26, 27, 500_000, UTC)),
            *(Decimal(2**64 - 1), 1.5e10, '{"a":1}', [1, None]),
        )
    ]
    assert list(result.faults) == [*range(1, 8)]
    assert "'2' is neither 0 nor 1" in result.faults[1]


@pytest.mark.parametrize("value_format", ["maxwell", "canal"])
def test_zero_dates_are_bad_rows_or_null(value_format: str) -> None:
    zeros = [("0000-00-00 00:00:00", "0000-00-00"), ("2026-02-00 00:00:00", None), (None, "2026-00-01")]
    rows = [{"id": "1", "at": at, "day": day} for at, day in zeros]
    messages = [maxwell("insert", row) if value_format == "maxwell" else canal("INSERT", [row]) for row in rows]
    schema = "id string, at timestamp_ntz, day date"
    result = read(value_format, schema, messages)
    assert (result.numbers, list(result.faults)) == ([], [0, 1, 2])
    assert "0000-00-00 00:00:00 is no date, which Iceberg does not have" in result.faults[0]
    read_as_null = read(value_format, schema, messages, unrepresentable="null")
    assert changes(read_as_null, "at", "day") == [("i", None, None)] * 3


def test_maxwell_writes_sets_and_json_as_they_are() -> None:
    row = {"id": 1, "tags": ["a", "b"], "doc": {"a": [1.50]}, "data": "3q0=", "took": "-838:59:59", "n": 2**64 - 1}
    result = read("maxwell", "id long, tags array<string>, doc string, data binary, took string, n decimal(20,0)",
                  [maxwell("insert", row)])  # fmt: skip
    assert changes(result, "tags", "doc", "data", "took", "n") == [
        ("i", ["a", "b"], '{"a": [1.5]}', b"\xde\xad", "-838:59:59", Decimal(2**64 - 1))
    ]


def dms(operation: str, data: Any, kind: str = "data", **more: Any) -> dict[str, Any]:
    metadata = {"timestamp": "2019-08-03T05:20:25Z", "record-type": kind, "operation": operation}
    return {"data": data, "metadata": {**metadata, "schema-name": "dms", "table-name": "t"}, **more}


def test_dms() -> None:
    messages = [
        dms("load", {"id": 1, "name": "Ada", "at": "2019-08-03T05:20:25Z"}),
        dms("update", {"id": 2, "name": "Ada", "at": None}, before={"id": 1}),
        dms("delete", {"id": 2}),
        {**dms("create-table", None, "control"), "control": {}},
        dms("upsert", {"id": 1}),
    ]
    result = read("dms", "id long, name string, at timestamp", messages, key_fields=["id"], source=["schema"])
    assert changes(result, "id", "name") == [("r", 1, "Ada"), ("d", 1, None), ("u", 2, "Ada"), ("d", 2, None)]
    assert result.faults == {4: "what happened is not known: 'upsert'"}


@pytest.mark.parametrize("name", ["before", "before-image"])
def test_a_changed_key_of_dms_is_in_its_before_image(name: str) -> None:
    """The second is the name in DMS's documentation, which has no default."""
    message = {**dms("update", {"id": 2, "name": "Ada"}), name: {"id": 1}}
    assert changes(read("dms", "id long, name string", [message], key_fields=["id"]), "id") == [("d", 1), ("u", 2)]


def test_airbyte() -> None:
    raw = {"_airbyte_ab_id": "f1", "_airbyte_stream": "users", "_airbyte_emitted_at": 1602637589000}
    lsn = {"_ab_cdc_updated_at": "2020-10-14", "_ab_cdc_deleted_at": None}
    messages = [
        {**raw, "_airbyte_data": {"id": 1, "name": "Ada", "_ab_cdc_lsn": 9, **lsn}},
        {**raw, "_airbyte_data": {"id": 1, "name": None, "_ab_cdc_lsn": 10, **lsn, "_ab_cdc_deleted_at": "2020-10-15"}},
        {"type": "RECORD", "record": {"stream": "users", "data": {"id": 2, "name": "Bob"}, "emitted_at": 1}},
        {"type": "STATE", "state": {}},
        raw,
    ]
    result = read("airbyte", "id long, name string", messages, key_fields=["id"], source=["table"])
    assert changes(result, "id", "name") == [("u", 1, "Ada"), ("d", 1, None), ("u", 2, "Bob")]
    places = result.batch["_seq"].to_pylist()
    assert places[0] < places[1]
    assert places[2] is None
    assert result.batch["source_table"].to_pylist() == ["users"] * 3
    assert list(result.faults) == [4]
    logs = [
        {**raw, "_airbyte_data": {"id": 1, **lsn, "_ab_cdc_log_file": f"b.{n}", "_ab_cdc_log_pos": 4}} for n in (9, 10)
    ]
    first, second = read("airbyte", "id long", logs).batch["_seq"].to_pylist()
    assert first < second


def test_olake() -> None:
    messages = [
        {"id": 1, "name": "Ada", "_op_type": "r", "_olake_id": "x"},
        {"id": 1, "name": "__olake_unavailable_value__", "_op_type": "u"},
        {"id": 1, "name": None, "_op_type": "d"},
        {"id": 1, "name": None},
    ]
    result = read("olake", "id long, name string", messages, key_fields=["id"])
    assert changes(result, "name", "_unchanged") == [("r", "Ada", None), ("u", None, ["name"]), ("d", None, None)]
    assert list(result.faults) == [3]


def test_raw_rows_of_olake_are_bad_rows() -> None:
    raw = {"_olake_id": "x", "_op_type": "c", "data": '{"id": 1}'}
    (fault,) = read("olake", "id long", [raw]).faults.values()
    assert fault == "a row with none of the columns: it has '_olake_id', '_op_type', 'data'"


@pytest.mark.parametrize("value_format", ["maxwell", "canal", "dms", "airbyte", "olake"])
def test_what_is_no_message_is_a_bad_row(value_format: str) -> None:
    decoder = ChangeValues(arrow_schema("id long"), value_format, ChangeOptions(), "warn")
    result = decoder.sort([b'{"a": 1}', b"[1]", b"{", None])
    assert (list(result.faults), result.numbers) == ([0, 1, 2], [])
