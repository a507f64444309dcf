"""The file log: the files that a FileSource has listed, in reading order; offsets count its entries and prove them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from volley.source import Offset
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed
from volley.storage.state_formats import FILE_LOG

__all__ = ["FileLog", "LoggedFile"]

_DIGEST_BYTES = 12


@dataclass(frozen=True)
class LoggedFile:
    """A file as it was when it was first listed.

    Args:
        path: Its path in the file system.
        size: Its size in bytes.
        modified: When it was last written, in seconds since 1970; None = unknown, as in logs of Volley 0.2.
    """

    path: str
    size: int
    modified: float | None = None


@dataclass
class FileLog:
    """An append-only log in a folder beside the checkpoint: one JSON file per listing that had new files.

    An entry is logged before an offset counts it, so that the same offsets mean the same files after a crash. Beside
    the count an offset has a hash of all files up to it: after an old copy of the checkpoint was put back, the same
    number of files may be other files. Offsets of Volley 0.2 have the count alone.

    Only the copy of the reader that Spark's query asks for offsets writes the log; others read the new entries when an
    offset needs them.

    Args:
        folder: The fsspec URL of the log's folder; it may not exist yet.
    """

    folder: str
    _entries: list[LoggedFile] | None = field(default=None, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)
    _hashes: list[bytes] = field(default_factory=lambda: [b""], repr=False)

    def __reduce__(self) -> tuple[type[FileLog], tuple[str]]:
        # Executors don't need the entries, and the query's reader reads them again: keep what is sent with tasks small.
        return FileLog, (self.folder,)

    @property
    def entries(self) -> Sequence[LoggedFile]:
        """All logged files, in order."""
        if self._entries is None:
            self._entries = []
            self._read_on()
        return self._entries

    @property
    def paths(self) -> Collection[str]:
        """The paths of all logged files."""
        return self._seen if self.entries else ()

    def offset(self, count: int) -> Offset:
        """Return the offset behind the first `count` entries."""
        for file in self.entries[len(self._hashes) - 1 : count]:
            self._hashes.append(_chained(self._hashes[-1], file))
        return {"files": count, "hash": self._hashes[count].hex()} if count else {"files": 0}

    def count(self, offset: Offset) -> int:
        """Return the number of entries before an offset.

        Raises:
            StorageError: If the log has fewer entries, because one of its files is missing, or if they are not those
                that the offset stands for.
        """
        count = int(offset["files"])
        if count > len(self.entries):
            self._read_on()
        if count > len(self.entries):
            raise damaged(
                f"{self._root}/{len(self.entries):012}.json",
                f"is missing: the checkpoint has read {count} files, its log of files has {len(self.entries)}",
            )
        if "hash" in offset and self.offset(count) != offset:
            raise damaged(self._root, f"has other files than the {count} that the checkpoint has read")
        return count

    def append(self, listed: Sequence[LoggedFile]) -> None:
        """Log the new files of a listing, in its order."""
        count = len(self.entries)
        new = [file for file in listed if file.path not in self._seen]
        if not new:
            return
        files, root = filesystem(self.folder, {})
        write_durably(files, f"{root}/{count:012}.json", FILE_LOG.dump([asdict(file) for file in new]))
        assert self._entries is not None
        self._entries += new
        self._seen.update(file.path for file in new)

    def _read_on(self) -> None:
        """Read the entries that were logged after the known ones."""
        assert self._entries is not None
        files, root = filesystem(self.folder, {})
        files.invalidate_cache()
        if not files.exists(root):
            return
        first = f"{len(self._entries):012}.json"
        logged = ((name.rpartition("/")[2], name) for name in files.ls(root, detail=False))
        for name in sorted(name for file, name in logged if file.endswith(".json") and file >= first):
            self._entries += self._logged(name, files.cat_file(name))
        self._seen.update(entry.path for entry in self._entries)

    def _logged(self, path: str, data: bytes) -> list[LoggedFile]:
        """Return the entries of one file of the log; its name is the number of entries before it."""
        assert self._entries is not None
        count = len(self._entries)
        if path.rpartition("/")[2] != f"{count:012}.json":
            raise damaged(f"{self._root}/{count:012}.json", f"is missing: {path} comes behind it")
        try:
            return [LoggedFile(**entry) for entry in FILE_LOG.load(data, path)]
        except MALFORMED as error:
            raise malformed(path, error) from error

    @property
    def _root(self) -> str:
        return filesystem(self.folder, {})[1]


def _chained(before: bytes, file: LoggedFile) -> bytes:
    """Return the hash of a file and all files before it, given theirs."""
    entry = json.dumps([file.path, file.size, file.modified]).encode()
    return hashlib.blake2b(before + entry, digest_size=_DIGEST_BYTES).digest()
