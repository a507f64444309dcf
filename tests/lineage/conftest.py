"""An endpoint that the client of OpenLineage is configured for, and nothing else of the machine's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.lineage.receiver import Receiver, receiving
from volley import Environment
from volley.lineage.emitter import configured_emitter


@pytest.fixture(autouse=True)
def unconfigured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No setting of the client's, and none that it leaves behind: it writes some into the environment."""
    before = dict(os.environ)
    for name in before:
        if name.startswith("OPENLINEAGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(os.environ) - set(before):
        if name.startswith("OPENLINEAGE_"):
            del os.environ[name]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An endpoint, by the client's own variable."""
    with receiving() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        yield receiver
        receiver.gate.set()
        emitter = configured_emitter()
        assert emitter is not None
        emitter.flush(20)


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    """An environment on the one session."""
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"), checkpoint_interval=0)
