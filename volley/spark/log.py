"""Reads and writes Spark's files in a checkpoint: the query id, the offset log of planned epochs, the commit log."""

from __future__ import annotations

import hashlib
import json
import re
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from volley.contracts.source import Offset, Reader, Split
from volley.errors import JobError, StorageError, VolleyError
from volley.storage.durable import create_durably, sync, write_atomically

__all__ = [
    "COMMITS",
    "METADATA",
    "NO_OFFSET",
    "OFFSETS",
    "STATE",
    "PlannedEpochs",
    "SparkLog",
    "checksums_of",
    "fits_checksums",
    "full_disk",
    "is_log_entry",
    "metadata_of",
    "storage_error",
    "usable",
]

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
STATE = "state"
_VERSION = "v1"
_COMMITTED = b'v1\n{"nextBatchWatermarkMs":0}'
# The entries before the last one that Spark keeps, too.
_KEPT = 100
# Spark logs this for a source without an offset.
NO_OFFSET = "-"
_FULL = re.compile("no space left|quota exceeded", re.IGNORECASE)
_OF_CHECKPOINT = re.compile("CheckpointFileManager|MetadataLog|OffsetSeqLog|CommitLog|StateStore")


class SparkLog:
    """Spark's log of a query: an entry in ``offsets`` before an epoch runs, one in ``commits`` after it.

    Args:
        checkpoint: The checkpoint's folder, a path or an fsspec URL.
    """

    def __init__(self, checkpoint: str) -> None:
        import fsspec

        self.checkpoint = checkpoint
        with usable(checkpoint):
            self.files, self.root = fsspec.core.url_to_fs(checkpoint)
        self._read: dict[int, tuple[int, list[str]]] = {}
        self._durable: int | None = None
        self._kept: deque[int] | None = None

    def epochs(self, log: str) -> list[int]:
        """Return the epochs in a log, ascending.

        Args:
            log: OFFSETS or COMMITS.
        """
        folder = f"{self.root}/{log}"
        with usable(self.checkpoint):
            self.files.invalidate_cache()
            if not self.files.exists(folder):
                return []
            names = (path.rstrip("/").rpartition("/")[2] for path in self.files.ls(folder, detail=False))
            return sorted(int(name) for name in names if name.isdigit())

    @property
    def last_planned(self) -> int | None:
        """The last epoch in the offset log; None if no epoch was planned."""
        return max(self.epochs(OFFSETS), default=None)

    @property
    def last_finished(self) -> int | None:
        """The last epoch in the commit log; None if there is none."""
        return max(self.epochs(COMMITS), default=None)

    @property
    def unfinished(self) -> int | None:
        """The epoch that is in the offset log, but not in the commit log: the one in which an earlier run died."""
        planned, done = self.last_planned, self.last_finished
        return planned if planned is not None and (done is None or done < planned) else None

    def offsets(self, epoch: int) -> list[str]:
        """Return the offsets at which an epoch ends, one JSON text per source.

        Raises:
            StorageError: If the entry is missing or has an unknown format.
        """
        if epoch not in self._read:
            # Cache one entry: an epoch needs it twice, for its digest and its splits.
            self._read = {epoch: self._entry(epoch)}
        return self._read[epoch][1]

    def clock(self, epoch: int) -> int:
        """Return when an epoch was planned, by the clock of the driver: microseconds since 1970.

        Raises:
            StorageError: If the entry is missing or has an unknown format.
        """
        self.offsets(epoch)
        return self._read[epoch][0] * 1_000

    def plan(self, epoch: int, offsets: Sequence[str]) -> None:
        """Write the entry of an epoch that is planned, durably.

        Args:
            offsets: Where it ends, a JSON text per source.

        Raises:
            JobError: If there is one already: another driver runs the job.
            StorageError: If it can't be written.
        """
        # The clock may have been set back since.
        before = self.clock(epoch - 1) // 1_000 if epoch else 0
        now = max(round(time.time() * 1000), before)
        settings = {"batchWatermarkMs": 0, "batchTimestampMs": now, "conf": {}}
        text = "\n".join([_VERSION, json.dumps(settings, separators=(",", ":")), *offsets])
        path, data = f"{self.root}/{OFFSETS}/{epoch}", text.encode()
        with usable(self.checkpoint):
            # An object store that is asked again, as its first answer was lost, finds this driver's own entry.
            is_own = create_durably(self.files, path, data) or self.files.cat_file(path) == data
        if not is_own:
            raise JobError(
                f"epoch {epoch} was planned by another driver meanwhile, on checkpoint {self.checkpoint}",
                hint="the same job runs twice on one checkpoint: stop one of them; no row is lost or doubled",
            )
        self._read, self._durable = {epoch: (now, list(offsets))}, epoch

    def finish(self, epoch: int) -> None:
        """Write the entry of an epoch that every sink has, and delete old ones as Spark does.

        Raises:
            StorageError: If it can't be written.
        """
        if self._kept is None:
            self._kept = deque(self.epochs(OFFSETS))
        with usable(self.checkpoint):
            write_atomically(self.files, f"{self.root}/{COMMITS}/{epoch}", _COMMITTED)
            self._kept.append(epoch)
            while self._kept[0] < epoch - _KEPT:
                self._delete(self._kept.popleft())

    def _delete(self, epoch: int) -> None:
        for log in (OFFSETS, COMMITS):
            path = f"{self.root}/{log}/{epoch}"
            # Spark's own entries have checksums.
            for name in (path, checksums_of(path)):
                with suppress(FileNotFoundError):
                    self.files.rm_file(name)

    def _entry(self, epoch: int) -> tuple[int, list[str]]:
        """Return when an epoch was planned, in milliseconds since 1970, and a line per source."""
        with usable(self.checkpoint):
            # The version, Spark's settings, a line per source.
            version, settings, *lines = self.files.cat_file(f"{self.root}/{OFFSETS}/{epoch}").decode().splitlines()
            if version != _VERSION:
                raise ValueError(f"{OFFSETS}/{epoch} is not in Spark's form {_VERSION}: {version}")
            return int(json.loads(settings).get("batchTimestampMs", 0)), lines

    def digest(self, epoch: int) -> str:
        """Return a hash of the offsets at which an epoch ends."""
        return hashlib.sha256("\n".join(self.offsets(epoch)).encode()).hexdigest()[:16]

    def make_durable(self, epoch: int) -> None:
        """Sync an epoch's entry to disk before its commit: a power loss then can't lose a committed epoch's offsets."""
        if epoch == self._durable:
            return
        with usable(self.checkpoint):
            sync(self.files, f"{self.root}/{OFFSETS}/{epoch}")
            sync(self.files, f"{self.root}/{OFFSETS}")

    def fault(self, text: str, error: VolleyError, in_epoch: bool) -> StorageError | None:
        """Return the error if the checkpoint caused what Spark raised (disk full, unreadable file); else None.

        Args:
            text: The whole text of Spark's exception.
            error: The exception as a VolleyError.
            in_epoch: True if it was raised within an epoch; outside of one, Spark writes only the checkpoint.
        """
        if (full := full_disk(text)) and (not in_epoch or _OF_CHECKPOINT.search(text)):
            return storage_error(self.checkpoint, full)
        named = re.search(re.escape(self.root) + r"/(?:offsets|commits|metadata|state|sources)\b[\w./-]*", text)
        if named:
            file: str | None = named[0]
        elif "MISSING_STATE_DIRECTORY" in text:
            file = f"{self.root}/{STATE}"
        else:
            # Spark does not always name the file.
            file = None if in_epoch and "StateStore" not in text else self._damaged_state()
        if file is None:
            return None
        return StorageError(
            f"Spark can't read {file} of the checkpoint: {error.message}",
            hint="it is not safe to delete it: restore it from a backup, or start over with fresh=True",
        )

    def _damaged_state(self) -> str | None:
        """Return the first state file that is empty or does not match its checksums; None if all are whole."""
        with usable(self.checkpoint):
            for path in sorted(self.files.find(f"{self.root}/{STATE}")):
                if self.checksums(path) is not True or self.files.size(path) == 0:
                    return str(path)
        return None

    def checksums(self, path: str) -> bool | None:
        """Return whether a file matches Hadoop's checksums; True without any, None if the checksums are damaged."""
        checksums = checksums_of(path)
        if not self.files.exists(checksums):
            return True
        return fits_checksums(self.files.cat_file(path), self.files.cat_file(checksums))


