"""Changes that leave out values get those of the row that they replace, also where its key has changed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.upserts.conftest import MakeLake
from tests.upserts.lake import Lake
from volley import SourceError
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "place": pa.struct({"at": pa.uuid()}),
        "_seq": pa.int64(),
        "_op": pa.string(),
        "_unchanged": pa.list_(pa.string()),
    }
)
LEFT_OUT = ["place", "text"]


def change(seq: int, op: str, id: int | None, text: str | None = None, unchanged: list[str] | None = None) -> Any:
    place = None if text is None else {"at": UUID(int=len(text))}
    return {"id": id, "text": text, "place": place, "_seq": seq, "_op": op, "_unchanged": unchanged}


def incomplete(seq: int, id: int) -> Any:
    return change(seq, "u", id, unchanged=LEFT_OUT)


@pytest.fixture(params=["merge_on_read", "copy_on_write"])
def lake(make_lake: MakeLake, request: pytest.FixtureRequest) -> Lake:
    strategy: Strategy = request.param
    lake = make_lake(Upsert.of_changes(["id"], strategy), SCHEMA)
    lake.epoch([change(1, "i", 1, "one"), change(2, "i", 2, "second")], [change(3, "i", 3, "third row")])
    return lake


def stored(lake: Lake) -> dict[int, str]:
    rows = lake.rows()
    assert all(UUID(bytes=row["place"]["at"].bytes) == UUID(int=len(row["text"])) for row in rows)
    return {row["id"]: row["text"] for row in rows}


def test_values_come_from_the_row_that_is_replaced(lake: Lake) -> None:
    lake.epoch([incomplete(10, 1)], [change(11, "u", 2, "newer"), incomplete(12, 2), change(13, "d", 3)])
    assert stored(lake) == {1: "one", 2: "newer"}


def test_values_follow_a_row_whose_key_changes(lake: Lake) -> None:
    lake.epoch(
        [change(10, "d", 1), incomplete(11, 5), change(12, "d", 5), incomplete(13, 6)],
        [change(14, "i", 7, "within the epoch"), change(15, "d", 7), incomplete(16, 1)],
        [change(17, "d", 2), change(19, "i", 8, "of another row")],
    )
    assert stored(lake) == {1: "within the epoch", 3: "third row", 6: "one", 8: "of another row"}


def test_rows_that_change_keys_among_each_other(lake: Lake) -> None:
    moved = [(1, 2), (2, 3), (3, 1)]
    lake.epoch(
        [
            row
            for n, (old, new) in enumerate(moved)
            for row in (change(10 + 2 * n, "d", old), incomplete(11 + 2 * n, -new))
        ],
        [
            row
            for n, (_, new) in enumerate(moved)
            for row in (change(20 + 2 * n, "d", -new), incomplete(21 + 2 * n, new))
        ],
    )
    assert stored(lake) == {2: "one", 3: "second", 1: "third row"}


def test_a_value_that_no_row_has_is_an_error(lake: Lake) -> None:
    for rows in (
        [incomplete(10, 9)],
        [change(10, "d", 9), incomplete(11, 1)],
        [change(10, "t", None), incomplete(11, 1)],
    ):
        with pytest.raises(SourceError, match="have no value of column"):
            lake.epoch(rows)
    assert stored(lake) == {1: "one", 2: "second", 3: "third row"}


def test_what_comes_before_a_truncation_is_gone(lake: Lake) -> None:
    lake.epoch([change(10, "i", 4, "gone"), change(11, "t", None), change(12, "i", 5, "stays"), incomplete(13, 5)])
    assert stored(lake) == {5: "stays"}
    lake.epoch([change(20, "t", None)])
    assert lake.table().scan().count() == 0
