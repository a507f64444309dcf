"""The client's transport to Kafka."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tests.lineage.spec import check
from tests.servers.kafka import Kafka
from volley.lineage.emitter import configured_emitter
from volley.lineage.events import LineageRun, run_event


def test_events_over_kafka(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.topic()
    transport = {"type": "kafka", "topic": topic, "config": {"bootstrap.servers": kafka.bootstrap}, "flush": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    emitter = configured_emitter()
    assert emitter is not None
    run = LineageRun("orders", datetime(2026, 11, 1, 12, tzinfo=UTC))
    emitter.emit(lambda: [run_event(run, "START", run.began), run_event(run, "COMPLETE", run.began)])
    assert emitter.flush(60)
    events = [json.loads(message.value()) for message in kafka.messages(topic)]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    for event in events:
        check(event)
