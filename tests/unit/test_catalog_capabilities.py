"""Capabilities of catalogs: known by name, announced by a server; what a job needs and a catalog lacks is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog

from tests.unit.catalogs_page import CATALOGS, PAGE, PROVEN, RECORDED, ROOT, page
from volley import (
    ConfigError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    Maintenance,
    MemorySource,
    PlanError,
)
from volley.iceberg import (
    GlueCatalog,
    HiveCatalog,
    IcebergSourceConfig,
    NessieCatalog,
    RestCatalog,
    RoutedSink,
    SqlCatalog,
)
from volley.iceberg.catalogs.capabilities import FEATURES, Capabilities
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.commit.together import takes_tables
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog
from volley.iceberg.table import TableRef

LAKE = IcebergStorage.Local("/lake")
NESSIE = NessieCatalog("http://127.0.0.1:9/iceberg")
LOWER = [GlueCatalog("eu-central-1"), HiveCatalog("thrift://127.0.0.1:9")]
ALL = {**CATALOGS, **RECORDED}
COMMIT = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"
TRANSACTIONS = "POST /v1/{prefix}/transactions/commit"


def sink(catalog: CatalogConfig, **settings: Any) -> IcebergSinkConfig:
    return IcebergSinkConfig(**{"namespace": "db", "table": "t", "storage": LAKE, "catalog": catalog, **settings})


def test_every_capability_has_its_words() -> None:
    assert [field.name for field in fields(Capabilities)] == list(FEATURES) == list(PROVEN)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: sink(NESSIE, maintenance=Maintenance()), "Nessie says that .* may not be deleted"),
        (lambda: sink(NESSIE).with_maintenance(Maintenance(expire_after=None)), "can't expire snapshots of table db.t"),
        (lambda: sink(NESSIE, table_properties={"format-version": "3"}), "can't be of format version 3: Nessie makes"),
        (lambda: IcebergTable(sink(NESSIE).ref).upgrade(3), "can't become of format version 3: Nessie makes"),
        (lambda: sink(NESSIE).with_branch("audit"), "can't have branch 'audit': Nessie has no branches and tags"),
        (lambda: IcebergSourceConfig(sink(NESSIE).ref).with_changes("follow"), "can't be followed: Nessie shows"),
        (lambda: sink(LOWER[0], namespace="a.b"), "2 levels: AWS Glue has one level"),
        (lambda: sink(LOWER[1], namespace=["a", "b"]), "2 levels: the Hive Metastore has one level"),
    ],
)
def test_what_a_catalog_lacks_by_its_name_is_refused_when_built(ask: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        ask()
    assert caught.value.hint


def test_what_nessie_has_is_taken() -> None:
    kept = Maintenance(expire_after=None, retain_most=None)
    assert sink(NESSIE, maintenance=kept, table_properties={"format-version": "2"}).maintenance == kept
    assert sink(NESSIE, namespace="a.b", table="T").table_name == "a.b.T"


def test_any_server_may_stand_behind_rest() -> None:
    config = sink(RestCatalog("http://127.0.0.1:9"), namespace="A.b", table="T", maintenance=Maintenance())
    assert config.with_branch("audit").with_table_properties({"format-version": "3"}).table_name == "A.b.T"
    assert set(vars(config.ref.capabilities).values()) == {None}


@pytest.mark.parametrize("catalog", LOWER, ids=["glue", "hive"])
def test_names_of_one_table_are_one_name_where_case_does_not_count(catalog: CatalogConfig) -> None:
    names = [sink(catalog, namespace=namespace, table=table).ref for namespace, table in (("DB", "Tt"), ("db", "tT"))]
    assert names[0] == names[1]
    assert names[0].identifier == ("db", "tt")
    assert names[0].beside("Other").identifier == ("db", "other")
    with pytest.raises(ConfigError, match="is the sink's own table"):
        sink(catalog, table="Orders", dead_letter="db.ORDERS")


@pytest.mark.parametrize("catalog", LOWER, ids=["glue", "hive"])
def test_two_sinks_of_one_table_are_refused_by_any_name(catalog: CatalogConfig) -> None:
    stream = Environment().from_source(MemorySource([{"id": 1}]))
    pipelines = [stream.to_sink(IcebergSink(sink(catalog, table=table))) for table in ("Orders", "orders")]
    with pytest.raises(PlanError, match=r"two sinks or dead letters of this job write to .*orders"):
        Environment().execute("job", *pipelines)


def test_a_server_that_announces_its_requests() -> None:
    unknown = Capabilities(**dict.fromkeys(FEATURES))
    assert unknown.announced(None) is unknown
    reads = unknown.announced({"GET /v1/{prefix}/namespaces"})
    assert [name for name in FEATURES if getattr(reads, name) is False] == [
        *("tables", "namespaces", "commits", "transactions")
    ]
    with pytest.raises(ConfigError, match="t can't be written: catalog c offers no request that changes a table"):
        reads.require("commits", "catalog c", "t can't be written")
    writes = unknown.announced({COMMIT, TRANSACTIONS})
    assert writes.commits is writes.transactions is True
    assert writes.branches is None


def test_an_announcement_gives_nothing_back_that_the_name_takes_away() -> None:
    never = replace(NESSIE.capabilities, transactions=False)
    assert never.announced({TRANSACTIONS}).transactions is False


class _Asked(GuardedCatalog, InMemoryCatalog):
    def commits_tables(self) -> bool:
        raise AssertionError("it was asked")


@pytest.mark.parametrize("catalog", ALL.values(), ids=ALL)
def test_a_catalog_known_by_name_is_not_asked_whether_it_takes_several_tables(catalog: CatalogConfig) -> None:
    """Asking is a commit of no table: a server of a vendor need not expect one."""
    ref = TableRef("db", "t", LAKE, catalog=catalog)
    known = catalog.capabilities.transactions
    asked = _Asked("lake")
    if known is None:
        with pytest.raises(AssertionError, match="it was asked"):
            takes_tables(ref, asked)
        asked.endpoints = {COMMIT}
        known = False
    assert takes_tables(ref, asked) is known


def test_explain_says_what_the_catalog_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Environment().from_source(MemorySource([{"id": 1}]))
    for target in (IcebergSink(sink(NESSIE)), IcebergSink(sink(NESSIE)).routed("{id}")):
        stream.to_sink(target).explain()
        (line,) = (line for line in capsys.readouterr().out.splitlines() if "without" in line)
        assert line.startswith(f"{target.label}: catalog {NESSIE.address} is without branches and tags of a table, all")
        assert line.endswith("expiry of snapshots, removal of files, tables of format version 3")
    stream.to_sink(IcebergSink(sink(RestCatalog("http://127.0.0.1:9")))).explain()
    assert "without" not in capsys.readouterr().out


REST = RestCatalog("http://127.0.0.1:9")
IN_ONE = "an epoch is one commit, if the catalog takes that (`volley check` asks it); else one after the other"
IN_TURN = "committed one after the other, since a SQL catalog commits to one table at a time"


def tables_explained(capsys: pytest.CaptureFixture[str], *sinks: IcebergSink | RoutedSink) -> list[str]:
    """What a plan says about the commits of several tables."""
    first, *others = sinks
    pipeline = Environment().from_source(MemorySource([{"id": 1}])).to_sink(first)
    for other in others:
        pipeline = pipeline.to_sink(other)
    pipeline.explain()
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("tables ")]


def test_explain_says_how_an_epoch_gets_to_several_tables(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (IcebergSink(replace(sink(REST), table=name)) for name in ("a", "b"))
    elsewhere = IcebergSink(replace(sink(RestCatalog("http://127.0.0.1:8")), table="c"))
    lettered = IcebergSink(first.config.with_dead_letter("db.bad"))
    routed, parking = first.routed("{id}"), first.routed("{id}", on_error="park")
    in_turn = IcebergSink(replace(sink(SqlCatalog("sqlite:////lake/catalog.db")), table="a")).routed("{id}")
    assert tables_explained(capsys, first) == []
    assert tables_explained(capsys, first, elsewhere) == []
    assert tables_explained(capsys, first, second, elsewhere) == [f"tables db.a, db.b: {IN_ONE}"]
    assert tables_explained(capsys, lettered) == [f"tables db.a, db.bad: {IN_ONE}"]
    assert tables_explained(capsys, routed) == [f"tables {{id}}: {IN_ONE}"]
    assert tables_explained(capsys, in_turn) == [f"tables {{id}}: {IN_TURN}"]
    nessie = IcebergSink(sink(NESSIE)).routed("{id}")
    assert tables_explained(capsys, nessie) == ["tables {id}: an epoch is one commit"]
    waits = "tables {id}: committed one after the other, since on_error='park' lets each wait by itself"
    assert tables_explained(capsys, parking, second) == [waits]


def test_the_page_is_made_of_the_capabilities() -> None:
    assert PAGE.read_text() == page(), "run python -m tests.unit.catalogs_page"
    assert {type(catalog) for catalog in {**CATALOGS, **RECORDED}.values()} == set(_classes())
    assert [path for paths in PROVEN.values() for path in paths if not (ROOT / path).exists()] == []


def _classes() -> list[type[CatalogConfig]]:
    """The catalogs that Volley has, without those that tests make."""
    direct = CatalogConfig.__subclasses__()
    every = [*direct, *(below for above in direct for below in above.__subclasses__())]
    return [each for each in every if each.__module__.startswith("volley.")]
