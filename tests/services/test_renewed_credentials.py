"""Credentials that a catalog gives for two seconds: who writes, reads and compacts asks for others before they end."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.fsspec import FsspecFileIO

from tests.recovery.lake import QUERY, SCHEMA
from tests.servers.azurite import ACCOUNT, KEY, Azurite
from tests.servers.fixtures import Place
from tests.servers.gcs import FakeGcs
from tests.servers.identity import TokenEndpoint
from tests.servers.s3 import S3
from tests.services.documented import documented
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Request, Server, named
from tests.services.lakes import driver
from tests.waiting import wait_until
from volley import Epoch, IcebergSinkConfig
from volley.iceberg import IcebergTable
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.pyiceberg_private.renewing import VENDED, Asking, RenewingFileIO, Vended
from volley.iceberg.pyiceberg_private.tokens import BearerManager, TokenServer

# aiohttp says so of bytes above a megabyte.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

LIFE = 2.0
# A storage takes credentials a little longer than the catalog says, so that a request on a slow machine arrives.
GRACE = 3.0
# More than a part of an upload: the first is sent before the credentials end.
ROWS = 2_500_000


def vend(s3_server: S3) -> Fault:
    """The keys in the catalog's answer are good for two seconds, and it says so."""

    def shortly(server: Server) -> Answer:
        answer = server()
        body, now = json.loads(answer.body), time.time()
        several = (each["config"] for each in body.get("storage-credentials") or ())
        for settings in (body.get("config", {}), *several):
            if "s3.session-token" not in settings:
                continue
            settings["s3.session-token-expires-at-ms"] = str(int((now + LIFE) * 1000))
            s3_server.proxy.ends[settings["s3.session-token"]] = now + LIFE + GRACE
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    return named("vend shortly", shortly)


@contextmanager
def vending(s3_server: S3, table: str) -> Iterator[IcebergSinkConfig]:
    """A table behind a catalog that vends keys for two seconds."""
    proxy = s3_server.proxy
    proxy.used.clear()
    proxy.refused.clear()
    with FaultProxy(s3_server.server.rest_uri) as catalog:
        given = documented("S3 with keys from the catalog", catalog=catalog.uri)
        catalog.arm(vend(s3_server), "GET", rf"/tables/{table}", times=None)
        catalog.arm(vend(s3_server), "POST", r"/tables(/[^/]*)?$", times=None)
        try:
            yield replace(given, table=table)
        finally:
            proxy.ends.clear()


def all_end(s3_server: S3) -> None:
    """Wait until all keys that were vended so far are refused."""
    last = max(s3_server.proxy.ends.values())
    wait_until(lambda: time.time() > last, LIFE + GRACE, "the end of the keys")


def epoch(ours: IcebergCommitter, number: int, end: Callable[[], None], rows: int) -> None:
    """One epoch, in whose midst the credentials of task and driver end."""
    random = np.random.default_rng(number)
    task = pickle.loads(pickle.dumps(ours.writer(Epoch(QUERY, number)))).open(0)
    for part in range(2):
        if part:
            end()
        ids = random.integers(0, 2**62, rows)
        task.write(pa.record_batch({"id": ids}, SCHEMA))
    written = task.close()
    end()
    ours.commit(Epoch(QUERY, number), [written])


