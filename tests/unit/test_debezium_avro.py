"""Reads Debezium's messages in Avro by value, by the same rules as in JSON: as its converters write them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.unit.test_debezium import PLACEHOLDER, POSTGRES, SURE, UNSENT, envelope
from volley import ConfigError, KafkaSource, SourceError
from volley.formats.avro import merged_texts
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.avro import columns_of_avro
from volley.formats.changes.decoder import ChangeValues
from volley.formats.rows import Sorted
from volley.types.arrow import arrow_schema

KINDS = {
    **{"int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double", "boolean": "boolean"},
    **{"string": "string", "bytes": "bytes"},
}
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": name, "type": ["null", "string"]} for name in ("connector", "schema", "table", "snapshot")]
    + [{"name": "sequence", "type": ["null", "string"], "default": None}, {"name": "lsn", "type": ["null", "long"]}],
}
# What kafka-connect's AvroData adds to the types of Kafka Connect itself.
OWN = {"Decimal": "decimal", "Date": "date", "Time": "time-millis", "Timestamp": "timestamp-millis"}


@dataclass(frozen=True)
class Registry:
    """A registry with some schemas, by the last byte of their ids."""

    schemas: tuple[str, ...]

    def avro(self, head: bytes) -> str:
        return self.schemas[head[-1]]


def avro_type(kind: str, logical: str = "", **more: Any) -> Any:
    """Return the Avro type of a type of Kafka Connect, as AvroData has it."""
    if kind == "array":
        item = more["items"]
        inner = avro_type(item["type"], item.get("name", ""), parameters=item.get("parameters"))
        return {"type": "array", "items": ["null", inner]}
    if kind == "map":
        return {"type": "map", "values": ["null", "string"]}
    named: dict[str, Any] = {"connect.version": 1, "connect.name": logical} if logical else {}
    if kind == "struct":
        fields = [{"name": part["field"], "type": avro_type(part["type"])} for part in more["fields"]]
        return {"type": "record", "name": logical or "Struct", "fields": fields, **named}
    parameters = more.get("parameters") or {}
    if logical.startswith("org.apache.kafka") and (own := OWN.get(logical.rpartition(".")[2])):
        named |= {"logicalType": own}
        if "scale" in parameters:
            named |= {"scale": int(parameters["scale"]), "precision": 38}
    return {"type": KINDS[kind], **named, **({"connect.parameters": parameters} if parameters else {})}


def written(kind: str, value: Any, **more: Any) -> Any:
    """Return what AvroData writes for what the JSON converter writes."""
    if kind == "bytes" and value is not None:
        return base64.b64decode(value)
    if kind == "array" and more["items"]["type"] == "bytes":
        return [written("bytes", item) for item in value]
    if isinstance(value, dict) and kind == "struct":
        return {name: base64.b64decode(part) if isinstance(part, str) else part for name, part in value.items()}
    return float(value) if kind in ("float", "double") else value


def optional(name: str, data_type: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", data_type], "default": None}


def enveloped(*fields: dict[str, Any]) -> str:
    row = {"type": "record", "name": "Value", "fields": list(fields)}
    transaction = {"type": "record", "name": "block", "fields": [{"name": "total_order", "type": "long"}]}
    parts = [
        *(optional("before", row), {"name": "after", "type": ["null", "Value"], "default": None}),
        *({"name": "source", "type": SOURCE}, {"name": "op", "type": "string"}),
        *(optional("ts_ms", "long"), optional("transaction", transaction)),
    ]
    return json.dumps({"type": "record", "name": "Envelope", "namespace": "t.public.t", "fields": parts})


def encoded(text: str, message: Any, number: int = 0) -> bytes:
    """Return a message in Confluent's format, written as raw values."""
    raw = json.loads(text.replace('"logicalType"', '"ignored"'))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(raw), message)
    return bytes([0, 0, 0, 0, number]) + out.getvalue()


def read(
    schema: str, values: Sequence[bytes | None], texts: list[str], on_unknown: str = "warn", **options: Any
) -> Sorted:
    registry: Any = Registry(tuple(texts))
    return ChangeValues(arrow_schema(schema), "debezium", ChangeOptions(**options), on_unknown, registry=registry).sort(
        values
    )


def rows(schema: str, values: Sequence[bytes | None], texts: list[str], **options: Any) -> list[dict[str, Any]]:
    result = read(schema, values, texts, **options)
    assert not result.faults
    listed: list[dict[str, Any]] = result.batch.to_pylist()
    return listed


