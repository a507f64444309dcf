"""The rows of a joined table as files below the checkpoint: the driver writes them, the tasks map them.

``joins/<table>/<epoch>.json`` names the version of the table that the epoch is joined with, ``….arrow`` has its rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from volley.arrow.join_index import JoinIndex
from volley.dimension import Version
from volley.errors import StorageError
from volley.storage.paths import filesystem
from volley.task.context import task_context

__all__ = ["EpochRows", "LoadedRows", "digest", "index_file", "pin_file"]

# The number of the running epoch, in Spark's properties of a task.
_EPOCH = "streaming.sql.batchId"


def digest(*parts: object) -> str:
    """Return a short name for values that are JSON or texts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def pin_file(folder: str, epoch: int) -> str:
    """Return the URL of the file that names an epoch's version of a table.

    Args:
        folder: The table's folder.
        epoch: The epoch's number.
    """
    return f"{folder}/{epoch}.json"


def index_file(folder: str, layout: str, version: Version) -> str:
    """Return the URL of the file with the indexed rows of a version.

    Args:
        folder: The table's folder.
        layout: The digest of the join's keys and columns.
        version: The version.
    """
    return f"{folder}/{layout}-{digest(version)}.arrow"


@dataclass(frozen=True)
class LoadedRows:
    """The rows of a table in this process.

    Args:
        schema: The table's columns.
        loaded: The rows; None = only the schema is needed.
    """

    schema: pa.Schema
    loaded: JoinIndex | None = None

    def index(self) -> JoinIndex:
        assert self.loaded is not None
        return self.loaded


@dataclass(frozen=True)
class EpochRows:
    """The rows of a table that a task's epoch is joined with; picklable.

    Args:
        schema: The table's columns.
        folder: The URL of the table's folder.
        layout: The digest of the join's keys and columns.
    """

    schema: pa.Schema
    folder: str
    layout: str

    def index(self) -> JoinIndex:
        """Return the rows of the running task's epoch.

        Raises:
            StorageError: If the checkpoint can't be read here.
        """
        task = task_context()
        assert task is not None, "joins run in Spark's tasks"
        version = _pinned(self.folder, int(str(task.getLocalProperty(_EPOCH))), task.taskAttemptId())
        return _mapped(index_file(self.folder, self.layout, version))


@lru_cache(maxsize=64)
def _pinned(folder: str, epoch: int, task: int) -> Version:
    """Return the version that the epoch is joined with: read once by each task, as another job may use the folder."""
    files, path = filesystem(pin_file(folder, epoch), {})
    try:
        version: Version = json.loads(files.cat_file(path))
    except FileNotFoundError as error:
        raise _unreachable(path) from error
    return version


@lru_cache(maxsize=8)
def _mapped(url: str) -> JoinIndex:
    """Return the index that a file has; this process maps a local file, also a copy of a remote one."""
    files, path = filesystem(url, {})
    try:
        local = path if "file" in files.protocol else _copied(files, path)
        with pa.memory_map(local) as source:
            return JoinIndex.of(pa.ipc.open_file(source).get_batch(0))
    except FileNotFoundError as error:
        raise _unreachable(path) from error


def _copied(files: Any, path: str) -> str:
    """Return the local copy of a remote file; the first process of a machine that needs it fetches it."""
    copies = Path(tempfile.gettempdir(), f"volley-joins-{os.getuid()}")
    copies.mkdir(mode=0o700, exist_ok=True)
    if copies.stat().st_uid != os.getuid():
        raise StorageError(f"{copies} belongs to another user", hint="delete it, or set TMPDIR to another folder")
    folder, _, name = path.rpartition("/")
    layout, _, version = name.partition("-")
    local = copies / f"{digest(folder)}-{layout}-{version}"
    if not local.exists():
        hidden = copies / f"{uuid.uuid4().hex}.tmp"
        files.get_file(path, str(hidden))
        hidden.replace(local)
        # Processes that have mapped an older version keep it.
        for older in set(copies.glob(f"{digest(folder)}-{layout}-*")) - {local}:
            older.unlink(missing_ok=True)
    return str(local)


def _unreachable(path: str) -> StorageError:
    return StorageError(
        f"an executor can't find {path}, which has the rows of a joined table",
        hint="the checkpoint_dir of a job that joins a table must be a folder that all executors reach",
    )
