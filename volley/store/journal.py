"""Files that are numbered by their names, and the journal: entries in such files, published whole, and merged."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Generic, TypeVar

from volley.storage.durable import create_all_durably, write_all_durably, write_durably
from volley.storage.envelope import StateFormat
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed

__all__ = ["Journal", "NumberedFiles"]

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class NumberedFiles:
    """Files in a folder whose names tell their numbers; other files there are none of them.

    Args:
        url: The fsspec URL of the folder; it may not exist yet.
        name: The name of a file, with the place and form of the number.

    Example:
        >>> NumberedFiles("/state", "{:06}.json").url_of(7)
        '/state/000007.json'
    """

    url: str
    name: str

    def numbers(self) -> list[int]:
        """Return the numbers of all files that are there now, in order."""
        return list(self._matches(detail=False))

    def sizes(self) -> dict[int, int]:
        """Return the bytes of all files that are there now, by their numbers, in order."""
        return {number: int(entry["size"]) for number, entry in self._matches(detail=True).items()}

    def url_of(self, number: int) -> str:
        """Return the fsspec URL of a file."""
        return f"{self.url}/{self.name.format(number)}"

    def file(self, number: int) -> tuple[Any, str]:
        """Return the file system of a file, and its path there."""
        return filesystem(self.url_of(number), {})

    def delete(self, number: int) -> None:
        """Delete a file, if it is there."""
        files, path = self.file(number)
        with suppress(FileNotFoundError):
            files.rm_file(path)

    def delete_before(self, number: int) -> None:
        """Delete all files with lower numbers."""
        for lower in self.numbers():
            if lower < number:
                self.delete(lower)

    def _matches(self, detail: bool) -> dict[int, Any]:
        files, folder = filesystem(self.url, {})
        files.invalidate_cache(folder)
        try:
            entries = files.ls(folder, detail=detail)
        except FileNotFoundError:
            return {}
        before, after = re.split(r"\{[^}]*\}", self.name)
        pattern = re.compile(f".*/{re.escape(before)}(\\d+){re.escape(after)}", re.DOTALL)
        matches = {
            int(match[1]): entry
            for entry in entries
            if (match := pattern.fullmatch(entry["name"] if detail else entry))
        }
        return dict(sorted(matches.items()))


@dataclass
class Journal(Generic[T]):
    """Entries below a job's checkpoint, each of which is read from storage once.

    An entry is forced to disk under another name before it gets its own: after a crash it is there whole, or not at
    all. Of several writers that publish one number, one succeeds, and all get its entry. The first entries can be
    merged into one file while others read them; it replaces theirs. Entries that are merged or appended begin with 1;
    others have any number from 0.

    Args:
        url: The fsspec URL of the folder; it may not exist yet.
        parse: Returns an entry from its number and its value of JSON; may raise any of `MALFORMED`.
        name: The name of an entry's file, with the place of the number.
        merged: The format of a file of merged entries; None = there are none.

    Example:
        >>> import tempfile
        >>> example = Journal(tempfile.mkdtemp(), StateFormat("example"), lambda number, value: value["text"])
        >>> example.append({"text": "one"}, {"text": "two"})
        >>> example.entries()
        {1: 'one', 2: 'two'}
    """

    url: str
    format: StateFormat
    parse: Callable[[int, Any], T]
    name: str = "{:06}.json"
    merged: StateFormat | None = None
    _known: dict[int, T] = field(default_factory=dict, init=False, repr=False)
    # The number of the last entry of the merged file that was read.
    _end: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._files = NumberedFiles(self.url, self.name)
        self._merged_files = NumberedFiles(self.url, f"to-{self.name}")

    @property
    def end(self) -> int:
        """The number of the last merged entry; 0 = there is none."""
        return self._end

    def numbers(self) -> list[int]:
        """Return the numbers of all entries that are there now, in order."""
        # List the single ones first: a merged file is there before they are deleted.
        single = self._files.numbers()
        self._read_merged()
        merged = range(1, self._end + 1)
        return [*merged, *(number for number in single if number not in merged)]

    def entries(self) -> dict[int, T]:
        """Return all entries by their numbers, in order.

        Raises:
            StorageError: If one is damaged, or a newer Volley wrote it.
        """
        return {number: self[number] for number in self.numbers()}

    def __getitem__(self, number: int) -> T:
        """Return an entry.

        Raises:
            StorageError: If it is missing or damaged, or a newer Volley wrote it.
        """
        if number not in self._known:
            try:
                self._known[number] = self._parsed(number, self.parse)
            except FileNotFoundError as error:
                # Another process may have merged it.
                self._read_merged()
                if number not in self._known:
                    raise damaged(self._files.file(number)[1], "is missing") from error
        return self._known[number]

    def append(self, *values: Mapping[str, object]) -> None:
        """Publish entries behind the last one, in their order, with numbers from 1.

        Args:
            values: Values of JSON. A file also has a ``token``, by which its writer knows it.
        """
        while values:
            first = max(self.numbers(), default=0) + 1
            tokens = {number: uuid.uuid4().hex for number in range(first, first + len(values))}
            entries = {number: {**values[number - first], "token": token} for number, token in tokens.items()}
            # Others may publish entries of these numbers meanwhile: what comes behind them has to get later numbers.
            create_all_durably(*self._contents(entries), to_first_existing=True)
            published = sum(1 for _ in takewhile(self._is_published, tokens.items()))
            values = values[published:]

    def publish(self, values: Mapping[int, object]) -> dict[int, T]:
        """Publish entries, unless their numbers have some; return the entries that they have then."""
        self._create({number: value for number, value in values.items() if number not in self._known})
        return {number: self[number] for number in values}

    def replace(self, values: Mapping[int, object]) -> None:
        """Write entries, of which there is one writer, in place of older ones."""
        write_all_durably(*self._contents(values))
        for number in values:
            self._known.pop(number, None)

    def delete(self, number: int) -> None:
        """Delete an entry, if it is there."""
        self._files.delete(number)
        self._known.pop(number, None)

    def merge(self, values: Sequence[object]) -> None:
        """Write the first entries into one file, in place of their own files and of an earlier one.

        Args:
            values: Their values of JSON, from the first one on.
        """
        assert self.merged is not None
        if len(values) > self._end:
            write_durably(*self._merged_files.file(len(values)), self.merged.dump(values))
            self._read_merged()
        self.delete_merged()

    def delete_merged(self) -> None:
        """Delete what the last merged file replaces, also what a process has left that died before it did."""
        self._merged_files.delete_before(self._end)
        self.delete_before(self._end + 1)

    def delete_before(self, number: int) -> None:
        """Delete the files of all entries with lower numbers."""
        self._files.delete_before(number)

    def _read_merged(self) -> None:
        """Read the last merged file, if there is a later one than was read."""
        if self.merged is None:
            return
        end = max(self._merged_files.numbers(), default=0)
        if end <= self._end:
            return
        files, path = self._merged_files.file(end)
        try:
            values = self.merged.load(files.cat_file(path), path)
            self._known.update({number: self.parse(number, value) for number, value in enumerate(values, 1)})
        except FileNotFoundError:
            # Another process has written a later one.
            return self._read_merged()
        except MALFORMED as error:
            raise malformed(path, error) from error
        self._end = end

    def _parsed(self, number: int, parse: Callable[[int, Any], U]) -> U:
        files, path = self._files.file(number)
        try:
            return parse(number, self.format.load(files.cat_file(path), path))
        except MALFORMED as error:
            raise malformed(path, error) from error

    def _is_published(self, entry: tuple[int, str]) -> bool:
        number, token = entry
        try:
            return self._parsed(number, _token) == token
        except FileNotFoundError:
            return False

    def _create(self, values: Mapping[int, object]) -> None:
        create_all_durably(*self._contents(values))

    def _contents(self, values: Mapping[int, object]) -> tuple[Any, dict[str, bytes]]:
        files, folder = filesystem(self.url, {})
        return files, {
            f"{folder}/{self.name.format(number)}": self.format.dump(value) for number, value in values.items()
        }


def _token(number: int, value: Any) -> object:
    return value["token"]
