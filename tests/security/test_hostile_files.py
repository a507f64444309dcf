"""Files made to break a reader are refused by name, or read in bounded memory; all limits are lowered here."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.processes import plain_environment
from tests.security.files import KILOBYTE, LIMIT, batches_of, count, lower_limits, parquet
from volley import FileSource, SourceContext, SourceError


@pytest.fixture(autouse=True)
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_limits(monkeypatch)


def bounded(path: Path, schema: str | None) -> int:
    """Return the number of rows; no batch is larger than it may be."""
    batches = batches_of(path, schema)
    # The offsets of texts and lists, and the nulls, are not counted.
    assert max(batch.nbytes for batch in batches) < 2 * LIMIT
    return sum(batch.num_rows for batch in batches)


def zipped(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def text(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def repeated(value: str, rows: int) -> pa.Array:
    """One value many times, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def test_a_long_string_that_recurs_is_read_in_small_batches(tmp_path: Path) -> None:
    path = parquet(tmp_path / "in.parquet", repeated("x" * KILOBYTE, 2_000))
    assert path.stat().st_size < 8 * KILOBYTE
    assert bounded(path, "v string") == 2_000


def test_long_strings_that_share_their_beginning_are_read_in_small_batches(tmp_path: Path) -> None:
    column = pa.array(["x" * KILOBYTE] * 700)
    encoding = {"v": "DELTA_BYTE_ARRAY"}
    path = parquet(tmp_path / "in.parquet", column, use_dictionary=False, column_encoding=encoding)
    assert bounded(path, "v string") == 700


@pytest.mark.parametrize(
    ("nested", "kind"),
    [
        (
            lambda values: pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values),
            "array<string>",
        ),
        (lambda values: pa.StructArray.from_arrays([values], ["s"]), "struct<s: string>"),
    ],
    ids=["list", "struct"],
)
def test_long_strings_inside_a_nested_column_are_read_in_small_batches(
    nested: Callable[[pa.Array], pa.Array], kind: str, tmp_path: Path
) -> None:
    column = nested(repeated("x" * KILOBYTE, 2_000))
    assert bounded(parquet(tmp_path / "in.parquet", column), f"v {kind}") == 2_000


def test_many_rows_in_one_row_group_are_read_in_small_batches(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", pa.array(np.zeros(100_000, np.int8)))
    assert bounded(path, "v long") == 100_000


def test_a_row_with_too_many_elements_is_refused(tmp_path: Path) -> None:
    values = pa.array(np.zeros(10_000, np.int8))
    column = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    with pytest.raises(SourceError, match=r"row\.parquet: column 'v\..*' has a value of ") as caught:
        count(parquet(tmp_path / "row.parquet", column), "v array<long>")
    assert caught.value.hint == "0.0625 MB are the limit"


def test_a_value_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "value.parquet", pa.array(["x" * (LIMIT + 1_000)]))
    with pytest.raises(SourceError, match=r"value\.parquet: column 'v' has a value of"):
        count(path, "v string")


def test_thousands_of_columns_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{number}": [number] for number in range(2_000)}), tmp_path / "wide.parquet")
    assert count(tmp_path / "wide.parquet", None) == 1


def test_a_type_that_is_nested_deep_is_refused(tmp_path: Path) -> None:
    column = pa.array([1])
    for _ in range(200):
        column = pa.StructArray.from_arrays([column], ["x"])
    with pytest.raises(SourceError, match=r"deep\.parquet"):
        count(parquet(tmp_path / "deep.parquet", column), None)


def test_a_footer_with_any_byte_turned_is_refused_or_read(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "whole.parquet", pa.array(range(1_000))).read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    folder = tmp_path / "broken"
    folder.mkdir()
    for at in range(len(whole) - footer, len(whole), 5):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        (folder / f"{at}.parquet").write_bytes(broken)
    script = """
import sys
from pathlib import Path
from tests.security.files import count
from volley import SourceError
refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        count(path, "v long")
    except SourceError as error:
        assert path.name in str(error), error
        refused += 1
assert refused > 20, refused
"""
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=plain_environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]


# More levels than Python's own reader of JSON follows.
DEEP = 1_100
LINES: dict[str, tuple[bytes, str | None, str | int]] = {
    "deep value": (b'{"v": ' + b"[" * DEEP + b"]" * DEEP + b"}\n", "v long", "line 1: nested too deep"),
    "deep inferred": (b'{"v": ' + b"[" * 11 + b"]" * 11 + b"}\n", None, "line 1: nested more than 10 deep"),
    "deep ignored": (b'{"v": 1, "x": ' + b"[" * DEEP + b"]" * DEEP + b"}\n", "v long", 1),
    "deep unclosed": (b'{"v": ' + b"[" * DEEP + b"\n", "v long", "line 1: nested too deep"),
    "long integer": (b'{"v": ' + b"9" * 5_000 + b"}\n", "v long", "line 1"),
    "large double": (b'{"v": 1e999}\n', "v double", "line 1: JSON parse error: Number too big"),
    "NUL byte": (b'{"v": "a\0b"}\n', "v string", "line 1: not JSON"),
    "escaped NUL": (b'{"v": "a\\u0000b"}\n', "v string", 1),
    "no UTF-8": (b'{"v": "ok"}\n{"v": "a\xff"}\n', "v string", r"line 2: not JSON \('utf-8' codec"),
    "no UTF-8 in a column that is not asked for": (b'{"v": "a", "\xfe": 1}\n', "v string", "line 1: not JSON"),
    "UTF-16": ('{"v": "a"}\n'.encode("utf-16"), "v string", "line 1"),
    "byte order mark": (b'\xef\xbb\xbf{"v": "a"}\n', "v string", 1),
}


