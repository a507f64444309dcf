"""Writes the rows of a joined table to files in the checkpoint: all of them, or those that its changes touch."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa

from volley.columns.join_index import JoinBuckets, JoinIndex
from volley.contracts.dimension import DimensionReader, Version
from volley.engine.join_changes import NotApplicableError, changed_indices
from volley.engine.join_indices import read_indices
from volley.plan.joins import TableJoin
from volley.spark.log import usable
from volley.storage.durable import create_durably
from volley.storage.paths import filesystem
from volley.storage.state_formats import JOIN_LIST, JOIN_ROWS
from volley.store.files import new_file
from volley.task.joined_rows import TableFile, bucket_file, list_file, read_index, read_list, read_pin

__all__ = ["JoinFiles", "sizes_in"]


def sizes_in(folder: str) -> dict[str, int]:
    """Return the names of the files in a folder, to which another driver may write, too, and their bytes."""
    files, path = filesystem(folder, {})
    files.invalidate_cache()
    return {posixpath.basename(file): info["size"] for file, info in files.find(path, maxdepth=1, detail=True).items()}


@dataclass(frozen=True)
class JoinFiles:
    """The files of one join.

    Args:
        reader: Reads the table.
        join: The join.
        folder: The URL of the table's folder.
        layout: The digest of the join's keys, columns and `max_bytes`.
        sizes: The names of the files in the folder, and their bytes; those that are written are added.
        after_file: Called after each file.
    """

    reader: DimensionReader
    join: TableJoin
    folder: str
    layout: str
    sizes: dict[str, int]
    after_file: Callable[[], None]

    def write(self, version: Version, epoch: int) -> list[TableFile]:
        """Write the rows of a version, unless they are there; return the files that were written.

        Raises:
            PlanError: If the rows of one key take too many bytes.
            VolleyError: If the table can't be read.
        """
        url = list_file(self.folder, self.layout, version)
        if self._whole(url):
            return []
        written: list[TableFile] = []
        try:
            files = self._change(version, epoch, written)
        except NotApplicableError:
            self._remove([file.name for file in written])
            files = written = self._read(version)
        data = JOIN_LIST.dump([asdict(file) for file in files])
        with usable(self.folder):
            create_durably(*filesystem(url, {}), data)
        self.sizes[posixpath.basename(url)] = len(data)
        return written

    def _whole(self, url: str) -> list[TableFile]:
        """Return the files of a version; none if one of them is not there, or cut off."""
        if posixpath.basename(url) not in self.sizes:
            return []
        with usable(self.folder):
            listed = read_list(url)
        damaged = [file.name for file in listed if self.sizes.get(file.name) != file.size]
        if not damaged:
            return listed
        self._remove([posixpath.basename(url), *(name for name in damaged if name in self.sizes)])
        return []

    def _read(self, version: Version) -> list[TableFile]:
        indices = read_indices(self.reader, self.join, version)
        return [self._write(version, indices.bits, *index) for index in enumerate(indices.batches)]

    def _change(self, version: Version, epoch: int, written: list[TableFile]) -> list[TableFile]:
        """Write the files that have changed since the epoch before, and return all files of the version.

        Raises:
            NotApplicableError: If the table has to be read; the files that were written are of no use.
        """
        epochs = [int(name.removesuffix(".json")) for name in self.sizes if name.endswith(".json")]
        last = max((number for number in epochs if number < epoch), default=None)
        if last is None:
            raise NotApplicableError
        with usable(self.folder):
            before = read_pin(self.folder, last)
        files = self._whole(list_file(self.folder, self.layout, before))
        if not files:
            raise NotApplicableError
        bits = len(files).bit_length() - 1
        changed = list(files)

        def load(bucket: int) -> JoinIndex:
            with usable(self.folder):
                return read_index(f"{self.folder}/{files[bucket].name}")

        for bucket, index in changed_indices(self.reader, self.join, before, version, JoinBuckets(bits, load)):
            changed[bucket] = self._write(version, bits, bucket, index)
            written.append(changed[bucket])
        return changed

    def _write(self, version: Version, bits: int, bucket: int, index: pa.RecordBatch) -> TableFile:
        url = bucket_file(self.folder, self.layout, version, bits, bucket)
        with new_file(url, JOIN_ROWS) as file:
            file.write_batch(index)
        name = posixpath.basename(url)
        self.sizes[name] = file.size
        self.after_file()
        return TableFile(name, file.size)

    def _remove(self, names: Iterable[str]) -> None:
        files, folder = filesystem(self.folder, {})
        with usable(self.folder):
            for name in names:
                files.rm_file(f"{folder}/{name}")
                del self.sizes[name]
