"""What a catalog may answer to each request that Volley makes, and which error tells it."""

from __future__ import annotations

import json
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.recovery.lake import SCHEMA, Lake, write
from tests.servers.certificates import Certificate, self_signed
from tests.tiers import nightly
from volley import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitStateUnknownError,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Metrics,
    SinkContext,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg import RestCatalog, SnapshotManager, TableRef
from volley.iceberg.catalogs.answers import never_sent
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.commit.probes import table_probes

SECRET = "vended-secret-key"
TABLE = "/v1/namespaces/db/tables/events"


@dataclass
class Stub:
    """A REST catalog that has one table and gives one answer to one request.

    Args:
        table: The table's metadata, as JSON.
        uri: Its address.
    """

    table: str
    uri: str = ""
    metadata: dict[str, Any] = field(init=False)
    faulty: tuple[str, str] = ("", "")
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    times: int = 0
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # with the header X-Team

    def __post_init__(self) -> None:
        self.metadata = json.loads(self.table)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        # Of a request to a proxy it is the whole address.
        path = urlsplit(handler.path).path
        self.asked.append((handler.path.partition("?")[0], handler.headers["X-Team"]))
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if (handler.command, path) == self.faulty:
            self.times += 1
            self._tell(handler, self.status, self.body, self.headers, self.cut)
        else:
            found = self._good(handler.command, path)
            self._tell(handler, 404 if found is None else 200, json.dumps(found or _error(404)).encode())

    def _good(self, method: str, path: str) -> Any:
        answers = {
            "POST /v1/oauth/tokens": {"access_token": "t", "token_type": "bearer"},
            "GET /v1/config": {"defaults": {}, "overrides": {}},
            "GET /v1/namespaces": {"namespaces": [["db"]]},
            "GET /v1/namespaces/db": {"namespace": ["db"], "properties": {}},
            f"GET {TABLE}": {"metadata-location": "file:///m.json", "metadata": self.metadata, "config": {}},
        }
        return answers.get(f"{method} {path}")

    @staticmethod
    def _tell(
        handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Any = None, cut: bool = False
    ) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) + 10 * cut))
        handler.end_headers()
        handler.wfile.write(body)


