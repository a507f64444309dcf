"""What catalogs do with places, drops, lists and names, as another client sees it, and what jobs make of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError, NamespaceNotEmptyError, RESTError

from tests.recovery.lake import QUERY, SCHEMA, write
from tests.services import lakes
from tests.services.fault_proxy import Answer, FaultProxy, Request
from tests.services.lakes import Lake, driver
from tests.services.test_modes_of_catalogs import objects_of
from volley import CatalogError, CommitStateUnknownError, ConfigError, IcebergSinkConfig, TableNotFoundError
from volley.iceberg import IcebergTable
from volley.iceberg import RestCatalog as OurRestCatalog
from volley.iceberg.storage.values import LocalStorage

_OF_REST = ("rest", "seaweed", "nessie")


@pytest.fixture(params=lakes.catalogs())
def lake(request: pytest.FixtureRequest) -> Lake:
    opened: Lake = request.param(request)
    return opened


def add(config: IcebergSinkConfig, number: int, *ids: int) -> None:
    """One epoch by a driver of its own."""
    ours = driver(config)
    ours.commit(*write(ours, number, [*ids]))


def test_a_place_outside_the_warehouse(lake: Lake, tmp_path: Path) -> None:
    config, plain = lake.config(), lake.open_plain()
    add(lake.config(), 0, 1)
    is_local = lake.name not in ("seaweed", "nessie")
    place = f"file://{tmp_path}/elsewhere" if is_local else f"s3://another-bucket/{config.table}"
    make = partial(plain.create_table, config.identifier, SCHEMA, location=place)
    if lake.name == "seaweed":
        with pytest.raises(BadRequestError, match="table location must be within bucket lake"):
            make()
        return
    table = make()
    # Nessie leaves it out without a word.
    assert (table.location() == place) == (lake.name != "nessie")
    for number in range(2):
        add(config, number, number)
    assert lake.ids(config) == [0, 1]
    files = lake.table(config).inspect.data_files()["file_path"].to_pylist()
    assert len(files) == 2
    assert all(path.startswith(table.location()) for path in files)
    assert IcebergTable(config.ref).compact().files_after == 1
    assert lake.ids(config) == [0, 1]


def test_a_namespace_with_a_table_can_not_be_dropped(lake: Lake) -> None:
    config = replace(lake.config(), namespace=f"n{uuid.uuid4().hex}")
    add(config, 0, 1)
    plain = lake.open_plain()
    if isinstance(plain, RestCatalog):
        answer = plain._session.delete(plain.url(f"namespaces/{config.identifier[0]}"))
        told = answer.status_code, answer.json()["error"]["type"]
        assert told == (409, "" if lake.name == "nessie" else "NamespaceNotEmptyException")
    with pytest.raises(NamespaceNotEmptyError):
        plain.drop_namespace(config.identifier[:-1])
    add(config, 1, 2)
    assert lake.ids(config) == [1, 2]


@pytest.mark.parametrize("purges", [True, False], ids=["purged", "dropped"])
def test_a_table_that_another_client_drops(lake: Lake, purges: bool) -> None:
    """A job stops; the next one begins anew, without the rows of before."""
    config, plain = lake.config(), lake.open_plain()
    add(config, 0, 1)
    ours, dropped = driver(config), lake.table(config)
    epoch, results = write(ours, 1, [2])
    if purges and lake.name == "hive":
        with pytest.raises(NotImplementedError):
            plain.purge_table(config.identifier)
        return
    (plain.purge_table if purges else plain.drop_table)(config.identifier)
    with pytest.raises(TableNotFoundError, match=config.table):
        ours.commit(epoch, results)
    ours.abort(epoch, results)
    left = [path for path in objects_of(dropped) if path.endswith(".parquet")]
    # SeaweedFS deletes the files of a table that is only dropped; Nessie keeps those of one that is purged.
    is_gone = lake.name != "nessie" if purges else lake.name == "seaweed"
    assert len(left) == (0 if is_gone else 1)
    add(config, 1, 2)
    assert lake.ids(config) == [2]


def test_a_table_that_is_registered_again(lake: Lake) -> None:
    """It still tells which epochs it has."""
    config, plain = lake.config(), lake.open_plain()
    add(config, 0, 1)
    location = lake.table(config).metadata_location
    plain.drop_table(config.identifier)
    register = partial(plain.register_table, config.identifier, location)
    if lake.name == "seaweed":
        with pytest.raises(RESTError):
            register()
        return
    register()
    assert driver(config).last_epoch(QUERY) == 0
    add(config, 1, 2)
    assert lake.ids(config) == [1, 2]


def test_lists_that_come_in_pages(lake: Lake) -> None:
    config = replace(lake.config(), namespace=f"n{uuid.uuid4().hex}")
    names = [f"t{number}" for number in range(5)]
    for name in names:
        driver(replace(config, table=name))
    plain = lake.open_plain()
    if isinstance(plain, RestCatalog):
        url = plain.url(f"namespaces/{config.identifier[0]}/tables")
        page = plain._session.get(url, params={"pageSize": 2}).json()
        assert len(page["identifiers"]) == 2
        assert page["next-page-token"]
    ours = config.with_properties({"rest-page-size": "2"}).ref.load_catalog()
    listed = ours.list_tables(config.identifier[:-1])
    assert sorted(identifier[-1] for identifier in listed) == names


@pytest.mark.parametrize("name", ["a.b", "a/b"])
def test_names_with_dots_and_slashes_are_refused(lake: Lake, name: str) -> None:
    """Catalogs differ in what they make of them: one puts the files of the table a/b inside those of a."""
    config = lake.config()
    with pytest.raises(ConfigError, match=f"table '{name}'") as caught:
        replace(config, table=name)
    assert caught.value.hint
    # A table of that name, where another client can make one, harms no other.
    add(config, 0, 1)
    odd = (*config.identifier[:-1], config.table + name[1:])
    plain, storage = lake.open_plain(), config.ref.storage
    place = f"file://{storage.path}/db/{odd[-1]}" if isinstance(storage, LocalStorage) else None
    try:
        plain.create_table(odd, SCHEMA, place).append(pa.table({"id": [9]}, SCHEMA))
        is_made = True
    except Exception:  # each client has its own
        is_made = False
    assert is_made == (lake.name not in _REFUSE[name])
    add(config, 1, 2)
    assert lake.ids(config) == [1, 2]
    if is_made:
        assert plain.load_table(odd).scan().to_arrow()["id"].to_pylist() == [9]


_REFUSE = {"a.b": ("seaweed", "hive"), "a/b": ("rest", "seaweed")}


class _Unknown(FaultProxy):
    """Adds a change to commits that no server knows, while it is told to."""

    is_on = False

    def exchange(self, request: Request) -> Answer | None:
        body: dict[str, Any] = json.loads(request.body) if self.is_on and request.method == "POST" else {}
        if "updates" in body:
            body["updates"].append({"action": "become-a-graph"})
            request = replace(request, body=json.dumps(body).encode())
        return super().exchange(request)


@contextmanager
def before(lake: Lake, config: IcebergSinkConfig) -> Iterator[tuple[_Unknown, IcebergSinkConfig]]:
    catalog = config.ref.catalog
    assert isinstance(catalog, OurRestCatalog)
    proxy = _Unknown(catalog.uri)
    with proxy:
        ours = replace(catalog, uri=catalog.uri.replace(_origin(catalog.uri), proxy.uri))
        yield proxy, replace(config, catalog=ours, catalog_uri=None)


def _origin(uri: str) -> str:
    return "/".join(uri.split("/")[:3])


def test_a_change_that_the_server_does_not_know(lake: Lake) -> None:
    """Nothing lands; where the server says 500 to it, it may have, for all the client knows."""
    if lake.name not in _OF_REST:
        pytest.skip("the client itself makes the metadata")
    with before(lake, lake.config()) as (proxy, config):
        add(config, 0, 1)
        ours = driver(config)
        epoch, results = write(ours, 1, [2])
        proxy.is_on = True
        expected = CatalogError if lake.name == "seaweed" else CommitStateUnknownError
        with pytest.raises(expected, match=config.table):
            ours.commit(epoch, results)
        proxy.is_on = False
        assert {each.server for each in proxy.asked("POST", f"/tables/{config.table}$")[-1:]} == {
            400 if lake.name == "seaweed" else 500
        }
        assert lake.ids(config) == [1]
        add(config, 1, 2)
        assert lake.ids(config) == [1, 2]
