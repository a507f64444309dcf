"""What the recovery tests share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.lake import Lake
from tests.recovery.remote import RemoteLake
from tests.servers.seaweed import Seaweed
from tests.services.fault_proxy import FaultProxy


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    """A proxy before the catalog."""
    with FaultProxy(seaweed.rest_uri) as made:
        yield made


@pytest.fixture
def storage_proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    """A proxy before the storage."""
    with FaultProxy(seaweed.s3_endpoint) as made:
        yield made


@pytest.fixture
def remote(seaweed: Seaweed, proxy: FaultProxy) -> RemoteLake:
    """A table of this test's own."""
    return RemoteLake(seaweed, proxy.uri, f"t{uuid.uuid4().hex}")
