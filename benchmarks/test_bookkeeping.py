"""The benchmarks' bookkeeping: names, medians, ratios, and the page that is made of what runs have kept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.comparison import LIMIT, NATIVE, aims, case_of, compared, show
from benchmarks.events import events_folder
from benchmarks.measure import Result
from benchmarks.peers.runtime_job import NAME as RUNTIME
from benchmarks.report import Figure
from benchmarks.results import write_page

MAKEFILE = Path(__file__).parents[1] / "Makefile"


LARGE = case_of(1_000_000)


def result(name: str, seconds: float, case: str = LARGE, rows: int = 1_000) -> Result:
    return Result(name, rows, seconds, seconds * 2, 0.0, 100.0, 50.0, {"epochs": seconds}, case)


RUNS = [
    *(result(NATIVE, seconds) for seconds in (1.0, 4.0, 2.0)),
    *(result(RUNTIME, seconds) for seconds in (6.0, 5.0, 50.0)),
    result(NATIVE, 1.0, "small epochs"),
    result("pyarrow", 0.5, LIMIT),
]


def test_medians_of_all_runs_are_compared_with_the_runtimes_of_the_same_case() -> None:
    large, runtime, small, _ = compared(RUNS)
    assert large.speed == 500
    assert large.ratios == pytest.approx((3, 3, 0.25))
    assert runtime.ratios == pytest.approx((1, 1, 1 / 12))
    assert small.ratios == (None, None, 0.5)


def test_volley_has_to_be_twice_as_fast_as_the_runtime_and_near_the_limit() -> None:
    figures = list(aims(compared(RUNS)))
    assert [(round(figure.value, 2), figure.bound, figure.ok) for figure in figures] == [
        (3, 2, True),
        (3, 2, True),
        (0.25, 0.75, False),
    ]


def test_there_are_twenty_benchmarks_and_make_bench_runs_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    listed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(BENCHMARKS)
    assert len(listed) > 20
    target = re.search(r"^BENCHMARKS \?= ((?:.*\\\n)*.*)$", MAKEFILE.read_text(), re.MULTILINE)
    assert target is not None
    assert target[1].replace("\\", "").split() == [name for name in BENCHMARKS if name != "report"]


def test_the_page_has_what_runs_have_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    report = show("files_to_iceberg", RUNS)
    report.figure(Figure.at_least("written", 50.0, 100, "rows/s"))
    report.figure(Figure.below("plan", 50.0, 100, "ms"))
    report.print()
    report.print()  # the last run counts
    page = write_page(tmp_path / ".volley" / "bench", tmp_path / "page").read_text()
    volley = "| Volley, Arrow-native, 1 M rows an epoch | 500 | 250–1,000 | 250 | – | 100 | 50 | 3.00 | 3.00 | 0.25 |"
    assert page.count(volley) == 1
    assert "| Volley, Arrow-native, 1 M rows an epoch | 2 |" in page
    assert "| files_to_iceberg | written | 50 rows/s | 100 | **not** |" in page
    assert "| files_to_iceberg | plan | 50 ms | 100 | ok |" in page
    assert "<svg" in (tmp_path / "page" / "plots" / "files_to_iceberg.svg").read_text()


def test_many_rows_take_the_disk_of_sixteen_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = sorted(events_folder(200, 10).glob("*.parquet"))
    assert len(files) == 20
    assert len({file.stat().st_ino for file in files}) == 16


BUSY = """
import subprocess, sys
from benchmarks.measure import measured, print_result
busy = "import time\\nwhile time.process_time() < 0.3: pass"
print_result(measured("busy", 1, lambda: {"status": subprocess.run([sys.executable, "-c", busy]).returncode}))
"""


def test_the_cpu_of_child_processes_counts() -> None:
    # In a process of its own: the tests' own has children that may end meanwhile, and take their figures along.
    output = subprocess.run([sys.executable, "-c", BUSY], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert Result(**json.loads(output)).cpu_seconds > 0.2  # the system counts in hundredths
