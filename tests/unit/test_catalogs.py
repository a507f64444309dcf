"""Catalogs: what pyiceberg is told, real SQLite and memory catalogs, and every failure as an error of ours."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import exceptions as theirs
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog as PlainSqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from sqlalchemy.engine import Engine

from volley import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    ConfigError,
    IcebergSinkConfig,
    IcebergStorage,
    MissingDependencyError,
    StorageError,
    TableNotFoundError,
)
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.catalogs.values import (
    GlueCatalog,
    HiveCatalog,
    MemoryCatalog,
    NessieCatalog,
    RestCatalog,
    SqlCatalog,
    catalog_from_uri,
)

SCHEMA = Schema(NestedField(1, "id", LongType()))
S3 = IcebergStorage.S3("us-east-1", "lake")


def config(storage: Path | IcebergStorage, catalog: CatalogConfig | None = None, **more: Any) -> IcebergSinkConfig:
    place = IcebergStorage.Local(storage) if isinstance(storage, Path) else storage
    return IcebergSinkConfig(namespace=["db"], table="events", storage=place, catalog=catalog, **more)


# --- what pyiceberg is told


def told(catalog: CatalogConfig, warehouse: str | None = None) -> dict[str, Any]:
    properties = catalog.to_properties(S3, warehouse)
    assert properties.pop("py-io-impl") == "pyiceberg.io.fsspec.FsspecFileIO"
    assert properties.pop("s3.region") == "us-east-1"
    return properties


def test_rest_properties() -> None:
    assert told(RestCatalog("http://p:8181", warehouse="wh")) == {
        "type": "rest",
        "uri": "http://p:8181",
        "warehouse": "wh",
    }
    # The name of a REST catalog's warehouse is the server's affair: it stays as it is, and none is made up.
    assert told(RestCatalog("http://p", warehouse="wh"), "tabular://org/other")["warehouse"] == "tabular://org/other"
    assert "warehouse" not in told(RestCatalog("http://p"))
    found = told(RestCatalog("http://p/api/", credential="id:s", properties={"scope": "all", "header.x": "y"}))
    assert (found["credential"], found["scope"], found["header.x"]) == ("id:s", "all", "y")
    assert found["oauth2-server-uri"] == "http://p/api/v1/oauth/tokens"
    own = RestCatalog("http://p", token="t", properties={"oauth2-server-uri": "http://auth"})
    assert (told(own)["oauth2-server-uri"], told(own)["token"]) == ("http://auth", "t")


def test_a_port_that_is_no_number() -> None:
    with pytest.raises(ConfigError, match=r"\*\*\*@h:port.*no number"):
        SqlCatalog("postgresql://u:hush@h:port/db")


def test_properties_of_the_other_catalogs() -> None:
    assert told(NessieCatalog("http://n:19120/iceberg/", branch="a/b")) == {
        "type": "rest",
        "uri": "http://n:19120/iceberg/a%2Fb",
    }
    assert told(GlueCatalog("eu-west-1", "123456789012", "production"), "wh") == {
        "type": "glue",
        "glue.region": "eu-west-1",
        "glue.id": "123456789012",
        "glue.profile-name": "production",
        "warehouse": "s3://lake/wh",
    }
    assert told(HiveCatalog("thrift://hms:9083")) == {
        "type": "hive",
        "uri": "thrift://hms:9083",
        "warehouse": "s3://lake",
    }
    assert told(SqlCatalog("postgresql://u:p@h/db"))["uri"] == "postgresql://u:p@h/db?connect_timeout=5"
    own = "postgresql+psycopg2://h/db?sslmode=require&connect_timeout=1"
    assert told(SqlCatalog(own))["uri"] == own
    assert told(SqlCatalog("postgresql+pg8000://h/db"))["uri"] == "postgresql+pg8000://h/db"
    assert told(SqlCatalog("sqlite:////a.db"))["uri"] == "sqlite:////a.db?timeout=30"
    assert told(SqlCatalog("sqlite:////a.db?timeout=5"))["uri"] == "sqlite:////a.db?timeout=5"
    assert told(SqlCatalog("sqlite:////a.db?x=1"))["uri"] == "sqlite:////a.db?x=1&timeout=30"


@pytest.mark.parametrize(
    ("uri", "catalog"),
    [
        ("http://p", RestCatalog("http://p")),
        ("https://p", RestCatalog("https://p")),
        ("sqlite:////a.db", SqlCatalog("sqlite:////a.db")),
        ("postgresql+psycopg2://h/db", SqlCatalog("postgresql+psycopg2://h/db")),
        ("thrift://h:9083", HiveCatalog("thrift://h:9083")),
        ("memory", MemoryCatalog()),
        ("memory://", MemoryCatalog()),
    ],
)
def test_uris_mean_catalogs(uri: str, catalog: CatalogConfig) -> None:
    assert catalog_from_uri(uri) == catalog


@pytest.mark.parametrize(
    "build",
    [
        lambda: catalog_from_uri("s3://lake"),
        lambda: catalog_from_uri("postgresqlite://x"),
        lambda: catalog_from_uri(""),
        lambda: RestCatalog("polaris:8181"),
        lambda: RestCatalog("http://p", timeout=0),
        lambda: RestCatalog("http://p", credential="id:"),
        lambda: SqlCatalog("sqlite://"),
        lambda: SqlCatalog("sqlite:///"),
        lambda: SqlCatalog("sqlite:///:memory:"),
        lambda: SqlCatalog("mysql://u:hush@h/db"),
        lambda: HiveCatalog("h:9083"),
    ],
)
def test_wrong_catalogs_are_refused_when_built(build: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert caught.value.hint
    assert "hush" not in str(caught.value)


# --- SQLite


@pytest.mark.parametrize("name", ["new", "my shop", "a@b@c:d"])
def test_the_embedded_default_is_a_sqlite_file_in_local_storage(name: str, tmp_path: Path) -> None:
    catalog = config(tmp_path / name / "lake").ref.load_catalog()
    catalog.create_namespace(("db",))
    table = catalog.create_table(("db", "events"), SCHEMA)
    assert table.location() == f"file://{tmp_path}/{name}/lake/db/events"
    # Plain pyiceberg opens it by the name "volley".
    plain = PlainSqlCatalog("volley", uri=f"sqlite:///{tmp_path}/{name}/lake/catalog.db")
    with closing(plain):
        assert plain.load_table("db.events").metadata.table_uuid == table.metadata.table_uuid


def test_sqlite_lets_readers_and_a_writer_work_side_by_side(tmp_path: Path) -> None:
    catalog = config(tmp_path).ref.load_catalog()
    catalog.create_namespace(("db",))
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as reader:
        assert reader.execute("pragma journal_mode").fetchone() == ("wal",)
        reader.execute("begin")
        assert len(reader.execute("select * from iceberg_namespace_properties").fetchall()) == 1
        catalog.create_namespace(("other",))


def test_a_second_writer_waits_half_a_minute_for_the_first(tmp_path: Path) -> None:
    with engine(config(tmp_path).ref.load_catalog()).connect() as connection:
        assert connection.exec_driver_sql("pragma busy_timeout").scalar() == 30_000


def test_a_locked_catalog_says_so(tmp_path: Path) -> None:
    impatient = config(tmp_path, SqlCatalog(f"sqlite:///{tmp_path}/c.db?timeout=0.01"))
    catalog = impatient.ref.load_catalog()
    with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as writer:
        writer.execute("begin immediate")
        with pytest.raises(CatalogError, match=r"c\.db.* is locked") as caught, impatient.ref.errors():
            catalog.create_namespace(("db",))
    assert caught.value.hint


def engine(catalog: Catalog) -> Engine:
    assert isinstance(catalog, PlainSqlCatalog)
    return catalog.engine


def test_catalogs_of_a_database_share_an_engine(tmp_path: Path) -> None:
    one, same = (config(tmp_path).ref.load_catalog() for _ in range(2))
    assert engine(one) is engine(same)
    for different in (config(tmp_path / "other"), config(tmp_path, properties={"pool_pre_ping": "false"})):
        assert engine(different.ref.load_catalog()) is not engine(one)


def test_a_lake_that_is_deleted_and_made_anew_is_another(tmp_path: Path) -> None:
    before = config(tmp_path / "lake").ref.load_catalog()
    before.create_namespace(("db",))
    shutil.rmtree(tmp_path / "lake")
    made_anew = config(tmp_path / "lake").ref.load_catalog()
    assert made_anew.list_namespaces() == []
    made_anew.create_namespace(("other",))
    assert config(tmp_path / "lake").ref.load_catalog().list_namespaces() == [("other",)]


def test_a_forked_process_opens_a_database_itself(tmp_path: Path) -> None:
    catalog = config(tmp_path).ref.load_catalog()

    def open_again() -> None:
        assert engine(config(tmp_path).ref.load_catalog()) is not engine(catalog)

    process = get_context("fork").Process(target=open_again)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def test_a_folder_that_can_not_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=str(tmp_path / "file")) as caught:
        config(tmp_path / "file" / "lake").ref.load_catalog()
    assert caught.value.hint


def test_a_file_that_is_no_database_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("this is text and not a database " * 50)
    with pytest.raises(StorageError, match=r"catalog\.db.*not a database"):
        config(tmp_path).ref.load_catalog()


def test_a_catalog_file_that_went_away_is_a_storage_error(tmp_path: Path) -> None:
    opened = config(tmp_path / "lake", SqlCatalog(f"sqlite:///{tmp_path}/gone/c.db"))
    catalog = opened.ref.load_catalog()
    catalog.close()
    for file in (tmp_path / "gone").iterdir():
        file.unlink()
    (tmp_path / "gone").rmdir()
    with pytest.raises(StorageError, match=r"gone/c\.db.*unable to open"), opened.ref.errors():
        catalog.list_namespaces()


# --- memory


def test_a_memory_catalog_is_one_per_warehouse_and_seen_by_every_thread(tmp_path: Path) -> None:
    job = config(tmp_path, MemoryCatalog()).ref.load_catalog()

    def write() -> None:
        job.create_namespace(("db",))
        job.create_table(("db", "events"), SCHEMA)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    again = IcebergSinkConfig(
        catalog_uri="memory", namespace=["db"], table="events", storage=IcebergStorage.Local(tmp_path)
    ).ref.load_catalog()
    assert again is job
    assert again.load_table(("db", "events")).schema().column_names == ["id"]
    assert config(tmp_path / "other", MemoryCatalog()).ref.load_catalog().list_namespaces() == []
    assert not (tmp_path / "catalog.db").exists()


# --- REST


@contextmanager
def server(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server on this machine that answers every request so; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()


def reply(request: BaseHTTPRequestHandler, code: int, body: dict[str, Any]) -> str:
    """Answer a request; its body."""
    asked = request.rfile.read(int(request.headers.get("Content-Length", 0))).decode()
    text = json.dumps(body).encode()
    request.send_response(code)
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
    return asked


def status(code: int, body: dict[str, Any]) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        reply(request, code, body)

    return answer


def refusal(code: int, kind: str) -> Callable[[BaseHTTPRequestHandler], None]:
    return status(code, {"error": {"message": "no way", "type": kind, "code": code}})


def test_a_catalog_that_does_not_run_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(CatalogUnreachableError) as caught:
        config(tmp_path, RestCatalog(uri)).ref.load_catalog()
    assert caught.value.message == f"catalog {uri} does not answer: [Errno 111] Connection refused"
    assert "network" in str(caught.value.hint)
    assert caught.value.cause is not None


@pytest.mark.parametrize("credential", [None, "id:secret"], ids=["configuration", "token"])
def test_a_catalog_that_hangs_is_unreachable(credential: str | None, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        hanging = config(tmp_path, RestCatalog(uri, credential=credential, timeout=0.1))
        with pytest.raises(CatalogUnreachableError, match="timed out"):
            hanging.ref.load_catalog()


@pytest.mark.parametrize(
    ("answer", "credential", "hint"),
    [
        (refusal(401, "NotAuthorizedException"), None, "with_credential"),
        (refusal(403, "ForbiddenException"), None, "may not use this warehouse"),
        (refusal(419, "AuthenticationTimeoutException"), None, "with_credential"),
        (status(401, {"error": "invalid_client", "error_description": "bad secret"}), "id:hush", "with_credential"),
    ],
    ids=["401", "403", "419", "oauth"],
)
def test_refusals(answer: Callable[..., None], credential: str | None, hint: str, tmp_path: Path) -> None:
    with server(answer) as uri, pytest.raises(CatalogAuthError, match=uri) as caught:
        config(tmp_path, RestCatalog(uri, credential=credential)).ref.load_catalog()
    assert hint in str(caught.value.hint)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_catalog_that_can_not_answer_now_is_worth_another_try(code: int, tmp_path: Path) -> None:
    with server(refusal(code, "Busy")) as uri, pytest.raises(CatalogUnreachableError, match=uri) as caught:
        config(tmp_path, RestCatalog(uri)).ref.load_catalog()
    assert "start the job again" in str(caught.value.hint)


@pytest.mark.parametrize("answer", [refusal(404, "NotFound"), status(200, {"defaults": 7})])
def test_other_answers_are_catalog_errors(answer: Callable[..., None], tmp_path: Path) -> None:
    with server(answer) as uri, pytest.raises(CatalogError, match=uri) as caught:
        config(tmp_path, RestCatalog(uri)).ref.load_catalog()
    assert type(caught.value) is CatalogError
    assert caught.value.hint


def test_what_the_catalog_is_sent(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        token = {"access_token": "fresh", "token_type": "bearer"}
        body = reply(request, 200, token if "oauth" in request.path else {"defaults": {}, "overrides": {}})
        asked.append(f"{request.path} {request.headers.get('Authorization')} {body}")

    with server(answer) as uri:
        wanted = IcebergSinkConfig(
            catalog_uri=uri, warehouse="wh", namespace=["db"], table="events", storage=IcebergStorage.Local(tmp_path)
        )
        wanted.with_credential("id:s").with_properties({"scope": "PRINCIPAL_ROLE:ALL"}).ref.load_catalog()
    # A request is noted behind its answer: the next one may be there before.
    (token,) = [request for request in asked if "oauth" in request]
    assert "client_id=id&client_secret=s" in token
    assert "scope=PRINCIPAL_ROLE%3AALL" in token
    assert any(request.startswith("/v1/config?warehouse=wh Bearer fresh") for request in asked)


# --- errors of calls


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    embedded = config(tmp_path)
    catalog = embedded.ref.load_catalog()
    named = r"db\.events not found in sqlite:///.*catalog\.db"
    with pytest.raises(TableNotFoundError, match=named) as caught, embedded.ref.errors():
        catalog.load_table(embedded.identifier)
    assert isinstance(caught.value.cause, theirs.NoSuchTableError)


def test_metadata_that_can_not_be_read_is_a_storage_error(tmp_path: Path) -> None:
    embedded = config(tmp_path)
    catalog = embedded.ref.load_catalog()
    catalog.create_namespace(("db",))
    Path(catalog.create_table(("db", "events"), SCHEMA).metadata_location.removeprefix("file://")).unlink()
    another = embedded.ref.load_catalog()
    with pytest.raises(StorageError, match=r"metadata\.json"), embedded.ref.errors():
        another.load_table(embedded.identifier)


def test_metadata_is_parsed_once_and_changes_by_others_are_seen(tmp_path: Path) -> None:
    ours, theirs_ = config(tmp_path).ref.load_catalog(), config(tmp_path).ref.load_catalog()
    ours.create_namespace(("db",))
    ours.create_table(("db", "events"), SCHEMA)
    first, again = (ours.load_table("db.events").metadata for _ in range(2))
    assert again is first
    with theirs_.load_table("db.events").transaction() as change:
        change.set_properties(other="x")
    assert ours.load_table("db.events").properties == {"other": "x"}
    assert first.properties == {}
    with ours.load_table("db.events").transaction() as change:
        change.set_properties(ours="y")
    assert ours.load_table("db.events").metadata == theirs_.load_table("db.events").metadata


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_others_read_the_metadata_that_is_written(codec: str, tmp_path: Path) -> None:
    ours = config(tmp_path).ref.load_catalog()
    ours.create_namespace(("db",))
    hostile = {"snapshots": "[]", "note": '"snapshots":[]', "write.metadata.compression-codec": codec}
    ours.create_table(("db", "events"), SCHEMA, properties=hostile)
    for number in range(4):
        ours.load_table("db.events").append(pa.table({"id": [number]}))
    ours.load_table("db.events").maintenance.expire_snapshots().by_id(
        ours.load_table("db.events").snapshots()[1].snapshot_id
    ).commit()
    written = ours.load_table("db.events")
    another = config(tmp_path).ref.load_catalog().load_table("db.events")
    assert another.metadata == written.metadata
    assert another.properties == hostile
    assert len(another.snapshots()) == 3
    assert sorted(another.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [theirs.CommitFailedException("conflict"), ConfigError("ours"), KeyError("a bug")])
def test_conflicts_errors_of_ours_and_bugs_pass_as_they_are(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught, config(tmp_path).ref.errors():
        raise error
    assert caught.value is error


def test_an_unclear_commit_is_a_catalog_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught, config(tmp_path).ref.errors():
        raise theirs.CommitStateUnknownException("lost")
    assert isinstance(caught.value.cause, theirs.CommitStateUnknownException)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ('connection to server at "h", port 5432 failed: Connection refused', CatalogUnreachableError),
        ('could not translate host name "h" to address', CatalogUnreachableError),
        ('connection to server at "h" failed: FATAL: password authentication failed for user "u"', CatalogAuthError),
        ("permission denied for table iceberg_tables", CatalogAuthError),
        ("deadlock detected", CatalogError),
    ],
)
def test_what_postgres_says(said: str, kind: type[CatalogError]) -> None:
    from sqlalchemy.exc import OperationalError

    class PostgresError(Exception):
        """Stands for psycopg2's, which need not be installed here."""

    postgres = config(S3, SqlCatalog("postgresql://u:hush@h/db"))
    with pytest.raises(CatalogError) as caught, postgres.ref.errors():
        raise OperationalError("select 1", {}, PostgresError(said))
    assert type(caught.value) is kind
    assert "hush" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("catalog", "module", "extra"),
    [
        (SqlCatalog("postgresql://h/db"), "psycopg2", "volley-stream[postgres]"),
        (HiveCatalog("thrift://h:9083"), "thrift", "volley-stream[hive]"),
        (GlueCatalog("us-east-1"), "boto3", "volley-stream[glue]"),
    ],
)
def test_a_missing_client_says_how_to_install_it(
    catalog: CatalogConfig, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in (
        "pyiceberg.catalog.hive",
        "pyiceberg.catalog.glue",
        "volley.iceberg.pyiceberg_private.hive",
        "volley.iceberg.pyiceberg_private.glue",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=type(catalog).__name__) as caught:
        config(tmp_path, catalog).ref.load_catalog()
    assert caught.value.hint == f'pip install "{extra}"'


def test_a_missing_file_system_is_found_before_the_catalog_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="s3fs"):
        config(S3, RestCatalog("http://127.0.0.1:1")).ref.load_catalog()
