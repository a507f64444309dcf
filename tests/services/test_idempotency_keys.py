"""Keys by which a catalog knows a request again: sent where they are announced, by Lakekeeper's front before Iceberg's
REST fixture, which knows them too; a request has one key, rows are in once."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog as load_plain

from tests.recovery.lake import retries, write
from tests.servers.rest_fixture import RestFixture
from tests.servers.vendors import Front
from tests.services.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Request,
    Server,
    answer_after,
    answer_with,
    lose_answer,
    lose_request,
)
from tests.services.lakes import driver
from tests.unit.test_vendor_catalogs import front_of, of
from volley import IcebergSinkConfig, IcebergStorage, RestCatalog
from volley.iceberg import IcebergTable


@dataclass(frozen=True)
class Keyed:
    """A table behind a catalog that knows keys."""

    front: Front
    config: IcebergSinkConfig
    fixture: RestFixture

    @property
    def path(self) -> str:
        """The regex of the address to which changes of the table are sent."""
        return rf"/tables/{self.config.table}$"

    def rows(self) -> list[int]:
        """The rows as plain pyiceberg sees them, past the front."""
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(self.config.identifier)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def keys(self) -> list[str]:
        """The keys of changes of the table, in order."""
        return [key for key, (request, _) in self.front.keys.items() if re.search(self.path, request.path)]


@pytest.fixture
def keyed(rest_fixture: RestFixture, tmp_path: Path) -> Iterator[Keyed]:
    with front_of("lakekeeper", tmp_path, rest_fixture.uri) as front:
        config = IcebergSinkConfig(
            namespace=["db"],
            table=f"t{uuid.uuid4().hex}",
            storage=IcebergStorage.Local(rest_fixture.lake),
            catalog=of("lakekeeper", front, tmp_path),
        )
        yield Keyed(front, config, rest_fixture)
        assert front.broken == []


@pytest.mark.parametrize("fault", [lose_answer, lose_request, *map(answer_after, (500, 502, 504)), answer_with(500)])
def test_a_commit_without_a_clear_answer_is_sent_again_with_its_key(keyed: Keyed, fault: Fault) -> None:
    ours = driver(keyed.config)
    written = write(ours, 0, [1, 2])
    known = keyed.keys()
    keyed.front.arm(fault, "POST", keyed.path)
    ours.commit(*written)
    # One key, of one attempt: the table need not tell whether it has landed.
    assert len(keyed.keys()) == len(known) + 1
    assert retries(ours) == 0
    assert [exchange.client for exchange in keyed.front.asked("POST", keyed.path)[-2:]][1] == 200
    assert keyed.rows() == [1, 2]


def test_a_changed_request_has_another_key(keyed: Keyed) -> None:
    ours = driver(keyed.config)
    known = len(keyed.keys())
    written = write(ours, 0, [1, 2])
    keyed.front.arm(answer_with(409), "POST", keyed.path)
    ours.commit(*written)
    # A commit that is refused is made anew: two keys for it.
    assert len(keyed.keys()) == known + 2
    assert retries(ours) == 1
    assert keyed.rows() == [1, 2]


def test_a_refusal_of_the_second_request_says_nothing_of_the_first(keyed: Keyed) -> None:
    ours = driver(keyed.config)
    written = write(ours, 0, [1])
    keyed.front.arm(lose_answer, "POST", keyed.path)
    keyed.front.arm(answer_with(409), "POST", keyed.path)
    ours.commit(*written)
    assert [exchange.client for exchange in keyed.front.asked("POST", keyed.path)][-2:] == [None, 409]
    assert keyed.rows() == [1]
    assert IcebergTable(keyed.config.ref).to_arrow()["id"].to_pylist() == [1]


def test_a_request_with_a_renewed_token_has_its_key(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = driver(keyed.config)
    written = write(ours, 0, [1])
    front, sent = keyed.front, list[tuple[str, str]]()
    serve = front.exchange

    def expire(server: Server) -> Answer:
        answer = server()
        front.given.clear()
        return answer

    def exchange(request: Request) -> Answer | None:
        if request.method == "POST" and re.search(keyed.path, request.path):
            sent.append((request.headers["Authorization"], request.headers["Idempotency-Key"]))
        return serve(request)

    monkeypatch.setattr(front, "exchange", exchange)
    front.arm(expire, "GET", rf"/tables/{keyed.config.table}\?")
    ours.commit(*written)
    (first, key), (second, same) = sent
    assert first != second
    assert key == same
    assert retries(ours) == 0
    assert keyed.rows() == [1]
    # The token that had ended.
    assert [reason.partition(": ")[2] for reason in front.broken] == [f"sign-in by {first!r}"]
    front.broken.clear()


def test_a_table_that_is_dropped_and_made_again_has_new_keys(keyed: Keyed) -> None:
    catalog = keyed.config.ref.load_catalog()
    driver(keyed.config)
    for _ in range(2):
        schema = catalog.load_table(keyed.config.identifier).schema()
        catalog.drop_table(keyed.config.identifier)
        keyed.front.arm(lose_answer, "POST", r"/tables$")
        made = catalog.create_table(keyed.config.identifier, schema)
    assert catalog.load_table(keyed.config.identifier).metadata.table_uuid == made.metadata.table_uuid


def test_no_keys_where_none_are_announced(rest_fixture: RestFixture) -> None:
    proxy = _Listening(rest_fixture.uri)
    with proxy:
        config = IcebergSinkConfig(
            namespace=["db"],
            table=f"t{uuid.uuid4().hex}",
            storage=IcebergStorage.Local(rest_fixture.lake),
            catalog=RestCatalog(proxy.uri),
        )
        ours = driver(config)
        proxy.arm(lose_answer, "POST", f"/tables/{config.table}$")
        ours.commit(*write(ours, 0, [1]))
        assert IcebergTable(config.ref).to_arrow()["id"].to_pylist() == [1]
        assert "Idempotency-Key" not in {name for request in proxy.requests for name in request.headers}
        # The fixture repeats its answers by their keys, though it does not announce it.
        config = replace(config, table=f"t{uuid.uuid4().hex}")
        proxy.is_announced = True
        ours = driver(config)
        proxy.arm(lose_answer, "POST", f"/tables/{config.table}$")
        ours.commit(*write(ours, 0, [1]))
        assert retries(ours) == 0
        answers = [exchange.server for exchange in proxy.asked("POST", f"/tables/{config.table}$")]
        assert answers[-2:] == [200, 200]
        assert IcebergTable(config.ref).to_arrow()["id"].to_pylist() == [1]


class _Listening(FaultProxy):
    """Keeps requests; announces keys if it is told to."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.requests: list[Request] = []
        self.is_announced = False

    def exchange(self, request: Request) -> Answer | None:
        self.requests.append(request)
        answer = super().exchange(request)
        if answer is not None and self.is_announced and "/v1/config" in request.path:
            return replace(
                answer, body=json.dumps({**json.loads(answer.body), "idempotency-key-lifetime": "PT1M"}).encode()
            )
        return answer
