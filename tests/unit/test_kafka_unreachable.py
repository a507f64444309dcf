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
