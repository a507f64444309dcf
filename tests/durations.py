"""pytest's plugin that keeps what tests cost: `--record-durations` writes it into `tests/durations.json`.

What took long is run first.

A cost is the CPU time of the process and of all below it, such as JVMs and servers: other work on the machine changes
it little. Run it in one process (`-p no:xdist`), with the files whose figures are to be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TypedDict

import psutil
import pytest

__all__ = ["Cost", "slower"]

_FILE = Path(__file__).with_name("durations.json")
# What takes longer than this has a line of its own.
_LONG_SECONDS = 1.0
# What takes longer than this runs first.
_FIRST_SECONDS = 5.0


class Cost(TypedDict):
    """What the tests of a file cost.

    Args:
        tests: How many there are in a run of all.
        seconds: The CPU seconds of all.
        longest: The CPU seconds of each test that takes more than one.
    """

    tests: int
    seconds: float
    longest: dict[str, float]


_COSTS: dict[str, Cost] = json.loads(_FILE.read_text()) if _FILE.exists() else {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first what waits or computes for long: at the end it would keep a core from the others, or all of them."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None and _recorded(item.nodeid) < _FIRST_SECONDS)


def _recorded(test: str) -> float:
    """Return the CPU seconds that a test took; 0 if it took less than one."""
    file, _, name = test.partition("::")
    return _COSTS[file]["longest"].get(name, 0.0) if file in _COSTS else 0.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records."""
    parser.addoption("--record-durations", action="store_true", help=f"write what each file's tests cost to {_FILE}")


def pytest_configure(config: pytest.Config) -> None:
    """Record, if that is asked for."""
    if config.getoption("--record-durations"):
        config.pluginmanager.register(_Recorder())


class _Recorder:
    def __init__(self) -> None:
        self._found: dict[str, Cost] = {}
        self._before = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            now = _cpu_seconds()
            self._add(item, round(max(now - self._before, 0), 2))
            self._before = now

    def _add(self, item: pytest.Item, seconds: float) -> None:
        file, _, name = item.nodeid.partition("::")
        cost = self._found.setdefault(file, Cost(tests=0, seconds=0, longest={}))
        cost["tests"] += 1
        cost["seconds"] = round(cost["seconds"] + seconds, 2)
        if seconds > _LONG_SECONDS:
            cost["longest"][name] = seconds

    def pytest_sessionfinish(self) -> None:
        _FILE.write_text(json.dumps(_COSTS | self._found, indent=1, sort_keys=True) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in slower(_COSTS, self._found):
            terminalreporter.write_line(line)


def slower(before: Mapping[str, Cost], now: Mapping[str, Cost]) -> list[str]:
    """Say which tests have become much slower: thrice as long as recorded, and by two seconds.

    Example:
        >>> before, now = (Cost(tests=1, seconds=seconds, longest={"t": seconds}) for seconds in (2.0, 9.0))
        >>> slower({"a.py": before}, {"a.py": now})
        ['slower: a.py::t, 9.0 s of CPU time instead of 2.0']
    """
    return [
        f"slower: {file}::{name}, {seconds} s of CPU time instead of {recorded}"
        for file, cost in now.items()
        if file in before
        for name, seconds in cost["longest"].items()
        for recorded in [before[file]["longest"].get(name, _LONG_SECONDS)]
        if seconds > max(3 * recorded, recorded + 2)
    ]


def _cpu_seconds() -> float:
    """The CPU time of this process and of all below it, with those that have ended."""
    here = psutil.Process()
    total = 0.0
    for process in [here, *here.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            # It has ended: its parent has its time.
            continue
    return total
