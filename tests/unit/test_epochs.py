"""Numbers since 1970 in columns of timestamps, of JSON and CSV files: in each unit, beside texts, and bad ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_bad_rows_in_bulk import opened, read, strictly
from volley import ConfigError, FileSource, SourceContext
from volley.formats.epochs import epoch_text

AT = datetime(2026, 11, 28, 1, 2, 3, 456789, tzinfo=UTC)
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = (AT - BEGIN) // timedelta(microseconds=1)
# A unit, the number of a time in it, and that time.
UNITS: list[tuple[str, str, datetime]] = [
    ("s", str(MICROS // 1_000_000), AT.replace(microsecond=0)),
    ("ms", str(MICROS // 1_000), AT.replace(microsecond=456000)),
    ("us", str(MICROS), AT),
    ("ns", f"{MICROS}999", AT),
    ("s", f"{MICROS // 1_000_000}.456789999", AT),
    ("ms", f"{MICROS // 1_000}.789", AT),
    ("s", "-1", BEGIN - timedelta(seconds=1)),
    ("s", "-0.0000005", BEGIN - timedelta(microseconds=1)),
    ("ns", "-1", BEGIN - timedelta(microseconds=1)),
    ("ms", "0", BEGIN),
]


def put(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(("unit", "number", "at"), UNITS)
def test_numbers_in_each_unit(unit: str, number: str, at: datetime, tmp_path: Path) -> None:
    files = [
        put(tmp_path, "a.json", f'{{"at": {number}, "l": [{{"t": {number}}}]}}\n{{"at": null}}\n'),
        put(tmp_path, "mixed.json", f'{{"at": {number}}}\n{{"at": "2026-01-01T00:00:00.123456789Z"}}\n'),
    ]
    options: dict[str, Any] = {"options": {"epoch": unit}, "schema": "at timestamp, l array<struct<t: timestamp>>"}
    assert strictly(opened(files[0], **options)) == [{"at": at, "l": [{"t": at}]}, {"at": None, "l": None}]
    mixed = [row["at"] for row in strictly(opened(files[1], **options))]
    assert mixed == [at, datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)]
    csv = put(tmp_path, "c.csv", f"id,at\n1,{number}\n2,2026-01-01T00:00:00Z\n3,\n")
    rows = strictly(opened(csv, schema="id long, at timestamp", options={"epoch": unit}))
    assert [row["at"] for row in rows] == [at, datetime(2026, 1, 1, tzinfo=UTC), None]
    plain = put(tmp_path, "b.csv", f"id,at\n1,{number}\n")
    (row,) = strictly(opened(plain, schema="id long, at timestamp_ntz", options={"epoch": unit}))
    assert row["at"] == at.replace(tzinfo=None)


@pytest.mark.parametrize("bad", ["99999999999999", "1e30", "9223372036854775808", '"yesterday"', "true", "{}"])
def test_bad_numbers_of_json(bad: str, tmp_path: Path) -> None:
    lines = ['{"id": 1, "at": 0}', f'{{"id": 2, "at": {bad}}}', '{"id": 3, "at": 1.5}', '{"id": 4, "at": "2026-01-01"}']
    options: dict[str, Any] = {"options": {"epoch": "s"}, "schema": "id long, at timestamp"}
    for number, chosen in enumerate((lines, lines[:2])):
        path = put(tmp_path, f"{number}.json", "\n".join(chosen))
        rows, rejected = read(opened(path, **options))
        assert [row.payload for row in rejected] == [lines[1]]
        expected = [(1, BEGIN), (3, BEGIN + timedelta(seconds=1.5)), (4, datetime(2026, 1, 1, tzinfo=UTC))]
        assert [(row["id"], row["at"]) for row in rows] == expected[: len(chosen) - 1]


@pytest.mark.parametrize("bad", ["99999999999999", "1e3", "yesterday", "9223372036854775808"])
def test_bad_numbers_of_csv(bad: str, tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", f"id,at\n1,0\n2,{bad}\n3, 1.5 \n4,01.02.2026\n")
    options = {"epoch": "s", "date_formats": ["%d.%m.%Y"]}
    rows, rejected = read(opened(path, schema="id long, at timestamp", options=options))
    assert [row.payload for row in rejected] == [f"2,{bad}"]
    expected = [(1, BEGIN), (3, BEGIN + timedelta(seconds=1.5)), (4, datetime(2026, 2, 1, tzinfo=UTC))]
    assert [(row["id"], row["at"]) for row in rows] == expected


def test_times_in_maps_and_other_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '{"id": 5, "s": 7, "m": {"a": 1000}, "at": 1000}\n')
    schema = "id long, s string, m map<string, timestamp>, at timestamp"
    (row,) = strictly(opened(path, schema=schema, options={"epoch": "ms"}))
    second = BEGIN + timedelta(seconds=1)
    assert row == {"id": 5, "s": "7", "m": [("a", second)], "at": second}


def test_without_a_unit_a_number_is_no_time(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '{"at": 1000}\n{"at": null}\n')
    rows, rejected = read(opened(path, schema="at timestamp"))
    assert (rows, [row.payload for row in rejected]) == ([{"at": None}], ['{"at": 1000}'])
    with pytest.raises(ConfigError, match="epoch"):
        FileSource("in/*.json", options={"epoch": "minutes"})


def test_a_bad_row_is_read_again_with_the_unit(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", "{}")
    source = FileSource(path, schema="at timestamp", options={"epoch": "ms"})
    schema = source.open(SourceContext(str(tmp_path / "state"))).schema
    decoder: Any = source.payload_decoder("json", schema)
    assert decoder.decode([b'{"at": 1000}']).to_pylist() == [{"at": BEGIN + timedelta(seconds=1)}]


def test_the_first_and_the_last_time() -> None:
    assert epoch_text("253402300799.9999999", "s") == "9999-12-31T23:59:59.999999+00:00"
    assert epoch_text("-62135596800", "s") == "0001-01-01T00:00:00.000000+00:00"
    assert [epoch_text(text, "s") for text in ("253402300800", "-62135596800.1", "NaN", "9" * 50)] == [None] * 4
