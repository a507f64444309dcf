"""Files made to break a reader are refused by name, or read in bounded memory; nothing hangs, nothing crashes."""

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
from volley import FileSource, SourceContext, SourceError

MEGABYTE = 1 << 20
MOST = 1_500 * MEGABYTE

READ = """
import os, re, sys
from pathlib import Path
from tests.security.test_hostile_files import count
path, schema, most = sys.argv[1:]
try:
    print("rows", count(path, schema or None, int(most)))
except Exception as error:
    print(type(error).__name__, str(error).replace("\\n", " "))
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024, flush=True)
# Arrow's CSV reader may still read ahead, and aborts a process that ends meanwhile; Spark's workers live on.
os._exit(0)
"""


def count(path: str | Path, schema: str | None, most: int = 10**12) -> int:
    """The rows of a file or folder, read as an executor does; at most about `most`."""
    source = FileSource(str(path), schema=schema).open(SourceContext(f"memory://{time.time_ns()}"))
    start = source.initial_offset()
    rows: int = 0
    for split in source.splits(start, source.latest_offset(start, None, None)):
        for batch in source.read(split):
            rows += int(batch.num_rows)
            if rows >= most:
                return rows
    return rows


def read(path: Path, schema: str | None, most: int = 10**12, memory: int = MOST) -> str:
    """What a process of its own says that reads the file; its memory is bounded."""
    command = [sys.executable, "-c", READ, str(path), schema or "", str(most)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=plain_environment(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said, peak = done.stdout.splitlines()
    assert int(peak) < memory, f"{int(peak) // MEGABYTE} MB"
    return said


def parquet(path: Path, column: pa.Array, **options: object) -> Path:
    pq.write_table(pa.table({"v": column}), path, row_group_size=len(column), **options)
    return path


def zipped(path: Path, times: int, chunk: bytes, head: bytes = b"") -> Path:
    with gzip.open(path, "wb", 1) as file:
        file.write(head)
        for _ in range(times):
            file.write(chunk)
    return path


def text(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def repeated(value: str, rows: int) -> pa.Array:
    """One value many times, stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def test_a_long_string_that_recurs_a_hundred_thousand_times_is_read_in_small_batches(tmp_path: Path) -> None:
    path = parquet(tmp_path / "bomb.parquet", repeated("x" * MEGABYTE, 100_000))
    assert path.stat().st_size < MEGABYTE
    assert read(path, "v string", most=3_000).startswith("rows 30")


def test_every_row_of_a_small_bomb_is_read(tmp_path: Path) -> None:
    path = parquet(tmp_path / "bomb.parquet", repeated("x" * MEGABYTE, 1_000))
    assert read(path, "v string") == "rows 1000"


def test_long_strings_that_share_their_beginning_are_read_in_small_batches(tmp_path: Path) -> None:
    column = pa.array(["x" * MEGABYTE] * 700)
    encoding = {"v": "DELTA_BYTE_ARRAY"}
    path = parquet(tmp_path / "bomb.parquet", column, use_dictionary=False, column_encoding=encoding)
    assert read(path, "v string") == "rows 700"


@pytest.mark.parametrize(
    "nested",
    [
        lambda bomb: pa.ListArray.from_arrays(pa.array(range(len(bomb) + 1), pa.int32()), bomb),
        lambda bomb: pa.StructArray.from_arrays([bomb], ["s"]),
    ],
    ids=["list", "struct"],
)
def test_a_bomb_inside_a_nested_column_is_read_in_small_batches(
    nested: Callable[[pa.Array], pa.Array], tmp_path: Path
) -> None:
    column = nested(repeated("x" * MEGABYTE, 2_000))
    path = parquet(tmp_path / "bomb.parquet", column)
    kind = "array<string>" if pa.types.is_list(column.type) else "struct<s: string>"
    assert read(path, f"v {kind}", most=1_500).startswith("rows 15")


def test_a_hundred_million_rows_in_one_row_group(tmp_path: Path) -> None:
    path = parquet(tmp_path / "rows.parquet", pa.array(np.zeros(100_000_000, np.int8)))
    assert read(path, "v long") == "rows 100000000"


def test_a_row_with_a_hundred_million_elements_is_refused(tmp_path: Path) -> None:
    values = pa.array(np.zeros(100_000_000, np.int8))
    column = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    said = read(parquet(tmp_path / "row.parquet", column), "v array<long>")
    assert said.startswith("SourceError")
    assert "row.parquet" in said
    assert "64 MB are the limit" in said


def test_a_value_of_100_mb_is_refused(tmp_path: Path) -> None:
    said = read(parquet(tmp_path / "value.parquet", pa.array(["x" * 100 * MEGABYTE])), "v string")
    assert said.startswith("SourceError")
    assert "value.parquet" in said
    assert "'v'" in said


def test_thousands_of_columns_are_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({f"c{number}": [number] for number in range(5_000)}), tmp_path / "wide.parquet")
    assert count(tmp_path / "wide.parquet", None) == 1


def test_a_type_nested_200_deep_is_refused(tmp_path: Path) -> None:
    column = pa.array([1])
    for _ in range(200):
        column = pa.StructArray.from_arrays([column], ["x"])
    assert read(parquet(tmp_path / "deep.parquet", column), None).startswith(f"SourceError {tmp_path}/deep.parquet")


def test_a_footer_with_any_byte_turned_is_refused_or_read_but_never_crashes(tmp_path: Path) -> None:
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
from tests.security.test_hostile_files import count
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


LINES: dict[str, tuple[bytes, str | None, str]] = {
    "deep value": (b'{"v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "v long", "line 1: nested too deep"),
    "deep inferred": (b'{"v": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", None, "line 1: nested more than 100 deep"),
    "deep ignored": (b'{"v": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "v long", "rows 1"),
    "deep unclosed": (b'{"v": ' + b"[" * 100_000 + b"\n", "v long", "line 1: nested too deep"),
    "huge integer": (b'{"v": ' + b"9" * 100_000 + b"}\n", "v long", "line 1"),
    "huge double": (b'{"v": 1e999999}\n', "v double", "line 1: JSON parse error: Number too big"),
    "NUL byte": (b'{"v": "a\0b"}\n', "v string", "line 1: not JSON"),
    "escaped NUL": (b'{"v": "a\\u0000b"}\n', "v string", "rows 1"),
    "no UTF-8": (b'{"v": "ok"}\n{"v": "a\xff"}\n', "v string", "line 2: not JSON ('utf-8' codec"),
    "no UTF-8 in a column that is not asked for": (b'{"v": "a", "\xfe": 1}\n', "v string", "line 1: not JSON"),
    "UTF-16": ('{"v": "a"}\n'.encode("utf-16"), "v string", "line 1"),
    "byte order mark": (b'\xef\xbb\xbf{"v": "a"}\n', "v string", "rows 1"),
}


@pytest.mark.parametrize("name", LINES)
def test_hostile_json(name: str, tmp_path: Path) -> None:
    content, schema, answer = LINES[name]
    said = read(text(tmp_path / "in.json", content), schema)
    assert answer in said
    assert len(said) < 1_000
    assert said.startswith(("rows", f"SourceError {tmp_path}/in.json"))


ROWS: dict[str, tuple[bytes, str, str]] = {
    "huge integer": (b"v\n" + b"9" * 100_000 + b"\n", "v long", "invalid value '999"),
    "NUL byte": (b"v\na\0b\n", "v string", "rows 1"),
    "no UTF-8": (b"v\nok\na\xff\xfe\n", "v string", "line 3: column 'v'"),
    "byte order mark": (b"\xef\xbb\xbfv\na\n", "v string", "rows 1"),
    "long name": (b"v," + b"x" * 200_000 + b"\n1,2\n", "v long", "line 1: no header"),
}


@pytest.mark.parametrize("name", ROWS)
def test_hostile_csv(name: str, tmp_path: Path) -> None:
    content, schema, answer = ROWS[name]
    said = read(text(tmp_path / "in.csv", content), schema)
    assert answer in said
    assert len(said) < 1_000


def test_a_line_that_expands_to_gigabytes_is_refused(tmp_path: Path) -> None:
    for name in ("bomb.json.gz", "bomb.csv.gz"):
        said = read(zipped(tmp_path / name, 1_000, b"\0" * MEGABYTE), "v long")
        assert said.startswith("SourceError")
        assert f"{name}, line 1: longer than 64 MB" in said


def test_a_long_row_after_a_good_header_is_refused(tmp_path: Path) -> None:
    said = read(zipped(tmp_path / "bomb.csv.gz", 500, b"1" * MEGABYTE, head=b"v\n1\n"), "v long")
    assert said.startswith("SourceError")
    assert "bomb.csv.gz" in said
    assert len(said) < 1_000


def test_lines_that_expand_to_gigabytes_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = zipped(tmp_path / "lines.json.gz", 40, b'{"v": 1}\n' * 100_000)
    assert read(path, "v long") == "rows 4000000"
    assert read(zipped(tmp_path / "blank.json.gz", 300, b"\n" * MEGABYTE), "v long") == "rows 0"


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
