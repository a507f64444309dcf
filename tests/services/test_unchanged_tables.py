"""Tables that have not changed are not sent again: tags of Iceberg's REST fixture, through a proxy that listens."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog as load_plain

from tests.recovery.lake import retries, write
from tests.servers.rest_fixture import RestFixture
from tests.services.fault_proxy import (
    Answer,
    Fault,
    FaultProxy,
    Request,
    Server,
    answer_after,
    answer_with,
    lose_answer,
    with_config,
)
from tests.services.lakes import driver
from volley import IcebergSinkConfig, IcebergStorage, RestCatalog, TableNotFoundError
from volley.iceberg import IcebergTable
from volley.iceberg.read.scope import TableLoader


class Listening(FaultProxy):
    """Keeps of each load of a table: the tag that was asked with, the status and the bytes of the answer."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.loads: list[tuple[str | None, int, int]] = []

    def exchange(self, request: Request) -> Answer | None:
        answer = super().exchange(request)
        if request.method == "GET" and "/tables/" in request.path and answer is not None:
            self.loads.append((request.headers.get("If-None-Match"), answer.status, len(answer.body)))
        return answer

    def statuses(self) -> list[int]:
        """The statuses of the loads since the last call."""
        statuses = [status for _, status, _ in self.loads]
        self.loads.clear()
        return statuses


@dataclass(frozen=True)
class Heard:
    """A table behind a proxy."""

    proxy: Listening
    config: IcebergSinkConfig
    fixture: RestFixture

    def rows(self) -> list[int]:
        """The rows as plain pyiceberg sees them, past the proxy."""
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(self.config.identifier)
        return sorted(table.scan().to_arrow()["id"].to_pylist())

    def past_the_proxy(self, number: int, *ids: int) -> None:
        """Another client commits rows."""
        other = driver(replace(self.config, catalog=RestCatalog(self.fixture.uri)))
        other.commit(*write(other, number, [*ids]))


def heard_by(fixture: RestFixture) -> Iterator[Heard]:
    proxy = Listening(fixture.uri)
    with proxy:
        storage = IcebergStorage.Local(fixture.lake)
        catalog, name = RestCatalog(proxy.uri), f"t{uuid.uuid4().hex}"
        config = IcebergSinkConfig(namespace="db", table=name, storage=storage, catalog=catalog)
        yield Heard(proxy, config, fixture)


@pytest.fixture
def heard(rest_fixture_1_12: RestFixture) -> Iterator[Heard]:
    yield from heard_by(rest_fixture_1_12)


@pytest.fixture
def unquoted(rest_fixture: RestFixture) -> Iterator[Heard]:
    yield from heard_by(rest_fixture)


def test_a_job_that_writes_alone_is_sent_the_metadata_once(heard: Heard) -> None:
    ours = driver(heard.config)
    ours.commit(*write(ours, 0, [0]))
    heard.proxy.loads.clear()
    for number in range(1, 6):
        ours.commit(*write(ours, number, [number]))
    loads = heard.proxy.loads
    assert {(status, size) for _, status, size in loads} == {(304, 0)}
    # Each has the tag of the commit before.
    assert len({tag for tag, _, _ in loads}) == len(loads) == 5
    assert heard.rows() == [0, 1, 2, 3, 4, 5]


def test_what_another_client_commits_is_seen(heard: Heard) -> None:
    ours = driver(heard.config)
    for number in range(3):
        ours.commit(*write(ours, number, [number]))
        load_plain("other", type="rest", uri=heard.fixture.uri).load_table(heard.config.identifier).append(
            pa.table({"id": [10 + number]})
        )
    heard.proxy.statuses()
    ours.commit(*write(ours, 3, [3]))
    assert heard.proxy.statuses() == [200]
    assert retries(ours) == 0
    assert heard.rows() == [0, 1, 2, 3, 10, 11, 12]
    assert sorted(IcebergTable(heard.config.ref).to_arrow()["id"].to_pylist()) == heard.rows()


