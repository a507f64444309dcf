"""Every format of a file that Volley reads again; `docs/explanation/compatibility.md` says where each stands."""

from __future__ import annotations

from volley.storage.envelope import Format

__all__ = [
    *("BACKLOG", "CAPTURED_TABLE", "FAILURE", "FENCE", "FILE_LOG", "INITIAL_OFFSET", "JOIN_LIST", "JOIN_PIN"),
    *(
        "JOIN_ROWS",
        "LANDED",
        "LOAD",
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
        "STATE_PLAN",
        "WEBHOOK_KEYS",
        "WEBHOOK_LOG",
    ),
]

# The job.
PIPELINE = Format("pipeline")
LANDED = Format("landed")
RUN = Format("run")

# Windows, series and joins of streams.
STATE_PLAN = Format("state-plan")
STATE_OF_EPOCH = Format("state-of-epoch", 3)
STATE = Format("state")

# Joins with tables.
JOIN_PIN = Format("join-pin")
JOIN_LIST = Format("join-list")
JOIN_ROWS = Format("join-rows")

# Sources.
INITIAL_OFFSET = Format("initial-offset")
SCHEMA = Format("schema")
FILE_LOG = Format("file-log")
MERGED_FILE_LOG = Format("merged-file-log")
FAILURE = Format("failure")

# PostgreSQL.
SLOT = Format("slot")
LOAD = Format("load")
MERGED_LOADS = Format("merged-loads")
FENCE = Format("fence")
CAPTURED_TABLE = Format("captured-table")
SEGMENT = Format("segment")

# Webhooks: the version of the whole log, whose id is read first.
WEBHOOK_LOG = Format("webhook-log")
WEBHOOK_KEYS = Format("webhook-keys")

# Sinks.
SINK_FOLDER = Format("sink-folder")
SINK_MARK = Format("sink-mark")
ROUTED_TABLES = Format("routed-tables")
BACKLOG = Format("backlog")
PARKED_ROWS = Format("parked-rows")
