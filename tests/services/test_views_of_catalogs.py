"""What is no table: views are refused by name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import requests

from tests.recovery.lake import SCHEMA
from tests.servers.rest_fixture import RestFixture
from tests.services.fault_proxy import Answer, FaultProxy, Server, named
from tests.services.lakes import driver
from volley import ConfigError, IcebergSinkConfig, IcebergStorage, RestCatalog, TableNotFoundError
from volley.iceberg.commit.tables import check_table


@dataclass(frozen=True)
class Place:
    """A catalog behind a proxy, and the settings of a sink of a table in it."""

    proxy: FaultProxy
    config: IcebergSinkConfig


@pytest.fixture
def place(rest_fixture: RestFixture) -> Iterator[Place]:
    with FaultProxy(rest_fixture.uri) as proxy:
        config = IcebergSinkConfig(
            namespace=["db"],
            table=f"t{uuid.uuid4().hex}",
            storage=IcebergStorage.Local(rest_fixture.lake),
            catalog=RestCatalog(proxy.uri),
        )
        yield Place(proxy, config)


def make_view(place: Place) -> None:
    """Make a view of the sink's name, as Spark would."""
    driver(replace(place.config, table="base"))
    told = {"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}
    version = {"version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": ["db"]}
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "int", "required": False}]}
    body: dict[str, Any] = {"name": place.config.table, "schema": schema, "properties": {}}
    body["view-version"] = {**version, "representations": [told]}
    requests.post(f"{place.proxy.uri}/v1/namespaces/db/views", json=body, timeout=30).raise_for_status()


@pytest.mark.parametrize("announces", [True, False])
def test_a_view_is_refused_by_its_name(place: Place, announces: bool) -> None:
    if not announces:

        def silent(server: Server) -> Answer:
            answer = server()
            told = {name: value for name, value in json.loads(answer.body).items() if name != "endpoints"}
            return replace(answer, body=json.dumps(told).encode())

        place.proxy.arm(named("silent", silent), "GET", "/v1/config", times=None)
    make_view(place)
    name = rf"db\.{place.config.table} in catalog .* is a view, not a table"
    with pytest.raises(ConfigError, match=name):
        place.config.ref.load()
    with pytest.raises(ConfigError, match=name):
        driver(place.config)
    with pytest.raises(ConfigError, match=name):
        check_table(place.config, SCHEMA)
    # What is neither stays not found.
    with pytest.raises(TableNotFoundError):
        replace(place.config, table="neither").ref.load()
