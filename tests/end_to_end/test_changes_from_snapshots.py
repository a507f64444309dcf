"""Jobs that compare extracts: what they commit, what they refuse before they do, and how they go on."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.waiting import wait_until
from volley import (
    Environment,
    ExpectationError,
    FileSource,
    History,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    Job,
    MemorySource,
    SourceError,
    Upsert,
)

Row = dict[str, Any]
Rows = Callable[[], list[Row]]
SCHEMA = "id long, name string, day date"


def write(folder: Path, day: int, *rows: Row | str, at: int | None = None) -> Path:
    path = folder / "in" / f"day=2026-01-0{day}" / "all.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    if at is not None:
        os.utime(path, (at, at))
    return path


def run(environment: Environment, config: IcebergSinkConfig, folder: Path, **more: Any) -> Job:
    options = {name: more.pop(name) for name in ("fresh", "into") if name in more}
    schema = more.pop("schema", SCHEMA)
    settings = {"keys": "id", "version": "day", "max_deleted": None, **more}
    changes = environment.changes_from_snapshots(FileSource(folder / "in", "json", schema), **settings)
    sink = IcebergSink(config.with_commit_mode(Upsert(sequence="day")).with_dead_letter("bad"))
    return environment.execute("customers", changes.to_sink(sink), **options)


def names(rows: Rows) -> dict[int, str]:
    return {row["id"]: row["name"] for row in rows()}


A, B, C = ({"id": id, "name": name} for id, name in enumerate("abc"))


def test_a_job_goes_on_with_the_extracts_that_come(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B)
    write(tmp_path, 2, A, {**B, "name": "B"}, C)
    assert run(native, config, tmp_path).progress.rows == 4
    assert names(rows) == {0: "a", 1: "B", 2: "c"}
    assert run(native, config, tmp_path).progress.rows == 0
    write(tmp_path, 4, C)
    job = run(native, config, tmp_path)
    assert names(rows) == {2: "c"}
    # What orders extracts is no time of theirs.
    assert (job.progress.rows, [source.watermark for source in job.status().sources]) == (2, [None])
    assert sorted({row["day"].day for row in rows()}) == [2]


def test_too_many_deletions_fail_the_epoch_until_they_are_allowed(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B, C)
    # As large as the one before.
    write(tmp_path, 2, {**A, "name": "a" * 100})
    with pytest.raises(
        ExpectationError,
        match=r"2 of 3 rows of epoch 1 do not meet 'an extract of .* has the row of before \(max_deleted\)'",
    ):
        run(native, config, tmp_path, max_deleted=0.5)
    assert names(rows) == {0: "a", 1: "b", 2: "c"}
    run(native, config, tmp_path, max_deleted=0.7)
    assert names(rows) == {0: "a" * 100}


@pytest.mark.parametrize("bad", ['{"id": "x", "name": "a"}', '{"name": "a"}'], ids=["unreadable", "without a key"])
def test_an_extract_with_bad_rows_deletes_nothing(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path, bad: str
) -> None:
    write(tmp_path, 1, A, B)
    write(tmp_path, 2, bad, C)
    job = run(native, config, tmp_path)
    assert job.progress.rejected == 1
    assert names(rows) == {0: "a", 1: "b", 2: "c"}
    write(tmp_path, 3, C)
    run(native, config, tmp_path)
    assert names(rows) == {2: "c"}


def test_an_extract_that_was_written_again_is_read_again(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B, at=1_000_000)
    run(native, config, tmp_path)
    write(tmp_path, 1, A, B, at=2_000_000)
    assert run(native, config, tmp_path).progress.rows == 0
    write(tmp_path, 1, A, {**B, "name": "B"}, at=3_000_000)
    with pytest.raises(SourceError, match="extract 2026-01-01 was written again with other rows, as for the key id=1"):
        run(native, config, tmp_path)
    assert names(rows) == {0: "a", 1: "b"}
    write(tmp_path, 1, A, B, at=4_000_000)
    write(tmp_path, 2, A)
    run(native, config, tmp_path)
    assert names(rows) == {0: "a"}


def test_an_extract_may_delete_all(native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path) -> None:
    write(tmp_path, 1, A, B)
    run(native, config, tmp_path)
    write(tmp_path, 2)
    with pytest.raises(SourceError, match=r"extract 2026-01-02 .* has no rows"):
        run(native, config, tmp_path)
    assert names(rows) == {0: "a", 1: "b"}
    run(native, config, tmp_path, on_empty="delete_all")
    assert rows() == []
    write(tmp_path, 3, B)
    run(native, config, tmp_path)
    assert names(rows) == {1: "b"}


def test_columns_come_and_go(native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path) -> None:
    write(tmp_path, 1, A, B)
    run(native, config, tmp_path)
    write(tmp_path, 2, {**A, "city": "Oslo"}, B)
    config = config.with_schema_evolution("add_columns")
    job = run(native, config, tmp_path, schema="id long, name string, city string, day date")
    assert job.progress.rows == 1
    assert [(row["id"], row["city"]) for row in rows()] == [(0, "Oslo"), (1, None)]
    write(tmp_path, 3, {"id": 0, "city": "Oslo"}, {"id": 1})
    assert run(native, config, tmp_path, schema="id long, city string, day date").progress.rows == 0


def test_a_job_that_starts_over_changes_nothing_that_is_right(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B)
    write(tmp_path, 2, B, C)
    write(tmp_path, 3, B, {**C, "name": "C"})
    run(native, config, tmp_path)
    before = rows()
    run(native, config, tmp_path, fresh=True, into="append")
    assert rows() == before
    assert names(rows) == {1: "b", 2: "C"}


def test_an_extract_that_an_epoch_can_not_pass_is_put_right_and_the_job_starts_over(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B)
    write(tmp_path, 2, B, C)
    run(native, config, tmp_path)
    write(tmp_path, 3, B, B)
    with pytest.raises(SourceError, match="extract 2026-01-03 has 2 rows with the key id=1"):
        run(native, config, tmp_path)
    write(tmp_path, 3, {**B, "name": "right"})
    with pytest.raises(SourceError, match=r"extract 2026-01-03 \(.*\) has other files, or files of other sizes"):
        run(native, config, tmp_path)
    # Of those before, the last one is enough.
    (tmp_path / "in" / "day=2026-01-01" / "all.json").unlink()
    run(native, config, tmp_path, fresh=True, into="append")
    assert names(rows) == {1: "right"}


def versions(extracts: list[dict[int, str]]) -> list[tuple[int, str, int, int | None]]:
    """The history of some extracts: key, name, from which day on it held, and until when."""
    found, current = [], dict[int, tuple[str, int]]()
    for day, extract in enumerate([*extracts, None], start=1):
        for key, (name, since) in list(current.items()):
            if extract is None or extract.get(key) != name:
                found.append((key, name, since, None if extract is None else day))
                del current[key]
        for key, name in (extract or {}).items():
            current.setdefault(key, (name, day))
    return sorted(found, key=repr)


def test_extracts_become_a_history(native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path) -> None:
    dice = random.Random(3)
    extracts = [{key: dice.choice("ab") for key in range(12) if dice.random() < 0.7} for _ in range(6)]

    def run_history(**options: Any) -> None:
        source = FileSource(tmp_path / "in", "json", SCHEMA)
        changes = native.changes_from_snapshots(source, "id", "day", max_deleted=None)
        sink = IcebergSink(config.with_commit_mode(History(sequence="day")))
        native.execute("history", changes.to_sink(sink), **options)

    for day, extract in enumerate(extracts, start=1):
        write(tmp_path, day, *({"id": key, "name": name} for key, name in extract.items()))
        if day in (2, 3, 6):
            run_history()
    found = [(row["id"], row["name"], row["valid_from"].day, row["valid_to"] and row["valid_to"].day) for row in rows()]
    assert sorted(found, key=repr) == versions(extracts)
    before = sorted(map(repr, rows()))
    run_history(fresh=True, into="append")
    assert sorted(map(repr, rows())) == before


def test_extracts_that_were_read_may_be_archived(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    settings = {"schema": "id long, name string", "version": r"day=(?P<day>\d{4}-\d\d-\d\d)/"}
    (tmp_path / "in").mkdir()
    with pytest.raises(SourceError, match="has no extract yet"):
        run(native, config, tmp_path, **settings)
    first = write(tmp_path, 1, A, B)
    run(native, config, tmp_path, **settings)
    first.unlink()
    assert run(native, config, tmp_path, **settings).progress.rows == 0
    write(tmp_path, 2, B, C)
    assert run(native, config, tmp_path, **settings).progress.rows == 2
    assert names(rows) == {1: "b", 2: "c"}


def test_tasks_of_spark_compare_the_states_of_a_table(
    native: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    source = config.ref.beside("source")
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    source.load_catalog().create_namespace_if_not_exists("db")
    table = source.load_catalog().create_table("db.source", schema)
    changes = native.changes_from_snapshots(IcebergSource(IcebergSourceConfig(source)), "id", max_deleted=None)
    pipeline = changes.to_sink(IcebergSink(config.with_commit_mode(Upsert(sequence="_version"))))
    for first in (0, 500, 700):
        table.append(pa.table({"id": range(first, 1000), "name": ["x"] * (1000 - first)}, schema))
        pipeline.execute("states")
        assert names(rows) == dict.fromkeys(range(first, 1000), "x")
        table.delete(f"id < {first + 1000}")
    times = {row["_version"] for row in rows()}
    assert len(times) == 1


def test_a_job_waits_for_the_next_extract(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B)
    source = FileSource(tmp_path / "in", "json", SCHEMA, bounded=False)
    changes = native.changes_from_snapshots(source, "id", "day", max_deleted=None)
    sink = IcebergSink(config.with_commit_mode(Upsert(sequence="day")).with_flush_interval("50ms"))
    job = native.start("watch", changes.to_sink(sink))
    try:
        wait_until(lambda: job.progress.rows == 2, 60, "the first extract")
        write(tmp_path, 2, B, C)
        wait_until(lambda: job.progress.rows == 4, 60, "the second one")
    finally:
        job.stop()
    assert names(rows) == {1: "b", 2: "c"}


def test_an_epoch_of_other_sources_deletes_nothing(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    write(tmp_path, 1, A, B)
    changes = native.changes_from_snapshots(FileSource(tmp_path / "in", "json", SCHEMA), "id", "day")
    ticks = native.from_source(MemorySource([{"n": n} for n in range(3)], rows_per_epoch=1))
    other = IcebergSinkConfig.from_table(config.ref.beside("ticks"))
    native.execute(
        "both",
        changes.to_sink(IcebergSink(config.with_commit_mode(Upsert(sequence="day")))),
        ticks.to_sink(IcebergSink(other)),
    )
    assert names(rows) == {0: "a", 1: "b"}
    assert other.ref.load().scan().count() == 3
