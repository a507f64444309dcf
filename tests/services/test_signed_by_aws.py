"""Catalogs whose requests AWS' keys sign, by the front of S3 Tables before Iceberg's REST fixture, which checks each
signature: keys that end, and keys of a table's files that tasks ask for themselves."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog as load_plain

from tests.recovery.lake import retries, write
from tests.servers.rest_fixture import RestFixture
from tests.servers.vendors import KEY, SECRET, VENDORS, Front
from tests.services.fault_proxy import Answer, Request, answer_with, with_config
from tests.services.lakes import driver
from volley import CatalogAuthError, IcebergSinkConfig, IcebergStorage, S3TablesCatalog
from volley.iceberg.pyiceberg_private.renewing import VENDED


class Ending(Front):
    """Takes the signatures of sessions that have not ended."""

    def __init__(self, upstream: str) -> None:
        super().__init__(VENDORS["s3_tables"], upstream)
        self.good = "first"
        self.refused = 0

    def exchange(self, request: Request) -> Answer | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("x-amz-security-token") != self.good:
            self.refused += 1
            return answer_with(403, "ExpiredTokenException")(lambda: Answer(500))
        return super().exchange(request)


@dataclass(frozen=True)
class Signed:
    front: Ending
    config: IcebergSinkConfig
    fixture: RestFixture
    keys: Path

    def give(self, session: str) -> None:
        """The keys that are on this machine from now on."""
        lines = (f"aws_access_key_id={KEY}", f"aws_secret_access_key={SECRET}", f"aws_session_token={session}")
        self.keys.write_text("\n".join(("[default]", *lines, "")))

    def rows(self) -> list[int]:
        table = load_plain("other", type="rest", uri=self.fixture.uri).load_table(self.config.identifier)
        return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def signed(rest_fixture: RestFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signed]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    front = Ending(rest_fixture.uri)
    with front:
        storage, bucket = IcebergStorage.Local(rest_fixture.lake), VENDORS["s3_tables"].warehouse
        catalog = S3TablesCatalog(str(bucket), uri=f"{front.uri}/iceberg")
        config = IcebergSinkConfig(namespace="db", table=f"t{uuid.uuid4().hex}", storage=storage, catalog=catalog)
        ready = Signed(front, config, rest_fixture, tmp_path / "keys")
        ready.give("first")
        yield ready
        assert front.broken == []


def test_a_job_outlives_the_keys_that_it_started_with(signed: Signed) -> None:
    ours = driver(signed.config)
    ours.commit(*write(ours, 0, [1]))
    signed.front.good = "second"
    signed.give("second")
    ours.commit(*write(ours, 1, [2]))
    ours.commit(*write(ours, 2, [3]))
    assert signed.rows() == [1, 2, 3]
    assert retries(ours) == 0
    # One request found out.
    assert signed.front.refused == 1


def test_keys_that_have_ended_are_an_error_while_there_are_no_others(signed: Signed) -> None:
    ours = driver(signed.config)
    ours.commit(*write(ours, 0, [1]))
    signed.front.good = "second"
    written = write(ours, 1, [2])
    with pytest.raises(CatalogAuthError, match="injected 403"):
        ours.commit(*written)
    signed.give("second")
    ours = driver(signed.config)
    ours.commit(*written)
    assert signed.rows() == [1, 2]


def test_tasks_ask_for_keys_of_the_files_by_signed_requests(signed: Signed) -> None:
    driver(signed.config)
    given = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "of the files"}
    ends = {"s3.session-token-expires-at-ms": str(int((time.time() - 1) * 1000))}
    signed.front.arm(with_config({**given, **ends}), "GET", f"/tables/{signed.config.table}", times=None)
    table = signed.config.ref.load_catalog().load_table(signed.config.identifier)
    # The keys of the driver's requests end, too; a task has those of its machine.
    signed.front.good = "second"
    signed.give("second")
    signed.front.disarm()
    signed.front.arm(with_config({**given, "s3.session-token": "new"}), "GET", f"/tables/{signed.config.table}")
    io = pickle.loads(pickle.dumps(table.io))
    assert io.properties[VENDED][""].current()["s3.session-token"] == "new"
    assert SECRET not in repr(io.properties[VENDED])


def test_a_task_without_keys_says_so(signed: Signed) -> None:
    driver(signed.config)
    given = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "of the files"}
    ends = {"s3.session-token-expires-at-ms": str(int((time.time() - 1) * 1000))}
    signed.front.arm(with_config({**given, **ends}), "GET", f"/tables/{signed.config.table}", times=None)
    table = signed.config.ref.load_catalog().load_table(signed.config.identifier)
    signed.keys.unlink()
    with pytest.raises(OSError, match="there are no credentials of AWS to ask the catalog with"):
        pickle.loads(pickle.dumps(table.io)).properties[VENDED][""].current()
