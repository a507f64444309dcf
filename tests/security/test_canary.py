"""A canary stands for every secret; it is looked for in all that a user, a log, a checkpoint or a table can show."""

from __future__ import annotations

import base64
import io
import json
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.processes import ROOT, plain_environment
from tests.servers.seaweed import Seaweed
from volley import (
    ConfigError,
    Environment,
    Epoch,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    VolleyError,
)
from volley.iceberg import RestCatalog
from volley.iceberg.write.writer import IcebergWriter
from volley.spark.output import log_file

CANARY = "cAnArY7/q+z"
PLAIN = "cAnArY7qz"
CLOSED = "127.0.0.1:1"
LOCAL = IcebergStorage.Local("/tmp/lake")


def forms(secret: str) -> set[bytes]:
    """A secret as it is, as it stands in URLs and in JSON, and in base64 wherever it may begin."""
    shown = {secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1]}
    encoded = {base64.b64encode(b"x" * shift + secret.encode())[4:-4].decode() for shift in range(3)}
    return {form.encode() for form in shown | encoded}


def assert_hidden(shown: str | bytes, secret: str) -> None:
    data = shown.encode() if isinstance(shown, str) else shown
    for form in forms(secret):
        at = data.find(form)
        assert at < 0, data[max(0, at - 200) : at + 100]


