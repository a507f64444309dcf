"""A cluster none of whose addresses can be reached is named in seconds, without a broker to ask."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.servers.process import free_ports
from volley import KafkaSource, SourceContext, SourceError
from volley.connectors.kafka import client


@pytest.mark.parametrize(("host", "reason"), [("127.0.0.1", "Connection refused"), ("no.such.invalid", "resolve")])
def test_an_address_that_refuses_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, reason: str
) -> None:
    monkeypatch.setattr(client, "_REFUSED_SECONDS", 0.5)
    address = f"{host}:{free_ports(1)[0]}"
    source = KafkaSource(address, topics="t", schema="id long")
    began = time.monotonic()
    with pytest.raises(SourceError, match=rf"Kafka at {address} gave no answer within \S+ s: {address}.*{reason}"):
        source.open(SourceContext(str(tmp_path)))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("inner.example:9092/1: Failed to resolve 'inner.example:9092'", "inner.example:9092 (advertised.listeners)"),
        ("sasl_ssl://inner.example:9092/1: Connect failed", "inner.example:9092 (advertised.listeners)"),
        ("outer.example:9092/1: Connection refused", "check bootstrap_servers"),
        ("outer.example:9092/bootstrap: Connection refused", "check bootstrap_servers"),
    ],
)
def test_an_address_that_the_brokers_tell_is_told_apart(reason: str, hint: str) -> None:
    cluster = client.Client("other.example:9092,outer.example:9092")
    error = cluster.timeout_error(client.ConnectionErrors(last=reason, poll=lambda _: None))
    assert reason in error.message
    assert hint in str(error.hint)
