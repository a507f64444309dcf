"""What the page's tests and pictures show: a job in the middle of its work, at an address whose status can be set."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

from volley.contracts.reports import DeadLetter, Lag, MaintenanceReport, MaintenanceRun, TableTotals
from volley.metrics.endpoint import Endpoint
from volley.metrics.figures import EpochProgress, FinishedEpoch
from volley.metrics.status import (
    ExpectationStatus,
    FollowedView,
    GraphNode,
    JobStatus,
    Minute,
    SinkStatus,
    SourceStatus,
    TableStatus,
    status_json,
)

__all__ = ["NOW", "PHASES", "RUNNING", "Site"]

NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
PHASES = {"plan": 0.1, "read": 0.6, "merge": 0.2, "commit": 0.2, "acknowledge": 0.01}
RUNNING = JobStatus(
    "orders",
    "running",
    began=NOW,
    seconds=3700,
    epoch=41,
    epochs=42,
    rows=1_234_567,
    rejected=3,
    late=7,
    rows_per_second=1500,
    running=EpochProgress(42, tasks=1, rows=1000, bytes=2_000_000, seconds=2),
    recent=tuple(FinishedEpoch(number, 1000, seconds=1.1, phases=PHASES) for number in range(42)),
    minutes=tuple(Minute(NOW + timedelta(minutes=number), 1000 * number, 2) for number in range(30)),
    graph=(
        GraphNode(0, "source", "read KafkaSource('orders')", rows=1_300_000, rows_per_second=1600.0),
        GraphNode(1, "step", "filter price > 0", (0,), 1_234_577, 1500.0, bad=3),
        GraphNode(2, "keyed", "deduplicate by id", (1,), 1_234_567, 1490.0, rejected=7),
        GraphNode(3, "sink", "write IcebergSink(shop.orders)", (2,), 1_234_567, 1490.0),
        GraphNode(4, "dead letter", "write FileSink('bad')", (3,), 3),
    ),
    sources=(SourceStatus("orders", 1_300_000, Lag("orders", rows=50, seconds=90)),),
    sinks=(SinkStatus("shop.orders", 1_234_567, 2_000_000, 42, 42, seconds_since_last_commit=3, watermark=NOW),),
    tables=(TableStatus("shop.orders", "shop.orders", TableTotals(900_000, 12, 40, 2, 123_000_000, 17), 5),),
    expectations=(
        ExpectationStatus("price is not negative", "col('price') >= lit(0)", "price", "drop", 0.01, 1_234_580, 11, 2),
        ExpectationStatus("an order has an id", "col('id').is_not_null()", "id", "fail", 0, 1_234_569),
    ),
    letters=(
        DeadLetter(
            '{"id": 17, "price": "n/a"}',
            "column 'price': 'n/a' is no double",
            "orders/0: offset 1234",
            40,
            NOW,
            "read KafkaSource('orders')",
            "price",
            "kafka:orders",
        ),
    ),
    maintenance=MaintenanceReport(
        (MaintenanceRun("shop.orders", "compaction", NOW, 3.2, "12 files became 2"),),
        {"shop.orders": "after 8 commits"},
    ),
    notes=("table shop.late: 12 rows wait: it has no column 'note'",),
)


class Site:
    """An endpoint whose status a test sets."""

    def __init__(self) -> None:
        self._closing = ExitStack()
        self.endpoint = self._closing.enter_context(closing(Endpoint(None, "127.0.0.1", 0)))
        self.set(RUNNING)
        self.endpoint.show(lambda: self.json)

    def close(self) -> None:
        self._closing.close()

    def set_older(self, job: JobStatus) -> None:
        """Serve the status of a job as a history has it that was written before it had its latest fields."""
        status = job.to_dict()
        for name in ("tables", "expectations", "letters"):
            status.pop(name, None)
        for node in status["graph"]:
            del node["rows_per_second"], node["bad"]
        for source in status["sources"]:
            del source["watermark"]
        self.json = status_json([status])

    def set(
        self, *jobs: JobStatus, runs: list[dict[str, Any]] | None = None, views: tuple[FollowedView, ...] = ()
    ) -> None:
        self.json = status_json([job.to_dict() for job in jobs], runs or [], [view.to_dict() for view in views])