def assert_hidden_in_files(folder: Path, *secrets: str) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        for secret in secrets:
            assert_hidden(path.read_bytes(), secret)


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What ours and all other loggers say."""
    text = io.StringIO()
    handler, ours = logging.StreamHandler(text), logging.getLogger("volley")
    logging.getLogger().addHandler(handler)
    ours.setLevel(logging.DEBUG)
    yield text
    ours.setLevel(logging.NOTSET)
    logging.getLogger().removeHandler(handler)


def config(**settings: object) -> IcebergSinkConfig:
    return IcebergSinkConfig(**{"namespace": ["db"], "table": "t", "storage": LOCAL, **settings})  # type: ignore[arg-type]


KEY = json.dumps({"type": "service_account", "private_key": PLAIN})
URI = f"http://{CLOSED}"
CONFIGS: dict[str, Callable[[], IcebergSinkConfig]] = {
    "credential": lambda: config(catalog_uri=URI, credential=f"id:{PLAIN}"),
    "token": lambda: config(catalog_uri=URI, token=PLAIN),
    "catalog's token": lambda: config(catalog=RestCatalog(URI, token=PLAIN)),
    "password": lambda: config(catalog_uri=f"postgresql+psycopg2://me:{PLAIN}@{CLOSED}/db"),
    "password with %40": lambda: config(catalog_uri=f"postgresql+psycopg2://me:a%40{PLAIN}@{CLOSED}/db"),
    "password with :": lambda: config(catalog_uri=f"postgresql+psycopg2://me:a:{PLAIN}@{CLOSED}/db"),
    "password with /": lambda: config(catalog_uri=f"postgresql+psycopg2://me:a/{PLAIN}@{CLOSED}/db"),
    "password with %": lambda: config(catalog_uri=f"postgresql+psycopg2://me:a%{PLAIN}@{CLOSED}/db"),
    "password as a parameter": lambda: config(catalog_uri=f"postgresql+psycopg2://{CLOSED}/db?password={PLAIN}"),
    "password of a web address": lambda: config(catalog_uri=f"http://me:{PLAIN}@{CLOSED}"),
    "token of a web address": lambda: config(catalog_uri=f"http://{PLAIN}@{CLOSED}"),
    "signature": lambda: config(catalog_uri=f"http://{CLOSED}/?a=1&X-Amz-Signature={PLAIN}"),
    "sig": lambda: config(catalog_uri=f"http://{CLOSED}/?sig={PLAIN}"),
    "property": lambda: config(catalog_uri=URI, properties={"s3.secret-access-key": PLAIN}),
    "header": lambda: config(catalog_uri=URI, properties={"header.X-Thing": PLAIN}),
    "header with a line end": lambda: config(catalog_uri=URI, properties={"header.X-Thing": f"{PLAIN}\n"}),
    "bearer in any property": lambda: config(catalog_uri=URI, properties={"x": f"Bearer {PLAIN}"}),
    "address in any property": lambda: config(catalog_uri=URI, properties={"proxy": f"http://me:a@{PLAIN}@host"}),
    "nested property": lambda: config(
        catalog_uri=URI, properties={"auth": {"type": "basic", "basic": {"username": PLAIN, "password": PLAIN}}}
    ),
    "list in any property": lambda: config(catalog_uri=URI, properties={"x": [f"Bearer {PLAIN}"]}),
    "S3": lambda: config(
        catalog_uri=URI,
        storage=IcebergStorage.S3("eu", "b", access_key_id=f"i{PLAIN}", secret_access_key=PLAIN, session_token=PLAIN),
    ),
    "Azure": lambda: config(catalog_uri=URI, storage=IcebergStorage.Azure("account", "box", PLAIN)),
    "GCS": lambda: config(catalog_uri=URI, storage=IcebergStorage.Gcs("project", "bucket", KEY)),
}


@pytest.mark.parametrize("place", CONFIGS)
def test_no_repr_plan_or_failed_login_shows_a_secret(place: str, logged: io.StringIO) -> None:
    made = CONFIGS[place]()
    stream = Environment().from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(made))
    shown = [repr(made), str(made), made.ref.address, *map(repr, (made.ref, made.storage, IcebergSink(made)))]
    with pytest.raises(VolleyError) as caught:
        made.ref.load_catalog()
    shown += [repr(stream), stream._repr_html_(), "".join(traceback.format_exception(caught.value)), logged.getvalue()]
    for each in shown:
        assert_hidden(each, PLAIN)


REFUSED: dict[str, Callable[[], object]] = {
    "second @": lambda: config(catalog_uri=f"postgresql://me:a@{PLAIN}@host/db"),
    "second @ of an unknown kind": lambda: config(catalog_uri=f"mysql://me:a@{PLAIN}@host/db"),
    "space": lambda: config(catalog_uri=f"postgresql://me:a {PLAIN}@host/db"),
    "token with a line end": lambda: config(catalog_uri=URI, token=f"{PLAIN}\n"),
    "credential with a line end": lambda: config(catalog_uri=URI, credential=f"id:{PLAIN}\n"),
    "credential without an id": lambda: config(catalog_uri=URI, credential=PLAIN),
    "S3 key with a line end": lambda: IcebergStorage.S3(
        "eu", "b", access_key_id="id", secret_access_key=f"{PLAIN}\n", session_token=None
    ),
    "GCS key that is no JSON": lambda: IcebergStorage.Gcs("project", "bucket", "{" + PLAIN),
    "warehouse elsewhere": lambda: LOCAL.location(f"s3://me:{PLAIN}@bucket/x"),
    "presigned source": lambda: FileSource(f"https://host/a.json?sig={PLAIN}"),
    "source with a password": lambda: FileSource(f"https://me:{PLAIN}@host/a.json"),
    "source of no format": lambda: FileSource(f"s3://me:{PLAIN}@host/a"),
}


@pytest.mark.parametrize("place", REFUSED)
def test_no_refused_setting_is_shown(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        REFUSED[place]()
    assert caught.value.hint
    assert_hidden("".join(traceback.format_exception(caught.value)), PLAIN)


def test_options_of_file_sources_and_sinks_are_hidden() -> None:
    options = {
        "key": PLAIN,
        "secret": PLAIN,
        "client_kwargs": {"headers": {"X": PLAIN}},
        "proxies": [f"http://u:{PLAIN}@h"],
    }
    source = FileSource("s3://bucket/*.json", schema="id long", storage_options=options)
    sink = FileSink("s3://bucket/out", storage_options=options)
    stream = Environment().from_source(source).to_sink(sink)
    for each in (repr(source), repr(sink), repr(stream), stream._repr_html_(), source.identity):
        assert_hidden(each, PLAIN)


def test_a_job_with_real_credentials_leaves_none_behind(
    spark: SparkSession, seaweed: Seaweed, tmp_path: Path, logged: io.StringIO
) -> None:
    from pyarrow.fs import FileSelector, S3FileSystem

    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    secret = seaweed.secret
    settings = seaweed.config("canary")
    stream = environment.from_source(MemorySource([{"id": 1}, {"id": 2}])).to_sink(IcebergSink(settings))
    job = stream.execute("canary")
    table = settings.ref.load_catalog().load_table("db.canary")
    results = [pickle.dumps(each) for each in (job.progress, job.metrics.snapshot())]
    shown: list[str] = [
        repr(job),
        repr(job.metrics),
        job.metrics.snapshot().to_prometheus_format(),
        stream._repr_html_(),
        logged.getvalue(),
    ]
    shown += [table.metadata.model_dump_json(), str(spark.sparkContext.getConf().getAll())]
    for text in shown:
        assert_hidden(text, secret)
    for pickled in results:
        assert_hidden(pickled, secret)
    assert_hidden_in_files(tmp_path / "checkpoints", secret)
    assert_hidden(log_file().read_bytes(), secret)
    s3 = S3FileSystem(
        access_key=seaweed.key, secret_key=secret, endpoint_override=seaweed.s3_endpoint, region="us-east-1"
    )
    below = FileSelector(table.location().removeprefix("s3://"), recursive=True)
    files = [file.path for file in s3.get_file_info(below) if file.is_file]
    assert files
    for path in files:
        assert_hidden(s3.open_input_stream(path).read(), secret)


def test_what_a_writer_returns_to_the_driver_has_no_credentials(tmp_path: Path) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    settings = config(storage=storage, properties={"s3.secret-access-key": CANARY})
    catalog = settings.ref.load_catalog()
    catalog.create_namespace("db")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    writer = IcebergWriter.for_table(catalog.create_table("db.t", rows.schema), settings, Epoch("2b6f8a5e", 0))
    assert CANARY in pickle.dumps(writer).decode(errors="replace"), "the writer itself has to carry them"
    files = writer.open(0)
    files.write(rows.to_batches()[0])
    assert_hidden(pickle.dumps(files.close()), CANARY)
    assert_hidden(repr(writer), CANARY)


@pytest.mark.parametrize("refusing", ["catalog", "storage"])
def test_a_refused_secret_is_in_no_error_and_no_log(
    refusing: str, spark: SparkSession, seaweed: Seaweed, tmp_path: Path, logged: io.StringIO
) -> None:
    environment = Environment(spark=spark, checkpoint_dir=str(tmp_path / "checkpoints"))
    good = seaweed.config(f"refused_{refusing}")
    environment.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(good)).execute("good")
    if refusing == "catalog":
        bad = good.with_credential(f"{seaweed.key}:{CANARY}")
    else:
        bad = good.with_properties({"s3.secret-access-key": CANARY})
    with pytest.raises(VolleyError) as caught:
        environment.from_source(MemorySource([{"id": 2}])).to_sink(IcebergSink(bad)).execute("bad")
    for each in ("".join(traceback.format_exception(caught.value)), logged.getvalue(), log_file().read_bytes()):
        assert_hidden(each, CANARY)
    assert_hidden_in_files(tmp_path / "checkpoints", CANARY)


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from volley import *
folder, secret, events = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", events)
builder = builder.config("spark.eventLog.compress", "false").config("spark.driver.host", "127.0.0.1")
storage = IcebergStorage.Local(folder + "/lake")
config = IcebergSinkConfig(namespace=["db"], table="t", storage=storage, properties={"s3.secret-access-key": secret})
environment = Environment(spark=builder.getOrCreate(), checkpoint_dir=folder + "/checkpoints")
options = {"auto_mkdir": True}
stream = environment.from_source(FileSource(folder + "/in", format="json", schema="id long", storage_options=options))
stream.to_sink(IcebergSink(config)).execute("good")
stream.to_sink(IcebergSink(config)).explain()
def explode(row):
    raise ValueError("on purpose")
stream.map(explode).to_sink(IcebergSink(config)).execute("bad")
"""


def test_a_process_that_fails_prints_no_secret_nor_puts_one_into_sparks_event_log(tmp_path: Path) -> None:
    for name in ("in", "events"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), CANARY, str(tmp_path / "events")]
    environment = plain_environment(PYSPARK_PYTHON=sys.executable)
    done = subprocess.run(command, capture_output=True, timeout=180, env=environment, cwd=ROOT, check=False)
    assert b"on purpose" in done.stderr, done.stderr[-2000:]
    assert_hidden(done.stdout + done.stderr, CANARY)
    assert (tmp_path / "lake").is_dir()
    # The event log, the checkpoints, the catalog's database, metadata, manifests and data.
    assert_hidden_in_files(tmp_path, CANARY)
