"""State of every version is read by value; a format that changes gets a new version; no flipped bit goes unnoticed."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.golden.samples import SAMPLES
from volley import VolleyError
from volley.storage import state_formats
from volley.storage.envelope import MAGIC, StateFormat
from volley.store.batch_file import open_batches

HERE = Path(__file__).parent
TODAY = "0.3.0"
VERSIONS = ["0.2.0", "0.3.0.dev1", TODAY]
FORMATS = {format.name: format for format in vars(state_formats).values() if isinstance(format, StateFormat)}
MARKS = ("log/durable", "log/released")
VALUES: dict[str, str] = json.loads((HERE / "values.json").read_text())
samples = pytest.mark.parametrize("name", SAMPLES)


def copied(version: str, name: str, folder: Path) -> Path:
    return Path(shutil.copytree(HERE / version / name, folder / "copy"))


def written(name: str, folder: Path) -> Path:
    (folder / "new").mkdir()
    SAMPLES[name].write(folder / "new")
    return folder / "new"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in VERSIONS for name in SAMPLES if (HERE / version / name).exists()],
)
def test_what_a_version_wrote_is_read_by_value(version: str, name: str, tmp_path: Path) -> None:
    assert repr(SAMPLES[name].read(copied(version, name, tmp_path))) == VALUES[name]


@samples
def test_what_is_written_today_is_read_by_value(name: str, tmp_path: Path) -> None:
    assert repr(SAMPLES[name].read(written(name, tmp_path))) == VALUES[name]


@samples
def test_a_changed_format_gets_a_new_version(name: str, tmp_path: Path) -> None:
    """If this fails, raise the version of the format, keep reading the older one, and keep its files as golden ones."""
    golden, new = files(copied(TODAY, name, tmp_path)), files(written(name, tmp_path))
    assert golden.keys() == new.keys()
    for file, data in new.items():
        assert shape(data) == shape(golden[file]), file
        assert not SAMPLES[name].exact or data == golden[file], file


def shape(data: bytes) -> object:
    """The format and version of a file, and what its parts are called."""
    if not data.startswith(MAGIC):
        return data[:16]
    head, _, body = data.partition(b"\n")
    _, name, version, *rest = head.decode().split(" ")
    if rest:
        return name, version, keys(json.loads(body)) if body[:1] in b"{[" else len(body)
    batches = open_batches(pa.BufferReader(data), FORMATS[name], "file")
    return name, version, keys(dict(batches.end)), {str(batches.batch(number).schema) for number in range(len(batches))}


def keys(value: object) -> object:
    """The names in a value of JSON."""
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items()}
    return [keys(part) for part in value] if isinstance(value, list) else type(value).__name__


@samples
def test_a_flipped_bit_is_named_or_changes_nothing(name: str, tmp_path: Path) -> None:
    folder = copied(TODAY, name, tmp_path)
    whole = files(folder)
    value = SAMPLES[name].read(folder)
    refused = 0
    for file, data in flips(whole):
        shutil.rmtree(folder)
        for path, content in whole.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data if path == file else content)
        try:
            assert SAMPLES[name].read(folder) == value, file
        except VolleyError:
            refused += 1
    assert refused, "no damage was noticed"


def flips(whole: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Files with a flipped bit each, of those that Volley writes."""
    dice = random.Random(7)
    beginnings = (MAGIC, b"VWL1", b"SQLite")
    ours = [file for file, data in whole.items() if file in MARKS or data.startswith(beginnings)]
    for _ in range(60):
        file = dice.choice(ours)
        data = bytearray(whole[file])
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        yield file, bytes(data)


@samples
def test_what_a_newer_version_wrote_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(StateFormat, "version", property(lambda format: 9))
        folder = written(name, tmp_path)
    with pytest.raises(VolleyError, match=r"was written by a newer Volley: format '[a-z-]+' version 9, .* up to \d"):
        SAMPLES[name].read(folder)


def test_every_format_has_a_sample_and_a_place_in_the_docs(tmp_path: Path) -> None:
    named = set()
    for path in (HERE / TODAY).rglob("*"):
        if path.is_file() and (match := re.match(rb"volley ([a-z-]+) ", path.read_bytes())):
            named.add(match[1].decode())
    assert {*FORMATS} - named == {"run", "webhook-keys"}
    page = (HERE.parents[1] / "docs" / "explanation" / "compatibility.md").read_text()
    table = re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE)
    assert {name: int(version) for name, version in table} == {name: each.version for name, each in FORMATS.items()}
