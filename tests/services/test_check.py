"""`volley check` against every server, up, silent, down, without credentials and rights: the right line fails."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pytest
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from tests.servers.azurite import ACCOUNT, CONTAINER, KEY, Azurite, connection_string
from tests.servers.gcs import PROJECT, FakeGcs
from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.identity import TokenEndpoint, service_account_key
from tests.servers.kafka import Kafka
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.s3 import ADMIN, BUCKET, READER, S3
from tests.services.test_kafka import registry
from volley import load_config
from volley.cli.app import app
from volley.iceberg import IcebergSink

__all__ = ["registry"]

pytestmark = pytest.mark.waits


@dataclass(frozen=True)
class Parts:
    """Every kind of source and sink: where its server is, and what it is told.

    Args:
        folder: Of the test.
        rest: The address of Iceberg's REST fixture, and so on.
    """

    folder: Path
    namespace: str
    rest: str
    rest_lake: Path
    seaweed: str
    s3: str
    glue: str
    hive: str
    postgres: str
    azure: str
    gcs: str
    kafka: str
    topic: str
    registry: str
    webhooks: str = "http://127.0.0.1:0"
    keys: tuple[str, str] = (ADMIN.access_key_id, ADMIN.secret_access_key)
    azure_key: str = f"AccountKey={KEY}"
    account: str = "account.json"

    def at(self, address: str, *names: str) -> Parts:
        """The same, some of them at another address."""
        moved = {
            name: urlunsplit(urlsplit(getattr(self, name))._replace(netloc=self._host(name, address))) for name in names
        }
        return replace(self, **moved)

    def _host(self, name: str, address: str) -> str:
        who, _, _ = urlsplit(getattr(self, name)).netloc.rpartition("@")
        return f"{who}@{address}" if who else address

    def document(self) -> dict[str, Any]:
        """The file, as what its YAML says."""
        sinks = {
            "rest": self._table({"type": "rest", "rest": {"uri": self.rest}}, local={"path": str(self.rest_lake)}),
            "seaweed": self._table(
                {
                    "type": "rest",
                    "rest": {"uri": self.seaweed, "warehouse": "s3://lake", "credential": ":".join(self.keys)},
                },
                s3=self._s3("lake"),
            ),
            "glue": self._table(
                {"type": "glue", "glue": {"region": "us-east-1", "catalog_id": "123456789012", "profile": "analytics"}},
                local={"path": str(self.folder / "glue")},
                properties={"glue.endpoint": self.glue},
            ),
            "hive": self._table(
                {"type": "hive", "hive": {"uri": self.hive}}, local={"path": str(self.folder / "hive")}
            ),
            "sql": self._table(
                {"type": "sql", "sql": {"uri": self.postgres}}, local={"path": str(self.folder / "sql")}
            ),
            "s3": self._table(self._file(), s3=self._s3(BUCKET)),
            "azure": self._table(
                self._file(),
                azure={"storage_account": ACCOUNT, "container": CONTAINER, "access_key": KEY},
                properties={"adls.connection-string": self._azure()},
            ),
            "gcs": self._table(
                self._file(),
                gcs={"project_id": PROJECT, "bucket": "lake", "service_account_key": str(self.folder / self.account)},
                properties={"gcs.service.host": self.gcs},
            ),
            "topic": {
                "connector": "kafka",
                "config": {"bootstrap_servers": urlsplit(self.kafka).netloc, "topic": self.topic},
            },
        }
        return {
            "sources": self._sources(),
            "sinks": sinks,
            "runtime": {"checkpoint_dir": str(self.folder / "checkpoints")},
        }

    def _sources(self) -> dict[str, Any]:
        topic = {"bootstrap_servers": urlsplit(self.kafka).netloc, "topics": self.topic}
        server = urlsplit(self.postgres)
        capture = {"host": server.hostname, "port": server.port, "database": server.path[1:], "user": server.username}
        capture |= {
            "password": server.password,
            "slot_name": "check",
            "publication": "check",
            "tables": "public.checked",
        }
        return {
            "kafka": {"connector": "kafka", "config": {**topic, "schema": "id long"}},
            "avro": {"connector": "kafka", "config": {**topic, "value_format": "avro", "registry": self.registry}},
            "postgres": {"connector": "postgres", "config": capture},
            "hooks": {"connector": "webhook", "config": {"port": urlsplit(self.webhooks).port, "schema": "id long"}},
        }

    def _table(self, catalog: dict[str, Any], **settings: Any) -> dict[str, Any]:
        config = {"catalog": catalog, "namespace": self.namespace, "table": "events", **settings}
        return {"connector": "iceberg", "config": config}

    def _file(self) -> dict[str, Any]:
        return {
            "type": "sql",
            "sql": {"uri": f"sqlite:///{self.folder}/{uuid.uuid4().hex}.db"},
            "warehouse": self.namespace,
        }

    def _s3(self, bucket: str) -> dict[str, Any]:
        keys = dict(zip(("access_key_id", "secret_access_key"), self.keys, strict=True))
        return {"region": "us-east-1", "bucket": bucket, "endpoint": self.s3, "path_style_access": True, **keys}

    def _azure(self) -> str:
        return connection_string(f"{self.azure}/{ACCOUNT}").replace(f"AccountKey={KEY}", self.azure_key)


@pytest.fixture(scope="module")
def parts(
    tmp_path_factory: pytest.TempPathFactory,
    rest_fixture: RestFixture,
    s3_server: S3,
    moto: MotoServer,
    hive_metastore: HiveMetastore,
    postgres: Postgres,
    azurite_http: Azurite,
    google: tuple[FakeGcs, TokenEndpoint],
    kafka: Kafka,
) -> Parts:
    database = postgres.database()
    engine = create_engine(database)
    with engine.begin() as connection:
        connection.execute(text("create table checked (id bigint primary key)"))
    engine.dispose()
    folder = tmp_path_factory.mktemp("check")
    (folder / "account.json").write_text(service_account_key(google[1].uri))
    return Parts(
        folder=folder,
        namespace=f"check_{uuid.uuid4().hex}",
        rest=rest_fixture.uri,
        rest_lake=rest_fixture.lake,
        seaweed=s3_server.server.rest_uri,
        s3=s3_server.server.s3_endpoint,
        glue=moto.uri,
        hive=hive_metastore.uri,
        postgres=database,
        azure=azurite_http.endpoint.removesuffix(f"/{ACCOUNT}"),
        gcs=google[0].endpoint,
        kafka=f"kafka://{kafka.bootstrap}",
        topic=kafka.topic(),
        registry="http://127.0.0.1:1",
    )


@pytest.fixture
def all_parts(parts: Parts, registry: str) -> Parts:
    return replace(parts, registry=registry)


def failures(parts: Parts, *arguments: str) -> dict[str, tuple[str, str]]:
    return failures_of(parts.folder, parts.document(), *arguments)


def failures_of(folder: Path, document: dict[str, Any], *arguments: str) -> dict[str, tuple[str, str]]:
    """The probe that fails of each part, with its message; nothing secret is said."""
    file = folder / f"{uuid.uuid4().hex}.yaml"
    file.write_text(json.dumps(document))
    ended = CliRunner().invoke(app, ["check", "-c", str(file), "--json", *arguments])
    assert not any(secret in ended.output for secret in ("svcsecret", "p%40ss", KEY, "hush-hush"))
    told = json.loads(ended.stdout)
    found = {each["part"].split()[-1]: each for each in told["checks"] if each["status"] == "failed"}
    assert ended.exit_code == (69 if found else 0), ended.output
    assert told["ok"] == (not found)
    return {part: (each["probe"], each["detail"]) for part, each in found.items()}


CATALOGS = ("rest", "seaweed", "glue", "hive", "sql")
STORAGES = ("s3", "azure", "gcs")
SOURCES = ("kafka", "avro", "postgres", "hooks")
ADDRESSES = ("rest", "seaweed", "s3", "glue", "hive", "postgres", "azure", "gcs", "kafka", "webhooks")
LINES = {
    **dict.fromkeys(CATALOGS, "catalog"),
    **dict.fromkeys(STORAGES, "storage"),
    **dict.fromkeys(("kafka", "avro", "postgres"), "source"),
    "hooks": "address",
    "topic": "topic",
}


def test_servers_that_are_up_take_a_commit_and_keep_nothing(all_parts: Parts) -> None:
    file = all_parts.folder / "up.yaml"
    file.write_text(json.dumps(all_parts.document()))
    sinks = load_config(file).sinks
    tables = []
    for name in CATALOGS:
        sink = sinks[name]
        assert isinstance(sink, IcebergSink)
        catalog = sink.config.ref.load_catalog()
        catalog.create_namespace(all_parts.namespace)
        tables.append(catalog.create_table(sink.config.identifier, pa.schema([("id", pa.int64())])))
        tables[-1].append(pa.table({"id": [1, 2]}))
    assert failures(all_parts, "--commit") == {}
    for table in tables:
        assert [snapshot.summary.operation.value for snapshot in table.refresh().snapshots() if snapshot.summary] == [
            "append"
        ]
        assert set(table.refs()) == {"main"}
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 2]


def test_servers_that_are_down(all_parts: Parts) -> None:
    with socket.socket() as taken, socket.socket() as closed:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        closed.bind(("127.0.0.1", 0))
        down = all_parts.at(f"127.0.0.1:{closed.getsockname()[1]}", *ADDRESSES)
        down = replace(down, webhooks=f"http://127.0.0.1:{taken.getsockname()[1]}")
        assert {part: probe for part, (probe, _) in failures(down).items()} == LINES


def test_servers_that_never_answer(all_parts: Parts) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1000)
        hanging = all_parts.at(f"127.0.0.1:{silent.getsockname()[1]}", *ADDRESSES)
        assert {part: probe for part, (probe, _) in failures(hanging).items()} == LINES


def test_wrong_credentials(all_parts: Parts, refusing_tokens: TokenEndpoint) -> None:
    (all_parts.folder / "deleted.json").write_text(service_account_key(refusing_tokens.uri))
    wrong = replace(
        all_parts,
        account="deleted.json",
        keys=(ADMIN.access_key_id, "hush-hush"),
        azure_key=f"AccountKey={'A' * 86}==",
        postgres=all_parts.postgres.replace("secret@", "hush-hush@"),
        registry=all_parts.registry.replace("p%40ss", "hush-hush"),
    )
    told = failures(wrong)
    names = ("seaweed", "sql", *STORAGES, "postgres", "avro")
    assert {part: probe for part, (probe, _) in told.items()} == {name: LINES[name] for name in names}
    assert "registry" in told["avro"][1]


@pytest.fixture
def guest(all_parts: Parts) -> Iterator[str]:
    """The address of the database for a role that may log in, and nothing else."""
    name = f"guest_{uuid.uuid4().hex}"
    engine = create_engine(all_parts.postgres)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        with engine.begin() as connection:
            connection.execute(text(f"create role {name} login password 'hush-hush'"))
        yield all_parts.postgres.replace("volley:secret@", f"{name}:hush-hush@")
        with engine.begin() as connection:
            connection.execute(text(f"drop role {name}"))


def test_missing_rights(all_parts: Parts, guest: str) -> None:
    reading = generate_container_sas(
        ACCOUNT,
        CONTAINER,
        account_key=KEY,
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    denied = replace(
        all_parts,
        keys=(READER.access_key_id, READER.secret_access_key),
        azure_key=f"SharedAccessSignature={reading}",
        postgres=guest,
    )
    told = failures(denied)
    assert told.keys() == {"seaweed", "sql", "s3", "azure", "postgres"}
    assert (told["s3"][0], told["azure"][0], told["postgres"][0]) == ("storage", "storage", "source")
    assert "s3://plain" in told["s3"][1]


def test_a_wrong_password_of_a_broker(kafka: Kafka, tmp_path: Path) -> None:
    def told(password: str) -> dict[str, tuple[str, str]]:
        login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": kafka.user}
        broker = {"bootstrap_servers": kafka.sasl_bootstrap, "properties": {**login, "sasl.password": password}}
        source = {"connector": "kafka", "config": {**broker, "topics": topic, "schema": "id long"}}
        sink = {"connector": "kafka", "config": {**broker, "topic": topic}}
        return failures_of(tmp_path, {"sources": {"kafka": source}, "sinks": {"topic": sink}})

    topic = kafka.topic()
    assert told(kafka.password) == {}
    found = told("hush-hush")
    assert {part: probe for part, (probe, _) in found.items()} == {"kafka": "source", "topic": "topic"}
    assert all("uthentication" in detail for _, detail in found.values())


@pytest.mark.nightly
def test_nessie_and_its_authorization_server(nessie: Nessie, tmp_path: Path) -> None:
    def told(uri: str, tokens: str, secret: str) -> dict[str, tuple[str, str]]:
        settings = {"uri": uri, "branch": "dev", "credential": f"{nessie.key}:{secret}"}
        storage = {"region": "us-east-1", "bucket": "warehouse", "endpoint": nessie.s3}
        config = {
            "catalog": {"type": "nessie", "nessie": {**settings, "properties": {"oauth2-server-uri": tokens}}},
            **{"namespace": f"check_{uuid.uuid4().hex}", "table": "events"},
            "s3": {**storage, "access_key_id": "id", "secret_access_key": "secret"},
        }
        return failures_of(tmp_path, {"sinks": {"nessie": {"connector": "iceberg", "config": config}}}, "--commit")

    closed = "http://127.0.0.1:1"
    assert told(nessie.uri, nessie.tokens, nessie.secret) == {}
    for faulty in ((closed, nessie.tokens, nessie.secret), (nessie.uri, closed, nessie.secret)):
        assert told(*faulty)["nessie"][0] == "catalog"
    assert told(nessie.uri, nessie.tokens, "hush-hush")["nessie"][0] == "catalog"
