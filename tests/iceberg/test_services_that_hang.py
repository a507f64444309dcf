"""Services beside a catalog that take a connection and never answer: each is given up in time, and named."""

from __future__ import annotations

import json
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import requests
from pyiceberg.catalog.rest.auth import OAuth2AuthManager
from pyiceberg.io import FileIO

from volley import CatalogUnreachableError, IcebergStorage, StorageError
from volley.iceberg import RestCatalog, TableRef
from volley.iceberg.pyiceberg_private.rest import TimeoutRestCatalog
from volley.iceberg.storage.errors import storage_errors


@pytest.fixture
def hanging() -> Iterator[str]:
    """The address of a server whose queue takes connections, and which nobody serves."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


SETTINGS: dict[str, Any] = {
    "plain": {},
    "signed by SigV4": {
        **{"rest.sigv4-enabled": "true", "rest.signing-region": "us-east-1", "rest.signing-name": "s3tables"},
        **{"client.access-key-id": "key", "client.secret-access-key": "secret", "rest.sigv4.max-retries": "0"},
    },
    "with a token of the catalog's own": {"credential": "id:secret", "oauth2-server-uri": "http://HOST/token"},
    "with a token of another server": {
        "auth": {"type": "oauth2", "oauth2": {"client_id": "a", "client_secret": "b", "token_url": "http://HOST/token"}}
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_catalog_that_hangs(hanging: str, settings: dict[str, Any]) -> None:
    settings = json.loads(json.dumps(settings).replace("http://HOST", hanging))
    began = time.monotonic()
    catalog = RestCatalog(hanging, properties=settings, timeout=0.2)
    with pytest.raises(CatalogUnreachableError, match=hanging):
        TableRef(namespace="db", table="t", catalog=catalog, storage=IcebergStorage.Local("/tmp")).load_catalog()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("settings", [{"s3.remote-signing-enabled": "true"}, {"s3.signer": "S3V4RestSigner"}])
def test_a_signing_service_that_hangs(hanging: str, settings: dict[str, str]) -> None:
    catalog = TimeoutRestCatalog.__new__(TimeoutRestCatalog)
    catalog.properties = {"uri": hanging, "s3.endpoint": hanging, "s3.region": "us-east-1", **settings}
    catalog._auth_manager = None
    io: FileIO = pickle.loads(pickle.dumps(catalog._load_file_io({"s3.request-timeout": "0.2"}, "s3://lake/x")))
    with pytest.raises(StorageError, match=r"signing service gave no answer within 0\.2 s"):  # noqa: SIM117
        with storage_errors("s3://lake/x", "reading"):
            io.new_input("s3://lake/x").open().read()


def test_a_token_is_got_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the timeouts a provider does what pyiceberg's does."""
    from volley.iceberg.pyiceberg_private.tokens import TokenProvider

    asked: list[Any] = []

    class Answer:
        def raise_for_status(self) -> None:
            """It is fine."""

        def json(self) -> dict[str, Any]:
            return {"access_token": "abc", "expires_in": 3600}

    def post(url: str, **more: Any) -> Answer:
        asked.append((url, more["data"], more["headers"]["Authorization"], more["timeout"]))
        return Answer()

    monkeypatch.setattr(requests, "post", post)
    manager = OAuth2AuthManager("id", "secret", "http://auth/token", scope="catalog")
    manager.token_provider = TokenProvider(manager.token_provider, (1.0, 2.0))
    assert [manager.auth_header() for _ in range(2)] == ["Bearer abc"] * 2
    form = {"grant_type": "client_credentials", "scope": "catalog"}
    assert asked == [("http://auth/token", form, "Basic aWQ6c2VjcmV0", (1.0, 2.0))]
    # The clock by which a token ends is that of one machine.
    assert pickle.loads(pickle.dumps(manager)).auth_header() == "Bearer abc"
    assert len(asked) == 2
    assert manager.auth_header() == "Bearer abc"
    assert len(asked) == 2