@pytest.mark.parametrize("case", SURE, ids=lambda case: f"{case[2].rpartition('.')[2] or case[1]} to {case[0]}")
def test_reads_a_value_by_the_schema_of_the_registry(case: tuple[Any, ...]) -> None:
    data_type, kind, logical, more, value, expected, _ = case
    extra = more if "fields" in more or "items" in more else {"parameters": more}
    text = enveloped(optional("v", avro_type(kind, logical, **extra)))
    messages = [encoded(text, envelope("c", None, {"v": each})) for each in (written(kind, value, **more), None)]
    first, second = rows(f"v {data_type}", [messages[0], None, messages[1]], [text])
    assert str(first["v"]) == expected if expected == "nan" else first["v"] == expected
    assert second["v"] is None


@pytest.mark.parametrize(
    ("data_type", "kind", "logical", "more", "value"),
    [case for case in UNSENT if case[1] != "map"],
)
def test_knows_the_placeholder(data_type: str, kind: str, logical: str, more: dict[str, Any], value: Any) -> None:
    text = enveloped({"name": "id", "type": "long"}, optional("v", avro_type(kind, logical, **more)))
    message = encoded(text, envelope("u", None, {"id": 1, "v": written(kind, value, **more)}))
    (row,) = rows(f"id long, v {data_type}", [message], [text], key_fields=["id"])
    assert (row["v"], row["_unchanged"]) == (None, ["v"])


def test_what_schemas_do_not_tell_is_told() -> None:
    text = enveloped(optional("n", "long"), optional("h", "string"))
    message = encoded(text, envelope("c", None, {"n": -1, "h": "deadbeef"}))
    (row,) = rows("n decimal(20,0), h binary", [message], [text], wire={"n": "unsigned", "h": "hex"})
    assert (int(row["n"]), row["h"]) == (2**64 - 1, b"\xde\xad\xbe\xef")


def test_a_schema_that_changes_from_message_to_message_is_followed() -> None:
    first = enveloped({"name": "id", "type": "long"})
    second = enveloped({"name": "id", "type": "long"}, optional("c", "int"))
    messages = [
        encoded(first, envelope("c", None, {"id": 1})),
        encoded(second, envelope("u", None, {"id": 2, "c": 7}, {**POSTGRES, "sequence": '["4","9"]'}), 1),
        encoded(first, envelope("u", None, {"id": 3})),
        encoded(first, envelope("d", {"id": 4})),
    ]
    result = rows("id long, c int", messages, [first, second], key_fields=["id"], source=["table"])
    assert [(row["id"], row["c"], row["_op"], row["_unchanged"]) for row in result] == [
        (1, None, "i", None),
        (2, 7, "u", None),
        (3, None, "u", ["c"]),
        (4, None, "d", None),
    ]
    assert result[1]["_seq"] == bytes(7) + b"\4" + bytes(7) + b"\11" + bytes(8)
    assert {row["source_table"] for row in result} == {"t"}


def test_bad_messages_are_bad_rows_by_name() -> None:
    text = enveloped({"name": "id", "type": "long"}, optional("n", "string"))
    good = encoded(text, envelope("c", None, {"id": 1, "n": "one"}))
    messages = [good, b"{}", good[:-3], encoded(text, envelope("t")), encoded(text, envelope("x", None, {"id": 1}))]
    result = read("id long, n string", messages, [text])
    assert (result.numbers, sorted(result.faults)) == ([0], [1, 2, 3, 4])
    assert result.faults[1].startswith("not in Confluent's format")
    assert result.faults[2].startswith("not Avro of this schema")
    assert result.faults[3].startswith("the table was truncated")
    assert result.faults[4] == "op 'x' is none of Debezium's"
    assert read("id long, n int", [good], [text]).faults[0].startswith("column 'n'")
    assert read("id long", [good], [text], "fail").faults == {0: "field 'n' is not in the schema"}


def test_reads_flattened_rows() -> None:
    fields = [{"name": "id", "type": "long"}, optional("name", "string"), optional("__deleted", "string")]
    text = json.dumps({"type": "record", "name": "Value", "fields": [*fields, optional("__op", "string")]})
    messages = [
        encoded(text, {"id": 1, "name": "Ada", "__op": "c", "__deleted": "false"}),
        encoded(text, {"id": 1, "name": "", "__op": "d", "__deleted": "true"}),
    ]
    result = rows("id long, name string", messages, [text], flattened=True, key_fields=["id"])
    assert [(row["id"], row["name"], row["_op"]) for row in result] == [(1, "Ada", "i"), (1, None, "d")]
    assert columns_of_avro(text, ()).names == ["id", "name"]


