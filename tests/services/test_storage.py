"""One suite over all storages, against real servers: the whole pipeline, big files, refusals, outages."""

from __future__ import annotations

import errno
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from s3fs import S3FileSystem

from tests.servers.azurite import Azurite
from tests.servers.fixtures import Place, warehouse
from tests.servers.identity import service_account_key
from tests.servers.s3 import READER, S3, Keys
from tests.servers.seaweed import Seaweed, SeaweedProcess
from tests.servers.shared import own_server
from tests.services.fault_proxy import Answer, Fault, FaultProxy, Server, answer_as_s3, lose_request, named
from volley import (
    EOF,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    StorageAccessError,
    StorageError,
    col,
    lit,
)
from volley.iceberg.storage.files import file_system, list_folder
from volley.storage.durable import create_durably, creation

pytestmark = [pytest.mark.waits, pytest.mark.services]

STORAGES = ["s3", "azure", "gcs", "local"]
MIB = 1 << 20


@pytest.fixture
def environment(spark: SparkSession, tmp_path: Path) -> Environment:
    return Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """The storage that a test names."""
    found: Place = request.getfixturevalue(request.param)
    return found


def write(environment: Environment, config: IcebergSinkConfig, *ids: int) -> None:
    rows = MemorySource([{"id": number} for number in ids])
    environment.from_source(rows).to_sink(IcebergSink(config)).execute("job")


