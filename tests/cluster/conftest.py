"""One cluster for all tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.standalone import Cluster


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, whole; drivers that the test starts find its settings."""
    running.heal()
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    return running
