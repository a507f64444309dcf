"""``@benchmark`` makes a function a benchmark, and adds it to those that are known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.rows import Bound, Limit, Row, within
from benchmarks.run import Run

__all__ = ["BENCHMARKS", "RATES", "Benchmark", "Limit", "Run", "benchmark", "within"]

RATES = ("rows_per_second", "rows_per_cpu_second", "worker_mb", "jvm_mb", "driver_mb")
"""The figures of most benchmarks."""

BENCHMARKS: dict[str, Benchmark] = {}
"""Every benchmark whose module has been imported."""


def _nothing(asked: Benchmark, folder: Path) -> Iterator[Mapping[str, Any]]:
    yield {}


@dataclass(frozen=True)
class Benchmark:
    """A function that measures one run of one peer, and how to run and show it.

    Args:
        name: Its name.
        function: What measures; it is called in a process of its own.
        rows: How many rows a run handles; 0 = the benchmark has no such number.
        repeat: How often each peer runs, in turn with the others.
        peers: Their names on the command line, and in tables; one without a name if there are none.
        options: The settings, by their name, with the values they have by default.
        cases: The setting that has the cases of each peer, a tuple; "" = there is one.
        case: The head of the column for cases; "" = they are a part of the peer's name.
        figures: The columns of the table, the first with its spread.
        plots: The figures that are drawn; () = the first two.
        prepare: Makes what all runs share in a folder, outside of what is measured, and yields more settings.
        bounds: The bounds that a row of the table has to keep.
    """

    name: str
    function: Callable[[Run], None]
    rows: int = 0
    repeat: int = 1
    peers: Mapping[str, str] = field(default_factory=lambda: {"": ""})
    options: Mapping[str, Any] = field(default_factory=dict)
    cases: str = ""
    case: str = ""
    figures: Sequence[str] = RATES
    plots: Sequence[str] = ()
    prepare: Callable[[Benchmark, Path], Iterator[Mapping[str, Any]]] = _nothing
    bounds: Callable[[Row], Iterable[Bound]] = lambda _: ()

    @property
    def question(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    def asked(
        self, rows: int | None, repeat: int | None, peers: Sequence[str] | None, given: Sequence[str]
    ) -> Benchmark:
        """This benchmark with the changes that the command line asks for.

        Args:
            rows: How many rows; None = as it is. Without effect where there is no such number.
            repeat: How often; None = as it is.
            peers: Some of the peers; None = all.
            given: Settings as ``name=value``; of several values, ``name=value,value``.
        """
        changed = dict(self.options)
        for name, _, text in (setting.partition("=") for setting in given):
            if name not in changed:
                raise SystemExit(f"{self.name} has no setting {name!r}; it has {', '.join(changed) or 'none'}")
            changed[name] = _parsed(text, changed[name])
        if unknown := set(peers or ()) - set(self.peers):
            raise SystemExit(f"{self.name} has no peer {', '.join(unknown)}; it has {', '.join(self.peers)}")
        chosen = {peer: label for peer, label in self.peers.items() if peers is None or peer in peers}
        rows = rows if rows and self.rows else self.rows
        return replace(self, rows=rows, repeat=repeat or self.repeat, peers=chosen, options=changed)


def benchmark(name: str | None = None, **settings: Any) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Make a function a benchmark; applied several times, it makes one benchmark for each name.

    Args:
        name: The benchmark's name; None = the function's.
        settings: What `Benchmark` takes; `peers` may be a tuple if tables call them by the same names.
    """

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        own = name or function.__name__
        peers = settings.get("peers", {"": ""})
        named = peers if isinstance(peers, Mapping) else {peer: peer for peer in peers}
        BENCHMARKS[own] = Benchmark(own, function, **{**settings, "peers": named})
        return function

    return register


def _parsed(text: str, default: Any) -> Any:
    """Convert text to the type of the default."""
    if isinstance(default, tuple):
        return tuple(type(default[0])(part) for part in text.split(","))
    return type(default)(text)
