"""The folder that a job goes on from: what pipeline it was begun with, and whether it may go on with this one."""

from __future__ import annotations

import json
import logging
import posixpath
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import quote

from volley.errors import ConfigError, PlanError, StorageError
from volley.plan import nodes
from volley.spark.log import COMMITS, METADATA, OFFSETS, STATE, SparkLog, metadata_of, usable
from volley.storage.durable import write_durably

__all__ = ["PIPELINE", "Binding", "Checkpoint", "locate"]

_log = logging.getLogger(__name__)

_OURS = "volley"
PIPELINE = f"{_OURS}/pipeline.json"
# Nothing else in the folder is touched: a user may have named one that holds other files.
_CONTENTS = (METADATA, f".{METADATA}.crc", OFFSETS, COMMITS, "sources", STATE, _OURS)
# Of a file or folder on the local disk.
_LONGEST_NAME = 255
_ASIDE = "replaced"
# In it: everything was moved there; it is being deleted.
_COMPLETE = f"{_ASIDE}/complete"
_FORGOTTEN = f"{_ASIDE}/forgotten"


def locate(checkpoint_dir: str | None, job: str) -> str:
    """The checkpoint folder of a job as an absolute path or URL.

    Args:
        checkpoint_dir: The folder that holds the checkpoints of all jobs; None = ``.volley/checkpoints``.
        job: The job's name; characters that don't belong in a file name are escaped.

    Raises:
        ConfigError: If the name is too long for a folder's.
    """
    name = quote(job, safe=" ")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if checkpoint_dir and "://" in checkpoint_dir:
        return f"{checkpoint_dir.rstrip('/')}/{name}"
    if len(name) > _LONGEST_NAME:
        raise ConfigError(
            f"job name {job[:40]!r}… is too long: its checkpoint's folder would have {len(name)} bytes in its name",
            hint=f"at most {_LONGEST_NAME}; a character that is not ASCII takes up to 12",
        )
    return str(Path(checkpoint_dir or ".volley/checkpoints").absolute() / name)


@dataclass(frozen=True)
class Binding:
    """What a checkpoint was begun with.

    Args:
        query_id: Spark's id of the query; None in a checkpoint of version 0.1.0, whose id only Spark's file has.
        sources: What the offsets in it mean, one entry a source.
        stateful: What the state in it means, one entry a stateful step; None if that was lost, as are the sources.
        targets: The name of each sink's target with its identity; None if that was lost.
    """

    query_id: str | None = None
    sources: Sequence[str] | None = None
    stateful: Sequence[str] | None = None
    targets: Mapping[str, str | None] | None = None

    @classmethod
    def of(cls, writes: Sequence[nodes.Write], path: nodes.ExecutionPath, targets: Sequence[str]) -> Binding:
        """The binding of a job; no target has an identity before it is opened."""
        sources = [read.source.identity for read in nodes.reads(writes, path)]
        stateful = [step.label() for step in nodes.stateful(writes, path)]
        return cls(str(uuid.uuid4()), sources, stateful, dict.fromkeys(targets))

    @classmethod
    def parse(cls, data: bytes) -> Binding:
        """The binding in the bytes of a ``pipeline.json``.

        Raises:
            ValueError: If they are damaged.
        """
        values = json.loads(data)
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        return cls(**{name: values.get(name) for name in cls.__dataclass_fields__})

    def to_bytes(self) -> bytes:
        """The bytes of a ``pipeline.json``."""
        return json.dumps(asdict(self), indent=2).encode()


