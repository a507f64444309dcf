"""Streams of JSON objects cut in any place: with `on_unknown="rescue"` rows are the same, and no value is lost."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from volley.errors import SourceError
from volley.formats.messages import JsonValues

SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "f": pa.float64(),
        "b": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "dec": pa.decimal128(5, 2),
        "s": pa.struct({"a": pa.int64(), "b": pa.float64()}),
        "l": pa.list_(pa.int64()),
    }
)
scalars = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-13-01", 1.5, 7, 123456, 0.125]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from([*SCHEMA.names, "new", "other"]), values, max_size=5)


def rows_of(texts: list[bytes], cuts: list[int]) -> list[dict[str, Any]]:
    """Return the rows of a stream, each piece of which is read by a reader of its own, as after a restart."""
    rows: list[dict[str, Any]] = []
    for start, end in zip([0, *cuts], [*cuts, len(texts)], strict=True):
        if start < end:
            decoder = JsonValues(SCHEMA, "rescue", "rescued")
            try:
                batches = [decoder.decode(texts[start:end])]
            except (pa.ArrowException, SourceError):
                found = decoder.sort_many(texts[start:end]) or decoder.sort(texts[start:end])
                assert not found.faults
                assert [*found.numbers] == [*range(end - start)]
                batches = [*found.batches]
            rows += pa.Table.from_batches(batches).to_pylist()
    return rows


@given(stream=st.lists(objects, min_size=1, max_size=30), data=st.data())
def test_rows_are_the_same_however_a_stream_is_cut(stream: list[dict[str, Any]], data: st.DataObject) -> None:
    texts = [json.dumps(each).encode() for each in stream]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=6)))
    rows = rows_of(texts, cuts)
    assert rows == rows_of(texts, []) == rows_of(texts, [*range(1, len(texts))])
    for written, row in zip(stream, rows, strict=True):
        rescued = json.loads(row["rescued"] or "{}")
        assert rescued == {name: written[name] for name in rescued}, "kept as it was written"
        assert {name for name in SCHEMA.names if row[name] is not None} | rescued.keys() == written.keys()
        assert not any(row.get(name) is not None for name in rescued), "in one place only"
        assert all(row[name] == written[name] for name in ("i", "b") if row[name] is not None)
