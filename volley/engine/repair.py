"""Finds files of a checkpoint that a power loss damaged, and repairs those that can be repaired safely."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from volley import checks
from volley.connectors.files.log import farthest, number_of_entries
from volley.engine.binding import Binding
from volley.engine.checkpoint import PIPELINE, claim
from volley.errors import StorageError, brief
from volley.spark.log import COMMITS, METADATA, OFFSETS, SparkLog, checksums_of, is_log_entry, metadata_of, usable
from volley.storage.durable import write_durably
from volley.storage.envelope import StateFormat
from volley.storage.remembered import MALFORMED
from volley.storage.state_formats import INITIAL_OFFSET, LANDED, RUN, SCHEMA
from volley.types.arrow import read_schema

__all__ = ["check_files", "repair"]

_INITIAL_OFFSET = "initial-offset.json"


@dataclass(frozen=True)
class Damage:
    """A file of a checkpoint that is missing, empty, truncated or changed.

    Args:
        remedy: What a repair does; None = no repair is safe.
        drop: The files that the repair deletes.
        new: The bytes that the repair writes to the file; None = none.
    """

    path: str
    fault: str
    remedy: str | None
    drop: tuple[str, ...] = ()
    new: bytes | None = None

    def error(self, checkpoint: str) -> StorageError:
        """Return the damage as an error whose hint says how to repair it."""
        hint = (
            f"volley.repair({checkpoint!r}) {self.remedy}"
            if self.remedy
            else "it is not safe to delete it: restore it from a backup, or start over with fresh=True"
        )
        return StorageError(f"checkpoint file {self.path} {self.fault}", hint=hint)


def check_files(log: SparkLog) -> None:
    """Check the files that Spark or the job reads at its start.

    Raises:
        StorageError: If one is damaged; the hint says whether a repair is safe.
    """
    if damage := next(_damages(log), None):
        raise damage.error(log.checkpoint)


@brief
def repair(checkpoint: str | os.PathLike[str]) -> list[str]:
    """Repair a damaged checkpoint, after a power loss for example, as far as that is safe.

    Spark plans an epoch again whose entry is damaged: the epoch is repeated, never skipped. If a table already has the
    epoch with other rows, the job's next start raises.

    Args:
        checkpoint: The folder that the error names; a path or an fsspec URL.

    Returns:
        A sentence for each repaired file; empty if nothing was damaged.

    Raises:
        StorageError: If a damaged file can't be repaired safely, or the folder is not a checkpoint or can't be used.
            Files that were repaired before stay repaired.
        PlanError: If the job runs in this process.
        ConfigError: If `checkpoint` is not a path.

    Example:
        >>> repair("/no/such/checkpoint")
        Traceback (most recent call last):
        volley.errors.StorageError: there is no checkpoint /no/such/checkpoint
          hint: give the folder that the error names
    """
    url = checks.path("checkpoint", checkpoint).rstrip("/")
    log = SparkLog(url)
    repaired: list[str] = []
    with claim(url, posixpath.basename(url)), usable(url):
        if not log.files.exists(log.root):
            raise StorageError(f"there is no checkpoint {url}", hint="give the folder that the error names")
        if not log.files.exists(f"{log.root}/volley"):
            raise StorageError(
                f"{url} is no checkpoint of Volley's: it has no folder 'volley'",
                hint="give the job's own folder, which has the job's name",
            )
        while damage := next(_all_damages(log), None):
            if damage.remedy is None:
                raise damage.error(url)
            _apply(log, damage)
            repaired.append(f"{damage.path} {damage.fault}: {damage.remedy}")
    return repaired


def _apply(log: SparkLog, damage: Damage) -> None:
    for path in damage.drop:
        for file in (path, checksums_of(path)):
            if log.files.exists(file):
                log.files.rm_file(file)
    if damage.new is not None:
        write_durably(log.files, damage.path, damage.new)


def _all_damages(log: SparkLog) -> Iterator[Damage]:
    yield from _damages(log)
    yield from _damages_of_records(log)
    if log.last_planned is not None:
        yield from _damages_of_sources(log)


def _damages(log: SparkLog) -> Iterator[Damage]:
    """Yield the damages of the files that every job has; none before the first epoch is planned."""
    planned, done = log.epochs(OFFSETS), log.epochs(COMMITS)
    if not (planned or done) or not log.files.exists(f"{log.root}/volley"):
        return
    with usable(log.checkpoint):
        binding, query_id = _binding(log), _query_id(log)
        if binding is None:
            data = Binding(query_id).to_bytes()
            remedy = "forgets which sources and sinks the job had: make sure that they are the same"
            yield Damage(f"{log.root}/{PIPELINE}", _fault(log, PIPELINE), remedy, new=data)
            return
        yield from _damages_of_metadata(log, binding, query_id)
        yield from _damages_of_offsets(log, planned, len(binding.sources or ()))
        yield from _damages_of_commits(log, done, max(planned, default=-1))


def _binding(log: SparkLog) -> Binding | None:
    path = f"{log.root}/{PIPELINE}"
    try:
        return Binding.parse(log.files.cat_file(path), path)
    except (FileNotFoundError, *MALFORMED):
        return None


def _query_id(log: SparkLog) -> str | None:
    try:
        return str(json.loads(log.files.cat_file(f"{log.root}/{METADATA}"))["id"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _fault(log: SparkLog, name: str) -> str:
    path = f"{log.root}/{name}"
    if not log.files.exists(path):
        return "is missing"
    return "is empty" if log.files.size(path) == 0 else "is cut short or changed"


def _damages_of_metadata(log: SparkLog, binding: Binding, query_id: str | None) -> Iterator[Damage]:
    path, known = f"{log.root}/{METADATA}", binding.query_id
    if query_id is not None and known in (None, query_id):
        yield from _damaged_checksums(log, path)
        return
    if known is None:
        yield Damage(path, _fault(log, METADATA), None)
        return
    yield Damage(path, _fault(log, METADATA), "writes the query's id into it again", (path,), metadata_of(known))


def _damages_of_offsets(log: SparkLog, planned: list[int], sources: int) -> Iterator[Damage]:
    # Spark reads the last two entries when a query starts.
    needed = range(max(0, planned[-1] - 1), planned[-1] + 1) if planned else ()
    for epoch in needed:
        name = f"{OFFSETS}/{epoch}"
        later = [f"{log.root}/{folder}/{number}" for folder in (OFFSETS, COMMITS) for number in log.epochs(folder)]
        drop = tuple(path for path in later if int(posixpath.basename(path)) >= epoch)
        remedy = f"makes the job plan epoch {epoch} and later ones again; tables that have them already are checked"
        yield from _damaged_entry(log, name, sources, remedy, drop)


def _damages_of_commits(log: SparkLog, done: list[int], last_planned: int) -> Iterator[Damage]:
    for epoch in (epoch for epoch in done if epoch > last_planned):
        path = f"{log.root}/{COMMITS}/{epoch}"
        yield Damage(path, f"has no {OFFSETS}/{epoch} beside it", "makes the job plan the epoch again", (path,))
    for epoch in done[-2:]:
        path = f"{log.root}/{COMMITS}/{epoch}"
        yield from _damaged_entry(
            log, f"{COMMITS}/{epoch}", 0, "makes the job repeat the epoch, or skip it where it is committed", (path,)
        )


def _damaged_entry(log: SparkLog, name: str, sources: int, remedy: str, drop: tuple[str, ...]) -> Iterator[Damage]:
    path = f"{log.root}/{name}"
    if not log.files.exists(path) or not is_log_entry(log.files.cat_file(path), sources):
        yield Damage(path, _fault(log, name), remedy, drop)
        return
    if log.checksums(path) is False:
        yield Damage(path, "does not fit its checksums", remedy, drop)
    yield from _damaged_checksums(log, path)


def _damaged_checksums(log: SparkLog, path: str) -> Iterator[Damage]:
    checksums = checksums_of(path)
    if log.files.exists(checksums) and log.checksums(path) is None:
        yield Damage(checksums, "is damaged", "deletes it: the file beside it is whole", (checksums,))


def _damages_of_records(log: SparkLog) -> Iterator[Damage]:
    """Yield the damages of what the job has written down of its runs."""
    for name, format, remedy in (
        ("landed.json", LANDED, "deletes it: make sure that no target is an old copy, which it would have told"),
        ("run.json", RUN, None),
    ):
        path = f"{log.root}/volley/{name}"
        if log.files.exists(path) and not _parses(log, path, format, _is_object):
            yield Damage(path, "is damaged", remedy, (path,))


def _is_object(data: bytes) -> bool:
    return isinstance(json.loads(data), dict)


def _damages_of_sources(log: SparkLog) -> Iterator[Damage]:
    """Yield the damages of the sources' files; at a start, each source checks its own."""
    for source in sorted(log.files.ls(f"{log.root}/volley", detail=False)):
        for name, (format, parse) in _SOURCE_FILES.items():
            path = f"{source}/{name}"
            if log.files.exists(path) and not _parses(log, path, format, parse):
                yield Damage(path, "is damaged", _remedy(log, name), (path,))
        if log.files.exists(f"{source}/files"):
            yield from _damages_of_file_log(log, f"{source}/files")


