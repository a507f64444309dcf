"""Batches that are read again are those that were written, or the file is refused."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from volley import StorageError
from volley.storage.envelope import StateFormat
from volley.store.batch_file import BatchFileWriter, Damaged, damage, open_batches
from volley.store.files import new_file, open_file

FORMAT = StateFormat("example", 2)
ROWS = [
    pa.record_batch({"k": pa.array(["a", None, "c"]), "n": pa.array([1, 2, None])}),
    pa.record_batch({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())}),
    pa.record_batch({"k": pa.array(["d"]).dictionary_encode()}).replace_schema_metadata({"a": "b"}),
]


def written(compressed: bool = False, format: StateFormat = FORMAT) -> bytes:
    sink = io.BytesIO()
    file = BatchFileWriter(sink, format, pa.ipc.IpcWriteOptions(compression="lz4") if compressed else None)
    for rows in ROWS:
        file.write_batch(rows)
    assert file.close({"position": 7}) == len(sink.getvalue())
    return sink.getvalue()


def read(data: bytes) -> tuple[list[pa.RecordBatch], object]:
    file = open_batches(pa.BufferReader(data), FORMAT, "file")
    return [file.batch(number) for number in range(len(file))], dict(file.end)


@pytest.mark.parametrize("compressed", [False, True])
def test_batches_are_read_back(compressed: bool) -> None:
    batches, end = read(written(compressed))
    assert [batch.equals(rows, check_metadata=True) for batch, rows in zip(batches, ROWS, strict=True)] == [True] * 3
    assert end == {"position": 7}


def test_a_batch_is_read_alone(tmp_path: Path) -> None:
    """Of a file that many tasks read, each reads and checks only its own batches."""
    data = bytearray(written())
    first = data.index(b"\xff\xff\xff\xff")
    data[first + 100] ^= 1
    file = open_batches(pa.BufferReader(bytes(data)), FORMAT, "file")
    assert file.batch(2).equals(ROWS[2])
    with pytest.raises(Damaged, match="batch 0 does not fit its checksum"):
        file.batch(0)


@pytest.mark.parametrize("compressed", [False, True])
def test_no_flipped_bit_gives_other_rows(compressed: bool) -> None:
    sealed = written(compressed)
    whole = read(sealed)
    refused = 0
    for place in range(len(sealed)):
        data = bytearray(sealed)
        data[place] ^= 1 << place % 8
        try:
            assert read(bytes(data)) == whole
        except Damaged:
            refused += 1
    # Bytes between the blocks say nothing.
    assert refused > 0.9 * len(sealed)


def test_no_length_but_the_right_one_is_read() -> None:
    sealed = written()
    for size in range(len(sealed)):
        with pytest.raises(Damaged):
            read(sealed[:size])
    with pytest.raises(Damaged):
        read(sealed + b"\0")


def test_a_newer_file_is_refused_by_name_and_another_format_is_none() -> None:
    with pytest.raises(
        StorageError, match=r"^file was written by a newer Volley: format 'example' version 3, this one"
    ):
        read(written(format=StateFormat("example", 3)))
    with pytest.raises(Damaged, match="'other' and not 'example'"):
        read(written(format=StateFormat("other", 2)))


@pytest.mark.parametrize("of", [pa.ipc.new_file, pa.ipc.new_stream])
def test_files_and_streams_of_arrow_are_version_1(of: object) -> None:
    sink = pa.BufferOutputStream()
    with of(sink, ROWS[0].schema) as writer:  # type: ignore[operator]
        writer.write_batch(ROWS[0])
    file = open_batches(pa.BufferReader(sink.getvalue()), FORMAT, "file")
    assert (len(file), file.batch(0).equals(ROWS[0])) == (1, True)


@pytest.mark.parametrize("error", [pa.ArrowNotImplementedError("odd"), OSError("odd"), KeyError("odd")])
def test_whatever_arrow_raises_is_damage(error: Exception) -> None:
    with pytest.raises(Damaged, match=re.escape("it can't be read")), damage():
        raise error


class Unreachable(MemoryFileSystem):  # type: ignore[misc]
    """A storage that fails where a file is read."""

    protocol = "unreachable"
    error: OSError

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            raise self.error
        return super()._open(path, mode, **options)


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), PermissionError("denied"), TimeoutError("slow")])
def test_a_file_that_can_not_be_reached_is_not_called_damaged(error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    monkeypatch.setattr(Unreachable, "error", error, raising=False)
    url = "unreachable://folder/state.arrow"
    with new_file(url, StateFormat("example")) as file:
        file.write_batch(pa.record_batch({"a": [1]}))
    with pytest.raises(StorageError, match=f"state.arrow can't be read: {error}") as caught:
        open_file(url, StateFormat("example"), lambda path, fault: StorageError(f"{path} {fault}"))
    assert "damaged" not in str(caught.value)
    assert "start the job again" in str(caught.value.hint)