def _error(status: int) -> dict[str, Any]:
    return {"error": {"message": f"injected {status}", "type": "Injected", "code": status}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    lake = Lake(tmp_path_factory.mktemp("events"))
    lake.driver().commit(*write(lake.driver(), 0, [1]))
    made = Stub(lake.table().metadata.model_dump_json())
    lake.close()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        made.uri = f"http://127.0.0.1:{server.server_port}"
        yield made
        server.shutdown()


@pytest.fixture
def stub(running: Stub, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    running.__init__(running.table, running.uri)  # type: ignore[misc]
    return running


def config(stub: Stub, tmp_path: Path, table: str = "events", namespace: str = "db") -> IcebergSinkConfig:
    catalog = RestCatalog(stub.uri, credential="id:secret")
    return IcebergSinkConfig(
        namespace=[namespace], table=table, storage=IcebergStorage.Local(tmp_path / "lake"), catalog=catalog
    )


def opened(config: IcebergSinkConfig) -> IcebergCommitter:
    committer = IcebergSink(config).open(SinkContext("job", SCHEMA, Metrics()))
    assert isinstance(committer, IcebergCommitter)
    return committer


def commit(config: IcebergSinkConfig) -> None:
    committer = opened(config)
    committer.commit(*write(committer, 1, [2]))


def probe(config: IcebergSinkConfig) -> None:
    for each in table_probes(config, SCHEMA, commits=True):
        each.run()


@dataclass(frozen=True)
class Call:
    """A request of Volley: its method and path, what makes it, and what its errors are about."""

    method: str
    path: str
    run: Callable[[IcebergSinkConfig], object]
    about: str = "table"
    table: str = "events"
    namespace: str = "db"
    commits: bool = False
    tries: int = 4


CALLS = {
    "token": Call("POST", "/v1/oauth/tokens", opened, "settings"),
    "config": Call("GET", "/v1/config", opened, "settings"),
    "load": Call("GET", TABLE, lambda config: config.ref.load()),
    "snapshots": Call("GET", TABLE, lambda config: SnapshotManager(config.ref).list_snapshots()),
    "read": Call("GET", TABLE, lambda config: config.ref.to_arrow()),
    "namespace": Call("GET", "/v1/namespaces/db", opened, "namespace", table="new"),
    "new namespace": Call("POST", "/v1/namespaces", opened, "namespace", namespace="new"),
    "new table": Call("POST", "/v1/namespaces/db/tables", opened, table="new"),
    "commit": Call("POST", TABLE, commit, commits=True),
    "tag": Call("POST", TABLE, lambda config: SnapshotManager(config.ref).create_tag("t"), commits=True),
    "check": Call("GET", "/v1/namespaces", probe, "namespace", tries=1),
    "check namespace": Call("GET", "/v1/namespaces/db", probe, "namespace", tries=1),
    "check commit": Call("POST", TABLE, probe, tries=1),
}
# These meet all answers, the others some.
WHOLE = [CALLS["config"], CALLS["load"], CALLS["commit"]]
by_call = pytest.mark.parametrize(
    "call", [pytest.param(call, id=name) if call in WHOLE else nightly(call, id=name) for name, call in CALLS.items()]
)


def failed(stub: Stub, call: Call, tmp_path: Path) -> VolleyError | None:
    """The error of a call whose request meets the stub's answer; None if the call goes on without."""
    stub.faulty, stub.times = (call.method, call.path), 0
    try:
        call.run(config(stub, tmp_path, call.table, call.namespace))
    except VolleyError as error:
        return error
    finally:
        assert stub.times, "the request was not made"
    return None


def meet(stub: Stub, call: Call, tmp_path: Path, status: int, body: bytes | None = None) -> VolleyError | None:
    stub.status, stub.body = status, json.dumps(_error(status)).encode() if body is None else body
    error = failed(stub, call, tmp_path)
    if error is not None:
        assert error.hint
        assert len(str(error)) < 1500
        assert str(error).count("hint:") == 1
        assert SECRET not in "".join(traceback.format_exception(error))
    return error


@by_call
def test_what_a_catalog_rejects(stub: Stub, call: Call, tmp_path: Path) -> None:
    for status in (400, 402, 406, 410, 412, 418, 422) if call in WHOLE else (400, 412):
        error = meet(stub, call, tmp_path, status)
        assert error is not None
        if call.path.endswith("/tokens") and status == 400:
            assert isinstance(error, CatalogAuthError)
            continue
        assert type(error) is CatalogError
        assert f"rejected the request for {'its ' if call.about == 'settings' else ''}" in error.message
        assert call.about in error.message
        assert f"injected {status}" in error.message
        assert "the catalog's own" in str(error.hint)


@by_call
def test_what_a_catalog_can_t_answer_now(stub: Stub, call: Call, tmp_path: Path) -> None:
    busy = {408: None, 429: b"", 503: None, 425: None, 500: b"<html>busy</html>", 502: b"", 504: None, 507: None}
    for status, body in busy.items() if call in WHOLE else [*busy.items()][:3]:
        error = meet(stub, call, tmp_path, status, body)
        if call.commits and status not in (425, 429):
            assert isinstance(error, CommitStateUnknownError)
        else:
            assert isinstance(error, CatalogUnreachableError)
        assert "can't answer now" in error.message
        assert "start the job again" in str(error.hint) or "try again" in str(error.hint)
        assert stub.times == call.tries


@by_call
@pytest.mark.parametrize("status", [401, 419])
def test_credentials_that_are_refused(stub: Stub, call: Call, status: int, tmp_path: Path) -> None:
    error = meet(stub, call, tmp_path, status)
    assert isinstance(error, CatalogAuthError)
    assert "with_credential" in str(error.hint)


NEEDED = {
    "token": "warehouse",
    "config": "warehouse",
    "load": "TABLE_READ_DATA on db.events",
    "snapshots": "TABLE_READ_DATA on db.events",
    "read": "TABLE_READ_DATA on db.events",
    "new namespace": "NAMESPACE_CREATE",
    "new table": "making table db.new needs TABLE_CREATE",
    "commit": "writing needs TABLE_WRITE_DATA on db.events",
    "tag": "writing needs TABLE_WRITE_DATA on db.events",
    "check commit": "writing needs TABLE_WRITE_DATA on db.events",
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_privilege_that_is_missing_is_named(stub: Stub, name: str, tmp_path: Path) -> None:
    error = meet(stub, CALLS[name], tmp_path, 403)
    assert isinstance(error, CatalogAuthError)
    assert NEEDED[name] in str(error.hint)
    assert ("writing" in str(error.hint)) == ("WRITE" in str(error.hint))


@pytest.mark.parametrize("status", [403, 501])
@pytest.mark.parametrize("name", ["check", "check namespace"])
def test_a_check_needs_no_more_than_the_job(stub: Stub, name: str, status: int, tmp_path: Path) -> None:
    call = CALLS[name]

    def looks(config: IcebergSinkConfig) -> None:
        for each in table_probes(config, SCHEMA):
            each.run()

    (tmp_path / "lake/db/events/data").mkdir(parents=True, exist_ok=True)
    assert meet(stub, replace(call, run=looks), tmp_path, status) is None


@by_call
def test_what_a_catalog_does_not_have(stub: Stub, call: Call, tmp_path: Path) -> None:
    for body in (None, b"<html>nginx</html>", b'{"detail": "x"}', b""):
        error = meet(stub, call, tmp_path, 404, body)
        if call.about == "table":
            assert isinstance(error, TableNotFoundError)
            assert ("not an answer of an Iceberg catalog" in str(error.hint)) == (body is not None)
        elif call.path != "/v1/namespaces/db":
            assert type(error) is CatalogError
            assert f"has no {call.path.removeprefix('/v1')}" in error.message
            assert "check the address" in str(error.hint)


@by_call
def test_what_a_catalog_does_not_offer(stub: Stub, call: Call, tmp_path: Path) -> None:
    error = meet(stub, call, tmp_path, 501)
    if call.about == "namespace" and call.method == "GET":
        return
    assert type(error) is CatalogError
    assert "does not offer a request that this needs" in error.message


BODIES = [
    *(b"<html>sign in</html>", b"", b"[]", b"null", b'{"metadata": {"format-ver', b"\xff\xfe{"),
    json.dumps({"access_token": SECRET, "config": {"s3.secret-access-key": SECRET}}).encode(),
]


@by_call
def test_an_answer_of_another_protocol(stub: Stub, call: Call, tmp_path: Path) -> None:
    for body in BODIES if call in WHOLE else BODIES[-3:]:
        error = meet(stub, call, tmp_path, 200, body)
        if call.path in ("/v1/config", "/v1/oauth/tokens") and body == BODIES[-1]:
            # These leave out what they may.
            assert error is None
            continue
        if call.path == "/v1/namespaces" and call.method == "POST":
            # What it says is not looked at; the table can't be made.
            assert isinstance(error, TableNotFoundError)
            continue
        assert isinstance(error, CommitStateUnknownError if call.commits else CatalogError)
        assert "gave an answer that is not of Iceberg's REST protocol" in error.message
        assert "metadata file" not in str(error.hint)
        if not call.commits:
            assert ("page to sign in" in str(error.hint)) == (body[:1] not in (b"[", b"n") and body != BODIES[-1])


@by_call
def test_an_answer_that_is_cut(stub: Stub, call: Call, tmp_path: Path) -> None:
    stub.cut = True
    error = meet(stub, call, tmp_path, 200, b'{"metadata": ')
    assert isinstance(error, CommitStateUnknownError if call.commits else CatalogUnreachableError)
    assert "does not answer" in error.message
    assert stub.times == call.tries


@by_call
def test_an_answer_that_can_t_be_unpacked(stub: Stub, call: Call, tmp_path: Path) -> None:
    stub.headers = {"Content-Encoding": "gzip"}
    error = meet(stub, call, tmp_path, 200, b"no gzip")
    assert isinstance(error, CommitStateUnknownError if call.commits else CatalogError)
    assert "gave an answer that is not of Iceberg's REST protocol" in error.message


@by_call
def test_a_redirect_that_has_no_end(stub: Stub, call: Call, tmp_path: Path) -> None:
    stub.headers = {"Location": call.path}
    error = meet(stub, call, tmp_path, 307, b"")
    assert isinstance(error, CommitStateUnknownError if call.commits else CatalogError)
    assert "30 redirects" in error.message


@by_call
def test_a_page_of_html_is_not_printed_whole(stub: Stub, call: Call, tmp_path: Path) -> None:
    error = meet(stub, call, tmp_path, 502, b"<html>\n" + b"<p>busy</p>\n" * 200)
    assert error is not None
    assert len(error.message) < 1000
    assert "\n" not in error.message


def test_a_conflict_of_a_check_is_named(stub: Stub, tmp_path: Path) -> None:
    error = meet(stub, CALLS["check commit"], tmp_path, 409)
    assert isinstance(error, CommitConflictError)
    assert "volley-check" in str(error.hint)


@pytest.mark.parametrize("status", [409, 503])
def test_a_first_snapshot_for_a_branch(stub: Stub, status: int, tmp_path: Path) -> None:
    stub.metadata |= {"current-snapshot-id": None, "snapshots": [], "refs": {}, "snapshot-log": []}
    call = Call("POST", TABLE, lambda config: opened(config.with_branch("audit")))
    error = meet(stub, call, tmp_path, status)
    assert isinstance(error, CommitConflictError if status == 409 else CommitStateUnknownError)
    assert "making a first snapshot" in error.message
    assert stub.times == 4


def test_metadata_that_can_t_be_read_is_not_another_protocol(stub: Stub, tmp_path: Path) -> None:
    stub.metadata["format-version"] = 9
    with pytest.raises(CatalogError, match="not in the form of Iceberg's metadata") as caught:
        config(stub, tmp_path).ref.load()
    assert "earlier metadata files" in str(caught.value.hint)
    assert "location" not in str(caught.value.cause), "its values may be secret"


@contextmanager
def over_tls(stub: Stub, certificate: Certificate, clients: Path | None = None) -> Iterator[str]:
    """The stub over TLS: its address. With `clients`, it asks clients for a certificate that this file trusts."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusting.load_cert_chain(certificate.file, certificate.key_file)
    if clients is not None:
        trusting.load_verify_locations(clients)
        trusting.verify_mode = ssl.CERT_REQUIRED

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.answer(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = trusting.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def own_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        # For requests they stand above a client's own bundle.
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("own_authorities")
def test_a_certificate_that_is_not_trusted(stub: Stub, tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with over_tls(stub, certificate) as uri:
        table = TableRef("db", "events", IcebergStorage.Local(tmp_path / "lake"), RestCatalog(uri))
        with pytest.raises(CatalogError, match="a certificate that is not trusted here") as caught:
            table.load()
        assert "cabundle" in str(caught.value.hint)
        assert never_sent(caught.value)
        trusted = RestCatalog(uri, properties={"ssl": {"cabundle": str(certificate.file)}})
        assert replace(table, catalog=trusted).load().metadata.location == stub.metadata["location"]


@pytest.mark.usefixtures("own_authorities")
def test_a_catalog_that_asks_for_a_certificate_gets_it_with_each_request(stub: Stub, tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    certificate, ours = self_signed(tmp_path), self_signed(tmp_path / "client")
    trusts = {"cabundle": str(certificate.file)}
    shows = {"client": {"cert": str(ours.file), "key": str(ours.key_file)}}
    with over_tls(stub, certificate, ours.file) as uri:
        # The token's request shows it, too.
        catalog = RestCatalog(uri, credential="id:secret", properties={"ssl": {**trusts, **shows}})
        table = TableRef("db", "events", IcebergStorage.Local(tmp_path / "lake"), catalog)
        assert table.load().metadata.location == stub.metadata["location"]
        with pytest.raises(CatalogError):
            replace(table, catalog=replace(catalog, properties={"ssl": trusts})).load()


@by_call
@pytest.mark.parametrize("status", [407, 511])
def test_a_proxy_that_asks_to_sign_in(stub: Stub, call: Call, status: int, tmp_path: Path) -> None:
    error = meet(stub, call, tmp_path, status, b"<html>sign in</html>")
    assert isinstance(error, CatalogAuthError)
    assert "HTTPS_PROXY" in str(error.hint)


def test_requests_go_by_the_proxy_with_the_users_headers(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy alone knows the catalog's host."""
    monkeypatch.setenv("HTTP_PROXY", stub.uri)
    uri = "http://catalog.invalid:8181"
    catalog = RestCatalog(uri, credential="id:secret", properties={"header.X-Team": "lake"})
    table = TableRef("db", "events", IcebergStorage.Local(tmp_path / "lake"), catalog)
    assert table.load().metadata.location == stub.metadata["location"]
    assert dict(stub.asked) == {f"{uri}{path}": "lake" for path in ("/v1/oauth/tokens", "/v1/config", TABLE)}