def _remedy(log: SparkLog, name: str) -> str | None:
    if name == _INITIAL_OFFSET:
        # Only the first epoch starts at the initial offset.
        return "deletes it: no epoch needs it any more" if log.epochs(COMMITS) else None
    return "deletes it: the job infers the schema again"


def _damages_of_file_log(log: SparkLog, folder: str) -> Iterator[Damage]:
    number = int(folder.rpartition("/source-")[2].partition("/")[0])
    assert log.last_planned is not None
    logged_files = int(json.loads(log.offsets(log.last_planned)[number])["files"])
    url = f"{log.checkpoint}{folder.removeprefix(log.root)}"
    parts = farthest(url, map(posixpath.basename, log.files.ls(folder, detail=False)))
    entries = 0
    while part := parts.pop(entries, None):
        try:
            entries += number_of_entries(part)
        except StorageError as error:
            # A newer Volley's file is not damaged.
            if error.__cause__ is None:
                raise
            remedy = "deletes it: its files are found again" if part.first >= logged_files else None
            later = (other for other in parts.values() if other.first > part.first)
            path, *paths = (f"{folder}/{posixpath.basename(file.url)}" for file in (part, *later))
            yield Damage(path, "is damaged", remedy, (path, *paths))
            return
    if entries < logged_files or any(first > entries for first in parts):
        yield Damage(f"{folder}/{entries:012}.json", "is missing", None)


def _parses(log: SparkLog, path: str, format: StateFormat, parse: Callable[[bytes], object]) -> bool:
    try:
        return parse(format.unseal(log.files.cat_file(path), path)) is not False
    except MALFORMED:
        return False


_SOURCE_FILES: dict[str, tuple[StateFormat, Callable[[bytes], object]]] = {
    "schema.arrow": (SCHEMA, read_schema),
    "schema.avsc": (SCHEMA, json.loads),
    _INITIAL_OFFSET: (INITIAL_OFFSET, json.loads),
}
