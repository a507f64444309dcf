"""Protobuf messages that are read at once have the same rows, and the same bad ones, as the library reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.protobuf import compiled, message_class
from tests.tiers import nightly
from volley.errors import SourceError
from volley.formats.joined_values import Joined
from volley.formats.protobuf import ProtobufValues

_COUNT = 24
_LONGEST = 4_000
_SIGNED, _UNSIGNED = ("int{}", "sint{}", "sfixed{}"), ("uint{}", "fixed{}")
_NUMBERS = [0, 1, 127, 128, 2**14, 2**28, 2**31 - 1, 2**31, 2**32 - 1, 2**56, 2**63 - 1, 2**64 - 1]
_RANGES = {
    **{name.format(bits): (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name in _SIGNED for bits in (32, 64)},
    **{name.format(bits): (0, 2**bits - 1) for name in _UNSIGNED for bits in (32, 64)},
}
_OTHERS: dict[str, Sequence[Any]] = {
    "bool": (True, False),
    "float": (0.0, -0.0, 0.5, float("inf")),
    "double": (0.0, -0.0, -1e300, 1e-320, float("nan")),
    "string": ("", "é" * 9, "text", "x" * 200),
    "bytes": (b"", b"\0\xff", b"x" * 130),
}
_TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")
_WRAPPERS = [f"google.protobuf.{name}Value" for name in ("Double", "UInt64", "Int32", "Bool", "String", "Bytes")]
_HEADS = {
    "proto2": 'syntax = "proto2";',
    "proto3": 'syntax = "proto3";',
    "editions": 'edition = "2023";',
}
_IMPORTS = "".join(f'import "google/protobuf/{name}.proto"; ' for name in ("timestamp", "duration", "wrappers"))
_ENUMS = """
enum Color { option allow_alias = true; RED = 0; BLUE = 1; AZURE = 1; FAR = 2000; BELOW = -5; }
"""


class _Schemas:
    """Makes the text of .proto files.

    Args:
        choose: Makes the choices.
    """

    def __init__(self, choose: Random) -> None:
        self._choose = choose
        self._count = 0
        self._made: list[str] = []
        self.dialect = choose.choice([*_HEADS])

    def text(self) -> str:
        return f"{_HEADS[self.dialect]} {_IMPORTS} {_ENUMS} {self._message('Root', 0)}"

    def _message(self, name: str, depth: int) -> str:
        choose = self._choose
        numbers = choose.sample([*range(1, 15), 16, 200, 2047, 2048, 300_000, 2**29 - 1], choose.randint(depth < 2, 6))
        if choose.random() < 0.7:
            numbers.sort()
        fields = [self._field(number, depth) for number in numbers]
        if choose.random() < 0.4:
            members = [f"{self._type(depth)[1]} m{number} = {number};" for number in (15, 17, 400)]
            fields.insert(choose.randint(0, len(fields)), f"oneof kind {{ {' '.join(members)} }}")
        return f"message {name} {{ {' '.join([*self._inner(), *fields])} }}"

    def _inner(self) -> list[str]:
        """Return the messages that were made for the fields of this one."""
        made, self._made = self._made, []
        return made

    def _type(self, depth: int) -> tuple[str, str]:
        """Return a type's kind, and its name."""
        choose = self._choose
        kind = choose.choice(["number", "number", "other", "other", "enum", "time", "wrapper", "message"])
        if kind == "number":
            return kind, choose.choice([*_RANGES])
        if kind == "other":
            return kind, choose.choice([*_OTHERS])
        if kind == "time":
            return kind, choose.choice(_TIMES)
        if kind == "wrapper":
            return kind, choose.choice(_WRAPPERS)
        if kind == "message" and depth < 3:
            self._count += 1
            name = f"M{self._count}"
            outer, self._made = self._made, []
            text = self._message(name, depth + 1)
            self._made = [*outer, text]
            return kind, name
        return "enum", "Color"

    def _field(self, number: int, depth: int) -> str:
        choose = self._choose
        kind, name = self._type(depth)
        label = "optional " if self.dialect == "proto2" else ""
        match choose.randrange(5):
            case 0 if kind not in ("time",) or depth < 2:
                key = choose.choice([*_RANGES, "bool", "string"])
                return f"map<{key}, {name}> f{number} = {number};"
            case 1 | 2:
                is_packable = kind in ("number", "enum") or name in ("bool", "float", "double")
                is_set = is_packable and self.dialect != "editions" and choose.random() < 0.5
                packed = f" [packed={choose.choice(['true', 'false'])}]" if is_set else ""
                return f"repeated {name} f{number} = {number}{packed};"
            case 3 if self.dialect == "proto3":
                label = "optional "
        return f"{label}{name} f{number} = {number};"


