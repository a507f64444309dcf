"""Every format of a file that Volley reads again; `docs/explanation/compatibility.md` says where each stands."""

from __future__ import annotations

from volley.storage.envelope import StateFormat

__all__ = [
    *(
        "BACKLOG",
        "CAPTURED_TABLE",
        "FAILURE",
        "FENCE",
        "FILE_LOG",
        "INFERRED",
        "INITIAL_OFFSET",
        "JOB_RUN",
        "JOIN_LIST",
        "JOIN_PIN",
    ),
    *(
        "JOIN_ROWS",
        "LANDED",
        "LISTED",
        "LOAD",
        "LOGGED_TABLE",
        "LOG_ORIGIN",
        "MERGED_FILE_LOG",
        "MERGED_LOADS",
        "PARKED_ROWS",
        "PIPELINE",
        "ROUTED_TABLES",
        "RUN",
        "SCHEMA",
        "SEGMENT",
    ),
    *(
        "SINK_FOLDER",
        "SINK_MARK",
        "SLOT",
        "STATE",
        "STATE_OF_EPOCH",
        "STAGED_LOAD",
        "STAGED_ROWS",
        "STATE_PLAN",
        "WEBHOOK_KEYS",
        "WEBHOOK_LOG",
    ),
]

# The job.
PIPELINE = StateFormat("pipeline")
LANDED = StateFormat("landed")
RUN = StateFormat("run")
JOB_RUN = StateFormat("job-run")

# Windows, series and joins of streams.
STATE_PLAN = StateFormat("state-plan")
STATE_OF_EPOCH = StateFormat("state-of-epoch", 3)
STATE = StateFormat("state")

# Joins with tables.
JOIN_PIN = StateFormat("join-pin")
JOIN_LIST = StateFormat("join-list")
JOIN_ROWS = StateFormat("join-rows")

# Sources.
INITIAL_OFFSET = StateFormat("initial-offset")
SCHEMA = StateFormat("schema")
INFERRED = StateFormat("inferred-schema")
FILE_LOG = StateFormat("file-log")
LISTED = StateFormat("listed")
MERGED_FILE_LOG = StateFormat("merged-file-log")
FAILURE = StateFormat("failure")

# PostgreSQL.
SLOT = StateFormat("slot")
LOAD = StateFormat("load")
MERGED_LOADS = StateFormat("merged-loads")
FENCE = StateFormat("fence")
CAPTURED_TABLE = StateFormat("captured-table")
SEGMENT = StateFormat("segment")

# MariaDB and MySQL; their segments are those of PostgreSQL.
LOG_ORIGIN = StateFormat("log-origin")
LOGGED_TABLE = StateFormat("logged-table")
STAGED_LOAD = StateFormat("staged-load")
STAGED_ROWS = StateFormat("staged-rows")

# Webhooks: the version of the whole log, whose id is read first.
WEBHOOK_LOG = StateFormat("webhook-log")
WEBHOOK_KEYS = StateFormat("webhook-keys")

# Sinks.
SINK_FOLDER = StateFormat("sink-folder")
SINK_MARK = StateFormat("sink-mark")
ROUTED_TABLES = StateFormat("routed-tables")
BACKLOG = StateFormat("backlog")
PARKED_ROWS = StateFormat("parked-rows")
