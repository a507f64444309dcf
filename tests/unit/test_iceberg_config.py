"""The Iceberg sink's settings: kept, checked when built, refused when not built yet, shown without secrets."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import snapshots

from volley import ConfigError, FileSink, IcebergSink, IcebergSinkConfig, IcebergSourceConfig, IcebergStorage
from volley.iceberg.catalogs.values import (
    GlueCatalog,
    HiveCatalog,
    MemoryCatalog,
    NessieCatalog,
    RestCatalog,
    SqlCatalog,
)
from volley.iceberg.layout.partitioning import Partitioning, Transform, partitioning
from volley.iceberg.modes import Append, Maintenance, Overwrite, Upsert, commit_mode
from volley.iceberg.settings import COMPRESSIONS, TUNINGS, Tuning

LAKE = IcebergStorage.Local("/tmp/lake")
CONFIG = IcebergSinkConfig(
    catalog_uri="http://polaris:8181", warehouse="my-warehouse", namespace=["db"], table="events", storage=LAKE
)
EMBEDDED = IcebergSinkConfig(namespace=["db"], table="events", storage=LAKE)

SETTERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("with_credential", ("id:secret",), {"credential": "id:secret"}),
    ("with_token", ("bearer",), {"token": "bearer"}),
    ("with_properties", ({"scope": "all"},), {"properties": {"scope": "all"}}),
    ("with_max_records", (100_000,), {"max_records": 100_000}),
    ("with_batch_size", (500,), {"batch_size": 500}),
    ("with_flush_interval", (timedelta(seconds=30),), {"flush_interval": timedelta(seconds=30)}),
    ("with_flush_interval", (1.5,), {"flush_interval": timedelta(seconds=1.5)}),
    ("with_flush_interval", ("30s",), {"flush_interval": timedelta(seconds=30)}),
    ("with_target_file_size_mb", (0.5,), {"target_file_size_mb": 0.5}),
    ("with_compression", ("zstd", 3), {"compression": "zstd", "compression_level": 3}),
    ("with_compression", ("none",), {"compression": "none"}),
    ("with_partitioning", ("none",), {"partitioning": Partitioning.none()}),
    ("with_commit_mode", ("append",), {}),
    ("with_commit_mode", ("overwrite",), {"commit_mode": Overwrite()}),
    ("with_commit_mode", (Upsert("id"),), {"commit_mode": Upsert(["id"])}),
    ("with_schema_evolution", ("strict",), {"schema_evolution": "strict"}),
    ("with_schema_evolution", ("full", {"a": "b"}), {"schema_evolution": "full", "renames": {"a": "b"}}),
    ("with_schema_evolution", ("full", {}, "a.b"), {"schema_evolution": "full", "drops": ("a.b",)}),
    ("with_create_table", (False,), {"create_table": False}),
    ("with_partitioning", (Partitioning.bucket("id"),), {"partitioning": Partitioning.bucket("id")}),
    ("with_branch", ("main",), {}),
    ("with_maintenance", (Maintenance(),), {"maintenance": Maintenance()}),
    ("with_branch", ("audit",), {"branch": "audit"}),
    ("with_snapshot_properties", ({"team": "data"},), {"snapshot_properties": {"team": "data"}}),
    ("with_table_properties", ({"owner": "data"},), {"table_properties": {"owner": "data"}}),
    ("with_dead_letter", ("s3://lake/dead",), {"dead_letter": "s3://lake/dead"}),
    ("with_tuning", ("low_latency",), TUNINGS["low_latency"]),
]


@pytest.mark.parametrize(("setter", "given_", "changed"), SETTERS, ids=[f"{s[0]}{s[1]}" for s in SETTERS])
def test_setters_change_a_copy(setter: str, given_: tuple[Any, ...], changed: dict[str, Any]) -> None:
    found = getattr(CONFIG, setter)(*given_)
    for field in fields(IcebergSinkConfig):
        assert getattr(found, field.name) == changed.get(field.name, getattr(CONFIG, field.name))
    assert (found == CONFIG) == (not changed)


def test_every_setting_has_a_setter() -> None:
    required = {"catalog_uri", "warehouse", "namespace", "table", "storage", "catalog"}
    settings = (
        {field.name for field in fields(IcebergSinkConfig)} - required - {"compression_level", "renames", "drops"}
    )
    assert {f"with_{name}" for name in settings | {"tuning"}} == {setter for setter, _, _ in SETTERS}


def test_defaults_of_the_spec() -> None:
    unset = ("max_records", "flush_interval", "credential", "token", "compression_level", "dead_letter")
    assert {getattr(CONFIG, name) for name in unset} == {None}
    assert (CONFIG.batch_size, CONFIG.target_file_size_mb, CONFIG.compression) == (10_000, 128, "snappy")
    assert (CONFIG.partitioning, CONFIG.commit_mode) == (Partitioning.table_default(), Append())
    assert (CONFIG.schema_evolution, CONFIG.create_table, CONFIG.branch) == ("add_columns", True, "main")
    assert CONFIG.snapshot_properties == CONFIG.properties == {}


def test_configs_are_values() -> None:
    config = CONFIG.with_properties({"a": "b"}).with_snapshot_properties({"team": "data"})
    same = CONFIG.with_snapshot_properties({"team": "data"}).with_properties({"a": "b"})
    assert config == same == pickle.loads(pickle.dumps(config))
    assert hash(config) == hash(same)
    assert config != CONFIG.with_properties({"a": "c"}).with_snapshot_properties({"team": "data"})


def test_a_mapping_that_changes_later_does_not_change_the_config() -> None:
    mine = {"team": "data"}
    config = CONFIG.with_snapshot_properties(mine).with_snapshot_properties({"more": "x"})
    mine["team"] = "other"
    assert config.snapshot_properties == {"team": "data", "more": "x"}


@pytest.mark.parametrize("namespace", [["db", "raw"], ("db", "raw"), "db.raw"])
def test_namespaces(namespace: Any) -> None:
    config = IcebergSinkConfig(namespace=namespace, table="events", storage=LAKE)
    assert config.namespace == ("db", "raw")
    assert config.identifier == ("db", "raw", "events")
    assert config.table_name == "db.raw.events"


@given(st.lists(st.from_regex(r"[a-zA-Z0-9_ä-]{1,8}", fullmatch=True), min_size=1, max_size=4))
def test_a_list_and_a_dotted_string_mean_the_same_namespace(parts: list[str]) -> None:
    listed = IcebergSinkConfig(namespace=parts, table="t", storage=LAKE)
    assert listed == IcebergSinkConfig(namespace=".".join(parts), table="t", storage=LAKE)


@pytest.mark.parametrize(
    "name", ["", " ", "..", ".", "a/b", "a\\b", "../x", "a\x00", "a.b", "a#b", "50%", " a", "a\ud800", None, 7]
)
def test_names_that_would_leave_the_warehouse_are_refused(name: Any) -> None:
    for namespace, table in ((["db", name], "t"), (["db"], name)):
        with pytest.raises(ConfigError, match=r"is not a name|table is missing") as caught:
            IcebergSinkConfig(namespace=namespace, table=table, storage=LAKE)
        assert caught.value.hint


@pytest.mark.parametrize("long", ["x" * 256, "é" * 128])
def test_names_that_are_longer_than_those_of_folders_are_refused(long: str) -> None:
    for namespace, table, what in (
        (["db"], long, "table"),
        ([long], "t", "namespace"),
        (["n" * 128] * 2, "t", "namespace"),
    ):
        with pytest.raises(ConfigError, match=rf"{what} '.{{40}}…' is too long: 25[67] bytes") as caught:
            IcebergSinkConfig(namespace=namespace, table=table, storage=LAKE)
        assert "at most 255 bytes" in str(caught.value.hint)
    longest = IcebergSinkConfig(namespace=["n" * 127] * 2, table=long[1:], storage=LAKE)
    assert longest.identifier == ("n" * 127, "n" * 127, long[1:])


@pytest.mark.parametrize("namespace", ["", [], None, "a..b", ".a", "a."])
def test_a_namespace_with_nothing_in_it_is_refused(namespace: Any) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        IcebergSinkConfig(namespace=namespace, table="t", storage=LAKE)


WRONG: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: CONFIG.with_max_records(0), "max_records 0", "above 0"),
    (lambda: CONFIG.with_max_records(2.5), "max_records 2.5", "above 0"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_batch_size(-1), "batch_size -1", "above 0"),
    (lambda: CONFIG.with_batch_size(True), "batch_size True", "above 0"),
    (lambda: CONFIG.with_batch_size("10"), "batch_size '10'", "above 0"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_target_file_size_mb(0), "target_file_size_mb 0", "above 0"),
    (lambda: CONFIG.with_target_file_size_mb(float("nan")), "target_file_size_mb nan", "above 0"),
    (lambda: CONFIG.with_flush_interval(0), "flush_interval 0", "seconds"),
    (lambda: CONFIG.with_flush_interval(timedelta(seconds=-1)), "flush_interval", "seconds"),
    (lambda: CONFIG.with_flush_interval(float("inf")), "flush_interval inf", "seconds"),
    (lambda: CONFIG.with_flush_interval("30 parsecs"), "flush_interval '30 parsecs'", "seconds"),
    (lambda: CONFIG.with_compression("zstdd"), "compression 'zstdd'", "did you mean 'zstd'"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_compression("snappy", 3), "level 3", "no level"),
    (lambda: CONFIG.with_compression("zstd", 23), "level 23", "1 to 22"),
    (lambda: CONFIG.with_tuning("high"), "tuning 'high'", "high_throughput"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_schema_evolution("add_column"), "'add_column'", "did you mean 'add_columns'"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_schema_evolution("strict", drops=["a"]), "not for schema_evolution 'strict'", '"full"'),
    (lambda: CONFIG.with_schema_evolution("full", drops=["a", ""]), "''", "list of names"),
    (lambda: CONFIG.with_schema_evolution("full", {"a.b": "a.c"}), "'a.b' can't be renamed to 'a.c'", "its own name"),
    (lambda: CONFIG.with_schema_evolution("full", {"a": "b", "b": "a"}), "column 'a' twice", "after the other"),
    (lambda: CONFIG.with_schema_evolution("full", {"a.b": "c"}, ["a.c"]), "column 'a.c' twice", "after the other"),
    (lambda: CONFIG.with_create_table("no"), "create_table 'no'", "True or False"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_partitioning("nome"), "partitioning 'nome'", "did you mean 'none'"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_partitioning("bucket"), "needs fields", 'Partitioning.bucket("column")'),  # type: ignore[arg-type]
    (lambda: CONFIG.with_branch(""), "branch ''", "one word"),
    (lambda: CONFIG.with_commit_mode("apend"), "commit_mode 'apend'", "did you mean 'append'"),  # type: ignore[arg-type]
    (lambda: CONFIG.with_commit_mode("upsert"), "needs key fields", 'Upsert(["id"])'),  # type: ignore[arg-type]
    (lambda: CONFIG.with_snapshot_properties({"a": 1}), "'a': 1", "strings"),  # type: ignore[dict-item]
    (lambda: CONFIG.with_table_properties({"a": 1}), "table property 'a': 1", "strings"),  # type: ignore[dict-item]
    (lambda: CONFIG.with_table_properties({"format-version": "4"}), "format-version is '4'", '"3"'),
    (lambda: CONFIG.with_credential("secret"), "id:secret", "with_token"),
    (lambda: CONFIG.with_credential("id:s").with_token("t"), "both given", "one"),
    (lambda: EMBEDDED.with_credential("id:secret"), "REST", "leave"),
    (lambda: IcebergSinkConfig(namespace="db", table="t", storage=None), "storage is missing", "IcebergStorage.S3"),  # type: ignore[arg-type]
    (lambda: IcebergSinkConfig(namespace="db", table=None, storage=LAKE), "table is missing", "events"),  # type: ignore[arg-type]
    (lambda: IcebergSinkConfig(namespace=None, table="t", storage=LAKE), "namespace", "db"),
    (
        lambda: IcebergSinkConfig(catalog_uri="ftp://p", warehouse="w", namespace=["db"], table="t", storage=LAKE),
        "ftp://p",
        "sqlite:///",
    ),
    (
        lambda: IcebergSinkConfig(
            catalog_uri="http://p", warehouse="w", namespace=["db"], table="t", storage=LAKE, catalog=MemoryCatalog()
        ),
        "both given",
        "give one",
    ),
    (
        lambda: IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.S3("r", "lake")),
        "catalog_uri is missing",
        "REST",
    ),
]


@pytest.mark.parametrize(("build", "message", "hint"), WRONG, ids=[f"{message}-{hint}" for _, message, hint in WRONG])
def test_wrong_settings_are_refused_with_a_way_out(build: Callable[[], Any], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("target", ["", " ", "a..b", "a.b?", 5, ".".join(CONFIG.identifier), CONFIG.table])
def test_a_dead_letter_target_that_is_none_is_refused(target: Any) -> None:
    with pytest.raises(ConfigError, match="dead_letter") as caught:
        CONFIG.with_dead_letter(target)
    assert caught.value.hint


def test_a_dead_letter_table_has_the_sinks_catalog_storage_and_credentials() -> None:
    config = CONFIG.with_credential("id:secret").with_properties({"a": "b"}).with_batch_size(7)
    letters = config.with_dead_letter("dead").dead_letter_table
    assert letters is not None
    assert letters.identifier == (*CONFIG.ref.identifier[:-1], "dead")
    assert (letters.ref.catalog, letters.storage, letters.properties) == (
        config.ref.catalog,
        config.storage,
        {"a": "b"},
    )
    elsewhere = config.with_dead_letter("x.y.dead").dead_letter_table
    assert elsewhere is not None
    assert elsewhere.identifier == ("x", "y", "dead")


def test_a_dead_letter_with_a_slash_is_a_folder_for_json_files() -> None:
    assert IcebergSink(CONFIG.with_dead_letter("/data/dead")).dead_letter == FileSink("/data/dead", format="json")
    assert IcebergSink(CONFIG).dead_letter is None


def test_a_dead_letter_folder_in_the_storage_is_reached_with_its_keys_which_are_not_shown() -> None:
    storage = IcebergStorage.S3("r", "lake", "http://s3:9000", access_key_id="me", secret_access_key="hidden")
    config = IcebergSinkConfig(catalog_uri="http://p", warehouse="w", namespace=["db"], table="t", storage=storage)
    sink = IcebergSink(config.with_dead_letter("s3://lake/dead")).dead_letter
    assert isinstance(sink, FileSink)
    assert sink.storage_options["secret"] == "hidden"
    assert sink.storage_options["endpoint_url"] == "http://s3:9000"
    assert "hidden" not in repr(sink)
    told = IcebergSink(config.with_properties({"s3.endpoint": "http://other"}).with_dead_letter("s3://lake/dead"))
    assert isinstance(told.dead_letter, FileSink)
    assert told.dead_letter.storage_options["endpoint_url"] == "http://other"
    other = IcebergSink(config.with_dead_letter("s3://other/dead")).dead_letter
    assert other == FileSink("s3://other/dead", format="json")


SUMMARY_KEYS = sorted(
    value
    for name, value in vars(snapshots).items()
    if re.match("ADDED|DELETED|REMOVED|TOTAL|CHANGED_PARTITION_COUNT|PARTITION_SUMMARY|OPERATION", name)
)


@pytest.mark.parametrize("key", [*SUMMARY_KEYS, "partitions.day=1", "volley.epoch", "manifests-created"])
def test_snapshot_properties_of_iceberg_and_volley_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key) as caught:
        CONFIG.with_snapshot_properties({key: "1"})
    assert f"my.{key}" in str(caught.value.hint)


@pytest.mark.parametrize("key", ["team", "my.added-records", "totals", "partition", "operations", "volleyball"])
def test_other_snapshot_properties_are_kept(key: str) -> None:
    assert CONFIG.with_snapshot_properties({key: "1"}).snapshot_properties == {key: "1"}


def test_pyarrow_takes_every_compression_and_level_we_take() -> None:
    rows = pa.table({"id": range(10)})
    for codec, levels in COMPRESSIONS.items():
        for level in (None, *((levels.start, levels.stop - 1) if levels else ())):
            pq.write_table(rows, BytesIO(), compression=codec, compression_level=level)


@pytest.mark.parametrize(("preset", "batch", "seconds", "size"), [
    ("low_latency", 1_000, 10, 32), ("balanced", 10_000, 60, 128), ("high_throughput", 100_000, 300, 512),
])  # fmt: skip
def test_tunings_of_the_spec(preset: Tuning, batch: int, seconds: int, size: int) -> None:
    config = CONFIG.with_tuning(preset)
    assert (config.batch_size, config.target_file_size_mb) == (batch, size)
    assert config.flush_interval == timedelta(seconds=seconds)
    assert config.with_batch_size(7).batch_size == 7


SECRETS = IcebergSinkConfig(
    catalog_uri="https://me:hush@catalog/path?token=hush",
    warehouse="wh",
    namespace=["db"],
    table="t",
    storage=IcebergStorage.S3("r", "lake", access_key_id="hush-id", secret_access_key="hush", session_token="hush"),
    credential="id:hush",
    properties={
        "s3.secret-access-key": "hush",
        "oauth2.client-secret": "hush",
        "db.password": "hush",
        "header.X-Api-Key": "hush",
        "header.Authorization": "Bearer hush",
        "adls.connection-string": "AccountKey=hush",
        "ssl": {"client": {"key": "hush", "cert": "/shown.pem"}},
        "proxy": "http://u:hush@proxy",
        "scope": "shown",
    },
)


def test_no_secret_is_shown_but_all_count_for_equality() -> None:
    for text in (repr(SECRETS), str(SECRETS), repr(SECRETS.ref.catalog), SECRETS.ref.address):
        assert "hush" not in text
    assert "shown" in repr(SECRETS)
    assert "/shown.pem" in repr(SECRETS)
    assert SECRETS.with_credential("id:other") != SECRETS
    assert repr(SECRETS.with_credential("id:other")) == repr(SECRETS)


@pytest.mark.parametrize(
    "catalog",
    [
        RestCatalog("http://u:hush@h", credential="id:hush", properties={"token": "hush"}),
        RestCatalog("http://h", token="hush"),
        NessieCatalog("http://u:hush@h/iceberg", credential="id:hush"),
        SqlCatalog("postgresql+psycopg2://u:hush@h/db?password=hush"),
        HiveCatalog("thrift://u:hush@h:9083"),
    ],
)
def test_catalogs_show_no_secret(catalog: Any) -> None:
    assert "hush" not in repr(catalog) + catalog.address
    assert "***" in repr(catalog)


def test_the_repr_shows_only_what_differs_from_the_defaults() -> None:
    assert repr(EMBEDDED.with_commit_mode("append").with_partitioning("table_default")) == (
        "IcebergSinkConfig(namespace=('db',), table='events', storage=LocalStorage(path='/tmp/lake'))"
    )


def test_the_source_is_the_catalog_with_the_credentials_given_here() -> None:
    assert CONFIG.with_credential("id:s").ref.catalog == RestCatalog("http://polaris:8181", credential="id:s")
    given_twice = IcebergSinkConfig(
        namespace="db", table="t", storage=LAKE, catalog=RestCatalog("http://p", credential="id:old")
    )
    assert given_twice.with_token("new").ref.catalog == RestCatalog("http://p", token="new")
    assert EMBEDDED.ref.catalog == SqlCatalog("sqlite:////tmp/lake/catalog.db")


def test_the_database_of_glue_is_the_namespace() -> None:
    glue = GlueCatalog("us-east-1", database="sales")
    assert IcebergSinkConfig(namespace=None, table="t", storage=LAKE, catalog=glue).namespace == ("sales",)
    assert IcebergSourceConfig("t", storage=LAKE, catalog=glue).ref.identifier == ("sales", "t")
    with pytest.raises(ConfigError, match="sales"):
        IcebergSinkConfig(namespace="other", table="t", storage=LAKE, catalog=glue)


def test_partitionings_are_values() -> None:
    both = partitioning([Partitioning.time("at", granularity="hour"), Partitioning.bucket("id", "key", n=4)])
    assert both.transforms == (Transform("hour", "at"), Transform("bucket", "id", 4), Transform("bucket", "key", 4))
    assert repr(both) == "Partitioning(hour(at), bucket[4](id), bucket[4](key))"
    assert Partitioning.bucket("id") == Partitioning.bucket("id", n=16)
    assert Partitioning.time("at") == Partitioning.time("at", granularity="day")
    assert Partitioning.truncate("name", width=3).transforms == (Transform("truncate", "name", 3),)
    assert Partitioning.none() != Partitioning.table_default()
    assert repr(Partitioning.none()) == "Partitioning.none()"
    assert partitioning("table_default") == partitioning(Partitioning.table_default())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Partitioning.identity(), "needs a field"),
        (lambda: Partitioning.identity(""), "not a column name"),
        (lambda: Partitioning.bucket("id", n=0), "width 0"),
        (lambda: Partitioning.time("at", granularity="week"), "granularity 'week'"),  # type: ignore[arg-type]
        (lambda: Partitioning.identity("a", "a"), "twice"),
        (lambda: Transform("day", "at", 3), "width 3"),
        (lambda: Transform("hash", "at"), "'hash' is unknown"),
        (lambda: partitioning(["day(at)"]), "list of partitionings"),  # type: ignore[list-item]
    ],
)
def test_wrong_partitionings_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert message in caught.value.message
    assert caught.value.hint


def test_commit_modes_are_values() -> None:
    assert commit_mode("append") == Append() == commit_mode(Append())
    assert commit_mode("overwrite") == Overwrite()
    assert Upsert(["id", "at"]) == Upsert(("id", "at"))
    assert Upsert("id").key_fields == ("id",)
    assert hash(Upsert(["id"])) == hash(Upsert(("id",)))
    for keys in ([], ["a", "a"], [""]):
        with pytest.raises(ConfigError, match="key_fields"):
            Upsert(keys)
    for modes in (Overwrite(), Overwrite.dynamic(), Overwrite.partitions({"country": "NO"}, {"day": None})):
        assert eval(repr(modes)) == modes


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"order_by": ""}, "order_by ''"),
        ({"op_field": 1}, "op_field 1"),
        ({"op_field": "id"}, "op_field 'id' is a key"),
        ({"order_by": "op", "op_field": "op"}, "op_field 'op' is a key"),
        ({"strategy": "merge"}, "strategy 'merge' is unknown"),
    ],
)
def test_upserts_that_make_no_sense_are_refused(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Upsert("id", **given_)
    assert caught.value.hint
