"""One cluster for all tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.standalone import Cluster
from tests.servers.shared import own_server


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with own_server(Cluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, whole; drivers that the test starts find its settings."""
    running.heal()
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    return running
