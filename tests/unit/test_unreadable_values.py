"""Strings that are not UTF-8 are bad rows; dates beyond the years 1 to 9999 are values like others."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_dead_letters import Picky, payloads, run, stream
from volley import ConsoleSink, Environment, FileSink, FileSource, MemorySink, MemorySource, Pipeline, SourceError, col
from volley.columns.batches import check_values
from volley.columns.readable import readable_rows


def strings(*values: bytes | None) -> pa.StringArray:
    """An array of strings that nobody has checked."""
    return pa.array(values, pa.binary()).view(pa.string())


GOOD, BAD, HALF = b"\xc3\xa9", b"caf\xe9", b"\xc3"
FOUR = strings(GOOD, BAD, None, HALF)
OFFSETS = pa.array(range(5), pa.int32())
LISTS = pa.ListArray.from_arrays(OFFSETS, FOUR)
COLUMNS = {
    "plain": FOUR,
    "struct": pa.StructArray.from_arrays([FOUR], names=["a"]),
    "list": LISTS,
    "keys": pa.MapArray.from_arrays(OFFSETS, strings(GOOD, BAD, b"", HALF), pa.array(range(4))),
    "items": pa.MapArray.from_arrays(OFFSETS, pa.array("abcd"), FOUR),
    "deep": pa.ListArray.from_arrays(
        OFFSETS, pa.StructArray.from_arrays([pa.ListArray.from_arrays(OFFSETS, FOUR)], ["a"])
    ),
    "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2], pa.int32()), strings(GOOD, BAD, HALF)),
}


@pytest.mark.parametrize("name", list(COLUMNS))
def test_each_row_is_told_whose_string_is_not_utf8(name: str) -> None:
    batch = pa.record_batch({name: COLUMNS[name]})
    for row, good in enumerate([True, False, True, False]):
        if good:
            check_values(batch.slice(row, 1))
            continue
        with pytest.raises(SourceError, match=f"column '{name}' has a string that is not UTF-8"):
            check_values(batch.slice(row, 1))


def test_two_halves_of_a_character_are_no_string() -> None:
    with pytest.raises(SourceError, match="not UTF-8"):
        check_values(pa.record_batch({"text": strings(b"\xc3", b"\xa9")}))


def test_what_stands_below_nulls_is_nobodys_value() -> None:
    hidden = pa.StructArray.from_arrays([strings(BAD, b"a")], names=["a"], mask=pa.array([True, False]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), strings(BAD, b"a"), mask=pa.array([True, False]))
    check_values(pa.record_batch({"struct": hidden, "list": lists}))


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=3), st.text(max_size=3).map(str.encode)), min_size=1), st.data()
)
def test_pythons_word_on_utf8_is_the_same(values: list[bytes | None], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(values) - 1))
    some = values[first:]
    try:
        check_values(pa.record_batch({"text": strings(*values).slice(first)}))
        valid = True
    except SourceError:
        valid = False
    assert valid == all(_decodes(value) for value in some if value is not None)


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture
def parquet(tmp_path: Path) -> FileSource:
    """A file of four rows, of which the second and the last are no text."""
    rows = pa.table({"id": [0, 1, 2, 3], "text": FOUR, "map": COLUMNS["keys"]})
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=3)
    return FileSource(tmp_path / "in.parquet", format="parquet")


def test_the_first_bad_string_of_a_file_is_named(parquet: FileSource, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"in\.parquet, row 2: the row .*caf\\\\xe9.*column 'text' .* not UTF-8"):
        run(stream(parquet).to_sink(MemorySink("out")), tmp_path)


def test_bad_strings_go_to_the_dead_letter(parquet: FileSource, tmp_path: Path) -> None:
    dead = MemorySink("dead")
    sink = Picky("out", letters=dead)
    run(stream(parquet).to_sink(sink), tmp_path)
    assert [row["id"] for row in sink.rows()] == [0, 2]
    assert payloads(dead) == [
        {"id": 1, "text": "caf\\xe9", "map": [["caf\\xe9", 1]]},
        {"id": 3, "text": "\\xc3", "map": [["\\xc3", 3]]},
    ]
    assert [row["position"].rpartition("/")[2] for row in dead.rows()] == ["in.parquet, row 2", "in.parquet, row 4"]


def test_columns_and_rows_that_no_sink_gets_are_not_checked(parquet: FileSource, tmp_path: Path) -> None:
    columns, rows = MemorySink("columns"), MemorySink("rows")
    run(stream(parquet).select("id").to_sink(columns), tmp_path)
    run(stream(parquet).filter_expr(col("id").is_in([0, 2])).to_sink(rows), tmp_path)
    assert [len(columns.rows()), len(rows.rows())] == [4, 2]


@pytest.mark.parametrize("behind", [False, True])
def test_a_function_that_gives_bad_strings_is_found_out(behind: bool, tmp_path: Path) -> None:
    def spoiled(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"text": strings(*([BAD] * batch.num_rows))})

    rows = stream(MemorySource([{"text": "a"}]))
    before = rows.to_sink(MemorySink("first"))._writes if behind else ()
    pipeline = rows.map_batches(spoiled).to_sink(MemorySink("out"))
    with pytest.raises(SourceError, match="column 'text' has a string that is not UTF-8"):
        run(Pipeline((*before, *pipeline._writes), Environment()), tmp_path)


# Times

DAYS = pa.array([-800_000, 2_932_897, 0, None], pa.int32()).view(pa.date32())
TIMES = pa.array([-(2**62), 253_402_300_800_000_000, 0, None], pa.int64()).view(pa.timestamp("us", "UTC"))
FAR = pa.table({"id": [0, 1, 2, 3], "day": DAYS, "at": TIMES, "all": pa.ListArray.from_arrays(OFFSETS, TIMES)})


def test_rows_in_memory_have_times_beyond_pythons_as_text(tmp_path: Path) -> None:
    sink = MemorySink("out")
    run(stream(MemorySource(FAR)).to_sink(sink), tmp_path)
    assert sink.table().equals(FAR)
    first, second, third, fourth = sink.rows()
    assert [first["day"], second["day"], third["day"].year] == ["-221-09-04", "10000-01-01", 1970]
    assert [first["at"], second["all"]] == ["-144169-06-28 09:59:32.612096+00:00", ["10000-01-01 00:00:00+00:00"]]
    assert fourth == {"id": 3, "day": None, "at": None, "all": [None]}


def test_json_files_have_times_beyond_pythons(tmp_path: Path) -> None:
    run(stream(MemorySource(FAR)).to_sink(FileSink(tmp_path / "out", format="json")), tmp_path)
    lines = [line for path in (tmp_path / "out").rglob("*.json") for line in path.read_text().splitlines()]
    days = [json.loads(line)["day"] for line in lines if '"day"' in line]
    assert days == ["-221-09-04", "10000-01-01", "1970-01-01", None]


def test_a_console_shows_times_beyond_pythons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(stream(MemorySource(FAR.select(["id", "day"]))).to_sink(ConsoleSink()), tmp_path)
    assert "10000-01-01" in capsys.readouterr().out


def test_dead_letters_show_times_beyond_pythons(tmp_path: Path) -> None:
    dead = MemorySink("dead")
    run(stream(MemorySource(FAR)).to_sink(Picky("out", letters=dead, limit=1)), tmp_path)
    assert payloads(dead)[0]["all"] == ["10000-01-01 00:00:00+00:00"]


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["s", "ms", "us"]))
def test_any_time_has_a_text(value: int, unit: str) -> None:
    (row,) = readable_rows(pa.record_batch({"at": pa.array([value], pa.int64()).view(pa.timestamp(unit))}))
    assert "NaT" not in str(row["at"])


def test_rows_with_years_that_python_lacks_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    days = pa.array([0, 2932897], pa.int32()).view(pa.date32())
    Environment().from_source(MemorySource(pa.table({"day": days}))).show()
    assert capsys.readouterr().out.split()[-2:] == ["1970-01-01", "10000-01-01"]
