"""Kafka without a broker: settings, the arithmetic of offsets, and what values become."""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.avro import record
from volley import ConfigError, KafkaSink, KafkaSource, Metrics, MissingDependencyError, SourceContext, SourceError
from volley.connectors.kafka.offsets import (
    OffsetRange,
    TopicPartition,
    as_offset,
    fair_shares,
    offsets_of,
    ranges_between,
    splits_of,
)
from volley.connectors.kafka.settings import UNKNOWN
from volley.contracts.sink import SinkContext
from volley.formats.avro import AvroValues, avro_columns
from volley.formats.messages import JsonValues, PlainValues

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
counts = st.integers(0, 10_000)
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "ü"]), st.integers(0, 20))


@given(st.dictionaries(partitions, counts), st.none() | counts)
def test_shares_are_fair_and_use_the_limit_up(available: dict[TopicPartition, int], limit: int | None) -> None:
    shares = fair_shares(available, limit)
    assert shares.keys() == available.keys()
    assert all(0 <= share <= available[each] for each, share in shares.items())
    total = sum(available.values())
    assert sum(shares.values()) == (total if limit is None else min(limit, total))
    cut = [share for each, share in shares.items() if share < available[each]]
    # Whoever does not get all it has gets as much as anyone, but for what does not divide.
    assert not cut or max(shares.values()) - min(cut) <= 1


@given(st.dictionaries(partitions, st.tuples(counts, counts)))
def test_ranges_lie_between_the_offsets(bounds: dict[TopicPartition, tuple[int, int]]) -> None:
    start = as_offset({each: min(pair) for each, pair in bounds.items() if each.number % 3}, {})
    end = as_offset({each: max(pair) for each, pair in bounds.items()}, {})
    assert offsets_of(json.loads(json.dumps(end))) == {each: max(pair) for each, pair in bounds.items()}
    found = {TopicPartition(each.topic, each.partition): (each.begin, each.end) for each in ranges_between(start, end)}
    wanted = {each: (min(pair) if each.number % 3 else 0, max(pair)) for each, pair in bounds.items()}
    assert found == {each: pair for each, pair in wanted.items() if pair[0] < pair[1]}


