"""Full extracts become inserts, updates and deletes, and what is wrong with one is said by name."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.duck import query
from tests.snapshots.extracts import SCHEMA, Row, applied, changes, write
from tests.tiers import examples
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    FileSource,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    MemorySource,
    RateSource,
    SourceContext,
    SourceError,
    TableRef,
    VolleyError,
)
from volley.connectors.snapshots import reader as reader_module
from volley.connectors.snapshots.source import SnapshotSource

ROWS: list[Row] = [
    {"id": 1, "name": "a", "score": 1.0},
    {"id": 2, "name": "b", "score": None},
    {"id": 3, "name": None, "score": 3.0},
]


def told(folder: Path, **more: Any) -> list[tuple[Any, ...]]:
    """The changes in their order: version, what, key, name."""
    rows = changes(folder, **more).to_arrow().to_pylist()
    return sorted((row["day"], row["_change"], row["id"], row["name"]) for row in rows)


def row_of(key: int, values: Row) -> Row:
    return {"id": key, "name": values["name"], "score": values["score"]}


VALUES = st.fixed_dictionaries(
    {
        "name": st.sampled_from([None, "", "a", "b"]),
        "score": st.sampled_from([None, 0.0, -0.0, 1.5, float("nan"), float("inf")]),
    }
)


@settings(max_examples=examples(0.8))
@given(
    extracts=st.lists(st.dictionaries(st.integers(0, 9), VALUES, min_size=1, max_size=8), min_size=1, max_size=5),
    parts=st.integers(1, 3),
    buckets=st.sampled_from([1, 3, 16]),
)
def test_the_changes_of_random_extracts_are_those_that_duckdb_finds(
    extracts: list[dict[int, Row]], parts: int, buckets: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for day, extract in enumerate(extracts):
            rows = [row_of(key, values) for key, values in extract.items()]
            for part in range(min(parts, len(rows))):
                write(Path(folder), day, rows[part::parts], part)
        found = changes(Path(folder), buckets=buckets).to_arrow()
    state: dict[int, Row] = {}
    for day, extract in enumerate(extracts):
        state = applied((row for row in found.to_pylist() if row["day"] == day), state)
        assert repr(sorted(state.items())) == repr(sorted((key, row_of(key, extract[key])) for key in extract))
        before, after = (
            pa.Table.from_pylist([{"id": key, **values} for key, values in each.items()], SCHEMA)
            for each in (extracts[day - 1] if day else {}, extract)
        )
        counted = query(
            """
            select
                count(*) filter (before.id is null), count(*) filter (after.id is null),
                count(*) filter (before.id = after.id and (
                    before.name is distinct from after.name or before.score::text is distinct from after.score::text
                ))
            from before full join after using (id)
            """,
            before=before,
            after=after,
        ).fetchone()
        kinds = [row["_change"] for row in found.to_pylist() if row["day"] == day]
        assert tuple(map(kinds.count, ("insert", "delete", "update_after"))) == counted


def test_a_deleted_row_has_its_last_values_and_the_version_of_the_extract_that_lacks_it(tmp_path: Path) -> None:
    write(tmp_path, 1, ROWS)
    write(tmp_path, 3, [ROWS[0], {**ROWS[1], "name": "B"}, {"id": 4, "name": "d", "score": 4.0}])
    assert told(tmp_path) == [
        (1, "insert", 1, "a"),
        (1, "insert", 2, "b"),
        (1, "insert", 3, None),
        (3, "delete", 3, None),
        (3, "insert", 4, "d"),
        (3, "update_after", 2, "B"),
    ]


def test_ignored_columns_make_no_change_alone(tmp_path: Path) -> None:
    write(tmp_path, 1, ROWS)
    write(tmp_path, 2, [{**row, "score": 9.0} for row in ROWS[:2]] + [{**ROWS[2], "name": "c", "score": 9.0}])
    found = changes(tmp_path, ignore="score").to_arrow().to_pylist()
    assert [(row["id"], row["score"]) for row in found if row["day"] == 2] == [(3, 9.0)]


@pytest.mark.parametrize(
    ("names", "version", "column", "versions"),
    [
        (["a-20260101.json", "a-20260102.json"], r"-(\d+)\.json", "_version", [20260101, 20260102]),
        (
            ["2026-01-31/x.json", "2026-02-01/x.json"],
            r"(?P<day>\d{4}-\d\d-\d\d)/",
            "day",
            [date(2026, 1, 31), date(2026, 2, 1)],
        ),
        (
            ["x_2026-01-01T00:00.json", "x_2026-01-01T06:30+01:00.json"],
            r"x_(.*)\.json",
            "_version",
            [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 5, 30, tzinfo=UTC)],
        ),
    ],
)
def test_paths_tell_versions(tmp_path: Path, names: list[str], version: str, column: str, versions: list[Any]) -> None:
    for number, name in enumerate(names):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": 1, "name": str(number)}))
    source = FileSource(tmp_path / "in", "json", "id long, name string")
    found = Environment().changes_from_snapshots(source, ["id"], version).to_arrow()
    assert found.column_names == ["id", "name", column, "_change"]
    assert found[column].to_pylist() == versions
    assert found["name"].to_pylist() == ["0", "1"]


def test_rows_tell_versions(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(["z.json", "a.json"]):
        (tmp_path / "in" / name).write_text(json.dumps({"id": 1, "at": f"2026-01-0{number + 1}", "n": number}))
    source = FileSource(tmp_path / "in", "json", "id long, at date, n long")
    found = Environment().changes_from_snapshots(source, "id", "at").to_arrow().to_pylist()
    assert found == [
        {"id": 1, "n": 0, "at": date(2026, 1, 1), "_change": "insert"},
        {"id": 1, "n": 1, "at": date(2026, 1, 2), "_change": "update_after"},
    ]
    with (tmp_path / "in" / "a.json").open("a") as file:
        file.write(json.dumps({"id": 2, "at": "2026-01-07", "n": 2}))
    with pytest.raises(SourceError, match="at is 2026-01-07 in a row of extract 2026-01-02"):
        Environment().changes_from_snapshots(source, "id", "at").to_arrow()


def test_duplicate_keys_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, 1, ROWS)
    write(tmp_path, 2, ROWS)
    write(tmp_path, 2, ROWS[1:2], part=1)
    with pytest.raises(SourceError, match="extract 2 has 2 rows with the key id=2"):
        told(tmp_path)


def test_null_keys_are_bad_rows(tmp_path: Path) -> None:
    write(tmp_path, 1, [*ROWS, {"id": None, "name": "x", "score": 0.0}])
    with pytest.raises(VolleyError, match="key column 'id' has 1 nulls"):
        told(tmp_path)


def test_an_extract_that_deletes_too_much_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, 1, ROWS)
    write(tmp_path, 2, ROWS[:1])
    assert len(told(tmp_path)) == 5
    assert len(told(tmp_path, max_deleted=2)) == 5


def test_empty_extracts(tmp_path: Path) -> None:
    write(tmp_path, 1, ROWS)
    write(tmp_path, 2, [])
    write(tmp_path, 3, ROWS[:2])
    with pytest.raises(SourceError, match=r"extract 2 \(.*day=2/0.parquet\) has no rows: all rows would be deleted"):
        told(tmp_path)
    found = told(tmp_path, on_empty="delete_all")
    assert [change[:3] for change in found if change[0] == 2] == [(2, "delete", 1), (2, "delete", 2), (2, "delete", 3)]
    assert [change[:3] for change in found if change[0] == 3] == [(3, "insert", 1), (3, "insert", 2)]


def test_the_present_state_is_an_extract_whenever_it_is_another_one(tmp_path: Path) -> None:
    reader_of = {}
    for name, source in {
        "files": FileSource(tmp_path / "in", "parquet", "id long, name string, score double"),
        "memory": MemorySource(ROWS, SCHEMA),
    }.items():
        write(tmp_path, 1, ROWS)
        reader_of[name] = reader = SnapshotSource(source).open(SourceContext(str(tmp_path / name)))
        first = reader.latest_offset(reader.initial_offset(), 1, None)
        assert reader.latest_offset(first, 1, None) == first
    # Rows of as many, and of as many bytes.
    others = SnapshotSource(MemorySource([{**row, "name": "z"} for row in ROWS], SCHEMA))
    reader = others.open(SourceContext(str(tmp_path / "memory")))
    assert reader.latest_offset(first, 1, None)["extracts"] == 2
    reader = reader_of["files"]
    first = reader.latest_offset(reader.initial_offset(), 1, None)
    write(tmp_path, 1, ROWS[:2])
    second = reader.latest_offset(first, 1, None)
    assert second["extracts"] == 2
    assert second["version"] > first["version"]
    rows = [row for split in reader.splits(first, second) for batch in reader.read(split) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [1, 2]
    assert {row["_version"] for row in rows} == {
        datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=second["version"])
    }
    write(tmp_path, 1, ROWS[:1])
    with pytest.raises(SourceError, match="has changed since it was found"):
        reader.splits(first, second)


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (5, 6, 6),
        (date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 2)),
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 13), datetime(2026, 1, 1, 13, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("kind", ["files", "memory"])
def test_a_version_that_is_given(tmp_path: Path, kind: str, first: Any, second: Any, value: Any) -> None:
    def reader(version: Any, rows: list[Row]) -> Any:
        write(tmp_path, 1, rows)
        files = FileSource(tmp_path / "in", "parquet", "id long, name string, score double")
        source = SnapshotSource(files if kind == "files" else MemorySource(rows, SCHEMA), version)
        return source.open(SourceContext(str(tmp_path / "state")))

    before = reader(first, ROWS)
    offset = before.latest_offset(before.initial_offset(), 1, None)
    assert before.latest_offset(offset, 1, None) == offset
    with pytest.raises(SourceError, match="has other files"):
        reader(first, ROWS[:1]).latest_offset(offset, 1, None)
    after = reader(second, ROWS[:2])
    end = after.latest_offset(offset, 1, None)
    rows = [row for split in after.splits(offset, end) for batch in after.read(split) for row in batch.to_pylist()]
    assert [(row["id"], row["_version"]) for row in rows] == [(1, value), (2, value)]


def test_each_snapshot_of_a_table_is_an_extract(tmp_path: Path) -> None:
    ref = TableRef("db", "events", IcebergStorage.Local(str(tmp_path)))
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", SCHEMA)
    table.append(pa.Table.from_pylist(ROWS, SCHEMA))
    reader = SnapshotSource(IcebergSource(IcebergSourceConfig(ref))).open(SourceContext(str(tmp_path / "state")))
    offsets = [reader.latest_offset(reader.initial_offset(), 1, None)]
    table.overwrite(pa.Table.from_pylist(ROWS[:2], SCHEMA))
    table.append(pa.Table.from_pylist([{**ROWS[2], "name": "c"}], SCHEMA))
    while (following := reader.latest_offset(offsets[-1], 1, None)) != offsets[-1]:
        offsets.append(following)
    extracts = []
    for start, end in zip([reader.initial_offset(), *offsets], offsets, strict=False):
        rows = [row for split in reader.splits(start, end) for batch in reader.read(split) for row in batch.to_pylist()]
        extracts.append(sorted((row["id"], row["name"]) for row in rows))
    whole = [(1, "a"), (2, "b"), (3, None)]
    # An overwrite is two snapshots, of which the first one only deletes all rows.
    assert extracts == [whole, whole[:2], [*whole[:2], (3, "c")]]


def offsets_of(folder: Path, state: str = "state") -> Any:
    source = FileSource(folder / "in", "parquet", "id long, name string, score double, day long")
    return SnapshotSource(source, "day").open(SourceContext(str(folder / state)))


def test_an_extract_that_comes_late_or_has_changed_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, 2, ROWS)
    reader = offsets_of(tmp_path)
    offset = reader.latest_offset(reader.initial_offset(), 1, None)
    write(tmp_path, 5, ROWS)
    offset = reader.latest_offset(offset, 1, None)
    late = write(tmp_path, 4, ROWS)
    with pytest.raises(SourceError, match=r"extract 4 \(.*\) comes after a later one was read, 5"):
        reader.latest_offset(offset, 1, None)
    late.unlink()
    late = write(tmp_path, 1, ROWS)
    with pytest.raises(SourceError, match=r"extract 1 \(.*\) comes after a later one was read, 5"):
        reader.latest_offset(offset, 1, None)
    late.unlink()
    write(tmp_path, 2, ROWS[:1])
    with pytest.raises(SourceError, match=r"extract 2 \(.*\) has other files, or files of other sizes"):
        reader.latest_offset(offset, 1, None)
    write(tmp_path, 2, ROWS)
    os.remove(tmp_path / "in" / "day=2" / "0.parquet")
    assert reader.latest_offset(offset, 1, None) == offset
    write(tmp_path, 5, ROWS, part=1)
    with pytest.raises(SourceError, match=r"extract 5 \(.*2 files\) has other files"):
        reader.latest_offset(offset, 1, None)


def test_extracts_of_long_ago_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_REMEMBERED", 2)
    for day in range(5):
        write(tmp_path, day, ROWS)
    reader = offsets_of(tmp_path)
    offset = reader.latest_offset(reader.initial_offset(), None, None)
    assert (offset["extracts"], offset["version"]) == (5, 4)
    assert reader.latest_offset(offset, 1, None) == offset


def test_an_extract_much_smaller_than_the_one_before_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, 1, [{"id": key, "name": str(key) * 9, "score": None} for key in range(999)])
    cut = write(tmp_path, 2, ROWS)
    with pytest.raises(SourceError, match=r"extract 2 \(.*\) has .* bytes, the one before had .*: it seems cut"):
        told(tmp_path, max_deleted=0.5)
    cut.unlink()
    assert len(told(tmp_path, max_deleted=0.5)) == 999


@pytest.mark.parametrize(
    ("source", "settings", "error"),
    [
        (RateSource(1), {}, "has no extracts: it is a stream of rows"),
        (MemorySource(ROWS), {"version": "name"}, "such a source has its present state only"),
        (MemorySource(ROWS), {"version": True}, "version"),
        (MemorySource(ROWS), {"keys": []}, "keys are"),
        (MemorySource(ROWS), {"keys": ["id", "id"]}, "name each column once"),
        (MemorySource(ROWS), {"ignore": "id"}, "name each column once"),
        (MemorySource(ROWS), {"on_empty": "ignore"}, "on_empty"),
        (MemorySource(ROWS), {"max_deleted": 1.5}, "max_deleted"),
        (MemorySource(ROWS), {"max_deleted": -1}, "max_deleted"),
        (MemorySource(ROWS), {"buckets": 0}, "buckets"),
        ("customers.csv", {}, "changes_from_snapshots takes a Source"),
    ],
)
def test_wrong_settings(source: Any, settings: Any, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Environment().changes_from_snapshots(source, **{"keys": "id", **settings})


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"keys": "ID"}, "extracts have no column 'ID'"),
        ({"ignore": "names"}, "extracts have no column 'names'"),
        ({"keys": "score"}, "key 'score' is of type double"),
        ({"version": "date"}, "version 'date' is no column"),
        ({"version": "name"}, "version 'name' is string"),
        ({"version": r"(\d+)\.csv"}, "does not match version="),
        ({"version": r"day=\d+/(.*)"}, "finds '0.parquet' in"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, settings: Any, error: str) -> None:
    write(tmp_path, 1, ROWS)
    with pytest.raises((ConfigError, ExpressionError, SourceError), match=error):
        changes(tmp_path, **settings).to_arrow()