def test_columns_come_from_the_schema_of_the_registry() -> None:
    decimal = avro_type("bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"})
    decimal["connect.parameters"]["connect.decimal.precision"] = "10"
    fields = [
        {"name": "id", "type": "long"},
        optional("price", decimal),
        optional("at", avro_type("int64", "io.debezium.time.MicroTimestamp")),
        optional("zoned", avro_type("string", "io.debezium.time.ZonedTimestamp")),
        optional("day", avro_type("int32", "io.debezium.time.Date")),
        optional("time", avro_type("int64", "io.debezium.time.MicroTime")),
        optional("u", avro_type("string", "io.debezium.data.Uuid")),
        optional("n", {"type": "array", "items": ["null", "int"]}),
        optional("h", {"type": "map", "values": ["null", "string"]}),
        optional("b", "bytes"),
    ]
    expected = "id long, price decimal(10,2), at timestamp_ntz, zoned timestamp, day date, time time, u uuid"
    expected += ", n array<int>, h map<string, string>, b binary"
    text = enveloped(*fields)
    assert columns_of_avro(text, ("after", "before")) == arrow_schema(expected)
    of_mariadb = text.replace('"name": "Source"', '"name": "Source", "namespace": "io.debezium.connector.mariadb"')
    assert columns_of_avro(of_mariadb, ("after", "before")).field("time").type == pa.int64()
    with pytest.raises(SourceError, match="no envelope of Debezium: it has neither after nor before"):
        columns_of_avro(json.dumps({"type": "record", "name": "R", "fields": fields[:1]}), ("after", "before"))


def test_a_column_that_a_later_schema_adds_is_a_column() -> None:
    at = optional("at", avro_type("int64", "io.debezium.time.MicroTimestamp"))
    first, second = (enveloped({"name": "id", "type": "long"}, *more) for more in ((), (at,)))
    both = columns_of_avro(merged_texts(first, second), ("after", "before"))
    assert both == arrow_schema("id long, at timestamp_ntz")
    assert merged_texts(second, first) == second


def test_heartbeats_among_flattened_rows_are_no_rows() -> None:
    row = json.dumps({"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]})
    name = {"name": "Heartbeat", "namespace": "io.debezium.connector.common"}
    beat = {"type": "record", **name, "fields": [{"name": "ts_ms", "type": "long"}]}
    beat["connect.name"] = "io.debezium.connector.common.Heartbeat"
    messages = [encoded(json.dumps(beat), {"ts_ms": 5}, 1), encoded(row, {"id": 7})]
    result = read("id long", messages, [row, json.dumps(beat)], flattened=True)
    assert (result.numbers, result.faults) == ([1], {})
    enveloped_too = [messages[0], encoded(enveloped({"name": "id", "type": "long"}), envelope("c", None, {"id": 7}), 2)]
    texts = [row, json.dumps(beat), enveloped({"name": "id", "type": "long"})]
    assert read("id long", enveloped_too, texts).numbers == [1]


def test_texts_of_bytes_are_not_guessed() -> None:
    text = enveloped(optional("v", "string"))
    (fault,) = read("v binary", [encoded(text, envelope("c", None, {"v": "deadbeef"}))], [text]).faults.values()
    assert "bytes are written as texts in several ways" in fault


def test_a_placeholder_stands_in_a_map_too() -> None:
    text = enveloped(optional("v", {"type": "map", "values": ["null", "string"]}))
    messages = [envelope("u", None, {"v": value}) for value in ({PLACEHOLDER: PLACEHOLDER}, {"a": "b"}, {})]
    result = rows("v map<string, string>", [encoded(text, message) for message in messages], [text])
    assert [(row["v"], row["_unchanged"]) for row in result] == [(None, ["v"]), ([("a", "b")], None), ([], None)]


def test_debezium_by_a_registry_needs_no_schema_for_one_topic() -> None:
    registry = "http://host:8081"
    KafkaSource("host:9092", "t", value_format="debezium", registry=registry, options={"key_fields": ["id"]})
    with pytest.raises(ConfigError, match="debezium needs a schema, or a registry that has one for the one topic"):
        KafkaSource("host:9092", ["t", "u"], value_format="debezium", registry=registry)
    with pytest.raises(ConfigError, match="registry is the URL of a schema registry"):
        KafkaSource("host:9092", "t", value_format="maxwell", schema="id long", registry=registry)
