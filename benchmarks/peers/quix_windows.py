"""Tumbling windows in Quix Streams, in its own idiom: a dataframe over a topic, ``tumbling_window``, ``agg``.

One process, as Quix runs one for a share of the partitions. Measured from the row behind those of a warm-up on: the
start, the joining of the consumer group and the opening of its state are left out, and so is the broker's CPU. It keeps
no changelog of its state, which a user may switch off and which would cost more.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.peers.totals import Totals
from benchmarks.run import Result, Run

__all__ = ["quix"]

_ENVIRONMENT = PeerEnvironment("quix", ("quixstreams==3.28.1",))
_WARM_UP = 4
"""The part of the rows that is left out."""


def quix(run: Run, brokers: str, topic: str, windows: int) -> list[Result]:
    """Run it over a topic keyed by user, in a Python that has Quix Streams.

    Args:
        run: The run.
        brokers: Where the topic is.
        topic: The topic; behind the rows each partition has one so late that it closes the windows before.
        windows: How many windows it makes of the rows.
    """
    return _ENVIRONMENT.run(run, _work, {"brokers": brokers, "topic": topic, "windows": windows})


def _work(run: Run) -> None:
    from quixstreams import Application
    from quixstreams.dataframe.windows import Count, Max, Min, Sum

    options, started, totals, seen = run.options, run.folder / "started", Totals(), [0]
    application = Application(
        options["brokers"],
        consumer_group=options["topic"],
        auto_offset_reset="earliest",
        state_dir=run.folder / "state",
        use_changelog_topics=False,
        loglevel="WARNING",
    )

    def at(value: Any, headers: Any, timestamp: float, kind: Any) -> int:
        seen[0] += 1
        if seen[0] == run.rows // _WARM_UP:
            started.touch()
        return int(datetime.fromisoformat(value["at"]).timestamp() * 1000)

    rows = application.dataframe(application.topic(options["topic"], timestamp_extractor=at))
    minutes = rows.tumbling_window(timedelta(minutes=1), grace_ms=timedelta(seconds=10))
    found = minutes.agg(n=Count(), total=Sum("price"), low=Min("price"), high=Max("price")).final("partition")
    found.update(lambda window: totals.add(window["n"], window["total"], window["low"], window["high"]))

    def work() -> dict[str, Any]:
        application.run(count=options["windows"], timeout=30, collect=False)
        return totals.figures()

    run.measure(work, rows=run.rows - run.rows // _WARM_UP, start=started)
