"""What each catalog is said to do is what its server does: announced requests, names, namespaces, races to create."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.recovery.lake import QUERY, write
from tests.services import lakes
from tests.services.lakes import SCHEMA, Lake, driver
from volley import CatalogError, ConfigError, IcebergSinkConfig, SchemaMismatchError
from volley.iceberg.catalogs.capabilities import FEATURES
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.commit.creation import capabilities_of
from volley.iceberg.commit.tables import open_table

OF_REQUESTS = [name for name, feature in FEATURES.items() if feature.endpoint]


@pytest.fixture(scope="module", params=lakes.catalogs())
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog in turn."""
    made: Lake = request.param(request)
    return made


def fill(config: IcebergSinkConfig, *ids: int) -> IcebergCommitter:
    ours = driver(config)
    ours.commit(*write(ours, int(ours.last_epoch(QUERY) is not None), [*ids]))
    return ours


def test_what_a_server_announces_is_known(lake: Lake) -> None:
    ref = lake.config().ref
    capabilities = capabilities_of(ref, ref.load_catalog())
    known = {name: getattr(capabilities, name) for name in OF_REQUESTS}
    if lake.name == "rest":
        assert known == dict.fromkeys(OF_REQUESTS, True)
    else:
        # SeaweedFS 4.48 and Nessie 0.99 announce nothing.
        assert capabilities == ref.capabilities
        assert known["transactions"] is {"seaweed": None, "nessie": True}.get(lake.name, False)


def test_nested_namespaces(lake: Lake) -> None:
    nested = [f"n{uuid.uuid4().hex}", "inner"]
    if lake.documented.ref.capabilities.nested_namespaces is False:
        with pytest.raises(ConfigError, match="has one level of namespaces"):
            replace(lake.config(), namespace=nested)
        return
    config = replace(lake.config(), namespace=nested)
    fill(config, 1)
    fill(config, 2)
    assert config.identifier[:-1] == tuple(nested)
    assert lake.ids(config) == [1, 2]


def test_upper_case_in_names(lake: Lake) -> None:
    name = f"Orders{uuid.uuid4().hex}"
    config = replace(lake.documented, table=name)
    plain = lake.open_plain()
    if lake.name == "seaweed":
        with pytest.raises(CatalogError, match="table name must start with") as caught:
            driver(config)
        assert "choose names that it takes" in str(caught.value.hint)
        return
    fill(config, 1)
    fill(replace(config, table=name.lower()), 2)
    namespace = config.identifier[:-1]
    listed = {identifier[-1] for identifier in plain.list_tables(namespace)} & {name, name.lower()}
    if config.ref.capabilities.upper_case is False:
        assert listed == {name.lower()}
        assert lake.ids(config) == [1, 2]
    else:
        assert listed == {name, name.lower()}
        assert lake.ids(config) == [1]


@pytest.mark.parametrize("other", [SCHEMA, pa.schema([("id", pa.string())])], ids=["same columns", "another type"])
def test_two_jobs_that_make_a_table_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, other: pa.Schema) -> None:
    """The other job makes the table, and writes to it, when this one has found that there is none."""
    config = lake.config()
    catalog = config.ref.load_catalog()
    make = catalog.create_table

    def late(*args: Any, **more: Any) -> Any:
        # A process has one catalog in memory: the other job's must not wait for another one.
        monkeypatch.setattr(catalog, "create_table", make)
        theirs = driver(config, other)
        if other == SCHEMA:
            theirs.commit(*write(theirs, 0, [1]))
        return make(*args, **more)

    monkeypatch.setattr(catalog, "create_table", late)
    if other == SCHEMA:
        _, table = open_table(config, SCHEMA, catalog=catalog)
        assert table.metadata.table_uuid == lake.table(config).metadata.table_uuid
        fill(config, 2)
        assert lake.ids(config) == [1, 2]
    else:
        with pytest.raises(SchemaMismatchError, match="id"):
            open_table(config, SCHEMA, catalog=catalog)
        assert lake.table(config).schema().find_type("id") == lake.table(config).schema().fields[0].field_type
        assert not lake.table(config).scan().to_arrow().num_rows