class PlannedEpochs:
    """The splits of each planned epoch.

    Args:
        readers: One per line of an epoch's entry in Spark's offset log, in its order; None = Spark reads that source.
    """

    def __init__(self, log: SparkLog, readers: Sequence[Reader | None]) -> None:
        self.log = log
        self._lines = len(readers)
        self._readers = {line: reader for line, reader in enumerate(readers) if reader is not None}
        self._last = -1, self._initial()

    def splits(self, epoch: int) -> list[tuple[int, Split]]:
        """Return the splits of an epoch, each with the index of its reader.

        Raises:
            StorageError: If the checkpoint can't be read.
            SourceError: If a source does not have these offsets.
        """
        before, starts = self._last
        if before != epoch - 1:
            starts = self.starts(epoch)
        ends = self._ends(epoch)
        self._last = epoch, ends
        return self._between(starts, ends)

    def starts(self, epoch: int) -> list[Offset]:
        """Return where an epoch begins, an offset per reader.

        Raises:
            StorageError: If the checkpoint can't be read.
        """
        return self._ends(epoch - 1) if epoch else self._initial()

    def splits_up_to(self, epoch: int) -> list[tuple[int, Split]]:
        """Return the splits of all epochs up to this one, each with the index of its reader."""
        return self._between(self._initial(), self._ends(epoch))

    def _between(self, starts: Sequence[Offset], ends: Sequence[Offset]) -> list[tuple[int, Split]]:
        return [
            (number, split)
            for number, (reader, start, end) in enumerate(zip(self._readers.values(), starts, ends, strict=True))
            # An epoch has offsets of all sources, also of those without new rows.
            if start != end
            for split in reader.splits(start, end)
        ]

    def _initial(self) -> list[Offset]:
        return [reader.initial_offset() for reader in self._readers.values()]

    def _ends(self, epoch: int) -> list[Offset]:
        lines = self.log.offsets(epoch)
        with usable(self.log.checkpoint):
            if len(lines) != self._lines:
                raise ValueError(f"{OFFSETS}/{epoch} has {len(lines)} sources and not {self._lines}")
            return [
                reader.initial_offset() if lines[line] == NO_OFFSET else json.loads(lines[line])
                for line, reader in self._readers.items()
            ]


