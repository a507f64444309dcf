"""The runner: whose turn it is, the CPU of a run, and the page made of medians and ratios of what runs have kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as runner
from benchmarks.benchmark import BENCHMARKS, Benchmark
from benchmarks.events import events_folder
from benchmarks.page import write_page
from benchmarks.rows import LIMIT, NATIVE, RUNTIME, case_of
from benchmarks.run import Result, Run
from benchmarks.small_runs import SECONDS, before, meanwhile, told

LARGE = case_of(1_000_000)


def result(peer: str, seconds: float, case: str = LARGE) -> Result:
    speeds = {"rows_per_second": 1_000 / seconds, "rows_per_cpu_second": 500 / seconds}
    return Result(peer, case, {**speeds, "worker_mb": None, "jvm_mb": 100.0, "driver_mb": 50.0, "epochs": seconds})


RUNS = [
    *(result(NATIVE, seconds) for seconds in (1.0, 4.0, 2.0)),
    *(result(RUNTIME, seconds) for seconds in (6.0, 5.0, 50.0)),
    result(NATIVE, 1.0, "small epochs"),
    result("pyarrow", 0.5, LIMIT),
]


def test_there_are_more_than_twenty_benchmarks_each_with_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    runner.main([])
    listed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(listed) == list(BENCHMARKS)
    assert len(listed) > 20
    assert all(listed.values())


def test_the_page_compares_medians_of_the_last_runs_with_the_runtime_in_the_same_case_and_with_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = BENCHMARKS["files_to_iceberg"]
    runner.keep(benchmark, RUNS[:2], tmp_path)
    runner.keep(benchmark, RUNS, tmp_path)
    page = write_page(tmp_path, tmp_path / "page").read_text()
    lines = [line for line in page.splitlines() if line.startswith((f"| {NATIVE},", f"| {RUNTIME},"))]
    assert lines == [
        f"| {NATIVE}, {LARGE} | 500 | 250–1,000 | 250 | – | 100 | 50 | 2 | – | – | 3.00 | 3.00 | 0.25 |",
        f"| {RUNTIME}, {LARGE} | 167 | 20–200 | 83.3 | – | 100 | 50 | 6 | – | – | 1.00 | 1.00 | 0.08 |",
        f"| {NATIVE}, small epochs | 1,000 | – | 500 | – | 100 | 50 | 1 | – | – | – | – | 0.50 |",
    ]
    assert [line for line in page.splitlines() if line.startswith("| files_to_iceberg |")] == [
        f"| files_to_iceberg | {NATIVE}, {LARGE}: rows/s | 3 × the runtime's | 2 | ok |",
        f"| files_to_iceberg | {NATIVE}, {LARGE}: rows per CPU-second | 3 × the runtime's | 2 | ok |",
        f"| files_to_iceberg | {NATIVE}, {LARGE}: rows per CPU-second | 0.25 × the limit's | 0.75 | **not** |",
    ]
    assert "<svg" in (tmp_path / "page" / "plots" / "files_to_iceberg.svg").read_text()
    assert write_page(tmp_path / "nothing has run", tmp_path / "page").read_text() == page
    runner.show(benchmark, RUNS)
    assert f"not: {NATIVE}, {LARGE}: rows per CPU-second 0.25" in capsys.readouterr().out


def test_the_page_of_results_keeps_what_it_says_of_benchmarks_that_do_not_run(tmp_path: Path) -> None:
    before = (Path(runner.__file__).parent / "RESULTS.md").read_text()
    (tmp_path / "RESULTS.md").write_text(before)
    after = write_page(tmp_path / "nothing kept", tmp_path).read_text()
    assert sorted(after.splitlines()) == sorted(before.splitlines())


def test_many_rows_take_the_disk_of_sixteen_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = sorted(events_folder(200, 10).glob("*.parquet"))
    assert len(files) == 20
    assert len({file.stat().st_ino for file in files}) == 16


def shared(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    yield {"prepared": asked.options["size"] * 2, "shared": str(folder)}


TOLD = Benchmark(
    *("told", told, 10, 2, {"a": "A", "b": "B", "c": "C"}, {"sizes": (1, 2), "size": 3}, "sizes"),
    figures=("rows",),
    prepare=shared,
)


def test_peers_take_turns_each_run_in_a_process_and_a_folder_of_its_own(tmp_path: Path) -> None:
    results = runner.run(TOLD.asked(20, 2, ["a", "b"], ["sizes=5,6", "size=4"]), tmp_path)
    assert [(each.peer, each.case) for each in results] == [("A", 5), ("A", 6), ("B", 5), ("B", 6)] * 2
    assert len({each.figures["process"] for each in results} | {os.getpid()}) == 9
    assert not any(Path(each.figures["folder"]).exists() for each in results)
    assert all(each.figures["rows"] == 20 for each in results)
    options = results[0].figures["options"]
    assert options == {"sizes": [5, 6], "size": 4, "prepared": 8, "shared": options["shared"]}
    assert not Path(options["shared"]).exists()


def test_a_peer_that_can_not_run_here_is_left_out(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = runner.run(TOLD.asked(None, 1, ["b", "c"], ["sizes=5"]), tmp_path)
    assert [each.peer for each in results] == ["B"]
    assert "C skipped: its packages are not there" in capfd.readouterr().err


@pytest.mark.parametrize("given", [{"peers": ["d"]}, {"given": ["length=1"]}])
def test_a_peer_or_a_setting_that_is_not_there_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"has no (peer|setting)"):
        TOLD.asked(**{"rows": None, "repeat": None, "peers": None, "given": [], **given})


def test_the_cpu_of_all_processes_below_counts() -> None:
    (found,) = Run(rows=1).apart(meanwhile)
    assert SECONDS * 0.9 < found.figures["cpu_seconds"] < 10 * SECONDS


def test_the_cpu_of_a_process_that_loses_its_parent_does_not_count_as_less_than_none() -> None:
    (found,) = Run(rows=1).apart(before)
    assert 0 < found.figures["cpu_seconds"] < SECONDS
