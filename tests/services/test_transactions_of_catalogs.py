"""What catalogs answer to commits of several tables, and what jobs, plans and `volley check` make of it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog

from tests.recovery.lake import write
from tests.services import lakes
from tests.services.lakes import Lake, driver
from tests.tiers import nightly
from volley import IcebergSink, IcebergSinkConfig

pytestmark = pytest.mark.services

CHANGED = "changed.by.a.transaction"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(lakes.rest, id="fixture"),
        pytest.param(lakes.seaweed, id="seaweed"),
        nightly(lakes.nessie, id="nessie"),
    ],
)
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog that takes several tables in one commit."""
    made: Lake = request.param(request)
    return made


@pytest.fixture
def configs(lake: Lake) -> list[IcebergSinkConfig]:
    """Two tables with a row each."""
    two = [replace(lake.documented, table=f"t{uuid.uuid4().hex}") for _ in range(2)]
    for config in two:
        ours = driver(config)
        ours.commit(*write(ours, 0, [1]))
    return two


def change(lake: Lake, config: IcebergSinkConfig, value: str, head: int | None = None) -> dict[str, Any]:
    """A change of one table; it requires that main is at a snapshot: None = the one at which it is."""
    current = lake.table(config).metadata.current_snapshot_id
    *namespace, name = config.identifier
    required = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head or current}
    update = {"action": "set-properties", "updates": {CHANGED: value}}
    return {"identifier": {"namespace": namespace, "name": name}, "requirements": [required], "updates": [update]}


def send(lake: Lake, *changes: Mapping[str, Any]) -> requests.Response:
    """Send changes as plain HTTP, with the token that pyiceberg has got."""
    catalog = lake.open_plain()
    assert isinstance(catalog, RestCatalog)
    return catalog._session.post(catalog.url("transactions/commit"), json={"table-changes": changes})


def told(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["type"]


def values(lake: Lake, configs: list[IcebergSinkConfig]) -> list[str | None]:
    return [lake.table(config).properties.get(CHANGED) for config in configs]


def test_all_tables_are_changed_or_none(lake: Lake, configs: list[IcebergSinkConfig]) -> None:
    answer = send(lake, change(lake, configs[0], "a"), change(lake, configs[1], "b", head=123))
    # Nessie 0.99 leaves the type empty.
    assert told(answer) == (409, "" if lake.name == "nessie" else "CommitFailedException")
    assert values(lake, configs) == [None, None]
    answer = send(lake, *(change(lake, config, "a") for config in configs))
    assert (answer.status_code, answer.content) == (204, b"")
    assert values(lake, configs) == ["a", "a"]


def test_a_table_that_is_missing(lake: Lake, configs: list[IcebergSinkConfig]) -> None:
    missing = change(lake, configs[1], "b")
    missing["identifier"] = {**missing["identifier"], "name": "missing"}
    answer = send(lake, change(lake, configs[0], "a"), missing)
    assert answer.status_code == 404
    assert values(lake, configs) == [None, None]


def test_a_table_that_is_there_twice(lake: Lake, configs: list[IcebergSinkConfig]) -> None:
    """This is why Volley sends a table once."""
    first, second = (change(lake, configs[0], value) for value in "ab")
    second["updates"][0]["updates"] = {"another": "b"}
    answer = send(lake, first, second)
    properties = lake.table(configs[0]).properties
    made = properties.get(CHANGED), properties.get("another")
    match lake.name:
        case "rest":
            assert (answer.status_code, made) == (204, ("a", None))
        case "seaweed":
            assert (told(answer), made) == ((409, "CommitFailedException"), (None, None))
        case _:
            assert (answer.status_code, made) == (400, (None, None))


def test_jobs_and_checks_know_it(lake: Lake, configs: list[IcebergSinkConfig]) -> None:
    first, second = map(driver, configs)
    assert first.group is not None
    assert first.group == second.group
    catalog = next(probe for probe in IcebergSink(configs[0]).probes(None) if probe.name == "catalog")
    assert catalog.run().endswith(", several tables in one commit")
    (*_, commits) = IcebergSink(configs[0]).routed("{id}").probes(None)
    assert commits.run() == "several tables in one commit"


@pytest.mark.parametrize("opener", [lakes.sqlite, lakes.postgres])
def test_other_catalogs_commit_table_by_table(opener: lakes.Opener, request: pytest.FixtureRequest) -> None:
    config = opener(request).config()
    assert driver(config).group is None
    (*_, commits) = IcebergSink(config).routed("{id}").probes(None)
    assert commits.run() == "one table a commit"
