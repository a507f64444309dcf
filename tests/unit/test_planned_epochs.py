"""Which splits an epoch has, by Spark's own log of offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from volley import MemorySource, Reader, SourceContext, StorageError
from volley.spark.log import PlannedEpochs, SparkLog


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return MemorySource([{"id": number} for number in range(10)]).open(SourceContext(str(tmp_path / "state")))


def log(folder: Path, *ends: int, version: str = "v1") -> SparkLog:
    """A checkpoint as Spark leaves it, of epochs that end at these rows."""
    (folder / "offsets").mkdir(exist_ok=True)
    for epoch, end in enumerate(ends):
        (folder / "offsets" / str(epoch)).write_text(f'{version}\n{{"batchWatermarkMs":0}}\n{{"rows": {end}}}')
    return SparkLog(str(folder))


def test_each_epoch_begins_where_the_one_before_has_ended(reader: Reader, tmp_path: Path) -> None:
    planned = PlannedEpochs(log(tmp_path, 3, 3, 10), [reader])
    assert [planned.splits(epoch) for epoch in (0, 1, 2)] == [[(0, (0, 3, False))], [], [(0, (3, 10, False))]]


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_an_epoch_that_is_written_again_has_the_same_splits(reader: Reader, tmp_path: Path, epoch: int) -> None:
    checkpoint = log(tmp_path, 3, 5, 10)
    planned = PlannedEpochs(checkpoint, [reader])
    first = [planned.splits(number) for number in range(epoch + 1)][-1]
    # In the same run, and in another one that begins with it.
    assert planned.splits(epoch) == PlannedEpochs(checkpoint, [reader]).splits(epoch) == first != []


def test_offsets_in_a_form_that_is_not_known_are_refused(reader: Reader, tmp_path: Path) -> None:
    planned = PlannedEpochs(log(tmp_path, 3, version="v2"), [reader])
    with pytest.raises(StorageError, match=r"offsets/0 is not in Spark's form v1: v2"):
        planned.splits(0)


def test_a_log_that_lacks_the_epoch_is_an_error(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="can't be used"):
        PlannedEpochs(log(tmp_path, 3), [reader]).splits(1)