class Checkpoint:
    """A job's checkpoint folder.

    Args:
        url: Its path or fsspec URL; it may not exist yet.
        job: The job's name.
    """

    def __init__(self, url: str, job: str) -> None:
        self.url = url
        self.job = job
        self.log = SparkLog(url)

    @property
    def begun(self) -> bool:
        """True if rows were read with it: an epoch is planned."""
        return self.log.last_planned is not None

    def check_ours(self) -> None:
        """Raise PlanError if another program keeps its checkpoint in the folder."""
        with usable(self.url):
            foreign = self.log.files.exists(self._path(METADATA)) and not self.log.files.exists(self._path(_OURS))
        if foreign:
            raise PlanError(
                f"checkpoint {self.url} was not made by Volley, or its folder {_OURS!r} is gone",
                hint="give the job another checkpoint_dir or name, or restore the folder",
            )

    def set_aside(self) -> None:
        """Move what the folder has of a checkpoint out of the way, so that the job starts over.

        Raises:
            PlanError: If the checkpoint was not made by Volley.
            StorageError: If it can't be moved.
        """
        with usable(self.url):
            self.check_ours()
            self._move("", _ASIDE, _CONTENTS)
            self._mark(_COMPLETE)

    def restore(self) -> None:
        """Put back what was set aside: the job could not start over. It may have been set aside in part only.

        Raises:
            StorageError: If it can't be moved.
        """
        with usable(self.url):
            if self._exists(_COMPLETE):
                # What the folder has is of the start over.
                self._remove(*_CONTENTS)
                self._remove(_COMPLETE)
            # Our own files first: without them the folder would look like another program's.
            self._move(_ASIDE, "", _CONTENTS[::-1])
            self._remove(_ASIDE)

    def forget(self) -> None:
        """Delete what was set aside: the job has started over.

        Raises:
            StorageError: If it can't be deleted.
        """
        with usable(self.url):
            if self._exists(_ASIDE):
                self._mark(_FORGOTTEN)
                self._remove(*(f"{_ASIDE}/{name}" for name in _CONTENTS), _COMPLETE)
                self._remove(_ASIDE)

    def settle(self) -> None:
        """Finish or undo a start over in whose middle the process died.

        Raises:
            PlanError: If the checkpoint was not made by Volley.
            StorageError: If the folder can't be used.
        """
        with usable(self.url):
            self.check_ours()
            if not self._exists(_ASIDE):
                return
            if self._exists(_FORGOTTEN) or (self._exists(_COMPLETE) and self.begun):
                self.forget()
            else:
                _log.warning("%s: the last start was to start over and died: its old checkpoint is put back", self.job)
                self.restore()

    def bind(self, now: Binding, sinks: Sequence[str], backfill: bool, anew: bool) -> Binding:
        """Bind a new checkpoint to a job, or check that the job may go on from an old one.

        Steps that keep no state may change between two runs. Sources and stateful steps may not: the offsets and
        the state in the checkpoint mean nothing to others. A new target lacks the rows of all epochs so far.

        Args:
            now: The binding of the job.
            sinks: The names of what its sinks write to; the other targets are dead letters, which may come and go.
            backfill: True if new targets are filled with the rows of all epochs so far.
            anew: True if a checkpoint that has read nothing gets a new query, which no target has epochs of.

        Returns:
            What the checkpoint was begun with.

        Raises:
            PlanError: If the checkpoint belongs to another pipeline; says what differs.
            StorageError: If the checkpoint folder can't be read or written.
        """
        with usable(self.url):
            self.check_ours()
            if not self.begun:
                return self._begin(now, anew)
            old = Binding.parse(self.log.files.cat_file(self._path(PIPELINE)))
        _compare(old, now, self.url)
        if old.targets is not None:
            dropped = sorted(set(old.targets) - set(now.targets or ()))
            _compare_targets(self.job, self.url, sorted(set(sinks) - set(old.targets)), dropped, backfill)
        return replace(old, query_id=self.query_id, sources=now.sources, stateful=now.stateful)

    def bind_targets(self, bound: Binding, identities: Mapping[str, str | None]) -> None:
        """Bind the checkpoint to the targets that are open now, or check that they are the ones it was begun with.

        A table that was dropped and made again has none of the rows before: a job that went on from its checkpoint
        would leave them out without a word.

        Args:
            bound: What the checkpoint was begun with.
            identities: The name of each target with its identity.

        Raises:
            PlanError: If a target is another one than when the checkpoint was begun.
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
        """Spark's id of the query; None if Spark has written none yet."""
        with usable(self.url):
            if not self.log.files.exists(self._path(METADATA)):
                return None
            found: str = json.loads(self.log.files.cat_file(self._path(METADATA)))["id"]
            return found

    def _begin(self, now: Binding, anew: bool) -> Binding:
        """Bind a checkpoint that has read nothing yet, whatever pipeline an earlier start has bound it to."""
        if not anew and self._bound_to(now):
            # Spark refuses to plan a first epoch over the half of a file that a dead driver has left there.
            self._remove(*(set(_CONTENTS) - {METADATA, _OURS}))
            return replace(now, query_id=self.query_id)
        self._remove(*_CONTENTS)
        self._write(now)
        # Spark takes the id that it finds; known beforehand, it can be written again when the file is damaged.
        assert now.query_id is not None
        write_durably(self.log.files, self._path(METADATA), metadata_of(now.query_id))
        return now

    def _bound_to(self, now: Binding) -> bool:
        try:
            old = Binding.parse(self.log.files.cat_file(self._path(PIPELINE)))
            same_query = old.query_id is not None and old.query_id == self.query_id
        except (FileNotFoundError, StorageError, ValueError):
            return False
        same_targets = set(old.targets or ()) == set(now.targets or ())
        return same_query and same_targets and (old.sources, old.stateful) == (now.sources, now.stateful)

    def _write(self, binding: Binding) -> None:
        with usable(self.url):
            write_durably(self.log.files, self._path(PIPELINE), binding.to_bytes())

    def _exists(self, name: str) -> bool:
        found: bool = self.log.files.exists(self._path(name))
        return found

    def _mark(self, name: str) -> None:
        write_durably(self.log.files, self._path(name), b"")

    def _remove(self, *names: str) -> None:
        for name in names:
            if self._exists(name):
                self.log.files.rm(self._path(name), recursive=True)

    def _move(self, source: str, target: str, names: Iterable[str]) -> None:
        """Move parts of the checkpoint from one place below the folder to another, file by file, in this order.

        If it is interrupted, every file is in one of the places, and moving them back puts all of them together.
        """
        files, begin = self.log.files, self._path(source)
        for name in names:
            place = self._path(posixpath.join(source, name))
            for path in files.find(place):
                goal = self._path(posixpath.join(target, posixpath.relpath(path, begin)))
                files.makedirs(posixpath.dirname(goal), exist_ok=True)
                files.mv(path, goal)
            self._remove(posixpath.join(source, name))

    def _path(self, name: str) -> str:
        return f"{self.log.root}/{name}".rstrip("/")


def _compare(old: Binding, now: Binding, checkpoint: str) -> None:
    for part, before, after in (
        ("sources", old.sources, now.sources),
        ("stateful steps", old.stateful, now.stateful),
    ):
        if before is not None and before != after:
            raise PlanError(
                f"the pipeline's {part} have changed since checkpoint {checkpoint} was begun: "
                f"then {before}, now {after}",
                hint="go on with the old pipeline, or start the new one over with fresh=True or under another job name "
                "(it reads its sources from the beginning)",
            )


def _compare_targets(job: str, checkpoint: str, added: Sequence[str], dropped: Sequence[str], backfill: bool) -> None:
    if added and not backfill:
        gone = f" in place of {', '.join(dropped)}" if dropped else ""
        raise PlanError(
            f"job {job!r} writes to {', '.join(added)} now{gone}, where the rows would be missing that were read "
            f"since checkpoint {checkpoint} was begun",
            hint="fill the new target with them: backfill=True, which adds nothing to a table that was only renamed; "
            "or start over: fresh=True; or use another job name",
        )
    if dropped:
        _log.info("%s no longer writes to %s", job, ", ".join(dropped))
