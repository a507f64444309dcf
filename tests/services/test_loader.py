"""A table that a reader loads again and again: one catalog serves as long as it answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.servers.seaweed import Seaweed, SeaweedProcess
from tests.servers.shared import own_server
from tests.services.fault_proxy import FaultProxy
from tests.waiting import wait_until
from volley import IcebergStorage, Reader, SourceContext
from volley.iceberg import IcebergSource, IcebergSourceConfig, Incremental, TableRef
from volley.iceberg.read.scope import TableLoader

SCHEMA = pa.schema([("id", pa.int64())])


@dataclass
class Followed:
    """A table that another client appends to, and a reader of its appends.

    Args:
        table: The table, as plain pyiceberg sees it.
        reader: The reader.
        read: The numbers read so far.
        appended: The numbers appended so far.
    """

    table: Table
    reader: Reader
    read: list[int] = field(default_factory=list)
    appended: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._offset = self.reader.initial_offset()

    def epoch(self) -> None:
        """Append a row, and read what is new."""
        self.appended.append(len(self.appended))
        self.table.append(pa.table({"id": self.appended[-1:]}, SCHEMA))
        self.follow()

    def follow(self) -> None:
        """Read what is new."""
        start, self._offset = self._offset, self.reader.latest_offset(self._offset, None, None)
        # Nothing new is no epoch.
        for split in self.reader.splits(start, self._offset) if start != self._offset else ():
            for batch in self.reader.read(split):
                self.read += batch.column("id").to_pylist()


def followed(server: Seaweed, proxy: FaultProxy, folder: Path) -> Followed:
    """A new table; its reader, which has not loaded it since it was opened, asks the catalog through the proxy."""
    config = server.config(f"t{uuid.uuid4().hex}")
    catalog = config.ref.load_catalog()
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(config.identifier, SCHEMA)
    behind = replace(config, catalog_uri=proxy.uri).ref
    source = IcebergSource(IcebergSourceConfig(behind).with_mode(Incremental(poll_interval=1e-6)))
    return Followed(table, source.open(SourceContext(str(folder))))


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.rest_uri) as made:
        yield made


def openings(proxy: FaultProxy) -> int:
    """How often the catalog was opened: each time it is asked for its settings, and for a token."""
    return len(proxy.asked("GET", "/v1/config"))


def test_a_reader_opens_its_catalog_once(seaweed: Seaweed, proxy: FaultProxy, tmp_path: Path) -> None:
    table = followed(seaweed, proxy, tmp_path)
    tokens = proxy.asked("POST", "/oauth/tokens")
    for _ in range(3):
        table.epoch()
    assert table.read == table.appended
    assert openings(proxy) == 1
    assert proxy.asked("POST", "/oauth/tokens") == tokens


def test_a_catalog_that_was_away_is_opened_again(seaweed: Seaweed, proxy: FaultProxy, tmp_path: Path) -> None:
    table = followed(seaweed, proxy, tmp_path)
    table.epoch()
    proxy.refuse()
    table.epoch()
    assert table.read == [0]
    proxy.listen()
    table.follow()
    assert table.read == table.appended == [0, 1]
    assert openings(proxy) == 2


def test_a_token_that_expires_is_renewed(tmp_path: Path) -> None:
    with (
        own_server(SeaweedProcess(tmp_path, token_seconds=10)) as process,
        FaultProxy(process.server.rest_uri) as proxy,
    ):
        table = followed(process.server, proxy, tmp_path / "state")
        youngest = process.server.token()
        wait_until(lambda: not process.server.takes(youngest), 60, "the end of the reader's token")
        # This client has one, too.
        table.table = process.server.config(table.table.name()[-1]).ref.load()
        table.epoch()
        assert table.read == table.appended
        # Before its end: none of them is refused.
        assert not any(exchange.server == 401 for exchange in proxy.exchanges)
        assert len(proxy.asked("POST", "/oauth/tokens")) > 1


def test_a_catalog_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    ref = TableRef("db", "events", IcebergStorage.Local(tmp_path / "lake"))

    def make() -> Table:
        catalog = ref.load_catalog()
        catalog.create_namespace("db")
        return catalog.create_table(ref.identifier, SCHEMA)

    loader, first = TableLoader(ref), make()
    assert loader.load().metadata.table_uuid == first.metadata.table_uuid
    (tmp_path / "lake").rename(tmp_path / "before")
    second = make()
    assert loader.load().metadata.table_uuid == second.metadata.table_uuid != first.metadata.table_uuid
