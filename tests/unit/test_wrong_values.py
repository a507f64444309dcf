"""Whatever a user gives in place of what is asked for: an error of ours with the way out, before anything runs."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType

import volley
import volley.iceberg
from volley import (
    AzureQueue,
    BearerAuth,
    ConsoleSink,
    Contract,
    DataStream,
    Environment,
    FileSink,
    FileSource,
    FunctionSink,
    HmacAuth,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    KafkaSink,
    KafkaSource,
    MariaDbSource,
    MaterializedView,
    MemorySink,
    MemorySource,
    MySqlSource,
    Pipeline,
    PostgresSource,
    PublicKeyAuth,
    PubSubSubscription,
    RateSource,
    ServerTls,
    SignatureScheme,
    SnsAuth,
    SqsQueue,
    VolleyError,
    WebhookSource,
    approx_distinct,
    avg,
    calendar,
    col,
    count,
    count_distinct,
    cumulative,
    dense_rank,
    ewm_mean,
    first,
    increase,
    lag,
    last,
    lead,
    list_,
    lit,
    max_,
    min_,
    pack_rows,
    previous,
    quantile,
    rank,
    rate,
    rolling,
    row_number,
    rows_between,
    session,
    session_start,
    sliding,
    sql,
    sum_,
    top,
    tumbling,
    variance,
    when,
)
from volley.engine.options import StartOptions
from volley.formats.change_shape import Unwrap
from volley.iceberg import (
    Batch,
    BigLakeCatalog,
    GlueCatalog,
    GravitinoCatalog,
    History,
    HiveCatalog,
    IcebergTable,
    Incremental,
    LakekeeperCatalog,
    Maintenance,
    NessieCatalog,
    OneLakeCatalog,
    Overwrite,
    Partitioning,
    PolarisCatalog,
    RestCatalog,
    S3TablesCatalog,
    SchemaEvolution,
    Snapshot,
    SnapshotManager,
    SnowflakeOpenCatalog,
    SqlCatalog,
    TableRef,
    TimeTravelQuery,
    TypeConverter,
    UnityCatalog,
    Upsert,
    orphan_files,
    publish_branch,
    remove_orphan_files,
)

WRONG: dict[str, Any] = {
    "None": None,
    "5": 5,
    "negative": -1,
    "0.5": 0.5,
    "nan": float("nan"),
    "True": True,
    "x": "x",
    "empty": "",
    "bytes": b"x",
    "list": [],
    "ints": [5],
    "dict": {},
    "pairs": {5: 5},
    "object": object(),
    "type": int,
}

ENVIRONMENT = Environment()
STREAM = ENVIRONMENT.from_source(MemorySource([{"id": 1}]))
WRITTEN = STREAM.to_sink(MemorySink())
CONFIG = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local("/tmp/lake"))
REST = IcebergSinkConfig(
    catalog_uri="http://catalog", namespace="db", table="t", storage=IcebergStorage.Local("/tmp/lake")
)
SOURCE = IcebergSourceConfig(CONFIG)
MANAGER, EVOLUTION = SnapshotManager(CONFIG), SchemaEvolution("id int")
VIEWED = ENVIRONMENT.from_source(IcebergSource(SOURCE)).key_by("id").aggregate(n=count())
VIEW = MaterializedView("x", VIEWED, into=CONFIG)
POSTGRES = {"host": "h", "database": "d", "user": "u", "slot_name": "s", "publication": "p", "tables": "public.t"}
MARIADB = {"host": "h", "user": "u", "server_id": 5, "tables": "d.t"}
KAFKA = {"bootstrap_servers": "host:9092", "topics": "t", "schema": "id long"}
S3, AZURE, GCS, LOCAL = IcebergStorage.S3, IcebergStorage.Azure, IcebergStorage.Gcs, IcebergStorage.Local

DURATION, COUNT, FLAG, TEXT = "5 0.5", "5", "True", "x"
MARIADB_VALUES = {
    **{"host": "x", "port": "5", "user": "x", "password": "None x", "server_id": "5", "tables": "None"},
    **{"exclude": "None", "load": "", "bounded": FLAG, "on_rewrite": "", "unrepresentable": ""},
    **{"changelog": FLAG, "sequence": FLAG, "packed": f"None {FLAG}", "max_staged": "5"},
    **{"max_segments_per_epoch": "None 5", "timeout": DURATION, "options": "dict"},
}
REST_VALUES = {
    **{"uri": "", "warehouse": "None x", "credential": "None", "token": "None x", "properties": "dict"},
    **{"timeout": DURATION, "oauth2_server_uri": "None", "scope": "None x"},
}
RUNS = (WRITTEN.start, WRITTEN.execute, WRITTEN.replay)
STARTS = {
    "name": "x",
    "fresh": FLAG,
    "into": "None",
    "backfill": FLAG,
    "metrics_port": "None 5",
    "metrics_host": "x",
    "metrics_allowed_hosts": "x list",
    "metrics_token": "None x",
    "ui_port": "None 5",
    "healthy_within": f"None {DURATION}",
    "outage": f"None {DURATION}",
    "on_epoch": "None type",
    "on_error": "None type",
    "once": FLAG,
    "restart": "None",
    "progress": FLAG,
}

# What is called, a call of it that is right, and of each parameter which of the wrong values are right after all.
CALLS: list[tuple[Callable[..., Any], dict[str, Any], dict[str, str]]] = [
    (
        Environment,
        {},
        {
            **{"master": "None x", "spark": "None", "checkpoint_dir": "None x"},
            "checkpoint_interval": DURATION,
        },
    ),
    (ENVIRONMENT.from_source, {"source": MemorySource([])}, {"source": ""}),
    (
        ENVIRONMENT.sql,
        {"text": "select id from tables", "tables": STREAM},
        {"text": "", "lateness": DURATION, "ttl": f"None {DURATION}", "tables": ""},
    ),
    (
        ENVIRONMENT.changes_from_snapshots,
        {"source": MemorySource([]), "keys": "id"},
        {
            **{"source": "", "keys": "x", "version": "None 5 negative", "ignore": "x list", "on_empty": ""},
            **{"max_deleted": "None 0.5 5", "buckets": "5"},
        },
    ),
    (STREAM.filter_expr, {"predicate": col("id") > 0}, {"predicate": "x"}),
    (STREAM.filter, {"predicate": col("id") > 0}, {"predicate": "x"}),
    (STREAM.select, {"columns": "id"}, {"columns": "x", "named": "x"}),
    (STREAM.with_processing_time, {"name": "x"}, {"name": "x"}),
    (STREAM.with_columns, {}, {"columns": "None 5 negative 0.5 nan True x empty bytes"}),
    (
        STREAM.with_column,
        {"name": "x", "value": 1},
        {"name": "x", "value": "None 5 negative 0.5 nan True x empty bytes"},
    ),
    (STREAM.drop, {"columns": "id"}, {"columns": "x"}),
    (STREAM.rename, {"names": {"id": "x"}}, {"names": "dict"}),
    (STREAM.map, {"function": dict}, {"function": "type", "schema": "None"}),
    (STREAM.flat_map, {"function": list}, {"function": "type", "schema": "None"}),
    (STREAM.map_batches, {"function": len}, {"function": "type", "schema": "None"}),
    (STREAM.union, {"others": STREAM}, {"others": ""}),
    (
        STREAM.deduplicate,
        {"keys": "id", "event_time": "at", "within": timedelta(seconds=1)},
        {
            **{"keys": "x", "event_time": "x", "within": DURATION, "buckets": COUNT, "late": ""},
            **dict.fromkeys(("max_ahead", "idle_after"), f"None {DURATION}"),
        },
    ),
    (
        STREAM.join,
        {"other": MemorySource([]), "on": "id"},
        {
            **{"other": "list", "on": "x", "how": "", "as_of": "None x", "columns": "None x", "suffix": "x empty"},
            **{"max_bytes": "5", "within": "None", "time": "None", "idle_after": "None"},
            **dict.fromkeys(("lateness", "late", "max_ahead", "buckets"), ""),
            "ttl": "None",
        },
    ),
    (
        STREAM.join,
        {"other": STREAM, "on": "id", "ttl": "1d"},
        {
            **{"other": "", "on": "x", "how": "", "as_of": "None", "columns": "None x", "suffix": "x empty"},
            **{"max_bytes": "", "within": "None", "time": "None", "idle_after": "None", "ttl": DURATION},
            **dict.fromkeys(("lateness", "late", "max_ahead"), ""),
            "buckets": COUNT,
        },
    ),
    (
        STREAM.join,
        {"other": STREAM, "on": "id", "within": 1, "time": "at"},
        {
            **{"other": "", "on": "x", "how": "", "as_of": "None", "columns": "None x", "suffix": "x empty"},
            **{"max_bytes": "", "within": DURATION, "time": "x", "idle_after": f"None {DURATION}"},
            **{"lateness": DURATION, "late": "", "max_ahead": f"None {DURATION}", "buckets": COUNT, "ttl": "None"},
        },
    ),
    (
        STREAM.expect,
        {"name": "x", "predicate": col("id") > 0},
        {"name": "x", "predicate": "x", "on_fail": "", "max_failed": "None 5 0.5"},
    ),
    (STREAM.explode, {"column": "id"}, {"column": "x", "keep_empty": FLAG}),
    (STREAM.sample, {"fraction": 0.5, "by": "id"}, {"fraction": "0.5", "by": "x", "seed": "5 negative"}),
    (STREAM.limit, {"rows": 1}, {"rows": "5"}),
    (STREAM.repartition, {}, {"tasks": "None 5", "by": "x list"}),
    (STREAM.sort_within_epoch, {"columns": "id"}, {"columns": "x"}),
    (STREAM.head, {}, {"rows": "5"}),
    (STREAM.show, {}, {"rows": "5"}),
    (STREAM.to_arrow, {}, {"limit": "None 5"}),
    (STREAM.to_pandas, {}, {"limit": "None 5"}),
    (STREAM.to_polars, {}, {"limit": "None 5"}),
    (STREAM.to_duckdb, {}, {"connection": "None", "limit": "None 5"}),
    (STREAM.split, {"predicate": col("id") > 1}, {"predicate": "x"}),
    (STREAM.to_sink, {"sink": MemorySink()}, {"sink": "", "dead_letter": "None"}),
    (WRITTEN.to_sink, {"sink": MemorySink()}, {"sink": "", "dead_letter": "None"}),
    # No job has this name.
    (ENVIRONMENT.forget, {"name": "x"}, {"name": ""}),
    (ENVIRONMENT.runs, {"name": "x"}, {"name": "x"}),
    # What is right here would start Spark.
    (WRITTEN.start, {"name": "x"}, STARTS),
    (WRITTEN.execute, {"name": "x"}, STARTS),
    (WRITTEN.replay, {"name": "x"}, STARTS),
    (col, {"name": "id"}, {"name": "x"}),
    (volley.repair, {"checkpoint": "x"}, {"checkpoint": ""}),
    # There is no such file: what is right fails too.
    (volley.load_config, {"path": "x"}, {"path": "", "variables": ""}),
    (sql, {"text": "a > 1"}, {"text": "x"}),
    (lit, {"value": 1}, {"value": "None 5 negative 0.5 nan True x empty bytes"}),
    (col("id").cast, {"to": "long"}, {"to": "type"}),
    (col("id").alias, {"name": "x"}, {"name": "x"}),
    (col("id").eq, {"other": 1}, {"other": "None 5 negative 0.5 nan True x empty bytes"}),
    (col("id").is_in, {"values": 1}, {"values": "None 5 negative 0.5 nan True x empty bytes ints"}),
    (
        col("id").between,
        {"low": 1, "high": 2},
        dict.fromkeys(("low", "high"), "None 5 negative 0.5 nan True x empty bytes"),
    ),
    (col("id").starts_with, {"prefix": "x"}, {"prefix": "x empty"}),
    (col("id").contains, {"part": "x"}, {"part": "x empty"}),
    (
        FileSource,
        {"path": "in/*.json"},
        {
            **{"path": "", "format": "None", "schema": "None", "max_files_per_epoch": "None 5", "bounded": FLAG},
            **{"options": "dict", "include": "list", "storage_options": "dict", "on_unknown": "dict"},
            **{"exclude": "x list", "on_replaced": "", "notifications": "None"},
        },
    ),
    (
        SqsQueue,
        {"url": "https://q/x"},
        {
            **{"url": "", "region": "None x", "list_every": DURATION, "endpoint_url": "None"},
            **{"access_key_id": "None", "secret_access_key": "None", "session_token": "None x"},
        },
    ),
    (AzureQueue, {"url": "https://q/x"}, {"url": "", "list_every": DURATION, "account_key": "None x"}),
    (
        PubSubSubscription,
        {"name": "projects/p/subscriptions/s"},
        {"name": "", "list_every": DURATION, "endpoint_url": "None"},
    ),
    (
        Contract,
        {},
        {"new_columns": "", "types": "", "columns": "dict"},
    ),
    (
        Unwrap,
        {"fields": "op string", "operation": "op"},
        {
            **{"fields": "", "operation": "", "row": "x empty list", "before": "x list", "sequence": "list"},
            **{"source": "dict"},
        },
    ),
    (FileSink, {"path": "out"}, {"path": "x", "format": "", "storage_options": "dict"}),
    (
        MemorySource,
        {"rows": [{"id": 1}]},
        {"rows": "list", "schema": "None", "rows_per_epoch": "None 5", "name": "x"},
    ),
    (MemorySink, {}, {"name": "x"}),
    (RateSource, {}, {"rows_per_second": "5"}),
    (ConsoleSink, {}, {"rows": "5"}),
    (FunctionSink, {"function": print}, {"function": "type", "on_driver": FLAG}),
    (
        KafkaSource,
        KAFKA,
        {
            **{"bootstrap_servers": "x", "topics": "x", "pattern": "None", "value_format": "", "schema": ""},
            **{"include": "list", "on_unknown": "dict", "starting_offsets": "dict", "starting_timestamp": "None"},
            **{"key_format": "None", "key_schema": "None", "key_subject": "None", "key_message": "None"},
            **{"bounded": FLAG, "max_rows_per_epoch": "None 5", "min_rows_per_split": "5", "max_rows_per_split": ""},
            **{"on_lost_offsets": "", "registry": "None", "subject": "None", "message": "None", "nanoseconds": ""},
            **{"publish_group": "None x", "timeout": DURATION},
            **{"properties": "dict", "options": "dict"},
        },
    ),
    (
        KafkaSink,
        {"bootstrap_servers": "host:9092", "topic": "t"},
        {
            **{"bootstrap_servers": "x", "topic": "x", "value_format": "", "key": "None x", "value": "None"},
            **{"timeout": DURATION, "properties": "dict"},
        },
    ),
    (
        IcebergSinkConfig,
        {"namespace": "db", "table": "t", "storage": LOCAL("/tmp/lake")},
        {
            **{"catalog_uri": "None", "warehouse": "None x", "namespace": "x", "table": "x", "storage": ""},
            **{"catalog": "None", "credential": "None", "token": "None", "properties": "dict"},
            **{"max_records": "None 5", "batch_size": "5", "flush_interval": f"None {DURATION}"},
            **{"target_file_size_mb": "5 0.5", "compression": "", "compression_level": "None", "partitioning": "list"},
            **{"commit_mode": "", "schema_evolution": "", "renames": "dict", "drops": "list", "create_table": FLAG},
            **{"branch": "x", "snapshot_properties": "dict", "dead_letter": "None x", "table_properties": "dict"},
            **{"maintenance": "None"},
        },
    ),
    (REST.with_credential, {"credential": "id:secret"}, {"credential": "None"}),
    (REST.with_token, {"token": "t"}, {"token": "None x"}),
    (CONFIG.with_properties, {"properties": {}}, {"properties": "dict"}),
    (CONFIG.with_max_records, {"rows": 1}, {"rows": "None 5"}),
    (CONFIG.with_batch_size, {"rows": 1}, {"rows": "5"}),
    (CONFIG.with_flush_interval, {"interval": 1}, {"interval": f"None {DURATION}"}),
    (CONFIG.with_target_file_size_mb, {"megabytes": 1}, {"megabytes": "5 0.5"}),
    (CONFIG.with_compression, {"compression": "zstd"}, {"compression": "", "level": "None 5"}),
    (CONFIG.with_partitioning, {"strategy": "none"}, {"strategy": "list"}),
    (CONFIG.with_commit_mode, {"mode": "append"}, {"mode": ""}),
    (CONFIG.with_schema_evolution, {"mode": "full"}, {"mode": "", "renames": "None dict", "drops": "list x"}),
    (CONFIG.with_create_table, {"create": True}, {"create": FLAG}),
    (CONFIG.with_branch, {"branch": "audit"}, {"branch": "x"}),
    (CONFIG.with_snapshot_properties, {"properties": {}}, {"properties": "dict"}),
    (CONFIG.with_table_properties, {"properties": {}}, {"properties": "dict"}),
    (CONFIG.with_dead_letter, {"target": "bad"}, {"target": "None x"}),
    (CONFIG.with_maintenance, {"maintenance": None}, {"maintenance": "None"}),
    (
        Maintenance,
        {"row_ttl": "90d", "row_ttl_column": "at"},
        {
            **{"compact_below": "None 5", "deletes_above": "0.5", "expire_after": f"None {DURATION}"},
            **{
                "retain_last": "5",
                "retain_most": "None",
                "deletes": FLAG,
                "manifests": FLAG,
                "every": DURATION,
                "commits": "5",
                "delete_files": "5",
            },
            **{"budget": "0.5", "row_ttl": DURATION, "row_ttl_column": "x"},
        },
    ),
    (CONFIG.with_tuning, {"preset": "balanced"}, {"preset": ""}),
    (IcebergSink, {"config": CONFIG}, {"config": ""}),
    (
        S3,
        {"region": "r", "bucket": "b", "endpoint": "http://s3", "access_key_id": "i", "secret_access_key": "s"},
        {
            **{"region": "x", "bucket": "x", "endpoint": "None", "path_style_access": f"None {FLAG}"},
            **{"access_key_id": "x", "secret_access_key": "x", "session_token": "None x"},
        },
    ),
    (
        AZURE,
        {"storage_account": "abc", "container": "abc"},
        {"storage_account": "", "container": "", "access_key": "None x"},
    ),
    (
        GCS,
        {"project_id": "my-project", "bucket": "bucket"},
        {"project_id": "x", "bucket": "", "service_account_key": "None x"},
    ),
    (LOCAL, {"path": "/tmp/lake"}, {"path": "x"}),
    (RestCatalog, {"uri": "http://c"}, REST_VALUES),
    (NessieCatalog, {"uri": "http://c"}, {**REST_VALUES, "branch": "x"}),
    (
        PolarisCatalog,
        {"uri": "http://c", "warehouse": "w"},
        {**REST_VALUES, "warehouse": "x", "scope": "x", "realm": "None x"},
    ),
    (SnowflakeOpenCatalog, {"uri": "http://c", "warehouse": "w"}, {**REST_VALUES, "warehouse": "x", "scope": "x"}),
    (GravitinoCatalog, {"uri": "http://c"}, REST_VALUES),
    (
        LakekeeperCatalog,
        {"uri": "http://c", "warehouse": "w"},
        {**REST_VALUES, "warehouse": "x", "project": "None x"},
    ),
    (UnityCatalog, {"uri": "http://c", "warehouse": "w"}, {**REST_VALUES, "warehouse": "x"}),
    (
        S3TablesCatalog,
        {"warehouse": "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"},
        {**REST_VALUES, "uri": "None", "warehouse": "", "token": "None", "scope": "None", "profile": "None x"},
    ),
    (
        BigLakeCatalog,
        {"warehouse": "gs://lake", "project": "p"},
        {
            **{**REST_VALUES, "uri": "None", "warehouse": "", "scope": "None", "project": "x"},
            "credentials_file": "None x",
        },
    ),
    (
        OneLakeCatalog,
        {"warehouse": "workspace/item"},
        {**REST_VALUES, "uri": "None", "warehouse": "", "tenant": "None x"},
    ),
    (SqlCatalog, {}, {"uri": "None"}),
    (
        TableRef,
        {"namespace": "db", "table": "t", "storage": IcebergStorage.Local("/tmp/lake")},
        {
            **{"namespace": "x", "table": "x", "storage": "", "catalog": "None", "warehouse": "None x"},
            **{"branch": "x", "properties": "dict"},
        },
    ),
    (
        GlueCatalog,
        {"region": "us-east-1"},
        {"region": "x", "catalog_id": "None x", "profile": "None x", "database": "None x", "timeout": DURATION},
    ),
    (HiveCatalog, {"uri": "thrift://h"}, {"uri": "", "timeout": DURATION}),
    (Partitioning.identity, {"fields": "id"}, {"fields": "x"}),
    (Partitioning.bucket, {"fields": "id"}, {"fields": "x", "n": "5"}),
    (Partitioning.truncate, {"fields": "id", "width": 2}, {"fields": "x", "width": "5"}),
    (Partitioning.time, {"fields": "id"}, {"fields": "x", "granularity": ""}),
    (
        Upsert,
        {"key_fields": "id"},
        {"key_fields": "None x", "order_by": "None x", "op_field": "None x", "strategy": "", "write_order": FLAG}
        | {"unchanged_field": "None x", "sequence": "None x", "tombstones": "None"}
        | {"ignore_nulls": FLAG + " x", "update_columns": "None x"},
    ),
    (
        History,
        {"key_fields": "id", "sequence": "version"},
        {
            "key_fields": "None x",
            "sequence": "None x",
            "op_field": "None x",
            "track": "None x",
            "unchanged_field": "None x",
        }
        | {"strategy": "", "valid_from": "x", "valid_to": "x", "is_current": "x", "tombstones": f"None {DURATION}"},
    ),
    (
        WebhookSource,
        {"schema": "id long"},
        {
            **{"port": "5", "path": "", "schema": "", "value_format": "", "include": "list", "header_columns": "dict"},
            **{"on_unknown": "dict", "on_bad": "", "auth": "None", "idempotency": "None", "remember_keys": DURATION},
            **{"host": "x", "tls": "None", "max_body": "5", "max_waiting": "5", "max_staged": "5"},
            **{"max_connections": "5", "max_rate": "None 5", "timeout": DURATION, "folder": "None x"},
            **{"trusted_proxies": "list", "allowed_origins": "x list"},
            **{"max_requests_per_epoch": "None 5", "bounded": FLAG, "options": "dict"},
        },
    ),
    (BearerAuth, {"token": "t"}, {"token": "x"}),
    (HmacAuth, {"scheme": "github", "secret": "s"}, {"scheme": "x", "secret": "x", "tolerance": DURATION}),
    (PublicKeyAuth, {"scheme": "sendgrid", "key": "k"}, {"scheme": "", "key": "x", "tolerance": DURATION}),
    (SnsAuth, {"topics": "arn:aws:sns:eu-west-1:123456789012:a"}, {"topics": ""}),
    (
        SignatureScheme,
        {"header": "X-S"},
        {
            **{
                "header": "x",
                "signed": "",
                "algorithm": "",
                "encoding": "",
                "prefix": "x empty",
                "separator": "None x",
            },
            **{"timestamp": "None", "id": "None", "secret_encoding": ""},
        },
    ),
    (ServerTls, {"certificate": "c", "key": "k"}, {"certificate": "x", "key": "x", "client_ca": "None x"}),
    (MariaDbSource, MARIADB, MARIADB_VALUES),
    (MySqlSource, MARIADB, MARIADB_VALUES),
    (
        PostgresSource,
        POSTGRES,
        {
            **{"host": "x", "port": "5", "database": "x", "user": "x", "password": "None x", "slot_name": "x"},
            **{"publication": "x", "tables": "None", "exclude": "None", "load": "", "bounded": FLAG, "on_rewrite": ""},
            **{"unrepresentable": "", "changelog": FLAG, "sequence": FLAG, "packed": f"None {FLAG}"},
            **{"max_staged": "5", "max_segments_per_epoch": "None 5", "heartbeat": f"None {DURATION}"},
            **{"timeout": DURATION, "options": "dict"},
        },
    ),
    (
        IcebergSink(CONFIG).routed,
        {"route": "{kind}"},
        {
            **{"route": "", "key_fields": "None x dict", "create": FLAG, "rows": "None x", "omit": "list x"},
            **{"limit": "5", "max_open_writers": "5", "commits_at_once": "5", "on_error": ""},
        },
    ),
    (STREAM.key_by, {"keys": "id"}, {"keys": "x", "named": "x"}),
    (STREAM.key_by("id").aggregate, {}, {"aggregates": ""}),
    (STREAM.key_by("id").retain, {}, {"ttl": f"None {DURATION}", "buckets": "5"}),
    (STREAM.key_by("id").retain("1d").aggregate, {}, {"aggregates": ""}),
    (
        STREAM.key_by("id").window,
        {"window": tumbling("1m"), "on": "at"},
        {
            **{"window": "", "on": "x", "lateness": DURATION, "emit": "", "late": "", "buckets": "5"},
            **{"max_ahead": f"None {DURATION}", "idle_after": f"None {DURATION}", "fill_gaps": f"None {DURATION}"},
        },
    ),
    (STREAM.key_by("id").window(tumbling("1m"), on="at").aggregate, {}, {"aggregates": ""}),
    (
        STREAM.key_by("id").series,
        {"on": "at"},
        {
            **{"on": "x", "lateness": DURATION, "late": "", "pause": f"None {DURATION}", "buckets": "5"},
            **{"max_ahead": f"None {DURATION}", "idle_after": f"None {DURATION}"},
        },
    ),
    (STREAM.key_by("id").series(on="at").with_columns, {}, {"functions": ""}),
    (
        STREAM.key_by("id").order_by,
        {"order": "id"},
        {
            **{"order": "x", "on": "None", "lateness": DURATION, "late": "", "buckets": "5"},
            **{"max_ahead": f"None {DURATION}", "idle_after": f"None {DURATION}", "ttl": f"None {DURATION}"},
        },
    ),
    (STREAM.key_by("id").order_by("id").with_columns, {}, {"functions": ""}),
    *((function, {}, {}) for function in (row_number, rank, dense_rank)),
    *((function, {"value": "x"}, {"value": "x", "rows": "5"}) for function in (lag, lead)),
    (rows_between, {"aggregation": count()}, {"aggregation": "", "before": "None 5", "after": "None 5"}),
    (rolling, {"span": "1m", "aggregation": count()}, {"span": DURATION, "aggregation": ""}),
    (ewm_mean, {"value": "x", "half_life": "1m"}, {"value": "x", "half_life": DURATION}),
    (rate, {"value": "x"}, {"value": "x", "per": DURATION}),
    *((function, {"value": "x"}, {"value": "x"}) for function in (increase, previous)),
    (session_start, {"gap": "1m"}, {"gap": DURATION}),
    (tumbling, {"size": "1m"}, {"size": DURATION, "offset": DURATION}),
    (sliding, {"size": "1m", "every": "1s"}, {"size": "5", "every": DURATION, "offset": "0.5"}),
    (cumulative, {"size": "1m", "step": "1m"}, {"size": "", "step": DURATION}),
    (calendar, {"unit": "day"}, {"unit": "", "zone": "None"}),
    (session, {"gap": "1m"}, {"gap": DURATION}),
    (count, {}, {"value": "None x"}),
    *((function, {"value": "x"}, {"value": "x"}) for function in (sum_, min_, max_, avg, first, last, variance)),
    *((function, {"value": "x"}, {"value": "x"}) for function in (count_distinct, approx_distinct)),
    (quantile, {"value": "x", "q": 0.5}, {"value": "x", "q": "0.5"}),
    (list_, {"value": "x"}, {"value": "x", "limit": "5"}),
    (top, {"value": "x", "limit": 3}, {"value": "x", "limit": "5", "by": "None x"}),
    (pack_rows, {"rows": pa.table({"id": [1]})}, {"rows": "", "key_fields": "list"}),
    (
        MaterializedView,
        {"name": "x", "query": VIEWED, "into": CONFIG},
        {"name": "x", "query": "", "into": "", "mode": "", "strict": FLAG, "sql": "None", "sources": "None"},
    ),
    # There is no such table: what is right fails too.
    (VIEW.refresh, {}, {"mode": ""}),
    # What is right here would start a thread.
    (VIEW.follow, {}, {"interval": DURATION, "on_refresh": "None type"}),
    (volley.Restart, {}, {"policy": "", "limit": "5", "backoff": DURATION}),
    (Overwrite.partitions, {"partitions": {"id": 1}}, {"partitions": ""}),
    (orphan_files, {"table": CONFIG}, {"table": "", "older_than": ""}),
    (
        remove_orphan_files,
        {"table": CONFIG},
        {"table": "", "older_than": "", "dry_run": "", "max_files": "", "max_time": ""},
    ),
    (publish_branch, {"table": CONFIG}, {"table": ""}),
    (SnapshotManager, {"table": CONFIG}, {"table": ""}),
    (IcebergTable, {"table": CONFIG}, {"table": ""}),
    (IcebergTable(CONFIG).rewrite_manifests, {}, {"dry_run": "", "max_bytes": ""}),
    (Environment().task_runner, {}, {}),
    (when, {"condition": True}, {"condition": "None 5 negative 0.5 nan True x bytes"}),
    # There is no such table: what is right fails too.
    (
        IcebergTable(CONFIG).compact,
        {},
        dict.fromkeys(inspect.signature(IcebergTable(CONFIG).compact).parameters, ""),
    ),
    (
        IcebergTable(CONFIG).erase,
        {"keys": [{"id": 5}]},
        dict.fromkeys(inspect.signature(IcebergTable(CONFIG).erase).parameters, ""),
    ),
    (
        IcebergTable(CONFIG).rewrite_position_deletes,
        {},
        dict.fromkeys(inspect.signature(IcebergTable(CONFIG).rewrite_position_deletes).parameters, ""),
    ),
    (
        IcebergTable(CONFIG).compute_statistics,
        {},
        dict.fromkeys(inspect.signature(IcebergTable(CONFIG).compute_statistics).parameters, ""),
    ),
    (IcebergTable(CONFIG).health, {}, {"orphans": ""}),
    (TimeTravelQuery, {"table": CONFIG}, {"table": ""}),
    (IcebergSource, {"config": SOURCE}, {"config": ""}),
    (SOURCE.with_columns, {"columns": ["id"]}, {"columns": "None x"}),
    (SOURCE.with_batch_size, {"rows": 5}, {"rows": "5"}),
    (SOURCE.with_mode, {"mode": Batch()}, {"mode": ""}),
    (SOURCE.with_as_of, {"timestamp": "2026-01-01"}, {"timestamp": "None"}),
    (SOURCE.with_max_files_per_epoch, {"files": 5}, {"files": "None 5"}),
    (SOURCE.with_max_rows_per_epoch, {"rows": 5}, {"rows": "None 5"}),
    (SOURCE.with_include, {"include": "row_id"}, {"include": "list"}),
    (SOURCE.with_hold, {}, {"max_age": f"None {DURATION}"}),
    (SOURCE.with_on_expired, {"on_expired": "fail"}, {"on_expired": ""}),
    (SOURCE.with_on_rollback, {"on_rollback": "fail"}, {"on_rollback": ""}),
    (Snapshot, {"snapshot_id": 5}, {"snapshot_id": "5"}),
    (
        Incremental,
        {"poll_interval": 5},
        {"poll_interval": "5 0.5", "start_snapshot": "None 5", "start_timestamp": "None"},
    ),
    # There is no such table: what is right fails too.
    (MANAGER.snapshot_by_id, {"snapshot_id": 5}, {"snapshot_id": ""}),
    (MANAGER.snapshot_at_timestamp, {"at": "2026-01-01"}, {"at": ""}),
    (MANAGER.create_snapshot, {}, {"properties": "", "tag": ""}),
    (MANAGER.rollback_to, {"target": 5}, {"target": ""}),
    (MANAGER.create_tag, {"name": "x"}, {"name": "", "snapshot_id": "", "max_age": ""}),
    (MANAGER.drop_tag, {"name": "x"}, {"name": ""}),
    (MANAGER.drop_branch, {"name": "x"}, {"name": ""}),
    (
        MANAGER.create_branch,
        {"name": "x"},
        {"name": "", "snapshot_id": "", "min_snapshots": "", "max_snapshot_age": "", "max_age": ""},
    ),
    (
        MANAGER.expire_snapshots,
        {},
        {"older_than": "", "retain_last": "", "snapshot_ids": "", "max_snapshots": "", "outside": "", "dry_run": ""},
    ),
    (SchemaEvolution, {"current": "id int"}, {"current": "", "changes": "list"}),
    (
        EVOLUTION.add,
        {"column": "x", "data_type": "long", "default": 5},
        {"column": "x", "data_type": "type", "default": "None 5 negative", "required": FLAG},
    ),
    (EVOLUTION.drop, {"column": "x"}, {"column": "x"}),
    (EVOLUTION.rename, {"column": "id", "name": "x"}, {"column": "x", "name": "x"}),
    (EVOLUTION.update_type, {"column": "id", "data_type": "long"}, {"column": "x", "data_type": "type"}),
    (EVOLUTION.apply, {"table": CONFIG}, {"table": "None"}),
    (EVOLUTION.to_sql, {"table": "x"}, {"table": "x", "dialect": ""}),
    (EVOLUTION.statements, {"table": "x"}, {"table": "x", "dialect": ""}),
    (TypeConverter.arrow_to_iceberg, {"arrow_type": pa.int32()}, {"arrow_type": "", "format_version": ""}),
    (TypeConverter.iceberg_to_arrow, {"iceberg_type": LongType()}, {"iceberg_type": ""}),
    (TypeConverter.arrow_to_iceberg_schema, {"schema": pa.schema({})}, {"schema": "", "format_version": ""}),
    (TypeConverter.iceberg_to_arrow_schema, {"schema": Schema()}, {"schema": ""}),
]


def several_of(function: Callable[..., Any]) -> str | None:
    """The parameter that takes arguments by position only, any number or one."""
    parameters = inspect.signature(function).parameters.values()
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY
    return next((each.name for each in parameters if each.kind in kinds), None)


def call(function: Callable[..., Any], arguments: dict[str, Any], several: str | None) -> Any:
    """With the arguments of the parameter `several` by position."""
    named = {name: value for name, value in arguments.items() if name != several}
    return function(*([arguments[several]] if several else []), **named)


CASES = [
    (function, arguments, name, taken.split())
    for function, arguments, rights in CALLS
    for name, taken in rights.items()
]


@pytest.mark.parametrize(
    ("function", "arguments", "parameter", "right"), CASES, ids=[f"{case[0].__qualname__}-{case[2]}" for case in CASES]
)
def test_a_wrong_value_is_refused_with_the_way_out(
    function: Callable[..., Any], arguments: dict[str, Any], parameter: str, right: list[str]
) -> None:
    assert set(right) <= set(WRONG)
    several = several_of(function)
    for name, value in WRONG.items():
        given = {**arguments, parameter: value}
        if name not in right:
            with pytest.raises(VolleyError) as caught:
                call(function, given, several)
            assert caught.value.hint, f"{name}: {caught.value}"
            # The line of this test and that of `call` come before a user's own.
            printed = "".join(traceback.format_exception(caught.value)).splitlines()
            assert len(printed) - 2 <= 15, printed
        elif function not in (*RUNS, VIEW.follow):
            call(function, given, several)


def test_every_parameter_is_there() -> None:
    """Of what users call; what is for those who write a source or a sink is not meant."""
    for function, arguments, rights in CALLS:
        public = {name for name in inspect.signature(function).parameters if not name.startswith("_")}
        if "options" in public and function in RUNS:
            public = public - {"options"} | set(StartOptions.__annotations__)
        # Deprecated, without effect.
        assert set(rights) == public - {"arrow_native"}, function
        assert set(arguments) <= public


FOR_IMPLEMENTERS = {"Offset", "Split", "Reader", "Source", "SourceContext", "SparkSource"}
FOR_IMPLEMENTERS |= {"Committer", "Epoch", "Sink", "SinkContext", "TaskWriter", "WriteResult", "Writer"}
FOR_IMPLEMENTERS |= {"Dataset", "Metrics", "MetricsSnapshot", "EpochProgress", "FinishedEpoch", "TableFigures"}
# They are made by others, or take nothing.
TAKE_NOTHING = {
    "Job",
    "Progress",
    "State",
    "DataStream",
    "Pipeline",
    "Expr",
    "IcebergStorage",
    "Append",
    "MemoryCatalog",
    "Compaction",
    "DeleteRewrite",
    "Erasure",
    "HealthFinding",
    "TableHealth",
    "TableStatistics",
    "Expiry",
    "MaintenanceReport",
    "MaintenanceRun",
    "ManifestRewrite",
    "OrphanFiles",
    "OrderedStream",
    "OverFunction",
    "Ref",
    "SnapshotInfo",
    "SnapshotList",
    "ABORT",
    "EOF",
    "Batch",
    "Change",
    "Changes",
    "Delete",
    "IcebergSourceConfig",
    "Insert",
    "Lag",
    "TableRows",
    "Update",
    "changes_between",
    # They take any number of expressions: tests/unit/test_functions.py.
    "coalesce",
    "array",
    "concat_str",
    "struct",
    "greatest",
    "least",
    "murmur3",
    "now",
    "xxhash64",
    "Aggregation",
    "Config",
    "ConfiguredPipeline",
    "Dataset",
    "KeyedStream",
    "RetainedStream",
    "RoutedSink",
    "SeriesFunction",
    "SeriesStream",
    "ViewFollower",
    "ViewEstimate",
    "ViewPlan",
    "ViewRefresh",
    "ViewSource",
    "ViewStatus",
    "ViewStep",
    "WindowedStream",
}


def test_every_public_name_is_there() -> None:
    tried = {function.__qualname__.partition(".")[0] for function, _, _ in CALLS} | {"Overwrite", "Partitioning"}
    names = {*volley.__all__, *volley.iceberg.__all__} - FOR_IMPLEMENTERS - TAKE_NOTHING
    assert {name for name in names if not name.endswith("Error")} <= tried


def test_every_verb_and_setter_is_there() -> None:
    for kind in (DataStream, Pipeline, Environment, IcebergSinkConfig):
        tried = {function.__name__ for function, _, _ in CALLS if isinstance(getattr(function, "__self__", None), kind)}
        verbs = {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
        # What an environment runs are pipelines, which have the same verbs.
        # What `pipe` is given is a function's own.
        assert verbs - {"explain", "pipe"} <= tried | ({"start", "execute", "replay"} if kind is Environment else set())