@given(st.lists(st.integers(1, 3_000), max_size=30), st.integers(1, 500), st.integers(0, 2_000), st.integers(1, 5))
def test_splits_cover_the_ranges_and_give_each_core_the_same(
    sizes: list[int], least: int, more: int, parallelism: int
) -> None:
    ranges = [OffsetRange("t", number, 7, 7 + size) for number, size in enumerate(sizes)]
    most = 2 * least + more
    splits = splits_of(ranges, parallelism, least, most)
    offsets = [(each.partition, at) for split in splits for each in split for at in range(each.begin, each.end)]
    assert offsets == [(each.partition, at) for each in ranges for at in range(each.begin, each.end)]
    held = [sum(each.size for each in split) for split in splits]
    assert max(held, default=0) - min(held, default=0) <= 1
    assert all(least <= size <= most for size in held) or sum(sizes) < least
    # Unless there is too little for it, no core is without work in the last round.
    assert len(splits) % parallelism == 0 or sum(sizes) < least * (len(splits) + 1)
    assert splits_of(ranges, parallelism, least, most) == splits


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no topic": (lambda: KafkaSource("b:1", schema="id long"), "reads topics, or a pattern"),
    "both": (lambda: KafkaSource("b:1", "t", "t.*", schema="id long"), "reads topics, or a pattern"),
    "a topic twice": (lambda: KafkaSource("b:1", ["t", "t"], schema="id long"), "twice"),
    "a pattern": (lambda: KafkaSource("b:1", pattern="(", schema="id long"), "no regular expression"),
    "brokers": (lambda: KafkaSource("http://b:1", "t", schema="id long"), "no brokers"),
    "a format": (
        lambda: KafkaSource("b:1", "t", value_format="jsn"),  # type: ignore[arg-type]
        "did you mean 'json'",
    ),
    "no schema": (lambda: KafkaSource("b:1", "t"), "JSON needs a schema"),
    "a type": (lambda: KafkaSource("b:1", "t", schema="id lng"), "unknown type"),
    "a schema of bytes": (lambda: KafkaSource("b:1", "t", value_format="raw", schema="id long"), "leave schema out"),
    "avro without a schema": (lambda: KafkaSource("b:1", "t", value_format="avro"), "Avro needs a schema"),
    "a registry of two topics": (
        lambda: KafkaSource("b:1", ["t", "u"], value_format="avro", registry="http://r"),
        "Avro needs a schema",
    ),
    "a registry": (
        lambda: KafkaSource("b:1", "t", value_format="raw", registry="http://r"),
        "for Avro",
    ),
    "a file for a registry": (
        lambda: KafkaSource("b:1", "t", value_format="avro", registry="file:///etc/passwd"),
        "the URL of a schema registry",
    ),
    "protobuf without a schema": (lambda: KafkaSource("b:1", "t", value_format="protobuf"), "Protobuf needs a schema"),
    "a schema that is no protobuf": (
        lambda: KafkaSource("b:1", "t", value_format="protobuf", schema={"id": "long"}),
        "is none of Protobuf",
    ),
    "a message without protobuf": (
        lambda: KafkaSource("b:1", "t", schema="id long", message="shop.Order"),
        "message 'shop.Order' is one of a Protobuf schema",
    ),
    "a subject without a registry": (
        lambda: KafkaSource("b:1", "t", value_format="avro", schema="{}", subject="shop.Order"),
        "is one of a schema registry",
    ),
    "an included part": (lambda: KafkaSource("b:1", "t", schema="id long", include=["ofset"]), "did you mean 'offset'"),
    "a taken name": (
        lambda: KafkaSource("b:1", "t", schema="kafka_offset long", include=["offset"]),
        "column 'kafka_offset'",
    ),
    "unknown fields": (
        lambda: KafkaSource("b:1", "t", schema="id long", on_unknown="dorp"),  # type: ignore[arg-type]
        "on_unknown 'dorp'",
    ),
    "unknown fields of text": (
        lambda: KafkaSource("b:1", "t", value_format="string", on_unknown="keep"),
        "is for JSON",
    ),
    "lost offsets": (
        lambda: KafkaSource("b:1", "t", schema="id long", on_lost_offsets="x"),  # type: ignore[arg-type]
        "on_lost_offsets 'x'",
    ),
    "where to start": (
        lambda: KafkaSource("b:1", "t", schema="id long", starting_offsets="first"),  # type: ignore[arg-type]
        "'earliest'",
    ),
    "offsets": (
        lambda: KafkaSource("b:1", "t", schema="id long", starting_offsets={"t": {0: -1}}),
        "starting_offsets of topic 't'",
    ),
    "offsets of another topic": (
        lambda: KafkaSource("b:1", "t", schema="id long", starting_offsets={"u": {0: 1}}),
        "'u' is unknown",
    ),
    "a time without a zone": (
        lambda: KafkaSource("b:1", "t", schema="id long", starting_timestamp=datetime(2026, 1, 1)),
        "no time zone",
    ),
    "two starts": (
        lambda: KafkaSource(
            "b:1", "t", schema="id long", starting_offsets="latest", starting_timestamp=datetime(2026, 1, 1, tzinfo=UTC)
        ),
        "both starting_offsets",
    ),
    "no rows": (lambda: KafkaSource("b:1", "t", schema="id long", max_rows_per_epoch=0), "max_rows_per_epoch 0"),
    "split sizes": (lambda: KafkaSource("b:1", "t", schema="id long", max_rows_per_split=30_000), "twice the first"),
    "no time": (lambda: KafkaSource("b:1", "t", schema="id long", timeout=timedelta(0)), "timeout 0 s"),
    "a group": (lambda: KafkaSource("b:1", "t", schema="id long", properties={"group.id": "g"}), "publish_group"),
    "a sink's column": (lambda: KafkaSink("b:1", "t", value_format="raw"), "value names the column"),
    "a protocol": (
        lambda: KafkaSource("b:1", "t", schema="id long", properties={"security.protocol": "nope"}),
        'Invalid value "nope" for configuration property "security.protocol"',
    ),
    "a number out of range": (
        lambda: KafkaSource("b:1", "t", schema="id long", properties={"socket.timeout.ms": -5}),
        "value -5 is outside allowed range",
    ),
    "a callback": (
        lambda: KafkaSource("b:1", "t", schema="id long", properties={"oauth_cb": 3}),
        "expected oauth_cb property as a callable function",
    ),
    "a sink's compression": (
        lambda: KafkaSink("b:1", "t", properties={"compression.type": "lz5"}),
        'Invalid value "lz5"',
    ),
    "a sink's transaction": (lambda: KafkaSink("b:1", "t", properties={"transactional.id": "x"}), "can't be set"),
}


