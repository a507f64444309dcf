"""Credentials that a catalog gives for two seconds: who writes, reads and compacts asks for others before they end."""

from __future__ import annotations

import json
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.fsspec import FsspecFileIO

from tests.recovery.lake import QUERY, SCHEMA
from tests.servers.azurite import ACCOUNT, KEY, Azurite
from tests.servers.gcs import FakeGcs
from tests.servers.identity import TokenEndpoint, azure_token
from tests.servers.rest_fixture import RestFixture
from tests.servers.s3 import S3
from tests.services.documented import documented
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Request, Server, named, with_config
from tests.services.lakes import driver
from tests.waiting import wait_until
from volley import (
    Epoch,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    SourceContext,
    WriteResult,
)
from volley.contracts.sink import ExecutorTask
from volley.iceberg import IcebergTable
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.pyiceberg_private.renewing import VENDED, Asking, RenewingFileIO, Vended
from volley.iceberg.pyiceberg_private.tokens import BearerManager, TokenServer

# aiohttp says so of bytes above a megabyte.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

LIFE = 2.0
# A storage takes credentials a little longer than the catalog says, so that a request on a slow machine arrives.
GRACE = 6.0
# More than a part of an upload: the first is sent before the credentials end.
ROWS = 2_500_000
_JSON = {"Content-Type": "application/json"}


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


def without_end() -> Fault:
    """The keys in the catalog's answer come without their end."""

    def silently(server: Server) -> Answer:
        answer = server()
        if answer.status != 200:
            return answer
        body = json.loads(answer.body)
        for settings in [body.get("config", {}), *(each["config"] for each in body.get("storage-credentials") or ())]:
            settings.pop("s3.session-token-expires-at-ms", None)
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    return named("without an end", silently)


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
        with pytest.raises(OSError, match="Bad Request"):
            plain.new_input(table.metadata_location).open().read()
        s3_server.proxy.refused.clear()
        assert IcebergTable(config.ref).compact().files_after == 1
        assert IcebergTable(config.ref).to_arrow().num_rows == rows
    assert s3_server.proxy.refused == []
    assert "canary" not in repr(table.io.properties)


def test_keys_that_end_before_their_time(s3_server: S3, everywhere: Callable[[str, str], None]) -> None:
    """The catalog does not say when its keys end: a request that the storage refuses is sent again with others."""
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    proxy = s3_server.proxy
    with FaultProxy(s3_server.server.rest_uri) as catalog:
        given = documented("S3 with keys from the catalog", catalog=catalog.uri)
        catalog.arm(without_end(), "GET", r"/tables/early", times=None)
        catalog.arm(without_end(), "POST", r"/tables(/[^/]*)?$", times=None)
        config = replace(given, table="early")
        proxy.used.clear()

        def end() -> None:
            proxy.ends.update(dict.fromkeys(proxy.used, 0.0))

        try:
            ours = driver(config)
            for number in range(2):
                epoch(ours, number, end, 10_000)
            table = config.ref.load()
            end()
            assert table.scan().to_arrow().num_rows == 40_000
            assert proxy.refused
        finally:
            proxy.ends.clear()
            proxy.refused.clear()


def outlive_minutes(config: IcebergSinkConfig, end: Callable[[], None]) -> int:
    """Write, read and compact for five minutes; return how many epochs that were."""
    ours, until, number = driver(config), time.time() + 300, 0
    while time.time() < until:
        epoch(ours, number, end, 10_000)
        number += 1
        table = config.ref.load()
        end()
        assert table.scan().to_arrow().num_rows == number * 20_000
        IcebergTable(config.ref).compact(run=partial(_run_late, end))
    assert number > 2
    return number


