"""Where a storage's credentials come from: keys, tokens, the clouds' default chains, a catalog that vends them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.servers.azurite import ACCOUNT, Azurite
from tests.servers.fixtures import Place
from tests.servers.gcs import PROJECT, FakeGcs
from tests.servers.identity import TOKEN, TokenEndpoint, azure_identity, service_account_key
from tests.servers.s3 import ADMIN, BUCKET, S3, Keys
from tests.services.documented import documented
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Request, Server, named
from volley import EOF, Environment, IcebergSink, MemorySource, StorageAccessError

Put = Callable[[str, str], None]


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


def check(environment: Environment, place: Place, folder: Path) -> None:
    """The whole pipeline, in two epochs of two runs."""
    rows = [{"id": 1}, {"id": 2}, EOF, {"id": 3}]
    # With a function of the user's the rows are written by executors, each with credentials of its own.
    stream = environment.from_source(MemorySource(rows, rows_per_epoch=2)).map(dict)
    pipeline = stream.to_sink(IcebergSink(place.config(folder)))
    pipeline.execute("job")
    pipeline.execute("job")
    assert place.ids(folder) == [1, 2, 3]


def test_s3_takes_temporary_keys_with_their_session_token(
    environment: Environment, s3_server: S3, tmp_path: Path
) -> None:
    keys = s3_server.temporary_keys()
    check(environment, Place(s3_server.storage(keys)), tmp_path)
    assert keys.session_token in s3_server.proxy.used


def test_s3_refuses_temporary_keys_without_their_token(environment: Environment, s3_server: S3, tmp_path: Path) -> None:
    keys = s3_server.temporary_keys()
    without = Place(s3_server.storage(Keys(keys.access_key_id, keys.secret_access_key)))
    with pytest.raises(StorageAccessError, match="s3://plain"):
        check(environment, without, tmp_path)


@pytest.fixture
def own_s3(s3_server: S3, everywhere: Put) -> Place:
    """The bucket without keys, at an address that no other test has opened: clients keep the keys they have found."""
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    address = s3_server.endpoint.replace("127.0.0.1", "localhost")
    return Place(documented("S3 with the default chain", s3=address, bucket=f'bucket="{BUCKET}"').storage)


def test_s3_keys_come_from_the_environment(
    environment: Environment, own_s3: Place, everywhere: Put, tmp_path: Path
) -> None:
    everywhere("AWS_ACCESS_KEY_ID", ADMIN.access_key_id)
    everywhere("AWS_SECRET_ACCESS_KEY", ADMIN.secret_access_key)
    check(environment, own_s3, tmp_path)


def test_s3_keys_come_from_a_profile(environment: Environment, own_s3: Place, everywhere: Put, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[lake]\naws_access_key_id = {ADMIN.access_key_id}\naws_secret_access_key = {ADMIN.secret_access_key}\n"
    )
    everywhere("AWS_SHARED_CREDENTIALS_FILE", str(file))
    everywhere("AWS_PROFILE", "lake")
    check(environment, own_s3, tmp_path)


def test_azure_without_a_key_asks_the_default_chain(
    environment: Environment, azurite: Azurite, everywhere: Put, tmp_path: Path
) -> None:
    with azure_identity() as identity:
        everywhere("IDENTITY_ENDPOINT", identity.uri)
        everywhere("IDENTITY_HEADER", "header-of-the-machine")
        config = documented("Azure with the default credential", account=f'storage_account="{ACCOUNT}"')
        check(environment, Place(config.storage, azurite.properties()), tmp_path)
    assert {asked["resource"] for asked in identity.asked} == {"https://storage.azure.com"}
    assert {asked["header"] for asked in identity.asked} == {"header-of-the-machine"}
    # The driver asks, and so do the executors, each for itself.
    assert len(identity.asked) > 1


def test_gcs_sends_the_token_of_the_service_account(
    environment: Environment, gcs: Place, google: tuple[FakeGcs, TokenEndpoint], tmp_path: Path
) -> None:
    with BearerOnly(google[0].endpoint, TOKEN) as proxy:
        check(environment, Place(gcs.storage, {"gcs.service.host": proxy.uri}), tmp_path)
    assert {asked["grant_type"] for asked in google[1].asked} == {"urn:ietf:params:oauth:grant-type:jwt-bearer"}


def test_gcs_without_a_key_uses_the_default_credentials(
    environment: Environment, google: tuple[FakeGcs, TokenEndpoint], everywhere: Put, tmp_path: Path
) -> None:
    server, tokens = google
    file = tmp_path / "account.json"
    file.write_text(service_account_key(tokens.uri))
    everywhere("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with BearerOnly(server.endpoint, TOKEN) as proxy:
        names = {"project": f'project_id="{PROJECT}"', "bucket": 'bucket="lake"'}
        config = documented("Google Cloud Storage with default credentials", **names)
        check(environment, Place(config.storage, {"gcs.service.host": proxy.uri}), tmp_path)


class BearerOnly(FaultProxy):
    """Before a server that takes any credentials: lets those through that have this bearer token.

    Args:
        upstream: The server.
        token: The token.
    """

    def __init__(self, upstream: str, token: str) -> None:
        super().__init__(upstream)
        self._token = token

    def exchange(self, request: Request) -> Answer | None:
        given = {name.lower(): value for name, value in request.headers.items()}
        if given.get("authorization") != f"Bearer {self._token}":
            return Answer(401, {"Content-Type": "application/json"}, b'{"error": {"code": 401, "message": "who?"}}')
        return super().exchange(request)


def vend(s3_server: S3) -> Fault:
    """The keys in the catalog's answer are good from now on, those before are not."""

    def remember(server: Server) -> Answer:
        answer = server()
        s3_server.proxy.valid = json.loads(answer.body).get("config", {}).get("s3.session-token")
        return answer

    return named("vend", remember)


def test_a_catalog_that_vends_keys_needs_none_here_and_each_epoch_has_fresh_ones(
    spark: SparkSession, s3_server: S3, tmp_path: Path, everywhere: Put
) -> None:
    everywhere("AWS_EC2_METADATA_DISABLED", "true")
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    s3_server.proxy.used.clear()
    with FaultProxy(s3_server.server.rest_uri) as catalog:
        given = documented("S3 with keys from the catalog", catalog=catalog.uri)
        config = replace(given, table="vended")
        catalog.arm(vend(s3_server), "GET", rf"/tables/{config.table}", times=None)
        catalog.arm(vend(s3_server), "POST", r"/tables$", times=None)
        try:
            rows = MemorySource([{"id": number} for number in range(6)], rows_per_epoch=2)
            progress = environment.from_source(rows).to_sink(IcebergSink(config)).execute("job").progress
        finally:
            s3_server.proxy.valid = None
    assert progress.epochs == 3
    # For each epoch, keys to write the files and keys to commit them; none was used after the next were given.
    assert len(s3_server.proxy.used) >= 6
    assert s3_server.proxy.refused == []
