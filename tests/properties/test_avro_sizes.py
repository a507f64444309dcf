"""What an Avro record takes in memory is told before it is decoded: never less than what its columns take."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
import pytest

from tests.avro import record
from volley.formats.avro import AvroValues, resolution_of

_PLAIN = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_NESTED = ["fixed", "enum", "union", "array", "map", "record"]
_DEEPEST = 3


class Schemas:
    """Makes types, each with a name of its own where it has one, and values of them.

    Args:
        choose: Makes the choices.
    """

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self._count = 0

    def record(self, depth: int = 0) -> dict[str, Any]:
        fields = [(f"f{number}", self.type(depth + 1)) for number in range(self._choose.randint(1, 4))]
        return record(*fields, name=self._name())

    def type(self, depth: int) -> Any:
        match self._choose.choice(_PLAIN + _NESTED * (depth < _DEEPEST)):
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": self._choose.randint(0, 5)}
            case "enum":
                return {"type": "enum", "name": self._name(), "symbols": ["A", "BB"]}
            case "union":
                other = self.type(depth + 1)
                return other if isinstance(other, list) or other == "null" else ["null", other]
            case "array":
                return {"type": "array", "items": self.type(depth + 1)}
            case "map":
                return {"type": "map", "values": self.type(depth + 1)}
            case "record":
                return self.record(depth)
            case plain:
                return plain

    def value(self, schema: Any) -> Any:
        choose = self._choose
        if isinstance(schema, list):
            return self.value(choose.choice(schema))
        match schema["type"] if isinstance(schema, dict) else schema:
            case "null":
                return None
            case "boolean":
                return choose.random() < 0.5
            case "int" | "long":
                return choose.choice([0, -1, 63, 64, -(2**31), 2**31 - 1])
            case "float" | "double":
                return 0.5
            case "bytes":
                return bytes(choose.randint(0, 20))
            case "string":
                return "é" * choose.randint(0, 9)
            case "fixed":
                return bytes(schema["size"])
            case "enum":
                return choose.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(choose.randint(0, 20))]
            case "map":
                return {str(number): self.value(schema["values"]) for number in range(choose.randint(0, 9))}
        return {field["name"]: self.value(field["type"]) for field in schema["fields"]}

    def _name(self) -> str:
        self._count += 1
        return f"T{self._count}"


@pytest.mark.parametrize("seed", range(3))
def test_no_record_takes_more_than_is_told(seed: int) -> None:
    for case in range(100):
        made = Schemas(Random(f"{seed} {case}"))
        schema = made.record()
        text, stream = json.dumps(schema), io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), made.value(schema))
        data = stream.getvalue()
        bounds = resolution_of(text, text).bounds
        size, end = bounds.walk(data, 0)
        assert end == len(data), text
        assert bounds.width <= len(data), text
        assert AvroValues(text, None).decode([data]).nbytes <= size, text
        # Without a bound, it is always walked through.
        assert size <= bounds.most(len(data)), text
