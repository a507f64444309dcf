"""``@benchmark`` makes a function a benchmark, and adds it to those that are known by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.rows import Bound, Limit, Row
from benchmarks.run import Case, Run

__all__ = ["BENCHMARKS", "RATES", "Benchmark", "Limit", "Run", "benchmark"]

RATES = ("rows_per_second", "rows_per_cpu_second", "worker_mb", "jvm_mb", "driver_mb")  # of most benchmarks
BENCHMARKS: dict[str, Benchmark] = {}  # every one whose module has been imported
_ALONE = {"volley": "Volley"}  # the peers of a benchmark that names no others


def _nothing(asked: Benchmark, folder: Path) -> Iterator[Mapping[str, Any]]:
    yield {}


@dataclass(frozen=True)
class Benchmark:
    """A function that measures one run of one peer in a process of its own, and how to run and show it."""

    name: str
    function: Callable[[Run], None]
    rows: int = 0  # how many a run handles; 0 = the benchmark has no such number
    repeat: int = 1  # how often each peer runs, in turn with the others
    peers: Mapping[str, str] = field(default_factory=_ALONE.copy)  # their names on the command line, and in tables
    options: Mapping[str, Any] = field(default_factory=dict)  # the settings, with the values they have by default
    cases: str = ""  # the setting that has the cases of each peer, a tuple; "" = there is one
    case: str = ""  # the head of the column for cases; "" = they are a part of the peer's name
    figures: Sequence[str] = RATES  # the columns of the table, the first with its spread
    plots: Sequence[str] = ()  # the figures that are drawn; () = the first two
    # Makes what all runs share in a folder, outside of what is measured, and yields more settings.
    prepare: Callable[[Benchmark, Path], Iterator[Mapping[str, Any]]] = _nothing
    bounds: Sequence[Limit] = ()  # those that the rows of the table have to keep

    @property
    def question(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    def bounds_of(self, rows: Iterable[Row]) -> list[Bound]:
        """The bounds of these rows, each with its value."""
        return [bound for row in rows for limit in self.bounds for bound in limit.bounds(row)]

    def asked(
        self, rows: int | None, repeat: int | None, peers: Sequence[str] | None, given: Sequence[str]
    ) -> Benchmark:
        """This benchmark with the changes that the command line asks for; None = as it is.

        Settings are given as ``name=value``, those of several values as ``name=value,value``. A number of rows has no
        effect where there is none.
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


def benchmark(
    name: str | None = None, cases: Mapping[str, Sequence[Case]] | None = None, **settings: Any
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Make a function a benchmark, by its own name or another; applied several times, it makes one for each name.

    It takes what `Benchmark` takes; `peers` may be a tuple if tables call them by the same names. `cases` is a setting
    and its values; it is also the head of their column, if no `case` is given.
    """

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        own = name or function.__name__
        peers = settings.get("peers", _ALONE)
        given = {**settings, "peers": peers if isinstance(peers, Mapping) else {peer: peer for peer in peers}}
        if cases:
            ((setting, values),) = cases.items()
            given = {"case": setting.replace("_", " "), **given, "cases": setting}
            given["options"] = {**settings.get("options", {}), setting: values}
        BENCHMARKS[own] = Benchmark(own, function, **given)
        return function

    return register


def _parsed(text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return tuple(type(default[0])(part) for part in text.split(","))
    return type(default)(text)