@contextmanager
def usable(checkpoint: str) -> Iterator[None]:
    """Turn any exception of the checkpoint's storage into a StorageError that names the folder."""
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        # Each file system has its own exceptions; boto's are not OSErrors.
        raise storage_error(checkpoint, str(error)) from error


def storage_error(checkpoint: str, cause: str) -> StorageError:
    """Return the error for a checkpoint folder that can't be read or written.

    Args:
        cause: The message of the storage, or of Spark.
    """
    if full_disk(cause):
        return StorageError(
            f"the disk under checkpoint folder {checkpoint} is full: {cause}",
            hint="make room there and start the job again: it goes on where it was, nothing is lost or doubled",
        )
    return StorageError(
        f"checkpoint folder {checkpoint} can't be used: {cause}",
        hint="check that it can be written, or give Environment(checkpoint_dir=...) another one",
    )


def full_disk(text: str) -> str | None:
    """Return the last line of an error's text that says that a disk is full; None if none does."""
    lines = [line for line in text.splitlines() if _FULL.search(line)]
    return lines[-1].strip().removeprefix("Caused by: ") if lines else None


def metadata_of(query_id: str) -> bytes:
    """Return the bytes of Spark's ``metadata`` file for a query id."""
    return json.dumps({"id": query_id}, separators=(",", ":")).encode()


def is_log_entry(data: bytes, sources: int) -> bool:
    """Return True if these bytes can be a complete entry of Spark's offset or commit log.

    Args:
        data: The file's bytes.
        sources: The number of lines after the settings: one per source in ``offsets``, none in ``commits``.
    """
    try:
        version, settings, *lines = data.decode().splitlines()
        # Spark writes "-" for a source without an offset; offsets of other sources need not be JSON.
        for text in (settings, *(line for line in lines if line.startswith(("{", "[")))):
            json.loads(text)
    except ValueError:
        return False
    return version[:1] == "v" and len(lines) >= sources and all(lines)


def checksums_of(path: str) -> str:
    """Return the path of Hadoop's checksum file for a file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def fits_checksums(data: bytes, checksums: bytes) -> bool | None:
    """Return whether a file matches Hadoop's checksums; None if the checksums themselves are damaged.

    A checksum file of Hadoop's ChecksumFileSystem: ``crc\\0``, the chunk size in bytes, a CRC-32 per chunk.
    """
    size = int.from_bytes(checksums[4:8], "big")
    if checksums[:4] != b"crc\0" or size == 0:
        return None
    sums = [zlib.crc32(data[start : start + size]).to_bytes(4, "big") for start in range(0, len(data), size)]
    if len(checksums) != 8 + 4 * len(sums):
        return None
    return checksums[8:] == b"".join(sums)
