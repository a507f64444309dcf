"""No event has a secret: the canaries of `tests/security` in the steps of a job, and in the error of its catalog."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from openlineage.client.serde import Serde

from tests.security.test_canary import CONFIGS, PLAIN, assert_hidden
from volley import Environment, IcebergSink, MemorySource, VolleyError
from volley.engine.lineage import steps_of
from volley.lineage.events import LineageRun, run_event
from volley.plan.graph import JobGraph

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("place", CONFIGS)
def test_an_event_has_no_secret(place: str) -> None:
    sink = IcebergSink(CONFIGS[place]())
    stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(sink)
    run = LineageRun("orders", NOW, plan=steps_of(JobGraph.of(stream._writes)))
    with pytest.raises(VolleyError) as caught:
        sink.datasets()
    event = Serde.to_json(run_event(run, "FAIL", NOW, error=str(caught.value)))
    assert "write IcebergSink" in event
    assert_hidden(event, PLAIN)