class _Messages:
    """Fills messages.

    Args:
        choose: Makes the choices.
    """

    def __init__(self, choose: Random) -> None:
        self._choose = choose

    def fill(self, message: Any) -> Any:
        choose = self._choose
        descriptor = message.DESCRIPTOR
        if descriptor.full_name in _TIMES:
            message.seconds, message.nanos = choose.choice([0, -1, 1_700_000_000]), choose.choice([0, 1, 999_999_999])
            return message
        chance = choose.choice([0.3, 0.8, 1])
        oneofs = {oneof.name: choose.choice(oneof.fields).name for oneof in descriptor.oneofs}
        for field in descriptor.fields:
            oneof = field.containing_oneof
            if choose.random() < chance and (oneof is None or oneofs[oneof.name] == field.name):
                self._set(message, field)
        return message

    def _set(self, message: Any, field: Any) -> None:
        target = getattr(message, field.name)
        count = self._choose.choice([0, 1, 1, 3, 20])
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields
            for _ in range(count):
                if value.message_type is not None:
                    self.fill(target[self._value(key)])
                else:
                    target[self._value(key)] = self._value(value)
        elif field.is_repeated:
            for _ in range(count):
                if field.message_type is not None:
                    self.fill(target.add())
                else:
                    target.append(self._value(field))
        elif field.message_type is not None:
            target.SetInParent()
            self.fill(target)
        else:
            setattr(message, field.name, self._value(field))

    def _value(self, field: Any) -> Any:
        choose = self._choose
        if field.enum_type is not None:
            return choose.choice([0, 1, 2000, -5])
        name = _TYPE_NAMES[field.type]
        if name in _OTHERS:
            return choose.choice(_OTHERS[name])
        low, high = _RANGES[name]
        number = choose.choice(_NUMBERS) * choose.choice([1, -1])
        return max(low, min(high, number))


