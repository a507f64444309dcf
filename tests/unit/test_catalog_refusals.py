"""What pyiceberg, a storage, a database, Glue and Hive refuse: it has not landed, and is told for what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from pyiceberg import exceptions as theirs

from tests.recovery.lake import Lake, disturb, write
from volley import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    IcebergStorage,
    StorageError,
)
from volley.iceberg import GlueCatalog, HiveCatalog, TableRef
from volley.iceberg.catalogs.answers import refuses


def raised(error: Exception) -> Callable[[Any], None]:
    """A fault of the commit: an error that pyiceberg's own code raises."""

    def fault(real: Any) -> None:
        raise error

    module: dict[str, Any] = {"__name__": "pyiceberg.table.update"}
    return FunctionType(fault.__code__, module, closure=fault.__closure__)


OWN = [
    ValueError("Cannot set snapshot"),
    TypeError("Unsupported type"),
    NotImplementedError("Writing V3 is not yet supported"),
    theirs.ValidationException("Cannot find starting snapshot"),
    theirs.ValidationError("no"),
    KeyError("uri"),
    AssertionError("no"),
]


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    lake = Lake(tmp_path)
    yield lake
    lake.close()


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_what_pyiceberg_refuses_has_not_been_sent(
    embedded: Lake, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = embedded.driver()
    disturb(monkeypatch, driver, *[raised(error)] * 4)
    written = write(driver, 0, [1])
    with pytest.raises(CatalogError) as caught:
        driver.commit(*written)
    assert "may or may not" not in str(caught.value)
    assert "pyiceberg" in caught.value.message
    assert caught.value.hint
    driver.abort(*written)
    assert embedded.files() == []
    commit_again = write(driver, 0, [1])
    driver.commit(*commit_again)
    assert embedded.rows() == [1]


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_what_pyiceberg_refuses_to_load(embedded: Lake, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CatalogError, match=r"pyiceberg"), embedded.config.ref.errors():
        raised(error)(None)


def test_our_own_mistakes_are_not_translated(embedded: Lake) -> None:
    with pytest.raises(ValueError, match="ours"), embedded.config.ref.errors():
        raise ValueError("ours")


def test_a_metadata_file_that_can_t_be_written_was_not_committed(
    embedded: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = embedded.driver()

    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(driver._catalog, "_write_metadata", full)
    with pytest.raises(StorageError, match="no space left"):
        driver.commit(*write(driver, 0, [1]))
    monkeypatch.undo()
    assert embedded.rows() == []


@pytest.mark.parametrize(
    ("code", "refused"), [("42501", True), ("25006", True), ("57P01", False), ("08006", False), (None, False)]
)
def test_what_a_database_has_refused(code: str | None, refused: bool) -> None:
    class Refusal(Exception):
        pgcode = code

    class Failed(Exception):
        orig = Refusal()

    assert refuses(Failed()) is refused


@pytest.mark.parametrize(("status", "refused"), [(400, True), (403, True), (408, False), (500, False)])
def test_what_aws_has_refused(status: int, refused: bool) -> None:
    class ClientError(Exception):
        response: dict[str, Any] = {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}}}

    assert refuses(ClientError()) is refused


def test_a_host_that_can_t_be_reached_is_not_the_storage(embedded: Lake) -> None:
    with pytest.raises(CatalogUnreachableError, match="No route to host"), embedded.config.ref.errors():
        raise OSError(113, "No route to host")


GLUE = {
    "ThrottlingException": (CatalogUnreachableError, "can't answer now"),
    "InternalServiceException": (CatalogUnreachableError, "can't answer now"),
    "AccessDeniedException": (CatalogAuthError, "refused"),
    "ExpiredTokenException": (CatalogAuthError, "refused"),
    "InvalidInputException": (CatalogError, "rejected the request for table"),
    "ResourceNumberLimitExceededException": (CatalogError, "rejected the request for table"),
}


@pytest.mark.parametrize("code", GLUE)
def test_what_glue_answers(code: str, tmp_path: Path) -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    table = TableRef("db", "Events", IcebergStorage.Local(tmp_path), GlueCatalog("eu"))
    expected, text = GLUE[code]
    said = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 400, "HTTPHeaders": {}}}
    with pytest.raises(expected, match=text) as caught, table.errors():
        raise exceptions.ClientError(said, "UpdateTable")
    assert caught.value.hint
    assert refuses(caught.value)


@pytest.mark.parametrize("name", ["MetaException", "InvalidObjectException", "InvalidOperationException"])
def test_what_hive_answers(name: str, tmp_path: Path) -> None:
    hive = pytest.importorskip("hive_metastore.ttypes")
    table = TableRef("db", "events", IcebergStorage.Local(tmp_path), HiveCatalog("thrift://h:1"))
    with pytest.raises(CatalogError, match=r"rejected the request for table db\.events: .*no"), table.errors():
        raise getattr(hive, name)(message="no")
