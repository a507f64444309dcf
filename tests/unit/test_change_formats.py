"""Reads the changes of Maxwell, Canal, AWS DMS, Airbyte and OLake, as their documentation has them."""

from __future__ import annotations

import json
from datetime import date, datetime
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


@pytest.mark.parametrize("value_format", ["maxwell", "canal", "dms", "airbyte", "olake"])
def test_what_is_no_message_is_a_bad_row(value_format: str) -> None:
    decoder = ChangeValues(arrow_schema("id long"), value_format, ChangeOptions(), "warn")
    result = decoder.sort([b'{"a": 1}', b"[1]", b"{", None])
    assert (list(result.faults), result.numbers) == ([0, 1, 2], [])
