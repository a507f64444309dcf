"""Names the types of Protobuf fields, as descriptors number them, and messages that become values of other types."""

from __future__ import annotations

from typing import Any

__all__ = [
    *("BOOL", "BYTES", "DOUBLE", "DURATION", "ENUM", "FIXED32", "FIXED64", "FLOAT", "GROUP", "INT32", "INT64"),
    *("JSON", "MESSAGE", "SFIXED32", "SFIXED64", "SINT32", "SINT64", "STRING", "TIMESTAMP", "UINT32", "UINT64"),
    *("WRAPPERS", "is_map"),
]

DOUBLE, FLOAT, INT64, UINT64, INT32, FIXED64, FIXED32, BOOL, STRING = range(1, 10)
GROUP, MESSAGE, BYTES, UINT32, ENUM, SFIXED32, SFIXED64, SINT32, SINT64 = range(10, 19)

WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
JSON = {f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue")}
TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"


def is_map(field: Any) -> bool:
    return bool(field.type == MESSAGE and field.is_repeated and field.message_type.GetOptions().map_entry)