@pytest.mark.parametrize("name", LINES)
def test_hostile_json(name: str, tmp_path: Path) -> None:
    content, schema, answer = LINES[name]
    path = text(tmp_path / "in.json", content)
    if isinstance(answer, int):
        assert count(path, schema) == answer
        return
    with pytest.raises(SourceError, match=rf"in\.json.*{answer}") as caught:
        count(path, schema)
    assert len(str(caught.value)) < 1_000


ROWS: dict[str, tuple[bytes, str, str | int]] = {
    "long integer": (b"v\n" + b"9" * 5_000 + b"\n", "v long", "'999"),
    "NUL byte": (b"v\na\0b\n", "v string", 1),
    "no UTF-8": (b"v\nok\na\xff\xfe\n", "v string", "line 3: column 'v'"),
    "byte order mark": (b"\xef\xbb\xbfv\na\n", "v string", 1),
    "long name": (b"v," + b"x" * 200 + b"\n1,2\n", "v long", "line 1: no header"),
}


@pytest.mark.parametrize("name", ROWS)
def test_hostile_csv(name: str, tmp_path: Path) -> None:
    content, schema, answer = ROWS[name]
    path = text(tmp_path / "in.csv", content)
    if isinstance(answer, int):
        assert count(path, schema) == answer
        return
    with pytest.raises(SourceError, match=rf"in\.csv.*{answer}") as caught:
        count(path, schema)
    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("name", ["in.json.gz", "in.csv.gz", "in.json", "in.csv"])
def test_a_line_that_is_too_long_once_unpacked_is_refused(name: str, tmp_path: Path) -> None:
    line = b"\0" * (LIMIT + 16 * KILOBYTE)
    path = zipped(tmp_path / name, line) if name.endswith("gz") else text(tmp_path / name, line)
    with pytest.raises(SourceError, match=rf"{name}, line 1: longer than 0\.0625 MB"):
        count(path, "v long")


def test_an_element_of_an_array_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "in.json.gz", b'[{"v": "' + b"x" * 4 * LIMIT)
    with pytest.raises(SourceError, match=r"in\.json\.gz, element 1: not JSON"):
        count(path, "v string")


def test_a_long_row_after_a_good_header_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"in\.csv\.gz") as caught:
        count(zipped(tmp_path / "in.csv.gz", b"v\n1\n" + b"1" * 2 * LIMIT), "v long")
    assert len(str(caught.value)) < 1_000


def test_many_lines_of_a_small_file_are_read_in_small_batches(tmp_path: Path) -> None:
    assert bounded(zipped(tmp_path / "lines.json.gz", b'{"v": 1}\n' * 100_000), "v long") == 100_000
    assert count(zipped(tmp_path / "blank.json.gz", b"\n" * 4 * LIMIT), "v long") == 0


@pytest.mark.parametrize("name", ["in.parquet", "in.json.gz", "in.csv.gz"])
def test_a_file_that_is_something_else_is_refused_by_name(name: str, tmp_path: Path) -> None:
    text(tmp_path / name, b"neither Parquet nor gzip\n" * 10)
    with pytest.raises(SourceError, match=name):
        count(tmp_path / name, "v long")


def test_a_pipe_and_a_folder_named_like_files_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "folder.json").mkdir(parents=True)
    os.mkfifo(folder / "pipe.json")
    text(folder / "good.json", b'{"v": 1}\n')
    text(folder / "folder.json" / "inner.json", b'{"v": 2}\n')
    script = (
        "import sys; from volley import FileSource, SourceContext\n"
        "source = FileSource(sys.argv[1], format='json', schema='v long').open(SourceContext('memory://state'))\n"
        "start = source.initial_offset()\n"
        "splits = source.splits(start, source.latest_offset(start, None, None))\n"
        "print(sorted(batch['v'][0].as_py() for split in splits for batch in source.read(split)))\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=plain_environment(), check=False)
    assert done.stdout.strip() == "[1, 2]", done.stderr[-2000:]


def test_links_out_of_the_folder_broken_ones_and_circles_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text(tmp_path / "outside.json", b'{"v": 1}\n')
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    (folder / "broken.json").symlink_to(tmp_path / "nowhere.json")
    (folder / "circle").symlink_to(folder)
    text(folder / "own.json", b'{"v": 2}\n')
    source = FileSource(str(folder), format="json", schema="v long").open(SourceContext(f"memory://{time.time_ns()}"))
    start = source.initial_offset()
    splits = source.splits(start, source.latest_offset(start, None, None))
    assert sorted(batch["v"][0].as_py() for split in splits for batch in source.read(split)) == [2]
