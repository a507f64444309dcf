"""What stands in front of messages, or in their headers, names their schema."""

from __future__ import annotations

from typing import Any

import pytest

from volley import SourceError
from volley.connectors.kafka.ranges import Messages, Run
from volley.formats.framing import framed, head_of, indexes_of

GUID = b"\x01" + bytes(range(16))


@pytest.mark.parametrize(
    ("value", "headers", "result"),
    [
        (b"\x0a", None, b"\x0a"),
        (b"\x0a", [("other", b"x")], b"\x0a"),
        # Looks like a frame, and is none; of several headers of one name the last counts; keys have their own.
        (b"\0\0\0\0\7", [("__value_schema_id", GUID)], GUID + b"\0\0\0\0\7"),
        (b"", [("__value_schema_id", b"old"), ("__value_schema_id", GUID)], GUID),
        (b"\x0a", [("__key_schema_id", GUID)], b"\x0a"),
        (b"\x0a", [("__value_schema_id", None)], b"\x0a"),
        (None, [("__value_schema_id", GUID)], None),
    ],
)
def test_a_header_stands_before_the_value(value: bytes | None, headers: Any, result: bytes | None) -> None:
    assert framed("value", value, headers) == result
    messages = Messages([Run("t", 0, [3, 4])], [value, b"x"], {"headers": [headers, None]}, bytes=0)
    assert [*messages.framed().values] == [result, b"x"]
    assert messages.framed().position(1) == "t/0/4"


def test_the_head_of_a_message() -> None:
    assert head_of(b"\0\0\0\0\7rest") == b"\0\0\0\0\7"
    assert head_of(GUID + b"\0") == GUID
    for value in (b"", b"\0\0\0\0", GUID[:-1], b"\x02" + bytes(20), b"{"):
        with pytest.raises(SourceError, match="not in Confluent's format"):
            head_of(value)


def test_the_place_of_a_message_in_its_file() -> None:
    assert indexes_of(b"\0rest", 0) == ((0,), 1)
    assert indexes_of(bytes.fromhex("0202"), 0) == ((1,), 2)
    assert indexes_of(bytes.fromhex("ff060402000805"), 1) == ((2, 1, 0), 5)