def _run_late(end: Callable[[], None], tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
    """Run tasks as executors do that get them when the driver's credentials have ended."""
    sent = [pickle.dumps(task) for task in tasks]
    end()
    return [pickle.loads(task)() for task in sent]


@pytest.mark.nightly
def test_five_minutes_of_two_seconds(s3_server: S3, everywhere: Callable[[str, str], None]) -> None:
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    with vending(s3_server, "minutes") as config:
        outlive_minutes(config, lambda: all_end(s3_server))
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
            return Answer(401, _JSON, b'{"error": {"code": 401, "message": "who?"}}')
        return super().exchange(request)


@dataclass(frozen=True)
class Cloud:
    """A storage, and credentials of it that are good for two seconds.

    Args:
        storage: Where it is, without credentials.
        properties: What tells clients that the server is not the cloud itself.
        give: New credentials, as a catalog gives them.
        ends: When each of them has ended.
    """

    storage: IcebergStorage
    properties: dict[str, str]
    give: Callable[[], dict[str, str]]
    ends: list[float]

    def all_ended(self) -> bool:
        return time.time() > max(self.ends)

    def end(self) -> None:
        """Wait until all that were given so far are refused."""
        wait_until(self.all_ended, LIFE + GRACE + 3, "the end of the credentials")


@pytest.fixture
def in_google(google: tuple[FakeGcs, TokenEndpoint]) -> Iterator[Cloud]:
    """A bucket behind a proxy that refuses tokens whose time is over, as the server itself takes any."""
    proxy = Timed(google[0].endpoint)
    with proxy:
        ends: list[float] = []

        def give() -> dict[str, str]:
            now, token = time.time(), f"token-{len(ends)}"
            ends.append(now + LIFE + GRACE)
            proxy.ends[f"Bearer {token}"] = ends[-1]
            return {"gcs.oauth2.token": token, "gcs.oauth2.token-expires-at": str(int((now + LIFE) * 1000))}

        yield Cloud(google[0].storage(None), {"gcs.service.host": proxy.uri}, give, ends)
        assert proxy.refused == 0


@pytest.fixture
def in_azure(azurite: Azurite) -> Cloud:
    """A container whose server refuses signatures whose time is over."""
    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    ends: list[float] = []

    def give() -> dict[str, str]:
        now = time.time()
        # The server knows whole seconds.
        until = datetime.fromtimestamp(now + LIFE + GRACE, UTC) + timedelta(seconds=1)
        ends.append(until.timestamp() + 1)
        may = AccountSasPermissions(read=True, write=True, list=True, create=True, delete=True, add=True)
        within = ResourceTypes(service=True, container=True, object=True)
        name = f"{ACCOUNT}.dfs.core.windows.net"
        return {
            f"adls.sas-token.{name}": generate_account_sas(ACCOUNT, KEY, within, may, until),
            f"adls.sas-token-expires-at-ms.{name}": str(int((now + LIFE) * 1000)),
        }

    return Cloud(azurite.storage(None), azurite.properties(), give, ends)


@pytest.fixture
def in_azure_by_tokens(azurite: Azurite) -> Cloud:
    """The same by tokens, which say themselves when they end."""
    ends: list[float] = []

    def give() -> dict[str, str]:
        token, end = azure_token(int(LIFE + GRACE))
        # The server knows whole seconds.
        ends.append(end + 1)
        return {"adls.token": token}

    return Cloud(azurite.storage(None), azurite.properties(), give, ends)


def test_google(in_google: Cloud) -> None:
    def make(_: dict[str, str]) -> dict[str, Any]:
        others = {"gcs.oauth2.token": "of another place"}
        prefixes = {"gs://": others, "gs://lake/db": in_google.give(), "gs://lake": others, "gs://lake/dbs": others}
        return {"storage-credentials": [{"prefix": name, "config": each} for name, each in prefixes.items()]}

    with TokenEndpoint(make) as catalog:
        properties = {**in_google.storage.properties(), **in_google.properties}
        ask = asking(catalog.uri, "gs://lake/db/t/metadata.json")
        outlive(properties, ask, "gs://lake/db/t/x", in_google.all_ended)
    assert len(in_google.ends) > 2


@pytest.mark.parametrize("place", ["in_azure", "in_azure_by_tokens"])
def test_azure(request: pytest.FixtureRequest, place: str) -> None:
    cloud: Cloud = request.getfixturevalue(place)
    location = f"{cloud.storage.root}/renewed"
    properties = {**cloud.storage.properties(), **cloud.properties}
    ended = FsspecFileIO({**properties, **cloud.give()})
    with TokenEndpoint(lambda _: {"config": cloud.give()}) as catalog:
        outlive(properties, asking(catalog.uri, location), location, cloud.all_ended)
    assert len(cloud.ends) > 3
    # Without others they are refused, indeed.
    with pytest.raises(Exception, match=r"(?i)authenticat|expired"):
        ended.new_output(location).create(overwrite=True).close()


def given_for(cloud: Cloud) -> dict[str, Any]:
    """The part of an answer that has credentials for the files in a cloud."""
    return {"storage-credentials": [{"prefix": cloud.storage.root, "config": cloud.give()}]}


def credentials_for(cloud: Cloud) -> Fault:
    """The catalog's answer is credentials alone."""
    return named("credentials", lambda server: Answer(200, _JSON, json.dumps(given_for(cloud)).encode()))


def vend_for(cloud: Cloud, **more: str) -> Fault:
    """The catalog's answer has credentials for the files in a cloud, and more."""

    def shortly(server: Server) -> Answer:
        answer = server()
        if answer.status != 200:
            return answer
        body = json.loads(answer.body) | given_for(cloud) | more
        return Answer(answer.status, answer.headers, json.dumps(body).encode())

    return named("vend for a cloud", shortly)


def in_cloud(cloud: Cloud, server: RestFixture, catalog: FaultProxy, table: str) -> IcebergSinkConfig:
    """A table whose data files are in a cloud; the catalog keeps its metadata beside itself."""
    given = documented("Iceberg REST", catalog=catalog.uri, folder=str(server.lake))
    config = replace(given, table=table, storage=cloud.storage).with_properties(cloud.properties)
    return config.with_table_properties({"write.data.path": f"{cloud.storage.root}/{table}"})


def vend_all(catalog: FaultProxy, cloud: Cloud, table: str) -> None:
    """Let the catalog give credentials with each answer about a table."""
    catalog.arm(vend_for(cloud), "GET", rf"/tables/{table}", times=None)
    catalog.arm(vend_for(cloud), "POST", r"/tables(/[^/]*)?$", times=None)


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["in_google", "in_azure", "in_azure_by_tokens"])
def test_five_minutes_of_two_seconds_in_other_clouds(
    request: pytest.FixtureRequest, rest_fixture: RestFixture, place: str
) -> None:
    cloud: Cloud = request.getfixturevalue(place)
    table = f"t{uuid.uuid4().hex}"
    with FaultProxy(rest_fixture.uri) as catalog:
        vend_all(catalog, cloud, table)
        config = in_cloud(cloud, rest_fixture, catalog, table)
        epochs = outlive_minutes(config, cloud.end)
        files = config.ref.load().inspect.data_files()["file_path"].to_pylist()
        assert all(path.startswith(cloud.storage.root) for path in files)
    print(f"{place}: {epochs} epochs, {len(cloud.ends)} credentials")
    assert len(cloud.ends) > epochs


