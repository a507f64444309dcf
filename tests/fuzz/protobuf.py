"""Messages of Protobuf by a schema registry."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from tests.fuzz.messages import Messages
from tests.protobuf import compiled, encoded, message_class
from volley.formats.messages import Decoder
from volley.formats.protobuf import ProtobufValues

__all__ = ["ProtobufMessages"]

_START = 'syntax = "proto3"; package shop; enum Color { RED = 0; BLUE = 1; } message Line { string name = 1; '
_ORDER = """
message Order {
  int64 id = 1; string name = 2; double price = 3; Color color = 4; optional int32 n = 5; repeated int32 sizes = 6;
  map<string, Line> lines = 7; oneof by { bytes data = 8; Line line = 9; } uint64 large = 10; repeated string tags = 11;
"""
_KEPT = f"{_START} }} {_ORDER} }}"
_WRITTEN = f"{_START} bool is_new = 2; }} {_ORDER} optional Line more = 12; float other = 13; }}"


@dataclass(frozen=True)
class ProtobufMessages(Messages):
    """Messages of Protobuf, of a schema with more fields than are read."""

    format: str = "protobuf"

    def schema(self) -> bytes:
        return base64.b64decode(encoded(compiled(_WRITTEN)))

    def text(self, schema: bytes) -> str:
        # As text it would be compiled, in a process of its own.
        return base64.b64encode(schema).decode()

    def values(self) -> list[bytes]:
        kind = message_class(compiled(_WRITTEN), "shop.Order")
        values = []
        for number in range(20):
            more = {"data": b"\0\xff"} if number % 2 else {"line": {"name": "a", "is_new": True}}
            message = kind(id=-number, name=f"name {number}", price=number / 4, color=number % 3, **more)
            message.sizes.extend(range(number % 4))
            message.lines["x"].name = "ü"
            message.large, message.other = 2**64 - 1, 0.5
            message.tags.extend(["a", "bb"][: number % 3])
            values.append(b"\0\0\0\0\1\2\2" + message.SerializeToString(deterministic=True))
        return values

    def kept(self) -> bytes:
        return compiled(_KEPT)

    def decoder(self, registry: Any) -> Decoder:
        return ProtobufValues(self.kept(), "shop.Order", registry)
