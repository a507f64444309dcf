"""What readers are told by Spark's log of offsets, and what they are not told where it can't be relied on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spool import SpoolReader, calls
from volley import Reader
from volley.engine.acknowledge import Readers
from volley.spark.log import SparkLog


def write(folder: Path, log: str, epoch: int, *lines: str) -> None:
    (folder / log).mkdir(exist_ok=True)
    (folder / log / str(epoch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))


def readers(folder: Path, *each: Reader | None) -> Readers:
    return Readers("job", each or (SpoolReader(folder, None),), SparkLog(str(folder)))


def test_a_line_more_than_the_pipeline_has_sources_is_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "offsets", 0, '{"files": 1}', '{"files": 2}')
    told = readers(tmp_path)
    told.start()
    told.committed(0)
    assert calls(tmp_path) == [("start",)]
    assert "epoch 0 has 2 sources, not 1" in caplog.text


def test_a_source_without_an_offset_is_passed_over(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    write(tmp_path, "offsets", 0, "-", "7", '{"files": 2}')
    one, other = (SpoolReader(folder, None) for folder in folders)
    readers(tmp_path, one, None, other).committed(0)
    assert [calls(folder) for folder in folders] == [[], [("committed", 2)]]


@pytest.mark.parametrize("text", [None, "v2\n{}\n{}", "v1\n{}\nno JSON"])
def test_a_log_that_can_not_be_read_is_no_reason_to_stop(
    text: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "commits", 3)
    if text is not None:
        write(tmp_path, "offsets", 3)
        (tmp_path / "offsets" / "3").write_text(text)
    told = readers(tmp_path)
    told.start()
    write(tmp_path, "offsets", 4, '{"files": 5}')
    told.committed(4)
    told.stop()
    assert calls(tmp_path) == [("start",), ("committed", 5), ("stop",)]
    assert "epoch 3" in caplog.text


def test_what_was_told_is_not_told_again_in_the_same_run(tmp_path: Path) -> None:
    write(tmp_path, "offsets", 0, '{"files": 1}')
    write(tmp_path, "commits", 0)
    told = readers(tmp_path)
    told.start()
    told.committed(0)
    told.stop()
    told.stop()
    assert calls(tmp_path) == [("start",), ("committed", 1), ("stop",)]


def test_readers_are_stopped_in_reverse(tmp_path: Path) -> None:
    stopped: list[str] = []

    class Named(SpoolReader):
        def start(self) -> None:
            """Nothing."""

        def stop(self) -> None:
            stopped.append(self.folder.name)

    told = readers(tmp_path, *(Named(tmp_path / name, None) for name in ("a", "b")))
    told.start()
    told.stop()
    assert stopped == ["b", "a"]
