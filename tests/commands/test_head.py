"""volley head: the first rows of files in every format, whatever their names, and of what a file of pipelines names."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from volley.cli.app import app
from volley.formats.content import delimiter_of, format_of_content

ROWS = [{"id": 1, "name": "ü"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
TABLE = pa.Table.from_pylist(ROWS)
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
SEMICOLONS = "id;name\n" + "".join(f"{row['id']};{row['name']}\n" for row in ROWS)


def head(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["head", *arguments])


def avro(path: Path) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, ROWS)


WRITERS: dict[str, Callable[[Path], object]] = {
    "lines.dat": lambda path: path.write_text(LINES),
    "array": lambda path: path.write_text(json.dumps(ROWS)),
    "mark.txt": lambda path: path.write_text("\ufeff" + LINES),
    "commas.export": lambda path: path.write_text(SEMICOLONS.replace(";", ",")),
    "semicolons.csv": lambda path: path.write_text(SEMICOLONS),
    "tabs.csv": lambda path: path.write_text(SEMICOLONS.replace(";", "\t")),
    "packed.gz": lambda path: path.write_bytes(gzip.compress(LINES.encode())),
    "packed.json.bz2": lambda path: path.write_bytes(bz2.compress(LINES.encode())),
    "wrongly.csv": lambda path: pq.write_table(TABLE, path),
    "columns": lambda path: pq.write_table(TABLE, path),
    "rows.bin": lambda path: orc.write_table(TABLE, path),
    "records": avro,
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_format_is_that_of_the_content(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    shown = head(str(tmp_path / name), "--json")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == ROWS, shown.output
    assert "ü" in head(str(tmp_path / name), "--limit", "1").stdout


def test_a_folder_and_a_glob_are_read_as_one(tmp_path: Path) -> None:
    for number, row in enumerate(ROWS):
        (tmp_path / f"{number}.log").write_text(json.dumps(row))
    for target in (str(tmp_path), f"{tmp_path}/*.log"):
        shown = head(target, "--json", "-n", "2")
        assert {json.loads(line)["id"] for line in shown.stdout.splitlines()} <= {1, 2, 3}
        assert len(shown.stdout.splitlines()) == 2


def test_what_the_file_of_pipelines_names(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(LINES)
    file = tmp_path / "volley.yaml"
    file.write_text(
        f"sources: {{orders: {{connector: files, config: {{path: {tmp_path}/in, format: json}}}}}}\n"
        "sinks: {lake: {connector: iceberg, config: {namespace: db, table: events, "
        f"local: {{path: {tmp_path}/lake}}}}}}}}\n"
        "pipelines: {p: {source: orders, sink: lake}}\n"
    )
    shown = head("orders", "-c", str(file), "--json")
    assert [json.loads(line) for line in shown.stdout.splitlines()] == ROWS, shown.output
    for name in ("lake", "db.events"):
        absent = head(name, "-c", str(file))
        assert (absent.exit_code, "db.events" in absent.stderr) == (69, True)


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [("orders", 2, "is no file, source or table"), ("./orders.csv", 69, "does not exist"), ("bin", 2, "not known")],
)
def test_what_is_not_there_is_said_in_a_line(
    target: str, code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").write_bytes(b"\x00\x01\x02")
    shown = head(target)
    assert (shown.exit_code, said in shown.stderr, shown.stdout) == (code, True, ""), shown.output


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "csv"),
        (b" \n[1]", "json"),
        (b"a\0b", None),
        (gzip.compress(b"{}", mtime=0), "json"),
        (b"\x1f\x8b\x08", None),
    ],
)
def test_formats_by_their_first_bytes(data: bytes, name: str | None) -> None:
    assert format_of_content(data) == name


def test_a_line_without_a_delimiter_is_one_field() -> None:
    assert delimiter_of(b"id\n1;2\n") == ","
