"""Failpoints: named places where a test kills a process, so that crashes depend on events and not on time."""

from __future__ import annotations

import os
import signal

__all__ = [
    *(
        "BUCKET_POINT",
        "COMPACTION_POINTS",
        "DELETE_POINTS",
        "ERASURE_POINTS",
        "EXECUTOR_TASK_POINT",
        "EXPIRY_POINTS",
        "FILE_LOG_POINTS",
        "JOIN_POINTS",
        "LEARNED_POINT",
        "LOAD_POINT",
        "LOG",
        "RESCALING_POINT",
        "MANIFEST_POINTS",
        "POINTS",
        "RECEIVER_POINTS",
        "ROUTE_POINTS",
        "ROW_TTL_POINT",
        "SCHEMA_POINT",
        "SLOT_POINTS",
        "STATISTICS_POINTS",
        "TASK_POINTS",
        "VIEW_POINTS",
    ),
    *("VARIABLE", "VICTIM", "WINDOW_POINTS"),
    "reach",
]

VARIABLE = "VOLLEY_FAILPOINT"
"""Environment variable that arms failpoints: ``point@epoch``, comma-separated."""

VICTIM = "VOLLEY_FAILPOINT_VICTIM"
"""Environment variable with the id of the process to kill; default: the process that reaches the failpoint."""

LOG = "VOLLEY_FAILPOINT_LOG"
"""Environment variable with the file to which each kill appends a line: the process id and the failpoint."""

POINTS = (
    *("before-planning", "before-files", "after-files", "between-commits"),
    *("before-commit", "after-commit", "before-checkpoint"),
)
"""The driver's failpoints, in the order of an epoch. ``between-commits`` comes after the commits of the dead letters,
which pass ``before-commit`` and ``after-commit``, too, and first; ``before-checkpoint`` precedes the entry in Spark's
commit log. An epoch that is committed already passes ``in-recovery`` instead of all but the first."""

WINDOW_POINTS = ("after-partials", "after-merge", "after-state")
"""The driver's failpoints between ``before-files`` and ``after-files`` in a job with windows or joins of streams: the
tasks that read have made states of their rows; those that merge have written the state; the state is durable."""

RESCALING_POINT = "after-rescaling"
"""The driver's failpoint before the tasks of the first epoch with another number of buckets: the state of the epoch
before, whose number stands after the @, is divided among them, and no epoch has the new files."""

TASK_POINTS = ("in-task", "after-task")
"""The executors' failpoints: a task has written rows, has closed its files. Only its first attempt is killed. The
driver passes them, too, in a task of its own over the rows of sources."""

EXECUTOR_TASK_POINT = "after-executor-task"
"""An executor's failpoint: the last ExecutorTask of a commit has closed its files. Only its first attempt is killed.
The driver passes it, too, if it runs the tasks itself."""

SLOT_POINTS = ("slot-owned", "before-segment", "after-segment", "acknowledged")
"""The failpoints of a PostgreSQL source's receiver: it has the slot, and not looked at its segments; a segment is
written, but has no name; is durable; something was acknowledged to the server. The number after the @ is that of the
segment's first message, else 0."""

LOAD_POINT = "load-staged"
"""The failpoint of a load from MariaDB or MySQL: its rows are staged, and it is not recorded; its receiver passes those
of a segment, too. The number after the @ is 0."""

JOIN_POINTS = ("before-pin", "after-pin")
"""The failpoints of an epoch that joins a table, between ``before-files`` and its tasks: the table's rows are in the
checkpoint, but no epoch has them; the epoch has them."""

BUCKET_POINT = "after-bucket"
"""The failpoint before these, if the table has changed: a file with some of the table's rows is in the checkpoint."""

EXPIRY_POINTS = ("after-expiry", "in-deletion")
"""The failpoints of an expiry: snapshots are gone, and their files are there; the first files are deleted. The number
after the @ is the number of files deleted so far."""

FILE_LOG_POINTS = ("before-merged-log", "after-merged-log", "in-deletion-of-log")
"""The failpoints of a merge in the log of a FileSource: the merged file is written, but has no name; is durable; the
first file that it replaces is deleted. The number after the @ is that of the entries up to the merged file's end."""

MANIFEST_POINTS = ("before-manifests", "after-manifests")
"""The failpoints of a rewrite of manifests: the new ones are written, but not committed; they are committed."""

COMPACTION_POINTS = ("in-rewrite", "after-rewrite", "before-replacement", "after-replacement")
"""The failpoints of a compaction: the files of one group are written, those of one commit are; the commit is prepared,
is done. The number after the @ is that of the commit, and for ``in-rewrite`` that of the group in its commit."""

RECEIVER_POINTS = ("before-sync", "after-sync")
"""The failpoints of a receiver of webhooks: requests are written, but not forced to disk; they are, but not answered.
The number after the @ is that of the write, from 0, since the receiver's start."""

SCHEMA_POINT = "after-schema"
"""The failpoint of a source of a registry's messages, or of JSON whose columns evolve, when it is opened: the schema is
kept, and no table has it yet. The number after the @ is that of its columns."""

LEARNED_POINT = "after-learned"
"""The driver's failpoint behind an epoch's tasks that have seen new columns: these are kept, and the job is not planned
anew. ``before-learned`` precedes it: they are not kept."""

STATISTICS_POINTS = ("before-statistics-commit", "after-statistics-commit")
"""The failpoints of a computation of statistics: their file is written, and is not committed; it is. The number after
the @ is 0."""

ROUTE_POINTS = ("after-route-1", "after-catching-up")
"""The failpoints of a sink with many tables: after the first (second, …) table has the epoch; after a table has an
epoch that was parked, before it leaves the backlog."""

VIEW_POINTS = ("after-view-files", "before-view-commit", "after-view-commit")
"""The failpoints of a view's refresh: its files are written; its commit is prepared, is done. The number after the @ is
that of the refresh."""

DELETE_POINTS = ("in-delete-merge", "after-delete-merge", "before-delete-commit", "after-delete-commit")
"""The failpoints of a rewrite of delete files: a task has written its files, all have; the commit is prepared, is done.
The number after the @ is 0, and for ``in-delete-merge`` that of the task."""

ERASURE_POINTS = ("before-erasure", "after-erasure", "before-erasure-of-orphans")
"""The failpoints of an erasure: the commit without the rows is prepared, is done; snapshots have expired, and files of
none are there. Between the last two it passes those of an expiry. The number after the @ is 0."""

ROW_TTL_POINT = "before-row-ttl"
"""The failpoint of a deletion of rows by age: its commit is prepared. The number after the @ is 0."""


def reach(point: str, epoch: int) -> None:
    """Kill the process as by ``kill -9`` if this failpoint is armed for this epoch."""
    if f"{point}@{epoch}" not in os.environ.get(VARIABLE, "").split(","):
        return
    victim = int(os.environ.get(VICTIM, os.getpid()))
    if log := os.environ.get(LOG):
        with open(log, "a") as log_file:
            log_file.write(f"{victim} {point}\n")
    os.kill(victim, signal.SIGKILL)
    signal.pause()
