"""What goes wrong most often, against a real server: messages name the cause and the values, hints the way out."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.recovery.lake import write
from tests.servers.s3 import READER, S3
from tests.services.fault_proxy import Answer, FaultProxy, Server
from tests.services.lakes import SCHEMA, driver
from volley import (
    CatalogAuthError,
    CatalogUnreachableError,
    CommitConflictError,
    IcebergSinkConfig,
    SchemaMismatchError,
    StorageAccessError,
    TableNotFoundError,
    VolleyError,
)


@dataclass(frozen=True)
class Place:
    """The table ``db.events`` in SeaweedFS's catalog and S3.

    Args:
        server: The server.
        folder: One of the test's own.
    """

    server: S3
    folder: Path

    @property
    def config(self) -> IcebergSinkConfig:
        uri, storage = self.server.server.rest_uri, self.server.storage(bucket="lake")
        return IcebergSinkConfig(
            catalog_uri=uri, warehouse="s3://lake", namespace=["db"], table="events", storage=storage
        ).with_credential("svcid:svcsecret")


def append(config: IcebergSinkConfig, schema: pa.Schema = SCHEMA) -> None:
    """One epoch, as a job's driver and its executors go through it."""
    ours = driver(config, schema)
    ours.commit(*write(ours, 0, [1]))


def connection_refused(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        append(replace(place.config, catalog_uri=f"http://127.0.0.1:{taken.getsockname()[1]}"))


def unauthorized(place: Place) -> None:
    append(place.config.with_credential("svcid:wrong-secret"))


def forbidden(place: Place) -> None:
    append(place.config.with_credential(f"{READER.access_key_id}:{READER.secret_access_key}"))


def table_not_found(place: Place) -> None:
    append(replace(place.config, table="nowhere", create_table=False))


def access_denied(place: Place) -> None:
    storage = place.server.storage()
    on_file = IcebergSinkConfig(
        catalog_uri=f"sqlite:///{place.folder}/catalog.db",
        warehouse=None,
        namespace=["db"],
        table="events",
        storage=storage,
    )
    append(on_file)
    append(replace(on_file, storage=place.server.storage(READER)))


def schema_mismatch(place: Place) -> None:
    driver(place.config)
    append(place.config.with_schema_evolution("strict"), pa.schema([("id", pa.string()), ("name", pa.string())]))


def commit_conflict(place: Place) -> None:
    others = place.config.ref.load_catalog()

    def another_first(server: Server) -> Answer:
        others.load_table("db.events").append(pa.table({"id": [50]}, schema=SCHEMA))
        return server()

    with FaultProxy(place.server.server.rest_uri) as proxy:
        proxy.arm(another_first, "POST", r"/tables/events(\?|$)", times=None)
        append(replace(place.config, catalog_uri=proxy.uri))


@dataclass(frozen=True)
class Row:
    """A row of the table: what happens, and what its error must say."""

    happen: Callable[[Place], None]
    kind: type[VolleyError]
    message: str
    hint: str


URI = r"http://127\.0\.0\.1:\d+"
ROWS = [
    Row(
        connection_refused,
        CatalogUnreachableError,
        rf"catalog {URI} does not answer: .*Connection refused",
        "check that it runs, its address, and the network between",
    ),
    Row(
        unauthorized,
        CatalogAuthError,
        rf"catalog {URI} refused: .*Invalid client credentials",
        r'check the credentials: with_credential\("id:secret"\)',
    ),
    Row(
        forbidden,
        CatalogAuthError,
        rf"catalog {URI} shows no namespace db, and refused to make it: ForbiddenException: not authorized",
        r"a privilege to see it is missing, and writing needs TABLE_WRITE_DATA",
    ),
    Row(
        table_not_found,
        TableNotFoundError,
        rf"table db\.nowhere not found in {URI}",
        r"check namespace and table, create it in the catalog, or set with_create_table\(True\)",
    ),
    Row(
        access_denied,
        StorageAccessError,
        r"(writing|closing) s3://plain/db/events/data/.*\.parquet was refused: Access Denied",
        "s3:PutObject on bucket 'plain' is missing: allow it in the policy of the bucket or the user",
    ),
    Row(
        schema_mismatch,
        SchemaMismatchError,
        r"does not fit table db\.events:\n  - 'id': the stream has string, the table long\n  - 'name': .*no such",
        "cast, rename or drop columns",
    ),
    Row(
        commit_conflict,
        CommitConflictError,
        r"committing epoch 0 failed: other writers changed table db\.events during each of 4 attempts",
        "start the job again, it repeats the epoch",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.happen.__name__)
def test_the_error_says_what_happened_where_and_what_to_do(row: Row, s3_server: S3, tmp_path: Path) -> None:
    with pytest.raises(row.kind, match=row.message) as caught:
        row.happen(Place(s3_server, tmp_path))
    assert type(caught.value) is row.kind
    assert re.search(row.hint, str(caught.value.hint))
    assert not re.search("wrong-secret|readersecret|svcsecret", f"{caught.value!r} {caught.value.cause!r}")
