"""Numbers as Kafka's serializers write them: all values, tombstones, and those of another length by name."""

from __future__ import annotations

import struct

import pytest

from volley import ConfigError, KafkaSource, SourceError
from volley.formats.number_values import NUMBERS, NumberValues

_VALUES = {
    "short": (-(2**15), 7),
    "int": (-(2**31), 7),
    "long": (2**63 - 1, 7),
    "float": (0.5, -0.0),
    "double": (1e300, 7),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    code = NUMBERS[name][0]
    letter = {"i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}[code[1:]]
    values = [struct.pack(f">{letter}", number) for number in _VALUES[name]]
    decoder = NumberValues(name)
    assert decoder.decode([values[0], None, values[1]])["value"].to_pylist() == [
        _VALUES[name][0],
        None,
        _VALUES[name][1],
    ]
    assert decoder.decode([]).num_rows == 0
    with pytest.raises(SourceError, match=f"it has 3 bytes; a {name} has {len(values[0])}"):
        decoder.decode([b"abc"])
    rows = decoder.sort([b"abc", values[0], b"", None])
    assert (list(rows.numbers), [*rows.faults]) == ([1, 3], [0, 2])
    assert rows.batch["value"].to_pylist() == [_VALUES[name][0], None]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"key_format": "long", "key_schema": "id long"}, "key_schema is for keys in 'avro', 'json', 'protobuf'"),
        ({"key_schema": "id long"}, "key_schema is for keys in"),
        ({"key_format": "avro"}, "keys need a schema, or a registry"),
        (
            {"key_format": "avro", "key_subject": "s", "key_schema": '"long"'},
            "key_subject 's' is one of a schema registry",
        ),
        (
            {"key_format": "json", "key_message": "M", "key_schema": "id long"},
            "key_message 'M' is one of a Protobuf schema",
        ),
        ({"key_format": "string", "include": ["key"]}, "key_format decodes the keys"),
        ({"key_format": "number"}, "key_format"),
    ],
)
def test_settings_of_keys(more: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        KafkaSource("host:9092", "t", schema="id long", **more)  # type: ignore[arg-type]


def test_columns_of_keys() -> None:
    from volley.contracts.source import SourceContext

    source = KafkaSource("host:9092", "t", schema="id long", key_format="json", key_schema="id long, at date")
    schema = source.preview(SourceContext(""))
    assert schema is not None
    assert schema.names == ["id", "kafka_key_id", "kafka_key_at"]
    twice = KafkaSource("host:9092", "t", schema="kafka_key_id long", key_format="json", key_schema="id long")
    with pytest.raises(ConfigError, match="column 'kafka_key_id' is there twice"):
        twice.preview(SourceContext(""))
