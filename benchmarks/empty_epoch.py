"""What an epoch costs beside its rows: many epochs of next to none, through workers that are warm."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

from benchmarks.comparison import compared
from benchmarks.files_to_iceberg import Sizes, one_run
from benchmarks.measure import Result
from benchmarks.peers.runtime import missing
from benchmarks.report import Report

SUMMARY = "wall and CPU time of an epoch with ten rows, beside Iceberg's Spark runtime"

_ROWS = 10


@dataclass(frozen=True)
class Cost:
    """What one more epoch costs, from the difference of a long and a short run; medians.

    Args:
        peer: Whose.
        wall_ms: Time.
        cpu_ms: Of the whole process tree.
    """

    peer: str
    wall_ms: float
    cpu_ms: float


def run(arguments: list[str]) -> None:
    """A short and a long run of each peer in turn: their difference has no start of a query in it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks empty_epoch", description=SUMMARY)
    parser.add_argument("--epochs", type=int, nargs=2, default=[10, 60], help="of the short and the long run")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    peers = ["volley", *([] if missing() else ["runtime"])]
    turns = [(peer, epochs) for _ in range(asked.repeat) for peer in peers for epochs in asked.epochs]
    results = [one_run(peer, Sizes(epochs * _ROWS, _ROWS, _ROWS)) for peer, epochs in turns]
    report = Report("empty_epoch", "peer", "wall ms", "CPU ms")
    # Of each peer the short runs, then the long ones.
    rows = [row.runs for row in compared(results)]
    for short, long in zip(rows[::2], rows[1::2], strict=True):
        cost = _cost(short, long)
        report.add(cost, cost.peer, f"{cost.wall_ms:.0f}", f"{cost.cpu_ms:.0f}")
    report.print()


def _cost(short: list[Result], long: list[Result]) -> Cost:
    pairs = list(zip(short, long, strict=True))
    epochs = (long[0].rows - short[0].rows) / _ROWS / 1e3
    wall = statistics.median(more.seconds - less.seconds for less, more in pairs) / epochs
    cpu = statistics.median(more.cpu_seconds - less.cpu_seconds for less, more in pairs) / epochs
    return Cost(short[0].name, wall, cpu)
