"""Topics of one job become tables, also those that come later: the example, as it stands."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from examples import topics_to_tables
from tests.recovery.runs import load
from tests.servers.kafka import Kafka


@pytest.mark.usefixtures("spark")
def test_topics_to_tables(kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = uuid.uuid4().hex

    def send(topic: str, *ids: int) -> str:
        name = f"{topic}-{run}"
        if name not in kafka.admin.list_topics(timeout=10).topics:
            kafka.topic(2, name)
        values = {id: json.dumps({"id": id, "at": "2026-11-24T10:00:00Z", "body": topic}) for id in ids}
        kafka.produce(name, ({"value": value, "partition": id % 2} for id, value in values.items()))
        return name

    def table(name: str) -> list[tuple[int, str]]:
        rows = load(tmp_path, f"topics.{name}").scan().to_arrow().sort_by("id").to_pylist()
        assert all(set(row) == {"id", "at", "body", "kafka_offset"} for row in rows)
        return [(row["id"], row["body"]) for row in rows]

    arguments = kafka.bootstrap, f"[a-z]+-{run}", str(tmp_path)
    orders, refunds = send("orders", 1, 2, 3), send("refunds", 7)
    topics_to_tables.main(*arguments)
    assert f"topics.{orders}: 3 messages" in capsys.readouterr().out
    late = send("late", 5)
    send("orders", 4)
    topics_to_tables.main(*arguments)
    assert table(orders) == [(id, "orders") for id in (1, 2, 3, 4)]
    assert (table(refunds), table(late)) == ([(7, "refunds")], [(5, "late")])
