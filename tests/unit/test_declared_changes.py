"""Reads changes in shapes that a user declares by expressions."""

from __future__ import annotations

import json
import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest

import volley
from volley import ConfigError, FileSource, KafkaSource, col, lit, when
from volley.formats.change_options import ChangeOptions
from volley.formats.change_shape import Unwrap
from volley.formats.changes.decoder import ChangeValues
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema

GOLDEN_GATE = {
    "fields": "op_type string, table string, op_ts timestamp, pos string",
    "row": ["after", "before"],
    "before": "before",
    "operation": """case op_type when 'I' then 'insert' when 'U' then 'update' when 'D' then 'delete'
                    when 'T' then 'truncate' when 'H' then null else op_type end""",
    "sequence": ["cast(pos as long)"],
    "source": {"table": "table", "ts_ms": "epoch(op_ts) * 1000"},
}


def read(shape: dict[str, Any], schema: str, messages: list[Any], on_unknown: str = "warn", **options: Any) -> Sorted:
    given = ChangeOptions(unwrap=shape, **options)  # type: ignore[arg-type]
    given.check("changes", schema)
    decoder = ChangeValues(arrow_schema(schema), "changes", given, on_unknown)
    # Executors have a copy.
    copy = pickle.loads(pickle.dumps(decoder))
    return copy.sort([message if message is None else json.dumps(message).encode() for message in messages])  # type: ignore[no-any-return]


def changes(result: Sorted, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in ("_op", *columns)) for row in result.batch.to_pylist()]


def test_golden_gate() -> None:
    messages = [
        {"table": "Q.T", "op_type": "I", "op_ts": "2015-11-05 18:45:36.000000", "pos": "0000002928",
         "after": {"id": 1, "name": "a"}},
        {"table": "Q.T", "op_type": "U", "pos": "0000002929", "before": {"id": 1, "name": "a"}, "after": {"id": 2}},
        {"table": "Q.T", "op_type": "D", "pos": "0000010000", "before": {"id": 2, "name": "a"}, "after": None},
        {"op_type": "H"},
        None,
        {"op_type": "I", "after": {"id": 9}},
    ]  # fmt: skip
    result = read(GOLDEN_GATE, "id long, name string", messages, key_fields=["id"])
    assert changes(result, "id", "name", "_unchanged") == [
        *(("i", 1, "a", None), ("d", 1, None, None), ("u", 2, None, ["name"]), ("d", 2, None, None)),
        ("i", 9, None, None),
    ]
    assert result.faults == {}
    assert result.numbers == [0, 1, 1, 2, 5]
    *places, unknown = result.batch["_seq"].to_pylist()
    assert places == [number.to_bytes(8) for number in (2928, 2929, 2929, 10_000)]
    assert unknown is None
    assert result.batch["source_table"].to_pylist() == ["Q.T"] * 4 + [None]
    assert result.batch["source_ts_ms"][0].as_py() == 1_446_749_136_000


def test_what_is_wrong_is_a_bad_row_by_name() -> None:
    row = {"after": {"id": 1}}
    messages = [
        *({"op_type": "W", **row}, {"op_type": "I", "pos": "-2", **row}, {"op_type": "I", "pos": "z", **row}),
        *({"op_type": "I"}, {"op_type": "T"}, {"op_type": "I", "after": {"x": 7}}, {"op_type": 5, **row}, [1]),
        {"op_type": "I", "pos": "1", **row},
    ]
    result = read(GOLDEN_GATE, "id long, name string", messages, key_fields=["id"])
    assert (result.numbers, list(result.faults)) == ([8], [*range(8)])
    faults = [*result.faults.values()]
    assert faults[:2] == [
        "what happened is not known: 'W'",
        "unwrap sequence: -2 is negative, which no place in a log is",
    ]
    assert faults[2].startswith("unwrap sequence: cast from string to long: ")
    assert faults[3] == "a change without after or before"
    assert faults[4].startswith("the table was truncated")
    assert faults[5] == "a row whose key has no 'id'"
    assert read(GOLDEN_GATE, "id long", [{"op_type": "T"}], truncations="skip").faults == {}


REPLICATE = {
    "fields": "message struct<headers: struct<operation: string, changeSequence: string>>",
    "row": "message.data",
    "before": "message.beforeData",
    "operation": "case message.headers.operation when 'REFRESH' then 'load' else lower(message.headers.operation) end",
    "sequence": [
        "coalesce(cast(substr(message.headers.changeSequence, 1, 16) as long), 0)",
        "coalesce(cast(substr(message.headers.changeSequence, 17, 19) as long), 0)",
    ],
}


def replicate(operation: str, place: int, data: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"operation": operation, "changeSequence": f"20170504055440{place:021d}", "timestamp": "2017-05-04"}
    return {"magic": "atMSG", "message": {"data": data, "beforeData": old, "headers": headers}}


def test_rows_and_places_deep_in_messages() -> None:
    messages = [
        {"message": {"data": {"id": 1, "name": "Ada"}, "headers": {"operation": "REFRESH", "changeSequence": None}}},
        replicate("UPDATE", 9, {"id": 2, "name": "Ada"}, {"id": 1, "name": "Ada"}),
        replicate("DELETE", 10**18, {"id": 2, "name": "Ada"}),
        {"magic": "atMSG", "message": {"data": None, "headers": {"operation": "INSERT"}}},
        replicate("INSERT", 11, {"id": 3}),
    ]
    result = read(REPLICATE, "id long, name string", messages, key_fields=["id"])
    assert changes(result, "id", "name") == [
        *(("r", 1, "Ada"), ("d", 1, None), ("u", 2, "Ada"), ("d", 2, None), ("i", 3, None)),
    ]
    assert result.faults == {3: "a change without message.data"}
    places = result.batch["_seq"].to_pylist()[:4]
    assert places == sorted(places)
    assert len({*places}) == 3


