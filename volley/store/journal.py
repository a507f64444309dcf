"""Files that are numbered by their names, and the journal: entries in such files, published whole, with a checksum."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from volley.storage.durable import create_durably, write_durably
from volley.storage.envelope import Format
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

    def _matches(self, detail: bool) -> dict[int, Any]:
        files, folder = filesystem(self.url, {})
        files.invalidate_cache(folder)
        if not files.exists(folder):
            return {}
        before, after = re.split(r"\{[^}]*\}", self.name)
        pattern = re.compile(f".*/{re.escape(before)}(\\d+){re.escape(after)}", re.DOTALL)
        matches = {
            int(match[1]): entry
            for entry in files.ls(folder, detail=detail)
            if (match := pattern.fullmatch(entry["name"] if detail else entry))
        }
        return dict(sorted(matches.items()))


@dataclass
class Journal(Generic[T]):
    """Entries below a job's checkpoint, each of which is read from storage once.

    An entry is forced to disk under another name before it gets its own: after a crash it is there whole, or not at
    all. Of several writers that publish one number, one succeeds, and all get its entry.

    Args:
        url: The fsspec URL of the folder; it may not exist yet.
        format: The format of its files.
        parse: Returns an entry from its number and its value of JSON; may raise any of `MALFORMED`.
        name: The name of an entry's file, with the place of the number.

    Example:
        >>> import tempfile
        >>> example = Journal(tempfile.mkdtemp(), Format("example"), lambda number, value: value["text"])
        >>> example.append({"text": "one"}), example.append({"text": "two"}), example.entries()
        (1, 2, {1: 'one', 2: 'two'})
    """

    url: str
    format: Format
    parse: Callable[[int, Any], T]
    name: str = "{:06}.json"
    _known: dict[int, T] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._files = NumberedFiles(self.url, self.name)

    def numbers(self) -> list[int]:
        """Return the numbers of all entries that are there now, in order."""
        return self._files.numbers()

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
            self._known[number] = self._parsed(number, self.parse)
        return self._known[number]

    def append(self, value: Mapping[str, object]) -> int:
        """Publish an entry behind the last one, and return its number, from 1.

        Args:
            value: Values of JSON. The file also has a ``token``, by which the writer knows its own entry.
        """
        number, token = max(self.numbers(), default=0), uuid.uuid4().hex
        while True:
            number += 1
            create_durably(*self._files.file(number), self.format.dump({**value, "token": token}))
            if self._parsed(number, lambda _, published: published["token"]) == token:
                return number

    def publish(self, number: int, value: object) -> T:
        """Publish an entry, unless the number has one; return the entry that it has then."""
        create_durably(*self._files.file(number), self.format.dump(value))
        return self[number]

    def replace(self, number: int, value: object) -> None:
        """Write an entry, of which there is one writer, in place of an older one."""
        write_durably(*self._files.file(number), self.format.dump(value))
        self._known.pop(number, None)

    def delete(self, number: int) -> None:
        """Delete an entry, if it is there."""
        self._files.delete(number)
        self._known.pop(number, None)

    def _parsed(self, number: int, parse: Callable[[int, Any], U]) -> U:
        files, path = self._files.file(number)
        try:
            return parse(number, self.format.load(files.cat_file(path), path))
        except FileNotFoundError as error:
            raise damaged(path, "is missing") from error
        except MALFORMED as error:
            raise malformed(path, error) from error