@pytest.mark.parametrize("place", STORAGES, indirect=True)
def test_rows_in_are_rows_out_and_a_restart_goes_on(place: Place, spark: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    source = MemorySource([*({"id": i} for i in range(10)), EOF, *({"id": i} for i in range(10, 15))], rows_per_epoch=5)
    stream = (
        environment.from_source(source)
        .filter_expr(col("id").ne(lit(3)))
        # Executors write what a function of the user's returns.
        .map(dict)
        .to_sink(IcebergSink(place.config(tmp_path)))
    )
    stream.execute("job")
    assert place.ids(tmp_path) == [0, 1, 2, *range(4, 10)]
    stream.execute("job")
    table = place.table(tmp_path)
    assert place.ids(tmp_path) == [0, 1, 2, *range(4, 15)]
    paths = table.inspect.files()["file_path"].to_pylist()
    assert all(path.startswith(f"{place.storage.root}/{warehouse(tmp_path)}/") for path in paths)
    assert len(table.snapshots()) == 3


@pytest.mark.parametrize("place", STORAGES, indirect=True)
def test_dead_letters_go_to_the_same_storage(place: Place, environment: Environment, tmp_path: Path) -> None:
    bad = tmp_path / "in.json"
    bad.write_text('{"id": 1}\nnot json\n{"id": 2}\n')
    config = place.config(tmp_path).with_dead_letter("letters")
    source = FileSource(str(bad), schema="id long")
    environment.from_source(source).to_sink(IcebergSink(config)).execute("job")
    assert place.ids(tmp_path) == [1, 2]
    letters = place.table(tmp_path, "letters").scan().to_arrow()
    assert letters["payload"].to_pylist() == ["not json"]


@pytest.fixture
def s3_by_properties(s3_server: S3) -> Place:
    """The bucket, whose server and keys are told by pyiceberg's names."""
    told = {"s3.endpoint": s3_server.endpoint, "s3.access-key-id": "svcid", "s3.secret-access-key": "svcsecret"}
    return Place(IcebergStorage.S3("us-east-1", "plain"), told)


@pytest.mark.parametrize("place", ["s3_by_properties", "azure", "gcs"], indirect=True)
def test_files_of_dead_letters_go_to_the_same_storage(place: Place, environment: Environment, tmp_path: Path) -> None:
    bad = tmp_path / "in.json"
    bad.write_text('{"id": 1}\nnot json\n{"id": 2}\n')
    folder = f"{place.storage.root}/{warehouse(tmp_path)}/letters"
    source = FileSource(str(bad), schema="id long")
    environment.from_source(source).to_sink(IcebergSink(place.config(tmp_path).with_dead_letter(folder))).execute("job")
    assert place.ids(tmp_path) == [1, 2]
    files = file_system(place.table(tmp_path).io, folder)
    (letters,) = [path for path in list_folder(files, folder) if "/_volley/" not in path]
    assert json.loads(files.cat_file(letters))["payload"] == "not json"


@pytest.fixture
def big_rows(tmp_path: Path) -> Path:
    """A file of 60 MiB that nothing compresses: more than one part of an upload."""
    file = tmp_path / "in" / "big.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"id": range(60), "noise": [os.urandom(MIB) for _ in range(60)]}), file)
    return file


def upload(environment: Environment, big_rows: Path, place: Place, folder: Path) -> None:
    environment.from_source(FileSource(str(big_rows))).to_sink(IcebergSink(place.config(folder))).execute("job")
    table = place.table(folder)
    assert max(table.inspect.files()["file_size_in_bytes"].to_pylist()) > 50 * MIB
    noise = table.scan(selected_fields=("id", "noise")).to_arrow().sort_by("id")["noise"].to_pylist()
    assert noise == pq.read_table(big_rows)["noise"].to_pylist()


def test_a_big_file_goes_to_s3_in_parts(
    environment: Environment, big_rows: Path, s3: Place, s3_server: S3, tmp_path: Path
) -> None:
    upload(environment, big_rows, s3, tmp_path)
    data = rf"/{warehouse(tmp_path)}/.*/data/.*\.parquet\?"
    assert len(s3_server.proxy.asked("POST", f"{data}uploads")) == 1
    assert len(s3_server.proxy.asked("PUT", rf"{data}.*partNumber=")) > 1
    assert len(s3_server.proxy.asked("POST", rf"{data}uploadId=")) == 1


def test_a_big_file_goes_to_azure_in_blocks(
    environment: Environment, big_rows: Path, azure_http: tuple[Place, FaultProxy], tmp_path: Path
) -> None:
    place, proxy = azure_http
    upload(environment, big_rows, place, tmp_path)
    data = rf"/{warehouse(tmp_path)}/.*/data/.*\.parquet\?.*comp="
    assert len(proxy.asked("PUT", f"{data}block(&|$)")) > 1
    assert len(proxy.asked("PUT", f"{data}blocklist")) == 1


def test_a_big_file_goes_to_gcs_by_a_resumable_upload(
    environment: Environment, big_rows: Path, gcs_proxied: tuple[Place, FaultProxy], tmp_path: Path
) -> None:
    place, proxy = gcs_proxied
    upload(environment, big_rows, place, tmp_path)
    assert proxy.asked("POST", "uploadType=resumable")


def refusal(code: str) -> Fault:
    """A 403 in the words of each cloud at once: XML for S3, a header for Azure, text for GCS."""
    said = answer_as_s3(403, code)(lambda: Answer(200))
    assert said is not None
    refused = Answer(403, {**said.headers, "x-ms-error-code": code}, said.body)
    return named("refuse", lambda server: refused)


@pytest.mark.parametrize(
    ("proxied", "method", "code", "permission"),
    [
        ("s3_proxied", "PUT", "AccessDenied", r"s3:PutObject on bucket 'plain'"),
        ("azure_http", "PUT", "AuthorizationPermissionMismatch", "container 'lake'.*Storage Blob Data Contributor"),
        ("gcs_proxied", "POST", "forbidden", r"storage\.objects\.create.* on bucket 'lake'.*objectUser"),
    ],
)
def test_a_denied_write_names_bucket_action_and_permission(
    proxied: str,
    method: str,
    code: str,
    permission: str,
    environment: Environment,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    place, proxy = request.getfixturevalue(proxied)
    config = place.config(tmp_path)
    write(environment, config, 1)
    proxy.arm(refusal(code), method, r"(/|%2F)data(/|%2F)", times=None)
    with pytest.raises(StorageAccessError, match=rf"(writing|closing) {place.storage.root}/.*/data/") as caught:
        write(environment, config, 1, 2)
    assert re.search(permission, str(caught.value.hint))
    proxy.disarm()
    assert place.ids(tmp_path) == [1]


def test_keys_that_may_only_read_are_told_which_permission_they_lack(
    environment: Environment, s3_server: S3, tmp_path: Path
) -> None:
    place = Place(s3_server.storage(READER))
    with pytest.raises(StorageAccessError, match="s3://plain was refused") as caught:
        write(environment, place.config(tmp_path), 1)
    assert "s3:PutObject on bucket 'plain' is missing" in str(caught.value.hint)


def wrong_keys(name: str, request: pytest.FixtureRequest) -> tuple[Place, str]:
    """A storage with keys that its server refuses, and the secret that must not be shown."""
    if name == "s3":
        return Place(request.getfixturevalue("s3_server").storage(Keys("svcid", "wrong-secret"))), "wrong-secret"
    if name == "azure":
        azurite: Azurite = request.getfixturevalue("azurite")
        return Place(azurite.storage("d3Jvbmcta2V5LXdyb25nLWtleQ=="), azurite.properties()), "d3Jvbmct"
    server, _ = request.getfixturevalue("google")
    refusing = request.getfixturevalue("refusing_tokens")
    return Place(server.storage(service_account_key(refusing.uri)), {"gcs.service.host": server.endpoint}), "PRIVATE"


@pytest.mark.parametrize(
    ("name", "setting"), [("s3", "secret_access_key"), ("azure", "access_key"), ("gcs", "service_account_key")]
)
def test_wrong_keys_name_the_setting_and_stay_secret(
    name: str, setting: str, environment: Environment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, secret = wrong_keys(name, request)
    with pytest.raises(StorageAccessError, match=re.escape(place.storage.root)) as caught:
        write(environment, place.config(tmp_path), 1)
    assert setting in str(caught.value.hint)
    assert secret not in "".join(traceback.format_exception(caught.value))


def nowhere(name: str, request: pytest.FixtureRequest) -> Place:
    """A bucket that was never made."""
    if name == "s3":
        return Place(request.getfixturevalue("s3_server").storage(bucket="nowhere"))
    if name == "azure":
        azurite: Azurite = request.getfixturevalue("azurite")
        return Place(azurite.storage(container="nowhere"), azurite.properties())
    server, tokens = request.getfixturevalue("google")
    key = service_account_key(tokens.uri)
    return Place(server.storage(key, bucket="nowhere"), {"gcs.service.host": server.endpoint})


@pytest.mark.parametrize("name", ["s3", "azure", "gcs"])
def test_a_missing_bucket_is_named(
    name: str, environment: Environment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = nowhere(name, request)
    with pytest.raises(StorageError, match="nowhere") as caught:
        write(environment, place.config(tmp_path), 1)
    assert "'nowhere'" in str(caught.value.hint)


@pytest.mark.parametrize("proxied", ["s3_proxied", "azure_http", "gcs_proxied"])
def test_requests_that_a_storage_loses_are_asked_again(
    proxied: str, environment: Environment, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place, proxy = request.getfixturevalue(proxied)
    for method in ("PUT", "POST"):
        proxy.arm(named("lost", lose_request), method, r"(/|%2F)data(/|%2F)")
    write(environment, place.config(tmp_path), 1)
    assert place.ids(tmp_path) == [1]
    assert any(exchange.fault == "lost" for exchange in proxy.exchanges)


def test_a_storage_that_is_gone_for_a_while_costs_no_row(
    environment: Environment,
    s3_proxied: tuple[Place, FaultProxy],
    everywhere: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    everywhere("AWS_MAX_ATTEMPTS", "1")
    place, proxy = s3_proxied
    config = place.config(tmp_path)
    write(environment, config, 1)
    proxy.refuse()
    with pytest.raises(StorageError, match=re.escape(proxy.uri)):
        write(environment, config, 1, 2)
    proxy.listen()
    write(environment, config, 1, 2, 3)
    assert place.ids(tmp_path) == [1, 2, 3]


def test_an_object_that_exists_is_not_replaced(seaweed: Seaweed) -> None:
    """The answer of SeaweedFS lacks the condition by which s3fs knows that of AWS."""
    files = S3FileSystem(key=seaweed.key, secret=seaweed.secret, endpoint_url=seaweed.s3_endpoint)
    files.mkdir("created")
    for data in (b"first", b"second"):
        create_durably(files, "created/pin", data)
    assert files.cat_file("created/pin") == b"first"
    with pytest.raises(OSError, match="Invalid") as raised, creation(files, "created/other"):
        raise OSError(errno.EINVAL, "Invalid")
    assert not isinstance(raised.value, FileExistsError)


@pytest.fixture
def own_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server that its test may stop."""
    with own_server(S3(tmp_path_factory.mktemp("own"))) as server:
        yield server


@pytest.mark.parametrize("back", ["within the request", "after the job"])
def test_a_storage_server_that_is_stopped_in_the_middle_of_a_job(
    own_s3: S3, back: str, environment: Environment, everywhere: Callable[[str, str], None], tmp_path: Path
) -> None:
    everywhere("AWS_MAX_ATTEMPTS", "1")
    place = Place(own_s3.storage())
    source = MemorySource([{"id": number} for number in range(6)], rows_per_epoch=2)
    stream = environment.from_source(source).to_sink(IcebergSink(place.config(tmp_path)))

    stopped = []

    def stop(server: Server) -> Answer:
        SeaweedProcess.stop(own_s3)
        stopped.append(back)
        if back == "within the request":
            own_s3.start()
        return server()

    own_s3.proxy.arm(named("stop", stop), "PUT", r"/data/", skip=1)
    if back == "after the job":
        with pytest.raises(StorageError, match=f"{place.storage.root}/.*/data/"):
            stream.execute("job")
        own_s3.start()
        assert place.ids(tmp_path) == [0, 1]
    stream.execute("job")
    assert stopped
    assert place.ids(tmp_path) == list(range(6))
    assert len(place.table(tmp_path).snapshots()) == 3
