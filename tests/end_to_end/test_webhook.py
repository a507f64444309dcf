"""Webhooks through Spark, on both paths: rows of requests, bad bodies, a job that goes on."""

from __future__ import annotations

import hmac
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.processes import ROOT, plain_environment
from tests.servers.process import free_ports
from tests.waiting import wait_until, wait_while_it_runs
from tests.webhooks.hooks import request
from volley import (
    ConfigError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    Job,
    SourceContext,
    SourceError,
    WebhookSource,
    col,
)

Rows = Callable[[], list[dict[str, Any]]]


def test_requests_become_rows(environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table]) -> None:
    (port,) = free_ports(1)
    source = WebhookSource(port, schema="id long, name string", idempotency="json:$.id", max_requests_per_epoch=4)

    def written(job: Job, rows: int) -> bool:
        lag = job.metrics.lags.get("/events")
        return lag is not None and lag.rows == 0 and load().scan().count() == rows

    stream = environment.from_source(source).filter_expr(col("id") % 2 == 0).with_column("twice", col("id") * 2)
    for run in range(2):
        with stream.to_sink(IcebergSink(config.with_flush_interval("100ms"))).start("hooks") as job:
            for number in range(10):
                assert request(port, {"id": run * 10 + number, "name": "x"}).status == 202
                # Also the requests of the run before are known.
                assert request(port, {"id": number, "name": "x"}).status == 200
            wait_while_it_runs(job, partial(written, job, 5 * (run + 1)), "the rows")
        assert job.exception is None
    assert load().scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": number, "name": "x", "twice": 2 * number} for number in range(0, 20, 2)
    ]


def test_bad_bodies_become_dead_letters(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    source = WebhookSource(port, schema="id long", on_bad="dead_letter")
    sink = IcebergSink(config.with_dead_letter("letters").with_flush_interval("100ms"))
    with native.from_source(source).to_sink(sink).start("hooks") as job:
        for body in (b'{"id": 1}', b"broken", b'{"id": 2}', b"\xff", b'{"id": "x"}'):
            assert request(port, body).status == 202
        wait_while_it_runs(job, lambda: job.progress.rows == 2 and job.progress.rejected == 3, "the rows")
    assert rows() == [{"id": 1}, {"id": 2}]
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    letters = catalog.load_table("db.letters").scan().to_arrow().sort_by("position").to_pylist()
    catalog.close()
    assert [(letter["position"], letter["payload"]) for letter in letters] == [
        ("request 1", "broken"),
        ("request 3", "\ufffd"),
        ("request 4", '{"id": "x"}'),
    ]


def test_a_log_that_is_gone_ends_the_job(native: Environment, config: IcebergSinkConfig) -> None:
    (port,) = free_ports(1)
    stream = native.from_source(WebhookSource(port, schema="id long")).to_sink(
        IcebergSink(config.with_flush_interval("100ms"))
    )
    with stream.start("hooks") as job:
        assert request(port, {"id": 1}).status == 202
        wait_while_it_runs(job, lambda: job.progress.rows == 1, "the row")
        log = Path(native.checkpoint_dir or "", "hooks", "volley", "source-0", "log")
        for segment in log.glob("*.log"):
            segment.unlink()
        assert request(port, {"id": 2}).status == 503
        assert job.wait("60s")
    assert isinstance(job.exception, SourceError)
    assert "deleted or replaced" in job.exception.message


def test_the_log_needs_a_local_disk(tmp_path: Path) -> None:
    remote = SourceContext("s3://bucket/checkpoints/hooks/volley/source-0")
    for source in (WebhookSource(schema="id long"), WebhookSource(schema="id long", folder="s3://bucket/log")):
        with pytest.raises(ConfigError, match="no local disk"):
            source.open(remote)


def test_the_example_brings_each_delivery_into_the_lake_once(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = plain_environment(GITHUB_SECRET="the-secret")
    command = [sys.executable, "-m", "examples.webhooks_to_iceberg", str(port), str(tmp_path)]

    def send(number: int, body: bytes) -> int:
        signature = hmac.digest(b"the-secret", body, "sha256").hex()
        headers = {"X-GitHub-Delivery": f"d{number}", "X-GitHub-Event": "push"}
        headers["X-Hub-Signature-256"] = f"sha256={signature}"
        try:
            return request(port, body, path="/github", headers=headers).status
        except OSError:
            return 0

    def rows() -> list[dict[str, Any]]:
        catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
        try:
            found: list[dict[str, Any]] = catalog.load_table("hooks.github").scan().to_arrow().to_pylist()
            return sorted(found, key=lambda row: str(row["http_key"]))
        except NoSuchTableError:
            return []
        finally:
            catalog.close()

    push = b'{"ref": "main", "repository": {"full_name": "a/b"}, "sender": {"login": "me"}}'
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: send(0, push) == 200, 120, "the receiver, and the answer to a repetition")
        # The bad one first: it is committed no later than the good one behind it.
        assert (send(2, b"no JSON"), send(1, push)) == (202, 202)
        wait_until(lambda: len(rows()) == 2, 120, "the rows")
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
    assert "2 deliveries in" in printed
    assert "1 to github_bad" in printed
    columns = ("http_key", "event", "ref", "repository", "sender")
    assert [tuple(row[name] for name in columns) for row in rows()] == [
        (f"d{number}", "push", "main", "a/b", "me") for number in range(2)
    ]