_TYPE_NAMES = {
    **dict(enumerate(["double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"], 1)),
    **{12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64"},
}


def _decoded(values: ProtobufValues, data: Sequence[bytes]) -> pa.RecordBatch | None:
    """Return messages as rows; None if one is bad."""
    try:
        return values.decode(data)
    except SourceError:
        return None


def _assert_same(
    values: ProtobufValues, data: Sequence[bytes], batches: Sequence[pa.RecordBatch | None], text: str
) -> None:
    """Check that messages have the rows that each has if the library reads it."""
    batch, expected = _decoded(values, data), None if None in batches else pa.concat_batches(batches)
    assert (batch is None) == (expected is None), text
    if batch is not None and expected is not None:
        batch.validate(full=True)
        for column, alone in zip(batch, expected, strict=True):
            # NaN is not equal to itself.
            assert column.equals(alone) or repr(column.to_pylist()) == repr(alone.to_pylist()), text


def _is_read_at_once(values: ProtobufValues, data: Sequence[bytes]) -> bool:
    joined = Joined.of(data)
    assert values._batches is not None
    return values._batches.read(joined, joined.rows, 0) is not None


def _cases(seed: int, count: int) -> Iterator[tuple[Random, str, ProtobufValues, list[bytes]]]:
    """Yield schemas with messages."""
    for case in range(count):
        choose = Random(f"{seed} {case}")
        text = _Schemas(choose).text()
        files = compiled(text)
        kind, fill = message_class(files, "Root"), _Messages(choose).fill
        filled = [fill(kind()).SerializeToString() for _ in range(_COUNT)]
        # Long ones may take too much memory together.
        data = [value if len(value) < _LONGEST else b"" for value in filled]
        yield choose, text, ProtobufValues(files, "Root", None, choose.random() < 0.5), data


_SEEDS = [0, *map(nightly, range(1, 20))]


@pytest.mark.parametrize("seed", _SEEDS)
def test_messages_have_the_rows_that_each_has_by_itself(seed: int) -> None:
    at_once = 0
    cases = [*_cases(seed, 25)]
    for _, text, values, data in cases:
        _assert_same(values, data, [_decoded(values, [value]) for value in data], text)
        at_once += _is_read_at_once(values, data)
    assert at_once > len(cases) * 0.9


@pytest.mark.parametrize("seed", _SEEDS)
def test_damaged_messages_are_bad_wherever_they_stand(seed: int) -> None:
    for choose, text, values, data in _cases(seed, 20):
        alone = [_decoded(values, [value]) for value in data]
        for _ in range(16):
            place = choose.randrange(len(data))
            damaged = _damaged(choose, data[place])
            batches = [*alone[:place], _decoded(values, [damaged]), *alone[place + 1 :]]
            _assert_same(values, [*data[:place], damaged, *data[place + 1 :]], batches, text)


def _damaged(choose: Random, value: bytes) -> bytes:
    at = choose.randint(0, len(value))
    match choose.randrange(5):
        case 0:
            return value[:at]
        case 1:
            return value + choose.randbytes(choose.randint(1, 9))
        case 2:
            return value[:at] + choose.randbytes(1) + value[at + 1 :]
        case 3:
            return value + value
    more = [b"\x80", b"\x80\x00", b"\xff" * 10, b"\x80" * 9 + b"\x01", b"\x01", b"\x03", b"\xc3", b"\x0b\x0c"]
    return value[:at] + choose.choice(more) + value[at:]


_READ = 'syntax = "proto3"; message Root { repeated int32 n = 1; string s = 2; oneof by { int32 a = 3; int32 b = 4; } '


def _values(text: str) -> ProtobufValues:
    return ProtobufValues(compiled(text), "Root", None)


@pytest.mark.parametrize(
    ("body", "is_at_once", "row"),
    [
        # An int32 of ten bytes, a packed list, one item by item.
        ("0a0affffffffffffffffff01", True, {"n": [-1]}),
        ("080108020803", True, {"n": [1, 2, 3]}),
        ("0a0101080212", True, None),
        # Fields that are unknown: a varint, eight bytes, a text, four bytes, a group.
        ("120178280149000000000000000032017a3d00000000", True, {"s": "x"}),
        ("120178330805", False, None),
        ("1201783334", False, {"s": "x"}),
        # A list in both forms, a field that comes twice, one out of order, two members of a oneof.
        ("0a01010802", False, {"n": [1, 2]}),
        ("120178120179", False, {"s": "y"}),
        ("1201780801", False, {"n": [1], "s": "x"}),
        ("18012002", False, {"b": 2}),
        # A tag and a length with more bytes than they need.
        ("92000178", False, {"s": "x"}),
        ("1281000078", False, None),
        ("12818000780a00", False, {"s": "x"}),
        ("1281800078", True, {"s": "x"}),
    ],
)
def test_bytes_are_read_at_once_or_by_the_library(body: str, is_at_once: bool, row: dict[str, Any] | None) -> None:
    values, data = _values(_READ + "}"), bytes.fromhex(body)
    assert _is_read_at_once(values, [b"", data, b"\x12\x01z"]) == (is_at_once and row is not None)
    empty: dict[str, Any] = {"n": [], "s": "", "a": None, "b": None}
    for count in (1, 30):
        batch = _decoded(values, [data] * count)
        assert (batch and batch.to_pylist()) == (None if row is None else [{**empty, **row}] * count)


def test_what_may_be_an_extension_is_left_to_the_library() -> None:
    text = 'syntax = "proto2"; message Root { optional int32 a = 1; extensions 100 to 200; } '
    values, data = _values(text + "extend Root { optional Root more = 100; }"), bytes.fromhex("0801a206020801")
    assert not _is_read_at_once(values, [data])
    assert values.decode([data] * 20).to_pylist() == [{"a": 1}] * 20
    assert _decoded(values, [*[data] * 20, bytes.fromhex("0801a206020880")]) is None


def test_a_message_of_very_many_items_is_read_beside_others() -> None:
    values = _values('syntax = "proto3"; message Root { repeated string tags = 1; }')
    data = [b"\x0a\0" * 3_000, b""] * 20
    assert not _is_read_at_once(values, data)
    assert [len(tags) for tags in values.decode(data)["tags"].to_pylist()] == [3_000, 0] * 20


def test_tombstones_and_bad_messages_stand_in_their_places() -> None:
    values = _values(_READ + "}")
    good = [None if number % 7 == 3 else b"\x18" + bytes([number % 100]) for number in range(500)]
    rows = values.decode(good)["a"].to_pylist()
    assert rows == [None if number % 7 == 3 else number % 100 for number in range(500)]
    read = values.sort([*good, b"\x12\x01\xff", *good])
    assert list(read.faults) == [500]
    assert len(read.numbers) == 1_000


def test_keys_of_maps_that_are_not_utf8_are_refused() -> None:
    values = _values('syntax = "proto2"; message Root { map<string, int32> m = 1; }')
    good, bad = b"\x0a\x05\x0a\x01a\x10\x01", b"\x0a\x05\x0a\x01\xff\x10\x01"
    for count in (1, 20):
        with pytest.raises(SourceError, match="field 'm' has keys that are not UTF-8"):
            values.decode([good + bad] * count)
        with pytest.raises(SourceError):
            values.decode([bad] * count)