def test_a_message_that_is_the_row() -> None:
    """A field that only expressions read is no unknown one; one that is a column, too, is both."""
    shape = {"fields": "kind string, version long", "operation": "if(kind = 'gone', 'delete', 'update')"}
    shape |= {"operation": "case when kind = 'gone' then 'delete' else 'update' end", "sequence": "version"}
    messages = [{"id": 1, "version": 3, "kind": "new"}, {"id": 1, "version": 4, "kind": "gone"}, {"id": 2, "x": 1}]
    result = read(shape, "id long, version long", messages, "fail", key_fields=["id"])
    assert changes(result, "id", "version") == [("u", 1, 3), ("d", 1, None)]
    assert result.faults == {2: "field 'x' is not in the schema"}


def test_a_field_schema_is_one_of_the_message() -> None:
    """It is no message of Kafka Connect, which would be its payload alone."""
    shape = {"fields": "schema string", "row": "payload", "operation": "'insert'", "source": {"schema": "schema"}}
    result = read(shape, "id long", [{"schema": "public", "payload": {"id": 1}}])
    assert changes(result, "id", "source_schema") == [("i", 1, "public")]


def test_expressions_of_the_dsl_are_those_of_sql() -> None:
    shape: dict[str, Any] = {"fields": "op string", "row": "data"}
    by_col = Unwrap(**shape, operation=when(col("op") == lit("+")).then(lit("insert")).otherwise(lit("delete")))
    assert by_col == Unwrap(**shape, operation="case when op = '+' then 'insert' else 'delete' end")


FIELDS = {"fields": "op string, data struct<gone: boolean>, n long", "operation": "op"}


@pytest.mark.parametrize(
    ("entries", "fault"),
    [
        ({"operation": "kind"}, "unwrap operation 'kind': unknown column 'kind'"),
        ({"operation": "n"}, "unwrap operation 'n': it is long, not a text"),
        ({"operation": "op ="}, "unwrap operation 'op =': something is missing"),
        ({"operation": 5}, "unwrap operation is int, no expression"),
        ({"sequence": ["n", "op"]}, "unwrap sequence 'op': it is string, not a whole number"),
        ({"sequence": 5}, "unwrap sequence is int, not a list"),
        ({"source": {"tabel": "op"}}, "unwrap source 'tabel' is unknown"),
        ({"source": {"ts_ms": "op"}}, r"unwrap source\['ts_ms'\] 'op': it is string"),
        ({"source": ["op"]}, "unwrap source is of type list"),
        ({"row": "a..b"}, "unwrap row has 'a..b', which is no path"),
        ({"row": 5}, "unwrap row 5 is not valid"),
        ({"row": "op"}, "unwrap fields declares 'op' of 'op' as string, and it has the row"),
        ({"before": "op.x"}, "unwrap fields declares 'op' of 'op.x' as string"),
        ({"before": "note"}, "'note' is a column of the row, and unwrap has another row there"),
        ({"fields": "op string, at timestamp"}, "unwrap fields has 'at', which is a column of the row, too"),
        ({"fields": "op string, id int"}, "unwrap fields has 'id', which is a column of the row, too"),
        ({"fields": "op string, a map<int, string>"}, "JSON can't be read"),
        ({"rows": "data"}, "unwrap has no entry 'rows'"),
    ],
)
def test_a_wrong_entry_is_refused_when_the_source_is_made(entries: dict[str, Any], fault: str) -> None:
    options = {"unwrap": {**FIELDS, **entries}}
    with pytest.raises(ConfigError, match=fault) as caught:
        FileSource("in", format="changes", schema="id long, note string, at timestamp", options=options)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"value_format": "changes"}, "changes has no unwrap"),
        ({"value_format": "maxwell", "options": {"unwrap": FIELDS}}, "maxwell has a shape of its own, and no unwrap"),
        ({"value_format": "changes", "options": {"unwrap": {"fields": "op string"}}}, "unwrap has no operation"),
        ({"value_format": "changes", "options": {"unwrap": "op"}}, "unwrap is of type str"),
        ({"value_format": "changes", "options": {"unwrap": FIELDS, "source": ["db"]}}, "source 'db' is unknown"),
        ({"value_format": "changes", "options": {"unwrap": FIELDS}, "schema": "infer"}, "is for JSON, not for changes"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        KafkaSource("host:9092", topics="t", **{"schema": "id long", **settings})
    assert caught.value.hint


@pytest.mark.parametrize("connector", ["kafka", "files", "webhook"])
def test_a_shape_in_yaml(connector: str, tmp_path: Path) -> None:
    place = {
        "kafka": "{bootstrap_servers: 'host:9092', topics: t, value_format: changes",
        "files": "{path: in, format: changes",
        "webhook": "{port: 8080, value_format: changes",
    }
    file = tmp_path / "volley.yaml"
    file.write_text(
        textwrap.dedent("""
        sources:
          orders:
            connector: CONNECTOR
            config: CONFIG, schema: "id long", options: {key_fields: [id], unwrap: {
              fields: "op string, pos long", row: data, sequence: pos,
              operation: "case op when '+' then 'insert' end"}}}
        sinks: {orders: {connector: console}}
        pipelines: {orders: {source: orders, sink: orders}}
        """)
        .replace("CONNECTOR", connector)
        .replace("CONFIG", place[connector])
    )
    source: Any = volley.load_config(file).sources["orders"]
    options = ChangeOptions(**source.options)
    expected = {"fields": "op string, pos long", "row": "data", "sequence": ["pos"]}
    assert options.unwrap == Unwrap(**expected, operation="case op when '+' then 'insert' end")  # type: ignore[arg-type]