def test_a_table_that_was_made_anew_is_another(heard: Heard) -> None:
    loader = TableLoader(heard.config.ref)
    driver(heard.config)
    first = loader.load().metadata.table_uuid
    plain = load_plain("other", type="rest", uri=heard.fixture.uri)
    schema = plain.load_table(heard.config.identifier).schema()
    plain.drop_table(heard.config.identifier)
    plain.create_table(heard.config.identifier, schema)
    assert loader.load().metadata.table_uuid != first
    plain.drop_table(heard.config.identifier)
    with pytest.raises(TableNotFoundError):
        loader.load()


@pytest.mark.parametrize("fault", [lose_answer, answer_after(500), answer_with(409)])
def test_after_a_commit_that_may_have_failed_the_whole_table_is_asked_for(heard: Heard, fault: Fault) -> None:
    ours = driver(heard.config)
    ours.commit(*write(ours, 0, [1]))
    heard.proxy.arm(fault, "POST", f"/tables/{heard.config.table}$")
    heard.proxy.statuses()
    ours.commit(*write(ours, 1, [2]))
    assert [tag for tag, _, _ in heard.proxy.loads[1:2]] == [None]
    assert heard.proxy.statuses()[:2] == [304, 200]
    assert heard.rows() == [1, 2]


def test_a_reader_that_waits_for_rows_is_sent_nothing(heard: Heard) -> None:
    ours = driver(heard.config)
    ours.commit(*write(ours, 0, [1]))
    loader = TableLoader(heard.config.ref)
    heard.proxy.statuses()
    tables = [loader.load() for _ in range(4)]
    assert heard.proxy.statuses() == [200, 304, 304, 304]
    # Each reads its rows, and changes nothing of the others.
    tables[1].append(pa.table({"id": [2]}))
    assert [table.scan().to_arrow().num_rows for table in tables] == [1, 2, 1, 1]
    assert loader.load().scan().to_arrow().num_rows == 2


def test_a_tag_without_quotes_is_not_sent_back(unquoted: Heard) -> None:
    ours = driver(unquoted.config)
    for number in range(3):
        ours.commit(*write(ours, number, [number]))
    assert {(tag, status) for tag, status, _ in unquoted.proxy.loads} == {(None, 200), (None, 404)}
    assert unquoted.rows() == [0, 1, 2]


@pytest.mark.parametrize("answer", ["", "\x01", "gone"])
def test_tags_that_are_none(heard: Heard, answer: str) -> None:
    """A proxy in between writes what it likes into the header."""

    def tagged(server: Server) -> Answer:
        given = server()
        return replace(given, headers={**given.headers, "ETag": answer})

    heard.proxy.arm(tagged, "GET", f"/tables/{heard.config.table}", times=None)
    ours = driver(heard.config)
    for number in range(2):
        ours.commit(*write(ours, number, [number]))
    assert {tag for tag, _, _ in heard.proxy.loads} == {None}
    assert heard.rows() == [0, 1]


@pytest.mark.parametrize(
    ("given", "statuses"),
    [
        ({"token": "of the table"}, [200, 200, 200]),
        ({"s3.session-token": "for an hour", "s3.access-key-id": "a", "s3.secret-access-key": "b"}, [200, 304, 304]),
    ],
)
def test_what_a_catalog_gives_for_a_time(heard: Heard, given: dict[str, str], statuses: list[int]) -> None:
    """A token comes with each answer; keys are asked for anew by who holds them, wherever that is."""
    driver(heard.config)
    heard.proxy.arm(with_config(given), "GET", rf"/tables/{heard.config.table}\?", times=None)
    loader = TableLoader(heard.config.ref)
    heard.proxy.statuses()
    for _ in range(3):
        loader.load()
    assert heard.proxy.statuses() == statuses
