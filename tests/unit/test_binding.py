"""A checkpoint tells the sources and the keyed steps of its job apart."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from volley import (
    DataStream,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    col,
    count,
    tumbling,
)
from volley.engine.binding import Binding
from volley.engine.checkpoint import Checkpoint
from volley.plan.graph import JobGraph


def windows(rows: DataStream) -> DataStream:
    return rows.key_by("k").window(tumbling("1m"), on="at").aggregate(n=count())


def deduplicated(rows: DataStream) -> DataStream:
    return rows.deduplicate("k")


def binding(folder: Path, **streams: DataStream) -> Binding:
    """The binding of a job that writes each stream to the table of its name."""
    storage = IcebergStorage.Local(str(folder))
    configs = {name: IcebergSinkConfig(namespace="db", table=name, storage=storage) for name in streams}
    pipelines = [stream.to_sink(IcebergSink(configs[name])) for name, stream in streams.items()]
    writes = [write for pipeline in pipelines for write in pipeline._writes]
    return Binding.of(JobGraph.of(writes))


def stateful(folder: Path, **streams: DataStream) -> list[str]:
    return [*(binding(folder, **streams).stateful or ())]


def sources(folder: Path, **streams: DataStream) -> list[str]:
    return [*(binding(folder, **streams).sources or ())]


@pytest.mark.parametrize("step", [windows, deduplicated])
def test_steps_that_are_alike_have_the_names_of_their_sinks(
    step: Callable[[DataStream], DataStream], tmp_path: Path
) -> None:
    """Else each would go on with the state of the other one when the pipelines of a job change places."""
    rows = Environment().from_source(MemorySource([], "k string, x long, at timestamp"))
    small, large = step(rows.filter(col("x") < 5)), step(rows.filter(col("x") >= 5))
    (alone,) = stateful(tmp_path, small=small)
    one, other = stateful(tmp_path, small=small, large=large)
    assert all(label.startswith(f"{alone}, for ") for label in (one, other))
    assert (one.rpartition("/")[2], other.rpartition("/")[2]) == ("db.small", "db.large")
    assert stateful(tmp_path, large=large, small=small) == [other, one]
    # One step before several sinks is alone, in whatever order they are.
    assert {*stateful(tmp_path, small=small, more=small)} == {alone}


def test_sources_that_are_alike_have_the_names_of_their_sinks(tmp_path: Path) -> None:
    """They may have read up to different offsets, when the pipelines of a job change places."""
    one, other = (Environment().from_source(MemorySource([{"k": "a"}], rows_per_epoch=n)) for n in (1, 2))
    small, large = sources(tmp_path, small=one, large=other)
    assert (small.rpartition("/")[2], large.rpartition("/")[2]) == ("db.small", "db.large")
    assert sources(tmp_path, large=other, small=one) == [large, small]
    assert sources(tmp_path, both=one.union(other)) == ["memory:memory"] * 2
    assert sources(tmp_path, small=one, more=one) == ["memory:memory"]
    assert sources(tmp_path, small=one.deduplicate("k"), large=one.limit(3)) == ["memory:memory"]


def test_drivers_that_begin_a_checkpoint_at_once_have_one_query(tmp_path: Path) -> None:
    """Each with one of its own would write all rows, as no table has a mark of its query."""
    start = Barrier(4)

    def begin(folder: Path) -> str | None:
        checkpoint = Checkpoint(str(folder), "job")
        start.wait()
        return checkpoint.bind(JobGraph.of([]), backfill=False, new_query=False).query_id

    with ThreadPoolExecutor(4) as drivers:
        for number in range(20):
            folder = tmp_path / str(number)
            (query,) = {*drivers.map(begin, [folder] * 4)}
            assert query == Checkpoint(str(folder), "job").query_id
