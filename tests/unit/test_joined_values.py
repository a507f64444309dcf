"""Values whose bytes are joined are grouped by what they begin with, as each by itself would be."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from volley import SourceError
from volley.formats.framing import head_of
from volley.formats.joined_values import Joined, Pieces

# A head of an id, of a GUID, of nothing; one that is longer than several words.
HEADS = [bytes([0, 0, 0, 0, 7]), bytes([1, *range(16)]), bytes([1, *range(15), 16]), bytes(range(1, 42)), b"\xff"]


@pytest.mark.parametrize("seed", range(20))
def test_values_are_grouped_by_their_heads(seed: int) -> None:
    random = Random(seed)
    heads = random.sample(HEADS, random.randint(1, len(HEADS)))
    values = [
        None if random.random() < 0.1 else random.choice(heads) + random.randbytes(random.choice((0, 1, 3, 40)))
        for _ in range(random.choice((1, 30, 300)))
    ]

    def head(value: bytes) -> bytes:
        return next(each for each in heads if value.startswith(each))

    expected: dict[bytes, list[int]] = {}
    for number, value in enumerate(values):
        if value is not None:
            expected.setdefault(head(value), []).append(number)
    joined = Joined.of(values)
    assert {name: rows.tolist() for name, rows in joined.by_head(head).items()} == expected
    for name, rows in expected.items():
        assert joined.others(joined.rows, name).tolist() == sorted(set(joined.rows.tolist()) - set(rows))


def test_a_value_that_is_shorter_than_a_head_does_not_begin_with_it() -> None:
    # What follows it in the joined bytes would go on as the head does.
    head = bytes([1, *range(16)])
    joined = Joined.of([head, head[:9], head[9:], b"", head[:1]])
    assert joined.others(joined.rows, head).tolist() == [1, 2, 3, 4]
    with pytest.raises(SourceError, match="not in Confluent's format"):
        joined.by_head(head_of)


def test_parts_have_all_values_once_and_share_their_bytes() -> None:
    values = [None if number % 7 == 3 else bytes([number % 256]) * (number % 300) for number in range(20_000)]
    joined = Joined.of(values)
    parts = [joined[part] for part in joined.parts()]
    assert [value for part in parts for value in part] == values
    assert len(parts) > 2
    assert all(part.data is joined.data for part in parts)
    for part in parts:
        assert part.rows.tolist() == [number for number, value in enumerate(part) if value is not None]
        assert part.lengths.tolist() == [len(value or b"") for value in part]


@pytest.mark.parametrize("with_tombstones", [False, True])
def test_values_that_are_joined_as_they_arrive_are_those_that_are_joined_at_once(with_tombstones: bool) -> None:
    random, pieces, values = Random(3), Pieces(), list[bytes | None]()
    for count in (300, 1, 0, 64, 300):
        arrived = [None if with_tombstones and random.random() < 0.1 else random.randbytes(9) for _ in range(count)]
        values += arrived
        assert pieces.add(arrived) == sum(len(value or b"") for value in arrived)
    joined, at_once = pieces.joined(), Joined.of(values)
    assert ([*joined], joined.data) == (values, at_once.data)
    for name in ("begins", "ends", "rows"):
        assert getattr(joined, name).tolist() == getattr(at_once, name).tolist()
    assert len(Pieces().joined()) == 0


@pytest.mark.parametrize("missing", [(), (0, 3), range(5)])
def test_joined_values_are_what_a_list_of_them_is(missing: Sequence[int]) -> None:
    values = [None if number in missing else value for number, value in enumerate([b"a", b"", b"bcd", b"e", b""])]
    joined = Joined.of(values)
    assert [*joined] == [joined[number] for number in range(5)] == values
    assert joined[-2] == values[-2]
    assert [*reversed(joined)] == values[::-1]
    for part in (slice(None), slice(1, 4), slice(3, None), slice(4, 9), slice(2, 2), slice(-2, None)):
        assert [*joined[part]] == values[part]
        assert Joined.of(joined[part]).rows.tolist() == [n for n, value in enumerate(values[part]) if value is not None]
    assert (None in joined) == joined.has_tombstones == bool(len(missing))
    assert joined.lines == b"\n".join(value or b"" for value in values)
    assert joined[1:4].lines == b"\n".join(value or b"" for value in values[1:4])
    assert joined[2:2].lines == b""
    assert joined.column.to_pylist() == values
    assert joined[1:4].column.to_pylist() == values[1:4]
    assert b"bcd" in joined or 2 in missing
    with pytest.raises(IndexError):
        joined[5]


@pytest.mark.parametrize(
    ("values", "result"),
    [
        ([b"{}", b'{"a": 1}'], True),
        ([], True),
        ([b"{}", b"{"], False),
        # Neither half of an object is one, whatever its neighbour ends or begins with.
        ([b'{"a":', b"1}"], False),
        ([b"{}", b"", b"{}"], False),
        ([b"{}", b""], False),
        ([b"", b"{}"], False),
        ([b"{}", None], False),
        ([b" {}"], False),
    ],
)
def test_values_that_begin_and_end_as_objects(values: list[bytes | None], result: bool) -> None:
    assert Joined.of(values).enclosed_in(b"{", b"}") == result
