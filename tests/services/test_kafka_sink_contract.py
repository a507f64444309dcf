"""KafkaSink under the contract of all sinks, as far as it goes: what a task has sent shows at once."""

from __future__ import annotations

import json

import pytest

from tests.contracts.test_sinks import (
    Case,
    test_an_epoch_without_rows_is_an_epoch,
    test_results_count_what_was_written,
    test_the_last_epoch_is_known_to_the_next_driver,
    test_the_sink_is_a_value_that_shows_no_secret,
    test_two_queries_share_a_target,
)
from tests.servers.kafka import Kafka
from volley import KafkaSink

__all__ = [
    "test_an_epoch_without_rows_is_an_epoch",
    "test_results_count_what_was_written",
    "test_the_last_epoch_is_known_to_the_next_driver",
    "test_the_sink_is_a_value_that_shows_no_secret",
    "test_two_queries_share_a_target",
]


@pytest.fixture
def case(kafka: Kafka) -> Case:
    topic = kafka.topic()

    def visible() -> list[int]:
        return sorted(json.loads(message.value())["id"] for message in kafka.messages(topic))

    return Case(KafkaSink(kafka.bootstrap, topic), visible, remembers=False)
