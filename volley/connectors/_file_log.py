"""The file log: which files a FileSource has seen, in the order in which it takes them; offsets count its entries."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from volley.connectors._paths import filesystem
from volley.errors import SourceError

__all__ = ["FileLog", "LoggedFile"]


@dataclass(frozen=True)
class LoggedFile:
    """A file as it was when it was first seen.

    Args:
        path: Its path in the file system.
        size: Its bytes.
    """

    path: str
    size: int


@dataclass
class FileLog:
    """An append-only log in a folder beside the checkpoint: one JSON file for each time that new files were found.

    An entry is in the log before an offset counts it, so that the same offsets give the same files after a crash.
    Only Spark's planner process writes, which lives as long as the query. Who else wants an offset's entries reads on
    where the log has grown.

    Args:
        folder: The fsspec URL of the log's folder; it may not exist yet.
    """

    folder: str
    _entries: list[LoggedFile] | None = field(default=None, repr=False)
    _seen: set[str] = field(default_factory=set, repr=False)

    def __reduce__(self) -> tuple[type[FileLog], tuple[str]]:
        # Executors need none of it, and the planner reads it anew: what is sent with every task stays small.
        return FileLog, (self.folder,)

    @property
    def entries(self) -> Sequence[LoggedFile]:
        """All files seen so far, in order."""
        if self._entries is None:
            self._entries = []
            self._read_on()
        return self._entries

    @property
    def paths(self) -> Collection[str]:
        """The paths of all files seen so far."""
        return self._seen if self.entries else ()

    def check(self, count: int) -> None:
        """Raise SourceError if the log has fewer entries than this: such an offset is of another log."""
        if count > len(self.entries):
            self._read_on()
        if count > len(self.entries):
            raise SourceError(
                f"the checkpoint has read {count} files, but the log of files in {self.folder} has {len(self.entries)}",
                hint="restore the folder, or start under another job name (it reads all files from the beginning)",
            )

    def append(self, found: Sequence[LoggedFile]) -> None:
        """Log the files that are new, in the given order."""
        count = len(self.entries)
        new = [file for file in found if file.path not in self._seen]
        if not new:
            return
        files, root = filesystem(self.folder, {})
        files.makedirs(root, exist_ok=True)
        # Written under another name first: a crash leaves a whole file or none.
        name, text = f"{root}/{count:012}.json", json.dumps([asdict(file) for file in new])
        files.pipe_file(f"{name}.tmp", text.encode())
        files.mv(f"{name}.tmp", name)
        assert self._entries is not None
        self._entries += new
        self._seen.update(file.path for file in new)

    def _read_on(self) -> None:
        """Read what has been logged behind the entries that are known."""
        assert self._entries is not None
        files, root = filesystem(self.folder, {})
        files.invalidate_cache()
        if not files.exists(root):
            return
        first = f"{len(self._entries):012}.json"
        logged = ((name.rpartition("/")[2], name) for name in files.ls(root, detail=False))
        for name in sorted(name for file, name in logged if file.endswith(".json") and file >= first):
            self._entries += [LoggedFile(**entry) for entry in json.loads(files.cat_file(name))]
        self._seen.update(entry.path for entry in self._entries)
