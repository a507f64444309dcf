"""A job's checkpoint folder: bound to a pipeline, set aside, restored; used by one job of this process at a time."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import posixpath
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from volley.contracts.sink import Sink
from volley.engine.binding import Binding, check_same_pipeline, check_targets
from volley.errors import ConfigError, PlanError, StorageError
from volley.plan.graph import JobGraph
from volley.spark.log import COMMITS, METADATA, OFFSETS, STATE, SparkLog, metadata_of, usable
from volley.storage.durable import write_durably
from volley.storage.local import locked_folder, make_folder
from volley.storage.remembered import MALFORMED, malformed

__all__ = ["PIPELINE", "Checkpoint", "claim", "locate", "note_hanging", "release", "reserve"]

_log = logging.getLogger(__name__)

_OURS = "volley"
PIPELINE = f"{_OURS}/pipeline.json"
# Leave everything else in the folder alone: a user may have chosen one with other files.
_FOLDERS = (OFFSETS, COMMITS, "sources", STATE, _OURS)
_CONTENTS = (METADATA, f".{METADATA}.crc", *_FOLDERS)
# In bytes, on a local disk.
_MAX_NAME = 255
_ASIDE = "replaced"
# Marker files in it: everything was moved there; it is being deleted.
_COMPLETE = f"{_ASIDE}/complete"
_FORGOTTEN = f"{_ASIDE}/forgotten"

_lock = threading.Lock()
_running: set[str] = set()
_hanging: dict[str, threading.Thread] = {}


def locate(checkpoint_dir: str | None, job: str) -> str:
    """Return the checkpoint folder of a job as an absolute path or URL.

    Args:
        checkpoint_dir: The folder with the checkpoints of all jobs; None = ``.volley/checkpoints``.
        job: The job's name; characters that are not valid in a file name are escaped.

    Raises:
        ConfigError: If the name is too long for a folder name.
    """
    name = quote(job, safe=" ")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if checkpoint_dir and "://" in checkpoint_dir:
        return f"{checkpoint_dir.rstrip('/')}/{name}"
    if len(name) > _MAX_NAME:
        raise ConfigError(
            f"job name {job[:40]!r}… is too long: its checkpoint's folder would have {len(name)} bytes in its name",
            hint=f"at most {_MAX_NAME}; a character that is not ASCII takes up to 12",
        )
    return str(Path(checkpoint_dir or ".volley/checkpoints").absolute() / name)


class Checkpoint:
    """A job's checkpoint folder.

    Args:
        url: Its path or fsspec URL; the folder may not exist yet.
    """

    def __init__(self, url: str, job: str) -> None:
        self.url = url
        self.job = job
        self.log = SparkLog(url)

    @property
    def begun(self) -> bool:
        """True if Spark has planned an epoch in it."""
        return self.log.last_planned is not None

    def state_of(self, sink: Sink) -> str:
        """Return the folder for what a sink remembers; by its target, since a pipeline's sinks may change places."""
        name = hashlib.sha256((sink.target or sink.label).encode()).hexdigest()[:16]
        return f"{self.url}/{_OURS}/sink-{name}"

    def check_ours(self) -> None:
        """Raise PlanError if another program's files stand where the checkpoint's would: a new one deletes these."""
        types = self._types()
        foreign = [name for name in _CONTENTS if name in types and _OURS not in types]
        # Spark and Volley make only folders of these names.
        foreign += [name for name in _FOLDERS if types.get(name) == "file" and name not in foreign]
        if foreign:
            raise PlanError(
                f"checkpoint {self.url} was not made by Volley, or its folder {_OURS!r} is gone: it has "
                + ", ".join(foreign),
                hint="give the job another checkpoint_dir or name, restore the folder, or move these away",
            )

    def _types(self) -> dict[str, str]:
        """Return the type of each entry of the folder: ``"file"`` or ``"directory"``."""
        with usable(self.url):
            self.log.files.invalidate_cache()
            if not self.log.files.exists(self.log.root):
                return {}
            entries = self.log.files.ls(self.log.root, detail=True)
            return {entry["name"].rstrip("/").rpartition("/")[2]: entry["type"] for entry in entries}

    def set_aside(self) -> None:
        """Move the checkpoint into a subfolder, so that the job starts over; `restore` undoes it.

        Raises:
            PlanError: If another program wrote the checkpoint.
            StorageError: If it can't be moved.
        """
        with usable(self.url):
            self.check_ours()
            self._move("", _ASIDE, _CONTENTS)
            self._mark(_COMPLETE)

    def restore(self) -> None:
        """Move the old checkpoint, or the part that was set aside, back: the job could not start over.

        Raises:
            StorageError: If it can't be moved.
        """
        with usable(self.url):
            if self._exists(_COMPLETE):
                # The files in the folder belong to the failed start over.
                self._remove(*_CONTENTS)
                self._remove(_COMPLETE)
            # Our own files first: `check_ours` takes a folder without them for another program's.
            self._move(_ASIDE, "", _CONTENTS[::-1])
            self._remove(_ASIDE)

    def forget(self) -> None:
        """Delete the old checkpoint that was set aside: the job has started over.

        Raises:
            StorageError: If it can't be deleted.
        """
        with usable(self.url):
            if self._exists(_ASIDE):
                self._mark(_FORGOTTEN)
                self._remove(*(f"{_ASIDE}/{name}" for name in _CONTENTS), _COMPLETE)
                self._remove(_ASIDE)

    def settle(self) -> None:
        """Finish or undo a start over during which the process died.

        Raises:
            PlanError: If another program wrote the checkpoint.
            StorageError: If the folder can't be used.
        """
        with usable(self.url):
            self.check_ours()
            if not self._exists(_ASIDE):
                return
            if self._exists(_FORGOTTEN) or (self._exists(_COMPLETE) and self.begun):
                self.forget()
            else:
                _log.warning("%s: the last start died while starting over: its old checkpoint is restored", self.job)
                self.restore()

    def bind(self, graph: JobGraph, backfill: bool, new_query: bool) -> Binding:
        """Bind a new checkpoint to a job, or check that the job can resume from an existing one.

        Steps without state may change between two runs. Sources and keyed steps may not: the checkpoint's offsets and
        state refer to them. A new target lacks the rows of all epochs so far.

        Args:
            graph: The job's graph. Its dead letters may change, its sinks may not.
            backfill: True if a backfill fills new targets with the rows of all epochs so far.
            new_query: True to give a checkpoint that has read nothing a new query, of which no target has epochs.

        Returns:
            The binding of the checkpoint.

        Raises:
            PlanError: If the checkpoint belongs to another pipeline; names the difference.
            StorageError: If the checkpoint folder can't be read or written.
        """
        now = Binding.of(graph)
        # Of drivers that start at once, one begins the checkpoint: each with a query of its own would write all rows.
        with usable(self.url), locked_folder(self.log.files, self.log.root):
            self.check_ours()
            if not self.begun:
                return self._begin(now, new_query)
            old = self._binding()
        check_same_pipeline(old, now, self.url)
        if old.targets is not None:
            check_targets(old.targets, graph, self.job, self.url, backfill)
        return replace(old, query_id=self.query_id, sources=now.sources, stateful=now.stateful)

    def bind_targets(self, bound: Binding, identities: Mapping[str, str | None]) -> None:
        """Bind the checkpoint to the open targets, or check that they are still the same ones.

        A table that was dropped and created again lacks all earlier rows: a job that resumes would silently leave them
        out.

        Args:
            bound: The binding of the checkpoint.
            identities: The name and identity of each target.

        Raises:
            PlanError: If a target was replaced by another one of its name.
            StorageError: If the checkpoint folder can't be written.
        """
        known = bound.targets or {}
        for name, identity in identities.items():
            before = known.get(name)
            if before is not None and before != identity:
                raise PlanError(
                    f"{name} was dropped and made again since checkpoint {self.url} was begun: rows read before that "
                    f"are not in it (its id was {before}, now {identity})",
                    hint="start over with fresh=True, or under another job name, to fill it from the beginning",
                )
        if dict(known) != dict(identities):
            self._write(replace(bound, targets=dict(identities)))

    @property
    def query_id(self) -> str | None:
        """Spark's id of the query; None if the checkpoint has none yet."""
        with usable(self.url):
            if not self.log.files.exists(self._path(METADATA)):
                return None
            return str(json.loads(self.log.files.cat_file(self._path(METADATA)))["id"])

    def _begin(self, now: Binding, new_query: bool) -> Binding:
        """Bind a checkpoint that has read nothing yet, also if an earlier start has bound it to another pipeline."""
        if not new_query and self._bound_to(now):
            # Spark can't plan a first epoch over a partial file that a dead driver has left.
            self._remove(*(set(_CONTENTS) - {METADATA, _OURS}))
            return replace(now, query_id=self.query_id)
        self._remove(*_CONTENTS)
        self._write(now)
        # Spark adopts an existing id. Our own copy of it lets a repair rewrite a damaged file.
        assert now.query_id is not None
        write_durably(self.log.files, self._path(METADATA), metadata_of(now.query_id))
        return now

    def _binding(self) -> Binding:
        path = self._path(PIPELINE)
        try:
            return Binding.parse(self.log.files.cat_file(path), path)
        except MALFORMED as error:
            raise malformed(path, error) from error

    def _bound_to(self, now: Binding) -> bool:
        try:
            old = Binding.parse(self.log.files.cat_file(self._path(PIPELINE)), self._path(PIPELINE))
        except (FileNotFoundError, *MALFORMED):
            return False
        try:
            same_query = old.query_id is not None and old.query_id == self.query_id
        except StorageError:
            return False
        same_targets = set(old.targets or ()) == set(now.targets or ())
        return same_query and same_targets and (old.sources, old.stateful) == (now.sources, now.stateful)

    def _write(self, binding: Binding) -> None:
        with usable(self.url):
            write_durably(self.log.files, self._path(PIPELINE), binding.to_bytes())

    def _exists(self, name: str) -> bool:
        return bool(self.log.files.exists(self._path(name)))

    def _mark(self, name: str) -> None:
        write_durably(self.log.files, self._path(name), b"")

    def _remove(self, *names: str) -> None:
        for name in names:
            if self._exists(name):
                self.log.files.rm(self._path(name), recursive=True)

    def _move(self, source: str, target: str, names: Iterable[str]) -> None:
        """Move parts of the checkpoint from one subfolder to another, file by file, in this order.

        After an interruption every file is in one of the two, so moving them back restores the checkpoint.
        """
        files, begin = self.log.files, self._path(source)
        for name in names:
            folder = self._path(posixpath.join(source, name))
            for path in files.find(folder):
                destination = self._path(posixpath.join(target, posixpath.relpath(path, begin)))
                make_folder(files, posixpath.dirname(destination))
                files.mv(path, destination)
            self._remove(posixpath.join(source, name))

    def _path(self, name: str) -> str:
        return f"{self.log.root}/{name}".rstrip("/")


