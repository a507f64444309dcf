"""``make fuzz``: mutates every kind of file that Volley reads; status 1 if one is neither refused nor read right."""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz import conversions
from tests.fuzz.targets import TARGETS

_CASES = 200
_SECONDS = 120
_CONVERSIONS = "texts as values"


def main(arguments: list[str]) -> None:
    """Fuzz all targets in turn until the time is over; print a row for each, then each failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="repeats a run; by default another one each time")
    every = [*TARGETS, _CONVERSIONS]
    parser.add_argument("--targets", nargs="+", choices=every, default=every)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"fuzz: seed {seed}, {options.minutes:g} minutes, {len(options.targets)} targets", flush=True)
    outcomes = fuzz(options.targets, seed, options.minutes * 60, options.processes)
    Console(width=None if sys.stdout.isatty() else 120).print(_table(outcomes))
    failures = [
        f"{name}: {times} × {outcome}" for name, counts in outcomes.items() for outcome, times in _failed(counts)
    ]
    print(*failures, sep="\n")
    if failures:
        sys.exit("fuzz: failed")


def fuzz(names: list[str], seed: int, seconds: float, processes: int) -> dict[str, Counter[str]]:
    """Return for each target how often each outcome came.

    Args:
        names: The targets' names.
        seed: Chooses the mutations.
        seconds: When to begin no more.
        processes: How many run at the same time.
    """
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in names}
    deadline = time.monotonic() + seconds

    def work(number: int) -> None:
        turn = number
        while time.monotonic() < deadline or turn < len(names):
            name = names[turn % len(names)]
            counts = _converted(seed + turn) if name == _CONVERSIONS else _in_a_child(name, seed + turn)
            outcomes[name].update(counts)
            turn += processes

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(work, range(processes)))
    return outcomes


def _converted(seed: int) -> Counter[str]:
    """Run the conversions of texts, which have child processes of their own."""
    failures = Counter(conversions.run(seed))
    return failures + Counter({"read": max(0, conversions.CASES - failures.total())})


def _in_a_child(name: str, seed: int) -> Counter[str]:
    with tempfile.NamedTemporaryFile(prefix="volley-fuzz-") as progress:
        command = [sys.executable, "-m", "tests.fuzz.child", name, str(seed), str(_CASES), progress.name]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return Counter({f"no end after {_SECONDS} s (seed and case {Path(progress.name).read_text()})": 1})
        if ended.returncode:
            last = ended.stderr.strip().splitlines()[-1:]
            case = Path(progress.name).read_text()
            return Counter({f"ended with status {ended.returncode} {last} (seed and case {case})": 1})
    lines = (line.partition(" ") for line in ended.stdout.splitlines())
    return Counter({outcome: int(times) for times, _, outcome in lines})


def _failed(counts: Counter[str]) -> list[tuple[str, int]]:
    return [(outcome, times) for outcome, times in counts.items() if outcome not in ("refused", "read")]


def _table(outcomes: dict[str, Counter[str]]) -> Table:
    table = Table("target", "cases", "refused", "read", "failed", title="fuzz")
    for name, counts in outcomes.items():
        failed = sum(times for _, times in _failed(counts))
        table.add_row(name, *(f"{n:,}" for n in (counts.total(), counts["refused"], counts["read"], failed)))
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
