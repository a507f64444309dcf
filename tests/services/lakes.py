"""A lake for each catalog: the documented configuration against a server that runs, and another client's view of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_plain
from pyiceberg.table import Table

from tests.servers.glue import MotoServer
from tests.servers.hive import HiveMetastore
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import Seaweed
from tests.services.documented import documented
from tests.tiers import nightly
from volley import IcebergSink, IcebergSinkConfig, Metrics, SinkContext
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema([("id", pa.int64())])


@dataclass(frozen=True)
class Lake:
    """A catalog that runs.

    Args:
        name: The catalog's.
        documented: The configuration that the documents give for it.
        open_plain: Opens it by plain pyiceberg, as another client does.
        version: The format version of its tables.
    """

    name: str
    documented: IcebergSinkConfig
    open_plain: Callable[[], Catalog]
    version: int = 2

    def config(self) -> IcebergSinkConfig:
        """A table of this test's own."""
        config = replace(self.documented, table=f"t{uuid.uuid4().hex}")
        return config if self.version == 2 else config.with_table_properties({"format-version": str(self.version)})

    @property
    def refuses_vectors(self) -> bool:
        """True for SeaweedFS 4.48: it takes no ``.puffin`` files among a table's data."""
        return self.version == 3 and self.name == "seaweed"

    def strategy(self, wanted: Strategy) -> Strategy:
        """A strategy for upserts whose files the catalog's storage takes."""
        return "copy_on_write" if self.refuses_vectors else wanted

    def table(self, config: IcebergSinkConfig) -> Table:
        """The table as another client sees it."""
        return self.open_plain().load_table(config.identifier)

    def rows(self, config: IcebergSinkConfig) -> list[dict[str, Any]]:
        return list(self.table(config).scan().to_arrow().sort_by("id").to_pylist())

    def ids(self, config: IcebergSinkConfig) -> list[int]:
        return [row["id"] for row in self.rows(config)]


def driver(config: IcebergSinkConfig, schema: pa.Schema = SCHEMA, metrics: Metrics | None = None) -> IcebergCommitter:
    """A driver of a job, with a catalog client of its own."""
    committer = IcebergSink(config).open(SinkContext("job", schema, metrics or Metrics()))
    assert isinstance(committer, IcebergCommitter)
    return committer


def sqlite(request: pytest.FixtureRequest) -> Lake:
    folder = _folder(request)
    uri = f"sqlite:///{folder}/catalog.db"
    return Lake("sqlite", documented("SQLite", folder=str(folder)), lambda: _plain("volley", type="sql", uri=uri))


def memory(request: pytest.FixtureRequest) -> Lake:
    config = documented("Memory", folder=str(_folder(request)))
    # Another client in the same process finds the file behind it.
    return Lake("memory", config, lambda: _plain("volley", type="sql", uri=config.ref.load_catalog().properties["uri"]))


def postgres(request: pytest.FixtureRequest) -> Lake:
    server: Postgres = request.getfixturevalue("postgres")
    uri = server.database()
    config = documented("PostgreSQL", database=uri, folder=str(_folder(request)))
    return Lake("postgres", config, lambda: _plain("volley", type="sql", uri=uri))


def rest(request: pytest.FixtureRequest) -> Lake:
    return on_rest(request.getfixturevalue("rest_fixture"))


def on_rest(server: RestFixture) -> Lake:
    config = documented("Iceberg REST", catalog=server.uri, folder=str(server.lake))
    return Lake("rest", config, lambda: _plain(type="rest", uri=server.uri))


def seaweed(request: pytest.FixtureRequest) -> Lake:
    server: Seaweed = request.getfixturevalue("seaweed")
    config = documented("Iceberg REST with credentials", catalog=server.rest_uri, seaweed=server.s3_endpoint)
    properties = {
        "uri": server.rest_uri,
        "warehouse": "s3://lake",
        "oauth2-server-uri": f"{server.rest_uri}/v1/oauth/tokens",
        "credential": f"{server.key}:{server.secret}",
        **_s3(server.s3_endpoint, server.key, server.secret),
    }
    return Lake("seaweed", config, lambda: _plain(type="rest", **properties))


def nessie(request: pytest.FixtureRequest) -> Lake:
    server: Nessie = request.getfixturevalue("nessie")
    config = documented("Nessie with a branch", nessie=server.uri, keycloak=server.keycloak, s3=server.s3)
    properties = {
        "uri": f"{server.uri}/dev",
        "oauth2-server-uri": server.tokens,
        "credential": f"{server.key}:{server.secret}",
        **_s3(server.s3, "id", "secret"),
    }
    return Lake("nessie", config, lambda: _plain(type="rest", **properties))


def glue(request: pytest.FixtureRequest) -> Lake:
    server: MotoServer = request.getfixturevalue("moto")
    config = documented("AWS Glue", folder=str(server.lake)).with_properties({"glue.endpoint": server.uri})
    keys = {"glue.access-key-id": "id", "glue.secret-access-key": "secret"}
    properties = {"glue.endpoint": server.uri, "glue.region": "us-east-1", "glue.id": "123456789012", **keys}
    return Lake("glue", config, lambda: _plain(type="glue", **properties))


def hive(request: pytest.FixtureRequest) -> Lake:
    server: HiveMetastore = request.getfixturevalue("hive_metastore")
    config = documented("Hive Metastore", metastore=server.uri, folder=str(server.lake))
    return Lake("hive", config, lambda: _plain(type="hive", uri=server.uri))


Opener = Callable[[pytest.FixtureRequest], Lake]

_WITH_A_SERVER: list[Opener] = [postgres, rest, seaweed, glue, hive]


def catalogs(*suite: Opener) -> list[Any]:
    """All catalogs, as a fixture's parameters.

    Args:
        suite: Those that run in each tier that has their servers; the others run at night. None = all but Nessie,
            which takes a minute to start.
    """
    return [
        pytest.param(sqlite, id="sqlite"),
        *(
            pytest.param(made, id=made.__name__, marks=pytest.mark.services)
            if made in (suite or _WITH_A_SERVER)
            else nightly(made, id=made.__name__)
            for made in (memory, *_WITH_A_SERVER, nessie)
        ),
    ]


def with_version_3() -> list[Any]:
    """All catalogs that take tables of format version 3, as a fixture's parameters.

    Nessie 0.99 makes tables of version 2, whatever it is asked for.
    """
    every: list[Opener] = [sqlite, memory, *_WITH_A_SERVER]
    return [
        pytest.param(of_version_3(made), id=f"{made.__name__} of version 3", marks=pytest.mark.services)
        if made is rest
        else nightly(of_version_3(made), id=f"{made.__name__} of version 3")
        for made in every
    ]


def of_version_3(made: Opener) -> Opener:
    """A lake with tables of format version 3."""
    return lambda request: replace(made(request), version=3)


def _folder(request: pytest.FixtureRequest) -> Path:
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    return factory.mktemp("lake")


def _s3(endpoint: str, key: str, secret: str) -> dict[str, str]:
    keys = {"s3.access-key-id": key, "s3.secret-access-key": secret}
    return {"s3.endpoint": endpoint, "s3.region": "us-east-1", **keys}


def _plain(name: str = "other", **properties: str) -> Catalog:
    return load_plain(name, **properties)
