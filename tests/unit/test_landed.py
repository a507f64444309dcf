"""The record of what has landed is an additional check: a damaged one stops nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from volley import Epoch, FileSink, Metrics, SinkContext, StorageError
from volley.engine.landed import Landed
from volley.spark.log import SparkLog


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", "null", '{"a": [1]}', '{"a": "x"}', '{"a": null}'])
def test_a_damaged_record_is_an_empty_one(text: str, tmp_path: Path) -> None:
    committer = FileSink(tmp_path / "out", format="json").open(SinkContext("job", pa.schema([]), Metrics()))
    committer.commit(Epoch("2b6f8a5e", 3), [])
    log = SparkLog(str(tmp_path / "checkpoint"))
    (tmp_path / "checkpoint" / "volley").mkdir(parents=True)
    (tmp_path / "checkpoint" / "volley" / "landed.json").write_text(text)
    Landed(log).remember([committer], "2b6f8a5e")
    with pytest.raises(StorageError, match="had epoch 3 of this job and now has none"):
        Landed(log).check(committer, None)