@pytest.mark.parametrize("place", ["in_google", "in_azure"])
def test_files_of_a_plan_are_read_by_its_own_credentials(
    request: pytest.FixtureRequest, rest_fixture_1_12: RestFixture, place: str
) -> None:
    """The table comes without credentials, and the plan's have ended when a task begins."""
    cloud: Cloud = request.getfixturevalue(place)
    table = f"t{uuid.uuid4().hex}"
    with FaultProxy(rest_fixture_1_12.uri) as catalog:
        vend_all(catalog, cloud, table)
        ours = driver(in_cloud(cloud, rest_fixture_1_12, catalog, table))
        for number in range(2):
            epoch(ours, number, lambda: None, 10)
    with FaultProxy(rest_fixture_1_12.uri) as catalog:
        catalog.arm(with_config({"scan-planning-mode": "server"}), "GET", rf"/tables/{table}\?", times=None)
        catalog.arm(vend_for(cloud, **{"plan-id": "a plan"}), "POST", r"/plan$", times=None)
        catalog.arm(credentials_for(cloud), "GET", r"/credentials", times=None)
        context = SourceContext(str(rest_fixture_1_12.lake / f"{table}-state"), parallelism=2)
        config = in_cloud(cloud, rest_fixture_1_12, catalog, table)
        reader = IcebergSource(IcebergSourceConfig(config.ref)).open(context)
        start = reader.initial_offset()
        sent = [pickle.dumps(split) for split in reader.splits(start, reader.latest_offset(start, None, None))]
        assert not catalog.asked("GET", "/credentials")
        cloud.end()
        assert sum(batch.num_rows for split in sent for batch in reader.read(pickle.loads(split))) == 40
        asked = catalog.asked("GET", "/credentials")
        assert asked
        assert all("planId=a+plan" in each.path for each in asked)