@pytest.mark.parametrize(("build", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_refused_when_it_is_built(build: Callable[[], object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert says in str(caught.value)
    assert caught.value.hint


def test_properties_that_another_machine_may_fulfil_are_taken() -> None:
    """Files may be there where the job runs, a plugin brings properties of its own, a newer librdkafka knows more."""
    for properties in (
        {"ssl.ca.location": "/no/such/file.pem", "security.protocol": "SASL_SSL"},
        {"plugin.library.paths": "no-such-plugin", "its.property": 1},
        {"key.deserializer": "x", "a.list": [1], "a.new.one": {"deep": 1}},
    ):
        KafkaSource("b:1", "t", schema="id long", properties=properties)
        KafkaSink("b:1", "t", properties={**properties, "compression.type": "zstd"})


def test_a_refused_property_shows_no_secret() -> None:
    properties = {"sasl.password": "hush-hush", "security.protocol": "hush-hush"}
    with pytest.raises(ConfigError, match="refuses the properties") as caught:
        KafkaSource("b:1", "t", schema="id long", properties=properties)
    assert "hush" not in str(caught.value)


def test_no_secret_shows() -> None:
    properties = {"sasl.username": "me", "sasl.password": "hush-hush", "ssl.key.password": "hush-hush"}
    registry = "http://me:hush-hush@registry:8081"
    source = KafkaSource("b:1", "t", value_format="avro", registry=registry, properties=properties)
    for shown in (repr(source), source.identity, repr(KafkaSink("b:1", "t", key="id", properties=properties))):
        assert "hush" not in shown
    assert "sasl.username" in repr(source)
    assert "key='id'" in repr(KafkaSink("b:1", "t", key="id"))


def test_offsets_of_partitions_are_shown() -> None:
    source = KafkaSource("b:1", "t", schema="id long", starting_offsets={"t": {0: 5, 1: 7}})
    assert "starting_offsets={'t': {0: 5, 1: 7}}" in repr(source)


def rows_of_json(values: list[bytes | None], on_unknown: str = "warn") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = JsonValues(SCHEMA, on_unknown, UNKNOWN).decode(values).to_pylist()
    return rows


def test_each_json_value_is_one_row() -> None:
    values = [b'{"id": 1}', None, b' {"name": "x",\n"id": 3}\n', b'{"id": null, "more": [{"id": 9}]}']
    assert rows_of_json(values) == [
        {"id": 1, "name": None},
        {"id": None, "name": None},
        {"id": 3, "name": "x"},
        {"id": None, "name": None},
    ]


@pytest.mark.parametrize(
    "values",
    [
        [b'{"id": 1}{"id": 2}'],
        [b'{"id": 1}{"id":', b"2}"],
        [b'{"id": 1', b'"name": "x"}'],
        [b'{"name": "}', b'{"}'],
        [b'{"id": 1}\n{"id": 2}', b'{"id"', b":3}"],
        [b""],
        [b"[1]"],
        [b"null"],
        [b'{"ID": 1}'],
        [b'{"data": {"id": 1}}'],
        [b'{"id": "x"}'],
        [b'{"name": "\xff"}'],
    ],
)
def test_values_that_are_not_one_object_each_are_refused(values: list[bytes | None]) -> None:
    decoder = JsonValues(SCHEMA, "warn")
    with pytest.raises((SourceError, pa.ArrowInvalid)) as caught:
        decoder.decode([b'{"id": 0}', *values])
    assert decoder.fault(values[-1], caught.value)


PIECES = (b'{"id":', b"3}", b"{}", b"{}{}", b' {"id": 4}\n', b"", None)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_has_the_rows_that_its_values_have_by_themselves(count: int) -> None:
    for values in product(PIECES, repeat=count):
        try:
            objects = [{} if value is None else json.loads(value) for value in values]
        except ValueError:
            with pytest.raises((SourceError, pa.ArrowInvalid)):
                rows_of_json([*values])
        else:
            assert rows_of_json([*values]) == [{"id": None, "name": None} | each for each in objects]


@pytest.mark.parametrize(
    ("field", "number"),
    [
        *(("price", number) for number in ("1e400", "1.8e308", "9" * 400, "9" * 10_000)),
        *(("unknown", number) for number in ("1e400", "-1.8e308", "9" * 10_000)),
    ],
)
def test_numbers_that_no_double_holds_are_bad_messages(field: str, number: str) -> None:
    decoder = JsonValues(pa.schema({"price": pa.float64()}), "keep", UNKNOWN)
    value = f'{{"{field}": {number}}}'.encode()
    with pytest.raises((SourceError, pa.ArrowInvalid)) as caught:
        decoder.decode([b'{"price": 1.5}', value])
    assert decoder.fault(value, caught.value)


def test_unknown_fields_are_kept_as_json_or_refused() -> None:
    values = [b'{"id": 1}', b'{"id": 2, "more": {"a": [1, "\xc3\xbc"]}, "b": 12345678901234567890}', None]
    kept = [row["kafka_unknown"] for row in rows_of_json(values, "keep")]
    assert kept == [None, '{"more": {"a": [1, "ü"]}, "b": 12345678901234567890}', None]
    assert [row["id"] for row in rows_of_json(values, "keep")] == [1, 2, None]
    assert rows_of_json(values[:1], "fail") == [{"id": 1, "name": None}]
    with pytest.raises(pa.ArrowInvalid, match="unexpected field"):
        rows_of_json(values, "fail")


def test_text_and_bytes_are_taken_as_they_are() -> None:
    values = [b"a\n", None, b"", "ü".encode()]
    assert PlainValues(text=True).decode(values).to_pydict() == {"value": ["a\n", None, "", "ü"]}
    assert PlainValues(text=False).decode([b"\xff", None]).to_pydict() == {"value": [b"\xff", None]}
    with pytest.raises(pa.ArrowInvalid):
        PlainValues(text=True).decode([b"a", b"\xff"])


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "event",
    "namespace": "test",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": "test.kind"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "int"}},
        {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "double"}]}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
RECORD: dict[str, Any] = {
    "id": 1,
    "name": None,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678000, UTC),
    "day": datetime(2026, 1, 2).date(),
    "price": Decimal("12.34"),
    "kind": "A",
    "other": "B",
    "tags": ["x", "y"],
    "sizes": {"s": 1},
    "inner": {"x": 0.5},
    "uuid": "a-string",
}


def avro(record: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    stream = io.BytesIO()
    plain = {**schema, "fields": [each for each in schema["fields"] if each["name"] != "uuid"]}
    plain["fields"] += [{"name": "uuid", "type": "string"}] if len(plain["fields"]) < len(schema["fields"]) else []
    fastavro.schemaless_writer(stream, fastavro.parse_schema(plain), record)
    return stream.getvalue()


def test_avro_records_become_rows_of_the_same_values() -> None:
    decoder: AvroValues = pickle.loads(pickle.dumps(AvroValues(json.dumps(AVRO), None)))
    batch = decoder.decode([avro(RECORD), None, avro({**RECORD, "id": 2, "name": "ü"})])
    first, tombstone, last = batch.to_pylist(maps_as_pydicts="strict")
    assert first == RECORD
    assert set(tombstone.values()) == {None}
    assert (last["id"], last["name"]) == (2, "ü")
    assert batch.schema.field("at").type == pa.timestamp("us", "UTC")
    assert batch.schema.field("price").type == pa.decimal128(9, 2)


@pytest.mark.parametrize("value", [b"", b"\xff" * 40, avro(RECORD)[:-1], avro(RECORD) + b"x"])
def test_bytes_that_are_no_avro_are_refused(value: bytes) -> None:
    with pytest.raises(SourceError, match="not Avro of this schema"):
        AvroValues(json.dumps(AVRO), None).decode([value])


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "not an Avro schema"),
        ('"string"', "not a record"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "nope"}]}', "not an Avro schema"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null"]}]}', "always null"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}', "contains itself"),
    ],
)
def test_avro_schemas_that_make_no_columns_are_refused(schema: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        avro_columns(schema)


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: KafkaSource("b:1", "t", schema="id long").open(SourceContext(str(folder))),
        lambda folder: KafkaSource("b:1", "t", schema="id long").probes()[0].run(),
        lambda folder: KafkaSink("b:1", "t").open(SinkContext("job", pa.schema({"value": pa.string()}), Metrics())),
        lambda folder: KafkaSink("b:1", "t").probes(None)[0].run(),
    ],
    ids=["source", "look-at-source", "sink", "look-at-sink"],
)
def test_without_its_client_kafka_names_the_extra(
    use: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingDependencyError, match="Kafka needs confluent-kafka") as caught:
        use(tmp_path)
    assert caught.value.hint == 'pip install "volley-stream[kafka]"'


def test_nanoseconds_are_those_of_values_and_keys() -> None:
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    proto = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp at = 1; }'
    )
    avro = {"value_format": "avro", "schema": json.dumps(record(("at", nanos)))}
    keyed = {"key_format": "avro", "key_schema": json.dumps(nanos)}
    for wanted, unit in ((True, "ns"), (False, "us")):
        for values in (avro, {"value_format": "protobuf", "schema": proto}):
            settings: dict[str, Any] = {**values, **keyed, "nanoseconds": wanted}
            source, context = KafkaSource("b:1", "t", **settings), SourceContext("")
            keys = source._keys(context)
            assert keys is not None
            types = [source._decoder(context).schema.field("at").type, keys.fields[0].type]
            assert types == [pa.timestamp(unit, "UTC")] * 2
    with pytest.raises(ConfigError, match="nanoseconds are a setting of Avro and Protobuf, not of json"):
        KafkaSource("b:1", "t", schema="at timestamp", nanoseconds=True)
