"""The runner: whose turn it is, medians, ratios, and the page made of what runs have kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import runner
from benchmarks.__main__ import main
from benchmarks.benchmark import BENCHMARKS, Benchmark
from benchmarks.events import events_folder
from benchmarks.page import write_page
from benchmarks.rows import AIMS, LIMIT, NATIVE, RUNTIME, case_of, in_rows
from benchmarks.run import Result
from benchmarks.test_measure import told

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


def test_medians_of_all_runs_are_compared_with_the_runtimes_of_the_same_case() -> None:
    large, runtime, small, _ = in_rows(RUNS)
    assert large.median("rows_per_second") == 500
    assert large.times_runtime("rows_per_second") == pytest.approx(3)
    assert large.times_runtime("rows_per_cpu_second") == pytest.approx(3)
    assert large.times_limit("rows_per_cpu_second") == pytest.approx(0.25)
    assert runtime.times_runtime("rows_per_second") == 1
    assert small.times_runtime("rows_per_second") is None
    assert small.times_limit("rows_per_cpu_second") == 0.5


def test_volley_has_to_be_twice_as_fast_as_the_runtime_and_near_the_limit() -> None:
    bounds = [bound for row in in_rows(RUNS) for bound in AIMS(row)]
    assert [(round(bound.value, 2), bound.bound, bound.ok) for bound in bounds] == [
        (3, 2, True),
        (3, 2, True),
        (0.25, 0.75, False),
    ]


def test_there_are_more_than_twenty_benchmarks_each_with_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    listed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(listed) == list(BENCHMARKS)
    assert len(listed) > 20
    assert all(listed.values())


def test_the_page_has_what_the_last_run_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = BENCHMARKS["files_to_iceberg"]
    runner.keep(benchmark, RUNS[:2], tmp_path)
    runner.keep(benchmark, RUNS, tmp_path)
    page = write_page(tmp_path, tmp_path / "page").read_text()
    volley = "| Volley, Arrow-native, 1 M rows an epoch | 500 | 250–1,000 | 250 | – | 100 | 50 | 2 | – | – |"
    assert page.count(f"{volley} 3.00 | 3.00 | 0.25 |") == 1
    assert f"| files_to_iceberg | {NATIVE}, {LARGE}: rows/s | 3 × the runtime's | 2 | ok |" in page
    assert (
        f"| files_to_iceberg | {NATIVE}, {LARGE}: rows per CPU-second | 0.25 × the limit's | 0.75 | **not** |" in page
    )
    assert "<svg" in (tmp_path / "page" / "plots" / "files_to_iceberg.svg").read_text()
    assert write_page(tmp_path / "nothing has run", tmp_path / "page").read_text() == page
    runner.show(benchmark, RUNS)
    assert f"not: {NATIVE}, {LARGE}: rows per CPU-second 0.25" in capsys.readouterr().out


def test_many_rows_take_the_disk_of_sixteen_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = sorted(events_folder(200, 10).glob("*.parquet"))
    assert len(files) == 20
    assert len({file.stat().st_ino for file in files}) == 16


def shared(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    yield {"prepared": asked.options["size"] * 2, "shared": str(folder)}


def test_peers_take_turns_each_run_in_a_process_and_a_folder_of_its_own(tmp_path: Path) -> None:
    options = {"sizes": (1, 2), "size": 3}
    benchmark = Benchmark(
        "told", told, 10, 2, {"a": "A", "b": "B"}, options, "sizes", figures=("rows",), prepare=shared
    )
    results = runner.run(benchmark.asked(20, 2, None, ["sizes=5,6", "size=4"]), tmp_path)
    assert [(each.peer, each.case) for each in results] == [("A", 5), ("A", 6), ("B", 5), ("B", 6)] * 2
    assert len({each.figures["process"] for each in results} | {os.getpid()}) == 9
    assert not any(Path(each.figures["folder"]).exists() for each in results)
    assert all(each.figures["rows"] == 20 for each in results)
    options = results[0].figures["options"]
    assert options == {"sizes": [5, 6], "size": 4, "prepared": 8, "shared": options["shared"]}
    assert not Path(options["shared"]).exists()


@pytest.mark.parametrize("given", [{"peers": ["c"]}, {"given": ["length=1"]}])
def test_a_peer_or_a_setting_that_is_not_there_is_refused(given: dict[str, Any]) -> None:
    asked = {"rows": None, "repeat": None, "peers": None, "given": [], **given}
    with pytest.raises(SystemExit, match=r"has no (peer|setting)"):
        Benchmark("told", told, peers={"a": "A", "b": "B"}, options={"size": 3}).asked(**asked)
