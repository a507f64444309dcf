"""Columns that nobody declared, of a real topic: the same ones, with the same rows, whatever epochs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.avro import long, record
from tests.properties.test_inferred import Stream, read
from tests.protobuf import compiled, message_class
from tests.recovery.runs import load
from tests.servers.kafka import Kafka
from tests.sinks import config_of
from volley import (
    Append,
    Contract,
    Environment,
    IcebergSink,
    KafkaSource,
    Upsert,
)
from volley.types.arrow import canonical_type

pytestmark = pytest.mark.usefixtures("spark")


def send(kafka: Kafka, topic: str, values: list[Any]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, json.dumps(value).encode(), partition=0)
    assert producer.flush(30) == 0


def run(
    folder: Path, source: KafkaSource, mode: Upsert | None = None, properties: dict[str, str] | None = None
) -> None:
    config = config_of(folder)
    config = config.with_commit_mode(mode or Append()).with_table_properties(properties or {})
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    environment.from_source(source).to_sink(IcebergSink(config)).execute("inferred")


@pytest.mark.parametrize("sizes", [[1000], [7, 3, 11]])
def test_a_table_is_the_same_whatever_epochs_read(kafka: Kafka, tmp_path: Path, sizes: list[int]) -> None:
    stream, topic = Stream(7), kafka.topic()
    objects = [{"line": line, **each} for line, each in enumerate(stream.objects)]
    half = len(objects) // 2
    for part, size in zip((objects[:half], objects[half:]), (sizes * 2)[:2], strict=True):
        send(kafka, topic, part)
        # A run is a restart.
        run(tmp_path, KafkaSource(kafka.bootstrap, topic, schema="infer", bounded=True, max_rows_per_epoch=size))
    texts = [json.dumps(each).encode() for each in objects]
    columns, rows = read(texts, [], "infer")
    table = load(tmp_path).scan().to_arrow().sort_by("line")
    assert {field.name: canonical_type(field.type) for field in table.schema if field.name != "rescued"} == {
        field.name: field.type for field in columns.schema
    }
    names = rows[0].keys()
    assert [{name: row[name] for name in names} for row in table.to_pylist()] == rows


def test_hints_and_a_contract(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    send(kafka, topic, [{"id": 1, "amount": 1.25, "kafka_offset": 7}, {"id": "x", "debug": [1], "amount": "1e400"}])
    contract = Contract(columns={"debug": "drop"})
    schema = "amount decimal(10,2)"
    source = KafkaSource(kafka.bootstrap, topic, schema=schema, on_unknown=contract, include=["offset"], bounded=True)
    run(tmp_path, source)
    first, second = load(tmp_path).scan().to_arrow().sort_by("kafka_offset").to_pylist()
    assert (str(first["amount"]), first["id"], first["rescued"]) == ("1.25", 1, '{"kafka_offset": 7}')
    assert (second["amount"], second["id"], second["kafka_offset"]) == (None, None, 1)
    assert json.loads(second["rescued"]) == {"id": "x", "amount": "1e400"}


def test_several_partitions_have_the_same_columns_and_rows_in_any_epochs(kafka: Kafka, tmp_path: Path) -> None:
    """Fields of one type each, of which some come in one partition alone; a restart in the middle."""
    topic = kafka.topic(partitions=2)
    values: list[dict[str, Any]] = [
        {"id": 2 * number, f"even{number % 5}": number / 2, "to": {"city": "x"}} for number in range(20)
    ]
    others: list[dict[str, Any]] = [
        {"id": 2 * number + 1, f"odd{number % 3}": [str(number)], "to": {"zip": number}} for number in range(15)
    ]
    sizes = {"whole": (1_000, 1_000), "cut": (7, 3), "single": (1_000, 2)}
    tables = {}
    for half in range(2):
        for partition, objects in enumerate((values, others)):
            half_of = objects[: len(objects) // 2] if half == 0 else objects[len(objects) // 2 :]
            kafka.produce(topic, [{"value": json.dumps(each), "partition": partition} for each in half_of])
        for name, size in sizes.items():
            source = KafkaSource(
                kafka.bootstrap, topic, schema="infer", bounded=True, max_rows_per_epoch=size[half], include=["offset"]
            )
            run(tmp_path / name, source)
    for name in sizes:
        tables[name] = load(tmp_path / name).scan().to_arrow().sort_by("id")
    whole = tables["whole"]
    expected = sorted([*values, *others], key=lambda each: each["id"])
    for row, written in zip(whole.to_pylist(), expected, strict=True):
        to = {field: value for field, value in row.pop("to").items() if value is not None}
        assert row.pop("rescued") is None
        assert {field: value for field, value in row.items() if value is not None and field != "kafka_offset"} == {
            field: value for field, value in written.items() if field != "to"
        }
        assert to == written["to"]
    for name, table in tables.items():
        assert {field.name: _sorted(field.type) for field in table.schema} == {
            field.name: _sorted(field.type) for field in whole.schema
        }, name
        assert (
            table.select(sorted(table.column_names)).to_pylist() == whole.select(sorted(whole.column_names)).to_pylist()
        )


def _sorted(data_type: pa.DataType) -> pa.DataType:
    """Return a type whose fields are in the order of their names: it depends on which partition is read first."""
    if not pa.types.is_struct(data_type):
        return data_type
    return pa.struct(sorted(((part.name, part.type) for part in data_type), key=lambda part: part[0]))


def test_columns_of_debezium_s_own_schemas(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(partitions=2)
    note = {"field": "note", "type": "string", "optional": True}

    def message(lsn: int, key: int, **row: Any) -> dict[str, Any]:
        fields = [{"field": "id", "type": "int32"}, *([note] if "note" in row else [])]
        schema = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]}
        source = {"connector": "postgresql", "snapshot": "false", "sequence": json.dumps(["1", str(lsn)])}
        payload = {"op": "u", "after": {"id": key, **row}, "source": source}
        return {"value": json.dumps({"schema": schema, "payload": payload}), "partition": key % 2}

    options = {"key_fields": ["id"]}
    settings: dict[str, Any] = {"value_format": "debezium", "schema": "infer", "options": options, "bounded": True}
    kafka.produce(topic, [message(lsn, lsn % 4) for lsn in range(8)])
    run(tmp_path, KafkaSource(kafka.bootstrap, topic, **settings, max_rows_per_epoch=3), Upsert())
    kafka.produce(topic, [message(10, 1, note="new"), message(9, 1), message(11, 2, note=None)])
    run(tmp_path, KafkaSource(kafka.bootstrap, topic, **settings), Upsert())
    rows = load(tmp_path).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [(0, None), (1, "new"), (2, None), (3, None)]


def test_documents_of_mongodb_by_the_keys_of_their_records(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()

    def message(number: int, op: str, id: str, after: Any = None, change: Any = None) -> dict[str, Any]:
        source = {"connector": "mongodb", "snapshot": "false", "ts_ms": 1_000, "ord": number}
        text = None if after is None else json.dumps({"_id": {"$oid": id}, **after})
        update = None if change is None else {"updatedFields": json.dumps(change)}
        value = {"op": op, "before": None, "after": text, "updateDescription": update, "source": source}
        return {"key": json.dumps({"id": json.dumps({"$oid": id})}), "value": json.dumps(value)}

    messages = [
        message(1, "c", "a1", {"n": {"$numberLong": "1"}, "name": "Ada"}),
        message(2, "c", "b2", {"n": 2, "name": "Bob"}),
        message(3, "u", "a1", change={"n": {"$numberLong": "7"}}),
        message(4, "d", "b2"),
    ]
    kafka.produce(topic, [*messages, {"key": messages[-1]["key"], "value": None}])
    options = {"documents": True, "key_fields": ["_id"]}
    source = KafkaSource(
        *(kafka.bootstrap, topic),
        value_format="debezium",
        schema="_id string, n long, name string",
        options=options,
        bounded=True,
        max_rows_per_epoch=2,
    )
    run(tmp_path, source, Upsert())
    (row,) = load(tmp_path).scan().to_arrow().to_pylist()
    assert (row["_id"], row["n"], row["name"]) == ("a1", 7, "Ada")


PROTO = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message E { google.protobuf.Timestamp at = 1; }'
AVRO = {"type": "long", "logicalType": "timestamp-nanos"}
NANOSECONDS = 1_774_747_800_123_456_789


@pytest.mark.parametrize("value_format", ["avro", "protobuf"])
@pytest.mark.parametrize("wanted", [True, False])
def test_nanoseconds_of_values_and_keys(kafka: Kafka, tmp_path: Path, value_format: Any, wanted: bool) -> None:
    """Read back from the file by Arrow, as DuckDB's timestamps with a zone have microseconds alone."""
    topic = kafka.topic()
    files = compiled(PROTO)
    event = message_class(files)()
    event.at.FromNanoseconds(NANOSECONDS)
    schema: Any = record(("at", AVRO)) if value_format == "avro" else files
    data = long(NANOSECONDS) if value_format == "avro" else event.SerializeToString()
    kafka.produce(topic, [{"key": data, "value": data}])
    source = KafkaSource(
        *(kafka.bootstrap, topic),
        value_format=value_format,
        schema=schema,
        key_format=value_format,
        key_schema=schema,
        nanoseconds=wanted,
        bounded=True,
    )
    run(tmp_path, source, properties={"format-version": "3"} if wanted else {})
    (task,) = load(tmp_path).scan().plan_files()
    rows = pq.read_table(task.file.file_path.removeprefix("file://"))
    number = NANOSECONDS if wanted else NANOSECONDS // 1_000
    assert [(column.type, column.cast(pa.int64()).to_pylist()) for column in rows.columns] == [
        (pa.timestamp("ns" if wanted else "us", "UTC"), [number])
    ] * 2