def test_an_epoch_a_scan_and_a_compaction_outlive_their_keys(
    s3_server: S3, everywhere: Callable[[str, str], None]
) -> None:
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    with vending(s3_server, "shortly") as config:
        ours = driver(config)
        for number in range(2):
            epoch(ours, number, lambda: all_end(s3_server), ROWS // (1 + 9 * number))
        rows = 2 * (ROWS + ROWS // 10)
        table = config.ref.load()
        all_end(s3_server)
        assert table.scan().to_arrow().num_rows == rows
        plain = FsspecFileIO({name: value for name, value in table.io.properties.items() if name != VENDED})
        refused = len(s3_server.proxy.refused)
        assert refused == 0
        # Without others they are refused, indeed.
        with pytest.raises(PermissionError):
            plain.new_input(table.metadata_location).open().read()
        s3_server.proxy.refused.clear()
        assert IcebergTable(config.ref).compact().files_after == 1
        assert IcebergTable(config.ref).to_arrow().num_rows == rows
    assert s3_server.proxy.refused == []
    assert "canary" not in repr(table.io.properties)


@pytest.mark.nightly
def test_five_minutes_of_two_seconds(s3_server: S3, everywhere: Callable[[str, str], None]) -> None:
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    with vending(s3_server, "minutes") as config:
        ours, until, number = driver(config), time.time() + 300, 0
        while time.time() < until:
            epoch(ours, number, lambda: all_end(s3_server), 10_000)
            number += 1
            assert IcebergTable(config.ref).to_arrow().num_rows == number * 20_000
            IcebergTable(config.ref).compact()
    assert number > 5
    assert s3_server.proxy.refused == []


def asking(uri: str, location: str) -> Asking:
    nobody = BearerManager(TokenServer("", {}, True, None, (5.0, 30.0)), None, None, {})
    return Asking((uri.replace("/token", "/credentials"), uri), location, nobody, {}, True, None, (5.0, 30.0))


def outlive(properties: dict[str, Any], ask: Asking, location: str, ended: Callable[[], bool]) -> None:
    """Write a file, in whose midst the credentials end, and read it when the next have ended, too."""
    io = pickle.loads(pickle.dumps(RenewingFileIO({**properties, VENDED: {"": Vended(ask, ask())}})))
    part = np.random.default_rng(0).bytes(6 << 20)
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(part)
        wait_until(ended, LIFE + GRACE, "the end of the credentials")
        stream.write(part)
    wait_until(ended, LIFE + GRACE, "the end of the credentials")
    assert io.new_input(location).open().read() == part + part
    io.delete(location)


class Timed(FaultProxy):
    """Before a server that takes any credentials: lets those through whose bearer token has not ended."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.ends: dict[str, float] = {}
        self.refused = 0

    def exchange(self, request: Request) -> Answer | None:
        given = {name.lower(): value for name, value in request.headers.items()}
        if time.time() > self.ends.get(given.get("authorization", ""), 0.0):
            self.refused += 1
            return Answer(401, {"Content-Type": "application/json"}, b'{"error": {"code": 401, "message": "who?"}}')
        return super().exchange(request)


def test_google(gcs: Place, google: tuple[FakeGcs, TokenEndpoint]) -> None:
    proxy = Timed(google[0].endpoint)
    with proxy:

        def make(_: dict[str, str]) -> dict[str, Any]:
            now, token = time.time(), f"token-{len(proxy.ends)}"
            proxy.ends[f"Bearer {token}"] = now + LIFE + GRACE
            good = {"gcs.oauth2.token": token, "gcs.oauth2.token-expires-at": str(int((now + LIFE) * 1000))}
            others = {"gcs.oauth2.token": "of another place"}
            prefixes = {"gs://": others, "gs://lake/db": good, "gs://lake": others, "gs://lake/dbs": others}
            return {"storage-credentials": [{"prefix": name, "config": each} for name, each in prefixes.items()]}

        with TokenEndpoint(make) as catalog:
            properties = {**gcs.storage.properties(), "gcs.service.host": proxy.uri}
            ask = asking(catalog.uri, "gs://lake/db/t/metadata.json")
            outlive(properties, ask, "gs://lake/db/t/x", lambda: time.time() > max(proxy.ends.values()))
        assert proxy.refused == 0
        assert len(proxy.ends) > 2


def test_azure(azurite: Azurite) -> None:
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    ends = [0.0]

    def make(_: dict[str, str]) -> dict[str, Any]:
        now = time.time()
        ends.append(now + LIFE + GRACE)
        sas = generate_account_sas(
            ACCOUNT,
            KEY,
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(read=True, write=True, list=True, create=True, delete=True, add=True),
            datetime.fromtimestamp(ends[-1], UTC) + timedelta(seconds=1),
        )
        name = f"{ACCOUNT}.dfs.core.windows.net"
        said = {f"adls.sas-token.{name}": sas, f"adls.sas-token-expires-at-ms.{name}": str(int((now + LIFE) * 1000))}
        return {"config": said}

    storage = azurite.storage(None)
    location = f"{storage.root}/renewed"
    with TokenEndpoint(make) as catalog:
        properties = {**storage.properties(), **azurite.properties()}
        outlive(properties, asking(catalog.uri, location), location, lambda: time.time() > ends[-1] + 2)
    assert len(ends) > 3
