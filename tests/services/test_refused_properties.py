"""Catalogs that refuse table properties, each in words of its own, before Iceberg's REST fixture: tables are made
without those that Volley adds, and what a user or a job needs is an error by name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog as load_plain
from pyspark.sql import SparkSession

from tests.recovery.lake import write
from tests.servers.rest_fixture import RestFixture
from tests.servers.vendors import properties_in
from tests.services.fault_proxy import Answer, FaultProxy, Request
from tests.services.lakes import driver
from tests.services.test_capabilities_of_catalogs import fill
from volley import (
    CatalogError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    RestCatalog,
)

DELETES, VERSIONS = "write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"
MERGES = "commit.manifest-merge.enabled"
DEFAULTS = {DELETES: "true", VERSIONS: "100", MERGES: "true"}


@dataclass
class Rule:
    """The properties that a catalog refuses, and the answer with which it does."""

    refuses: Callable[[str], bool]
    status: int
    words: str


class Refusing(FaultProxy):
    """Refuses requests that set a property; its `refused` has those it was sent."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.rule: Rule | None = None
        self.refused: list[str] = []

    def exchange(self, request: Request) -> Answer | None:
        if self.rule is not None and request.method == "POST":
            names = [name for name in properties_in(request) if self.rule.refuses(name)]
            if names:
                self.refused.append(names[0])
                error = {"message": self.rule.words.format(names[0]), "type": "BadRequestException"}
                body = {"error": {**error, "code": self.rule.status}}
                return Answer(self.rule.status, {"Content-Type": "application/json"}, json.dumps(body).encode())
        return super().exchange(request)


@dataclass(frozen=True)
class Behind:
    proxy: Refusing
    config: IcebergSinkConfig
    fixture: RestFixture

    def properties(self, name: str) -> dict[str, str]:
        """Those of Iceberg's that a table has, as plain pyiceberg sees it, past the proxy."""
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(("db", name))
        return {name: value for name, value in table.properties.items() if name in (*DEFAULTS, "owner")}

    def rows(self, name: str) -> list[int]:
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(("db", name))
        return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def behind(rest_fixture: RestFixture) -> Iterator[Behind]:
    storage = IcebergStorage.Local(rest_fixture.lake)
    proxy = Refusing(rest_fixture.uri)
    with proxy:
        catalog, table = RestCatalog(proxy.uri), f"t{uuid.uuid4().hex}"
        config = IcebergSinkConfig(namespace="db", table=table, storage=storage, catalog=catalog)
        yield Behind(proxy, config, rest_fixture)


@pytest.mark.parametrize(
    ("refuses", "status", "words", "asked", "kept"),
    [
        ([DELETES, VERSIONS], 400, "Malformed request: Unsupported table property: {}", 2, [MERGES]),
        ([VERSIONS], 400, "INVALID_PARAMETER_VALUE: '{}' is managed by the catalog", 1, [DELETES, MERGES]),
        (DEFAULTS, 422, "table properties are not allowed", 1, []),
        (DEFAULTS, 403, "PERMISSION_DENIED: may not set {}", 3, []),
        ([MERGES], 500, "java.lang.IllegalArgumentException: {}", 1, [DELETES, VERSIONS]),
    ],
)
def test_what_volley_adds_is_left_out_once_asked(
    behind: Behind,
    refuses: list[str],
    status: int,
    words: str,
    asked: int,
    kept: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    behind.proxy.rule = Rule(lambda name: name in refuses, status, words)
    config = behind.config
    fill(config, 1, 2)
    assert behind.properties(config.table) == {name: DEFAULTS[name] for name in kept}
    (warning,) = (record.getMessage() for record in caplog.records if "refuses" in record.getMessage())
    assert (
        f"refuses the table properties {', '.join(sorted(set(DEFAULTS) - {*kept}))}: table db.{config.table}" in warning
    )
    assert len(behind.proxy.refused) == asked
    # It is known for the tables that follow, and shown.
    caplog.clear()
    other = replace(config, table=f"{config.table}_2")
    fill(other, 3)
    assert behind.properties(other.table) == {name: DEFAULTS[name] for name in kept}
    assert len(behind.proxy.refused) == asked
    assert "refuses" not in caplog.text
    assert behind.rows(config.table) == [1, 2]
    assert behind.rows(other.table) == [3]


def test_it_is_shown(behind: Behind, capsys: pytest.CaptureFixture[str]) -> None:
    behind.proxy.rule = Rule(lambda name: name == DELETES, 400, "{} is refused")
    stream = Environment().from_source(MemorySource([{"id": 1}]))
    lacks = f"catalog {behind.proxy.uri} is without table properties that bound metadata"
    stream.to_sink(IcebergSink(behind.config)).explain()
    assert lacks not in capsys.readouterr().out
    fill(behind.config, 1)
    stream.to_sink(IcebergSink(behind.config)).explain()
    assert lacks in capsys.readouterr().out
    probes = {probe.name: probe for probe in IcebergSink(behind.config).probes(None)}
    assert "without table properties that bound metadata" in probes["catalog"].run()
    # Another process looks at the table.
    assert probes["table"].run().endswith(f"1 rows, without the properties {DELETES}")


def test_all_tables_of_a_job(behind: Behind, spark: SparkSession, tmp_path: Path) -> None:
    behind.proxy.rule = Rule(DEFAULTS.__contains__, 400, "{} is not supported")
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    names = [f"{behind.config.table}_{number}" for number in range(6)]
    rows = [{"id": number, "to": name} for number, name in enumerate(names)]
    sink = IcebergSink(behind.config).routed("{to}", omit=["to"])
    environment.from_source(MemorySource(rows, rows_per_epoch=2)).to_sink(sink).execute("job")
    assert [behind.rows(name) for name in names] == [[number] for number in range(6)]
    assert [behind.properties(name) for name in names] == [{}] * 6
    # Tables that are made at the same time may each be refused.
    assert len(behind.proxy.refused) <= 6


def test_what_a_user_asks_for_is_not_left_out(behind: Behind) -> None:
    behind.proxy.rule = Rule(lambda name: name in ("owner", DELETES), 400, "unknown property {}")
    for asked in ({"owner": "me"}, {DELETES: "false"}):
        config = behind.config.with_table_properties(asked)
        with pytest.raises(CatalogError, match=f"unknown property {next(iter(asked))}") as caught:
            driver(config)
        assert "leave out table_properties that it refuses" in str(caught.value.hint)
    # What was refused beside it is not taken for a lack of the catalog.
    assert behind.config.ref.capabilities.bounds is None


def test_what_a_job_needs_is_an_error_by_name(behind: Behind) -> None:
    ours = driver(behind.config)
    behind.proxy.rule = Rule(lambda name: name.startswith("volley."), 400, "reserved for tables of others: {}")
    with pytest.raises(CatalogError, match=r"reserved for tables of others: volley\.") as caught:
        ours.commit(*write(ours, 0, [1]))
    assert "keep which rows are in the table: have the catalog take them" in str(caught.value.hint)
    behind.proxy.rule = None
    ours = driver(behind.config)
    ours.commit(*write(ours, 0, [1]))
    assert behind.rows(behind.config.table) == [1]
