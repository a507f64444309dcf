"""Catalogs that are gone, hang, refuse, or come back: errors that name the cause, and jobs that lose nothing."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hive_metastore.ttypes import (
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
    UnlockRequest,
)
from pyiceberg.catalog.hive import HiveCatalog as PlainHive
from pyiceberg.catalog.sql import SqlCatalog as PlainSql
from requests.adapters import HTTPAdapter
from sqlalchemy import text

from tests.drivers import Drivers
from tests.recovery.lake import QUERY, write
from tests.servers.nessie import Nessie
from tests.servers.postgres import Postgres
from tests.servers.rest_fixture import RestFixture
from tests.servers.seaweed import Seaweed, SeaweedProcess
from tests.servers.shared import own_server
from tests.services import lakes
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Server, named
from tests.services.lakes import driver
from tests.services.pipeline import run, wanted, write_file
from tests.waiting import wait_until
from volley import (
    CatalogAuthError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    IcebergSinkConfig,
    IcebergStorage,
)
from volley.iceberg import GlueCatalog, HiveCatalog, NessieCatalog, RestCatalog, SnapshotManager, SqlCatalog
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.pyiceberg_private.rest import TimeoutRestCatalog

pytestmark = pytest.mark.usefixtures("spark")


def config(catalog: CatalogConfig, folder: Path, **properties: str) -> IcebergSinkConfig:
    storage = IcebergStorage.Local(folder)
    return IcebergSinkConfig(namespace="db", table="events", storage=storage, catalog=catalog, properties=properties)


# --- nobody there, or nobody who answers


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")


def ask(asked: IcebergSinkConfig) -> None:
    """One request; a job would try it again."""
    with asked.ref.errors():
        asked.ref.load_catalog().list_namespaces()


def at(port: int, folder: Path, timeout: float) -> dict[str, IcebergSinkConfig]:
    """Each catalog with a server at this port."""
    uri = f"http://127.0.0.1:{port}"
    postgres = f"postgresql+psycopg2://volley:canary-secret@127.0.0.1:{port}/postgres"
    # pyiceberg asks Glue again by itself.
    glue = {"glue.endpoint": uri, "glue.max-retries": "0"}
    return {
        "rest": config(RestCatalog(uri, timeout=timeout), folder),
        "oauth": config(RestCatalog(uri, credential="id:canary-secret", timeout=timeout), folder),
        "nessie": config(NessieCatalog(uri, token="canary-secret", timeout=timeout), folder),
        "glue": config(GlueCatalog("us-east-1", timeout=timeout), folder, **glue),
        "hive": config(HiveCatalog(f"thrift://127.0.0.1:{port}", timeout=timeout), folder),
        "postgres": config(SqlCatalog(f"{postgres}?connect_timeout=2" if timeout < 5 else postgres), folder),
    }


CATALOGS = ["rest", "oauth", "nessie", "glue", "hive", "postgres"]


@pytest.mark.usefixtures("aws_keys")
@pytest.mark.parametrize("name", CATALOGS)
def test_a_connection_that_is_refused(name: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(CatalogUnreachableError, match="does not answer") as caught:
            ask(at(port, tmp_path, 10)[name])
    assert "check that it runs" in str(caught.value.hint)
    assert "canary" not in str(caught.value)


@pytest.mark.usefixtures("aws_keys")
@pytest.mark.parametrize("name", CATALOGS)
def test_a_server_that_hangs_is_not_waited_for(name: str, tmp_path: Path) -> None:
    # It takes connections and never says a word: without a limit this test would not end.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = at(silent.getsockname()[1], tmp_path, 0.3)[name]
        with pytest.raises(CatalogUnreachableError, match="does not answer") as caught:
            ask(hanging)
    assert "canary" not in str(caught.value)


# --- credentials


def test_no_credentials(seaweed: Seaweed) -> None:
    with pytest.raises(CatalogAuthError, match=seaweed.rest_uri) as caught:
        driver(seaweed.config("any").with_credential(None))
    assert "with_credential" in str(caught.value.hint)


def test_a_token_that_the_server_gave_and_one_that_it_did_not(seaweed: Seaweed) -> None:
    given = seaweed.token()
    by_token = seaweed.config("by_token").with_credential(None)
    driver(by_token.with_token(given))
    with pytest.raises(CatalogAuthError, match="invalid or expired") as caught:
        driver(by_token.with_token(given[:-8] + "AAAAAAAA"))
    assert given[:-8] not in str(caught.value)


def test_a_wrong_password_of_the_database(postgres: Postgres, tmp_path: Path) -> None:
    wrong = SqlCatalog(postgres.uri.replace(":secret@", ":canary-secret@"))
    with pytest.raises(CatalogAuthError, match="password authentication failed") as caught:
        driver(config(wrong, tmp_path))
    assert "canary" not in str(caught.value)


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogAuthError, match="nobody") as caught:
        driver(config(GlueCatalog("us-east-1", profile="nobody"), tmp_path))
    assert "profile" in str(caught.value.hint)


def test_no_keys_for_glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CatalogAuthError, match="glue:us-east-1"):
        driver(config(GlueCatalog("us-east-1"), tmp_path))


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[SeaweedProcess]:
    """A catalog whose tokens live for ten seconds: a request with a new one takes less, however slow the machine."""
    with own_server(SeaweedProcess(tmp_path, token_seconds=10)) as process:
        yield process


def outlive_tokens(server: Seaweed) -> Fault:
    """The request arrives when the catalog refuses every token it has given until now."""

    def wait(forward: Server) -> Answer:
        youngest = server.token()
        wait_until(lambda: not server.takes(youngest), 60, "the end of a token")
        return forward()

    return named("outlive", wait)


@pytest.mark.parametrize("by", ["credential", "token"])
def test_a_token_that_expires_in_the_middle_of_a_job(hasty: SeaweedProcess, by: str, tmp_path: Path) -> None:
    server = hasty.server
    for number in range(3):
        write_file(tmp_path, number)
    with FaultProxy(server.rest_uri) as proxy:
        behind = replace(server.config("events"), catalog_uri=proxy.uri)
        proxy.arm(outlive_tokens(server), "POST", r"/tables/events(\?|$)", skip=1)
        if by == "token":
            # Nobody can renew it, nor look whether the commit has landed: the job ends, and goes on with another.
            with pytest.raises(CommitStateUnknownError, match="invalid or expired"):
                run(tmp_path, behind.with_credential(None).with_token(server.token()))
        run(tmp_path, behind)
    assert any((each.method, each.fault, each.server) == ("POST", "outlive", 401) for each in proxy.exchanges)
    table = server.config("events").ref.load_catalog().load_table("db.events")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == wanted(3)


@pytest.mark.nightly
def test_a_wrong_secret_of_another_authorization_server(nessie: Nessie, request: pytest.FixtureRequest) -> None:
    given = lakes.nessie(request).documented
    assert isinstance(given.catalog, NessieCatalog)
    with pytest.raises(CatalogAuthError, match=nessie.uri) as caught:
        driver(replace(given, catalog=replace(given.catalog, credential="svcid:canary-secret")))
    assert "canary" not in str(caught.value)
    with pytest.raises(CatalogAuthError, match=nessie.uri):
        driver(replace(given, catalog=replace(given.catalog, credential=None)))


@pytest.mark.nightly
def test_a_token_that_has_expired(nessie: Nessie, request: pytest.FixtureRequest) -> None:
    given = lakes.nessie(request).config()
    assert isinstance(given.catalog, NessieCatalog)
    by_token = replace(given.catalog, credential=None, token=nessie.token(nessie.hasty))
    driver(replace(given, catalog=replace(by_token, token=nessie.token(nessie.key))))
    # Keycloak lets this client's tokens live for a second.
    with pytest.raises(CatalogAuthError, match=nessie.uri):
        ask_until_refused(replace(given, catalog=by_token))


def ask_until_refused(asked: IcebergSinkConfig) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ask(asked)


@pytest.mark.nightly
def test_what_is_written_to_a_branch_of_nessie_is_not_on_main(nessie: Nessie, request: pytest.FixtureRequest) -> None:
    lake = lakes.nessie(request)
    here = lake.config()
    ours = driver(here)
    ours.commit(*write(ours, 0, [1]))
    assert isinstance(here.catalog, NessieCatalog)
    main = replace(here, catalog=replace(here.catalog, branch="main")).ref.load_catalog()
    assert lake.ids(here) == [1]
    assert not main.table_exists(here.identifier)


@pytest.mark.nightly
def test_branches_and_tags_of_nessies_tables_lose_no_row(nessie: Nessie, request: pytest.FixtureRequest) -> None:
    lake = lakes.nessie(request)
    here = lake.config()
    assert isinstance(here.catalog, NessieCatalog)
    ours = driver(here)
    ours.commit(*write(ours, 0, [1]))
    with pytest.raises(ConfigError, match="no branches and tags"):
        here.with_branch("audit")
    # As any other REST catalog it takes branches, and does not make them.
    shared = {name: getattr(here.catalog, name) for name in ("warehouse", "credential", "properties", "timeout")}
    as_rest = replace(here, catalog=RestCatalog(here.catalog.address, **shared))
    audit = driver(as_rest.with_branch("audit"))
    written = write(audit, 2, [10])
    ours.commit(*write(ours, 1, [2]))
    with pytest.raises(CommitStateUnknownError, match="none of this name"):
        audit.commit(*written)
    with pytest.raises(CommitStateUnknownError, match="none of this name"):
        SnapshotManager(as_rest).create_tag("audited")
    assert lake.ids(here) == [1, 2]


@pytest.mark.nightly
def test_nested_namespaces_of_nessie(nessie: Nessie, request: pytest.FixtureRequest) -> None:
    lake = lakes.nessie(request)
    nested = replace(lake.config(), namespace=[f"n{uuid.uuid4().hex}", "n2"])
    ours = driver(nested)
    ours.commit(*write(ours, 0, [1]))
    assert lake.ids(nested) == [1]


# --- a server that goes and comes back


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestFixture]:
    """A server that no other process of the tests uses."""
    made = RestFixture(tmp_path_factory.mktemp("rest"))
    yield made
    made.stop()


@pytest.fixture
def fixture(own: RestFixture) -> RestFixture:
    """A server that this test may stop; it runs again for the next one."""
    return own.start()


@pytest.mark.services
def test_a_server_that_is_gone_between_runs(fixture: RestFixture, tmp_path: Path) -> None:
    lake = lakes.on_rest(fixture)
    given = lake.config()
    write_file(tmp_path, 0)
    run(tmp_path, given)
    write_file(tmp_path, 1)
    fixture.stop()
    with pytest.raises(CatalogUnreachableError, match=fixture.uri):
        run(tmp_path, given)
    fixture.start()
    run(tmp_path, given)
    assert lake.ids(given) == wanted(2)


@pytest.mark.services
def test_a_server_that_goes_in_the_middle_of_a_job(fixture: RestFixture, tmp_path: Path) -> None:
    lake = lakes.on_rest(fixture)
    given = lake.config()
    for number in range(3):
        write_file(tmp_path, number)

    def stop(server: Server) -> None:
        server()
        fixture.stop()

    with FaultProxy(fixture.uri) as proxy:
        behind = replace(given, catalog=RestCatalog(proxy.uri, timeout=10))
        proxy.arm(stop, "POST", rf"/tables/{given.table}(\?|$)", skip=1)
        with pytest.raises(CommitStateUnknownError, match="may or may not"):
            run(tmp_path, behind)
        fixture.start()
        assert len(lake.table(given).snapshots()) == 2
        run(tmp_path, behind)
    assert lake.ids(given) == wanted(3)


@pytest.mark.services
def test_a_server_that_restarts_within_a_request_is_survived(fixture: RestFixture, tmp_path: Path) -> None:
    lake = lakes.on_rest(fixture)
    given = lake.config()
    for number in range(3):
        write_file(tmp_path, number)

    def restart(server: Server) -> None:
        fixture.stop()
        fixture.start()

    with FaultProxy(fixture.uri) as proxy:
        proxy.arm(restart, "POST", rf"/tables/{given.table}(\?|$)", skip=1)
        run(tmp_path, replace(given, catalog=RestCatalog(proxy.uri, timeout=60)))
    assert lake.ids(given) == wanted(3)


def test_a_driver_that_is_killed_and_the_next_run(drivers: Drivers, rest_fixture: RestFixture, tmp_path: Path) -> None:
    lake = lakes.on_rest(rest_fixture)
    given = lake.config()
    for number in range(3):
        write_file(tmp_path, number)
    drivers.die("after-commit@1", run, tmp_path, given)
    run(tmp_path, given)
    assert lake.ids(given) == wanted(3)


def test_requests_share_a_connection(rest_fixture: RestFixture, tmp_path: Path) -> None:
    catalog = config(RestCatalog(rest_fixture.uri), tmp_path).ref.load_catalog()
    assert isinstance(catalog, TimeoutRestCatalog)
    for _ in range(5):
        catalog.list_namespaces()
    adapter = catalog._session.get_adapter(rest_fixture.uri)
    assert isinstance(adapter, HTTPAdapter)
    pools = adapter.poolmanager.pools
    (pool,) = [pools[key] for key in pools.keys()]  # noqa: SIM118 (it can't be iterated)
    assert (pool.num_connections, pool.num_requests) == (1, 5)


def test_a_database_that_closed_its_connections_is_asked_again(request: pytest.FixtureRequest) -> None:
    lake = lakes.postgres(request)
    given = lake.config()
    ours = driver(given)
    ours.commit(*write(ours, 0, [1]))
    plain = lake.open_plain()
    assert isinstance(plain, PlainSql)
    others = "pid <> pg_backend_pid() and datname = current_database()"
    with plain.engine.connect() as admin:
        admin.execute(text(f"select pg_terminate_backend(pid) from pg_stat_activity where {others}"))
    plain.close()
    assert ours.last_epoch(QUERY) == 0
    ours.commit(*write(ours, 1, [2]))
    assert lake.ids(given) == [1, 2]


# --- Hive's locks


@pytest.fixture
def locked(request: pytest.FixtureRequest) -> Callable[[IcebergSinkConfig], Callable[[], None]]:
    """Takes the metastore's lock on a table as another client; what it returns gives the lock back."""
    plain = lakes.hive(request).open_plain()
    assert isinstance(plain, PlainHive)

    def lock(given: IcebergSinkConfig) -> Callable[[], None]:
        part = LockComponent(type=LockType.EXCLUSIVE, level=LockLevel.TABLE, dbname="db", tablename=given.table)
        with plain._client as client:
            taken = client.lock(LockRequest(component=[part], user="other", hostname="elsewhere")).lockid

        def unlock() -> None:
            with plain._client as client:
                client.unlock(UnlockRequest(lockid=taken))

        return unlock

    return lock


def test_a_lock_that_stays_is_a_conflict_and_nothing_has_landed(
    request: pytest.FixtureRequest, locked: Callable[[IcebergSinkConfig], Callable[[], None]]
) -> None:
    lake = lakes.hive(request)
    impatient = lake.config().with_properties({"lock-check-retries": 2, "lock-check-max-wait-time": 0.1})
    ours = driver(impatient)
    unlock = locked(impatient)
    written = write(ours, 0, [1])
    with pytest.raises(CommitConflictError, match=impatient.table):
        ours.commit(*written)
    assert lake.ids(impatient) == []
    unlock()
    ours.commit(*written)
    assert lake.ids(impatient) == [1]
