"""A namespace is made only if it is missing, with those around it where the catalog needs them."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from tests.recovery.lake import SCHEMA, write
from tests.recovery.remote import RemoteLake
from tests.servers.seaweed import Seaweed
from tests.services.fault_proxy import Answer, FaultProxy, Server, answer_with, named
from volley import (
    CatalogAuthError,
    ConfigError,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Metrics,
    SinkContext,
)
from volley.iceberg import GlueCatalog, HiveCatalog, TableRef
from volley.iceberg.catalogs.config import CatalogConfig

CREATION = r"/namespaces(\?|$)"


def fill(config: IcebergSinkConfig) -> None:
    committer = IcebergSink(config).open(SinkContext("job", SCHEMA, Metrics()))
    committer.commit(*write(committer, 0, [1]))  # type: ignore[arg-type]


def without(endpoint: str, server: Server) -> Answer:
    """The server's settings, without one of the requests that every server offers."""
    answer = server()
    offered = [
        *("GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}", "POST /v1/{prefix}/namespaces"),
        *("GET /v1/{prefix}/namespaces/{namespace}/tables/{table}", "POST /v1/{prefix}/namespaces/{namespace}/tables"),
        "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    ]
    body = json.loads(answer.body) | {"endpoints": [each for each in offered if each != endpoint]}
    return Answer(answer.status, answer.headers, json.dumps(body).encode())


@pytest.fixture
def ready(remote: RemoteLake) -> RemoteLake:
    """The namespace is there."""
    replace(remote, catalog_uri=remote.server.rest_uri, table_name=f"t{uuid.uuid4().hex}").driver()
    return remote


def test_a_namespace_that_is_there_is_not_made(ready: RemoteLake, proxy: FaultProxy) -> None:
    proxy.arm(answer_with(403), "POST", CREATION, times=None)
    fill(ready.config)
    assert ready.rows() == [1]
    assert not proxy.asked("POST", CREATION)


@pytest.mark.parametrize(
    "endpoint", ["POST /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}"], ids=["create", "ask"]
)
def test_a_catalog_that_does_not_offer_namespaces(ready: RemoteLake, proxy: FaultProxy, endpoint: str) -> None:
    proxy.arm(named("without", lambda server: without(endpoint, server)), "GET", "/v1/config", times=None)
    fill(ready.config)
    assert ready.rows() == [1]


def test_a_namespace_that_may_not_be_looked_at(ready: RemoteLake, proxy: FaultProxy) -> None:
    proxy.arm(answer_with(403), "GET", r"/namespaces/db(\?|$)", times=None)
    fill(ready.config)
    assert ready.rows() == [1]


def test_one_that_is_missing_and_may_not_be_made(remote: RemoteLake, proxy: FaultProxy) -> None:
    proxy.arm(answer_with(403), "POST", CREATION, times=None)
    with pytest.raises(CatalogAuthError, match=r"shows no namespace absent, and refused to make it") as caught:
        fill(replace(remote.config, namespace=["absent"]))
    assert "NAMESPACE_CREATE" in str(caught.value.hint)


def test_one_that_is_missing_where_the_catalog_can_t_make_it(remote: RemoteLake, proxy: FaultProxy) -> None:
    fault = named("without", lambda server: without("POST /v1/{prefix}/namespaces", server))
    proxy.arm(fault, "GET", "/v1/config", times=None)
    missing = r"namespace absent is missing, and can't be made: .* does not offer a request that this needs: POST /v1"
    with pytest.raises(ConfigError, match=missing) as caught:
        fill(replace(remote.config, namespace=["absent"]))
    assert caught.value.hint
    assert not proxy.asked("POST", CREATION)


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("POST /v1/{prefix}/namespaces/{namespace}/tables/{table}", "can't be written: .* no request that changes"),
        ("POST /v1/{prefix}/namespaces/{namespace}/tables", "can't be made: .* no request that makes a table"),
    ],
    ids=["commit", "create"],
)
def test_a_catalog_that_only_reads_is_refused_before_anything_is_written(
    ready: RemoteLake, proxy: FaultProxy, endpoint: str, reason: str
) -> None:
    proxy.arm(named("without", lambda server: without(endpoint, server)), "GET", "/v1/config", times=None)
    with pytest.raises(ConfigError, match=reason) as caught:
        fill(ready.config)
    assert ready.config.ref.address in str(caught.value)
    with pytest.raises(ConfigError, match=reason):
        IcebergSink(ready.config).check(SCHEMA)
    assert ready.files() == []
    assert not proxy.asked("POST", "/namespaces")


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "Namespace does not exist: outer"), (400, "Parent namespace is missing"), (422, "outer was not found")],
)
def test_those_around_it_are_made_where_the_catalog_needs_them(
    remote: RemoteLake, proxy: FaultProxy, seaweed: Seaweed, status: int, said: str
) -> None:
    outer, inner = f"n{uuid.uuid4().hex}", "n2"
    config = replace(remote.config, namespace=[outer, inner])
    body = json.dumps({"error": {"message": said, "type": "NoSuchNamespaceException", "code": status}}).encode()
    refused = Answer(status, {"Content-Type": "application/json"}, body)
    proxy.arm(named(said, lambda server: refused), "POST", CREATION)
    fill(config)
    catalog = config.ref.load_catalog()
    assert (outer,) in catalog.list_namespaces()
    assert [exchange.client for exchange in proxy.asked("POST", CREATION)] == [status, 200, 200]
    assert catalog.load_table(config.identifier).scan().to_arrow()["id"].to_pylist() == [1]
    # The refusal is known from then on.
    fill(replace(remote.config, namespace=[outer, "n3"]))
    fill(replace(remote.config, namespace=[f"{outer}2", "n3", "n4"]))
    assert [exchange.client for exchange in proxy.asked("POST", CREATION)[3:]] == [200] * 4


@pytest.mark.parametrize("catalog", [GlueCatalog("eu"), HiveCatalog("thrift://h:1")], ids=["glue", "hive"])
def test_catalogs_with_one_level(catalog: CatalogConfig) -> None:
    with pytest.raises(ConfigError, match=r"namespace 'a\.b' has 2 levels") as caught:
        TableRef("a.b", "events", IcebergStorage.Local("/lake"), catalog)
    assert "one level of namespaces" in str(caught.value)
    with pytest.raises(ConfigError, match="2 levels"):
        IcebergSinkConfig(namespace=["a", "b"], table="t", storage=IcebergStorage.Local("/lake"), catalog=catalog)
    assert TableRef("a", "events", IcebergStorage.Local("/lake"), catalog).namespace == ("a",)
