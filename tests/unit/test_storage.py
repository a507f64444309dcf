"""Storages as values: what pyiceberg is told, what is refused, and that no secret is shown."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.fsspec import FsspecFileIO

from volley import ConfigError, IcebergStorage, MissingDependencyError, StorageAccessError, StorageError
from volley.iceberg.storage.errors import storage_errors

S3, Azure, Gcs, Local = IcebergStorage.S3, IcebergStorage.Azure, IcebergStorage.Gcs, IcebergStorage.Local
KEY = json.dumps({"type": "service_account", "private_key": "hush-hush"})

FULL = [
    S3("eu-west-1", "lake", "http://minio:9000", True, "hush-id", "hush-key", "hush-token"),
    Azure("account", "container", "hush-key"),
    Gcs("my-project", "lake", KEY),
    Local("/tmp/lake"),
]


@pytest.mark.parametrize("storage", FULL, ids=lambda storage: type(storage).__name__)
def test_storages_are_values(storage: IcebergStorage) -> None:
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert hash(copy) == hash(storage)
    assert isinstance(storage, IcebergStorage)
    assert "hush" not in repr(storage)
    assert repr(storage).startswith(f"{type(storage).__qualname__}(")


def test_the_repr_reads_like_the_call() -> None:
    assert repr(S3("us-east-1", "lake")) == "S3Storage(region='us-east-1', bucket='lake')"
    assert repr(S3("r", "lake", access_key_id="a", secret_access_key="b")).endswith(
        "access_key_id='***', secret_access_key='***')"
    )
    assert S3("r", "lake", access_key_id="a", secret_access_key="b") != S3(
        "r", "lake", access_key_id="a", secret_access_key="c"
    )


def test_s3_properties() -> None:
    assert FULL[0].properties() == {
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        "s3.region": "eu-west-1",
        "s3.endpoint": "http://minio:9000",
        "s3.access-key-id": "hush-id",
        "s3.secret-access-key": "hush-key",
        "s3.session-token": "hush-token",
    }
    assert S3("r", "lake", "http://s3", path_style_access=False).properties()["s3.force-virtual-addressing"] == "true"
    assert set(S3("r", "lake").properties()) == {"py-io-impl", "s3.region"}


@pytest.mark.parametrize(
    ("path_style", "host"), [(None, "minio:9000"), (True, "minio:9000"), (False, "lake.minio:9000")]
)
def test_path_style_access_is_what_s3_clients_do(path_style: bool | None, host: str) -> None:
    storage = S3("eu-west-1", "lake", "http://minio:9000", path_style, "id", "key")
    io = load_file_io(storage.properties(), "s3://lake")
    assert isinstance(io, FsspecFileIO)
    url = io.get_fs("s3").url("s3://lake/file")
    assert url.startswith(f"http://{host}/" + ("" if path_style is False else "lake/"))


def test_azure_properties() -> None:
    keyed, keyless = FULL[1].properties(), Azure("account", "container").properties()
    assert keyed["adls.account-name"] == keyless["adls.account-name"] == "account"
    assert keyed["adls.account-key"] == "hush-key"
    # DefaultAzureCredential is asked only if anonymous access is off, and adlfs compares with the value False.
    assert keyless["adls.anon"] is False
    assert "adls.anon" not in keyed


def test_gcs_takes_a_key_as_text_or_as_a_file() -> None:
    assert Gcs("p", "lake", KEY).properties()["gcs.oauth2.token"] == json.loads(KEY)
    assert Gcs("p", "lake", "/keys/one.json").properties()["gcs.oauth2.token"] == "/keys/one.json"
    assert "gcs.oauth2.token" not in Gcs("p", "lake").properties()


@pytest.mark.parametrize(
    ("storage", "warehouse", "url"),
    [
        (S3("r", "lake"), None, "s3://lake"),
        (S3("r", "lake"), "raw/events/", "s3://lake/raw/events"),
        (S3("r", "lake"), "s3://lake/raw", "s3://lake/raw"),
        (Azure("acc", "box"), "wh", "abfss://box@acc.dfs.core.windows.net/wh"),
        (Gcs("p", "lake"), "wh", "gs://lake/wh"),
        (Local("/data"), None, "file:///data"),
        (Local("file:///data"), "wh", "file:///data/wh"),
        (Local("/data"), "/data/wh", "file:///data/wh"),
        (Local("~/lake"), None, f"file://{Path.home()}/lake"),
        (Local("lake"), None, f"file://{Path.cwd()}/lake"),
    ],
)
def test_location(storage: IcebergStorage, warehouse: str | None, url: str) -> None:
    assert storage.location(warehouse) == url


@pytest.mark.parametrize("warehouse", ["s3://other/wh", "s3://lakes", "/wh", "../other", "s3://lake/../other"])
def test_a_warehouse_elsewhere_is_refused(warehouse: str) -> None:
    with pytest.raises(ConfigError, match="warehouse") as caught:
        S3("r", "lake").location(warehouse)
    assert "s3://lake" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: S3("", "lake"), "region"),
        (lambda: S3("r", ""), "bucket"),
        (lambda: S3("r", "s3://lake"), "bucket"),
        (lambda: S3("r", "lake/folder"), "bucket"),
        (lambda: S3("r", "Lake"), "bucket"),
        (lambda: S3("r", None), "bucket"),  # type: ignore[arg-type]
        (lambda: S3("r", "lake", "minio:9000"), "endpoint"),
        (lambda: S3("r", "lake", path_style_access=True), "path_style_access"),
        (lambda: S3("r", "lake", access_key_id="id"), "half given"),
        (lambda: S3("r", "lake", secret_access_key="hush"), "half given"),
        (lambda: S3("r", "lake", session_token="hush"), "half given"),
        (lambda: Azure("My_Account", "box"), "storage_account"),
        (lambda: Azure("account", "a/b"), "container"),
        (lambda: Gcs("", "lake"), "project_id"),
        (lambda: Gcs("p", "gs://lake"), "bucket"),
        (lambda: Gcs("p", "lake", '{"private_key": "hush'), "service_account_key"),
        (lambda: Local(""), "path"),
        (lambda: Local("s3://lake"), "path"),
        (lambda: Local("/data/50%"), "path"),
    ],
)
def test_wrong_settings_are_refused_when_built(build: Callable[[], Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        build()
    assert caught.value.hint
    assert "hush" not in str(caught.value)


def test_a_working_folder_with_a_character_of_urls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w?y").mkdir()
    monkeypatch.chdir(tmp_path / "w?y")
    with pytest.raises(ConfigError, match=r"w\?y/lake' is not valid"):
        Local("lake")


def test_local_files_are_written_where_they_are_read(tmp_path: Path) -> None:
    storage = Local(tmp_path / "new" / "lake")
    file = f"{storage.location('wh')}/a.txt"
    with load_file_io(storage.properties(), file).new_output(file).create() as stream:
        stream.write(b"here")
    assert (tmp_path / "new" / "lake" / "wh" / "a.txt").read_bytes() == b"here"


@pytest.mark.parametrize(
    ("storage", "package", "extra"), [(FULL[0], "s3fs", "s3"), (FULL[1], "adlfs", "azure"), (FULL[2], "gcsfs", "gcs")]
)
def test_a_missing_package_says_how_to_install_it(
    storage: IcebergStorage, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=package) as caught:
        storage.check_installed()
    assert caught.value.hint == f'pip install "volley-stream[{extra}]"'


def test_local_storage_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    Local("/tmp").check_installed()


def test_errors_of_files_name_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"reading .*nothing") as caught, storage_errors(str(tmp_path), "reading"):
        (tmp_path / "nothing").read_bytes()
    assert isinstance(caught.value.cause, FileNotFoundError)
    assert caught.value.hint


def test_refused_access_is_told_apart_and_hides_secrets() -> None:
    with pytest.raises(StorageAccessError, match="refused") as caught, storage_errors("s3://lake/a?X-Token=hush"):
        raise PermissionError("Access Denied")
    assert "s3:PutObject" in str(caught.value.hint)
    assert "hush" not in str(caught.value)
    with pytest.raises(StorageAccessError) as caught, storage_errors("file:///lake"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert "permissions" in str(caught.value.hint)


def test_missing_keys_are_refused_access() -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    with pytest.raises(StorageAccessError, match="Unable to locate credentials") as caught, storage_errors("s3://lake"):
        raise exceptions.NoCredentialsError
    assert "no keys were found" in str(caught.value.hint)
    assert "policy" not in str(caught.value.hint)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "full"),
        sqlite3.OperationalError("database or disk is full"),
    ],
)
def test_a_full_disk_says_so(error: Exception) -> None:
    with pytest.raises(StorageError, match="no space left") as caught, storage_errors("/lake"):
        raise error
    assert "make room" in str(caught.value.hint)


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EROFS, "Read-only"), sqlite3.OperationalError("attempt to write a readonly database")],
)
def test_a_read_only_disk_says_so(error: Exception) -> None:
    with pytest.raises(StorageError, match="/lake failed") as caught, storage_errors("/lake"):
        raise error
    assert "read-only" in str(caught.value.hint)


def test_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), storage_errors("/lake"):
        raise ZeroDivisionError
