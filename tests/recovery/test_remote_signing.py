"""A REST catalog that gives no keys but signs each request to the storage."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest.auth import OAuth2AuthManager

from tests.recovery.lake import QUERY, SCHEMA, write
from tests.recovery.remote import RemoteLake
from tests.servers.seaweed import Seaweed
from tests.services.fault_proxy import FaultProxy, with_config
from volley import Epoch, IcebergStorage, StorageAccessError
from volley.iceberg import IcebergTable
from volley.iceberg.commit.committer import IcebergCommitter


@dataclass
class Signer:
    """The signing service of a catalog: it has the keys."""

    server: Seaweed
    uri: str = ""
    status: int = 200
    signed: list[str] = field(default_factory=list)

    def sign(self, asked: dict[str, Any]) -> dict[str, Any]:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        self.signed.append(asked["method"])
        kept = {name: values[0] for name, values in asked["headers"].items() if name.lower() != "content-length"}
        request = AWSRequest(method=asked["method"], url=asked["uri"], headers=kept)
        request.context["payload_signing_enabled"] = False
        request.headers["X-Amz-Content-SHA256"] = "UNSIGNED-PAYLOAD"
        S3SigV4Auth(Credentials(self.server.key, self.server.secret), "s3", asked["region"]).add_auth(request)
        return {"uri": asked["uri"], "headers": {name: [value] for name, value in request.headers.items()}}


@pytest.fixture
def signer(seaweed: Seaweed) -> Iterator[Signer]:
    made = Signer(seaweed)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(made.sign(asked) if made.status == 200 else {}).encode()
            self.send_response(made.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        made.uri = f"http://127.0.0.1:{server.server_port}"
        yield made
        server.shutdown()


@pytest.fixture
def keyless(remote: RemoteLake, proxy: FaultProxy, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> RemoteLake:
    """The table, reached without keys; its catalog signs."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    remote.driver()

    class Keyless(Seaweed):
        def storage(self, secret: str | None = None) -> IcebergStorage:
            return IcebergStorage.S3(region="us-east-1", bucket="lake", endpoint=self.s3_endpoint)

    settings = {
        "s3.remote-signing-enabled": "true",
        "s3.signer.uri": signer.uri,
        "s3.signer.endpoint": "v1/aws/s3/sign",
    }
    proxy.arm(with_config(settings), "GET", remote.path, times=None)
    return replace(remote, server=Keyless(remote.server.rest_uri, remote.server.s3_endpoint))


def append(driver: IcebergCommitter) -> None:
    # An executor has a copy of the writer.
    task = pickle.loads(pickle.dumps(driver.writer(Epoch(QUERY, 0)))).open(0)
    task.write(pa.record_batch({"id": [1, 2]}, SCHEMA))
    driver.commit(Epoch(QUERY, 0), [task.close()])


@pytest.mark.parametrize("has_manager", [False, True])
def test_the_catalog_signs_what_is_written_and_read(
    keyless: RemoteLake, signer: Signer, remote: RemoteLake, has_manager: bool
) -> None:
    keyless = replace(keyless, has_manager=has_manager)
    append(keyless.driver())
    assert "PUT" in signer.signed
    assert remote.rows() == [1, 2]
    assert sorted(IcebergTable(keyless.config.ref).to_arrow()["id"].to_pylist()) == [1, 2]
    assert "GET" in signer.signed


def test_a_manager_of_tokens_stays_with_the_driver(remote: RemoteLake) -> None:
    managed = replace(remote, has_manager=True)
    append(managed.driver())
    assert remote.rows() == [1, 2]
    assert sorted(IcebergTable(managed.config.ref).to_arrow()["id"].to_pylist()) == [1, 2]


def test_tasks_sign_in_by_what_a_manager_has_that_can_t_go_to_them(
    keyless: RemoteLake, signer: Signer, remote: RemoteLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise TypeError("not this one")

    monkeypatch.setattr(OAuth2AuthManager, "__reduce__", refuse, raising=False)
    append(replace(keyless, has_manager=True).driver())
    assert "PUT" in signer.signed
    assert remote.rows() == [1, 2]


def test_keys_of_the_storage_are_used_in_place_of_signatures(
    keyless: RemoteLake, signer: Signer, remote: RemoteLake
) -> None:
    driver = remote.driver()
    driver.commit(*write(driver, 0, [1]))
    assert remote.rows() == [1]
    assert signer.signed == []


def test_a_request_that_is_not_signed_is_named(keyless: RemoteLake, signer: Signer) -> None:
    signer.status = 403
    driver = keyless.driver()
    with pytest.raises(StorageAccessError, match=r"did not sign.*403") as caught:
        write(driver, 0, [1, 2])
    assert "the catalog" in str(caught.value.hint)
    assert "policy" not in str(caught.value.hint)