def reserve(checkpoint: str, job: str) -> None:
    """Reserve a checkpoint for one job, until `release`.

    Raises:
        PlanError: If a job of this process already runs on it, or was stopped and its query has not ended.
    """
    with _lock:
        if (query := _hanging.get(_resolved(checkpoint))) and query.is_alive():
            raise PlanError(
                f"job {job!r} was stopped, but its query on checkpoint {checkpoint} has not ended: a source hangs",
                hint="it ends once the source answers; or start the job in another process, after the end of this one",
            )
        if _resolved(checkpoint) in _running:
            raise PlanError(
                f"job {job!r} runs in this process already, on checkpoint {checkpoint}",
                hint="stop it first (Job.stop), or give the other one another name",
            )
        _running.add(_resolved(checkpoint))


def release(checkpoint: str) -> None:
    """Release a checkpoint for the next job."""
    with _lock:
        _running.discard(_resolved(checkpoint))


def note_hanging(checkpoint: str, await_end: Callable[[], object]) -> None:
    """Note that a query on a checkpoint has not ended though it was stopped: until it has, no job can run on it."""
    waiting = threading.Thread(target=await_end, name="volley-hanging", daemon=True)
    waiting.start()
    with _lock:
        _hanging[_resolved(checkpoint)] = waiting


def _resolved(checkpoint: str) -> str:
    """Return the folder's path with symbolic links resolved."""
    folder = checkpoint.removeprefix("file://")
    return folder if "://" in folder else os.path.realpath(folder)


@contextmanager
def claim(checkpoint: str, job: str) -> Iterator[None]:
    """Reserve a checkpoint while the block runs."""
    reserve(checkpoint, job)
    try:
        yield
    finally:
        release(checkpoint)
