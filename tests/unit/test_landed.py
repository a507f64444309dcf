"""The record of what has landed tells a target that is an old copy; a damaged record is named, and can be repaired."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from volley import Epoch, FileSink, Metrics, SinkContext, StorageError, repair
from volley.engine.records import Landed
from volley.spark.log import SparkLog


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", "null", '{"a": [1]}', '{"a": "x"}', '{"a": null}'])
def test_a_damaged_record_is_named(text: str, tmp_path: Path) -> None:
    record = tmp_path / "checkpoint" / "volley" / "landed.json"
    record.parent.mkdir(parents=True)
    record.write_text(text)
    with pytest.raises(StorageError, match=r"landed\.json is damaged") as caught:
        Landed(SparkLog(str(tmp_path / "checkpoint")))
    assert "volley.repair" in str(caught.value.hint)


def test_a_repair_forgets_a_damaged_record(tmp_path: Path) -> None:
    committer = FileSink(tmp_path / "out", format="json").open(SinkContext("job", pa.schema([]), Metrics()))
    committer.commit(Epoch("2b6f8a5e", 3), [])
    log = SparkLog(str(tmp_path / "checkpoint"))
    Landed(log).remember([committer], "2b6f8a5e")
    record = tmp_path / "checkpoint" / "volley" / "landed.json"
    record.write_bytes(record.read_bytes()[:-1])
    (line,) = repair(tmp_path / "checkpoint")
    assert "landed.json is damaged: deletes it" in line
    Landed(log).remember([committer], "2b6f8a5e")
    with pytest.raises(StorageError, match="had epoch 3 of this job and now has none"):
        Landed(log).check(committer, None)
