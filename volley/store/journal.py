"""The journal: numbered entries in a folder, each a small file that is published whole, with version and checksum."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from volley.storage.durable import create_durably, write_durably
from volley.storage.envelope import Format
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED, damaged, malformed

__all__ = ["Journal"]

T = TypeVar("T")
U = TypeVar("U")


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

    def numbers(self) -> list[int]:
        """Return the numbers of all entries, in order."""
        files, folder = filesystem(self.url, {})
        files.invalidate_cache(folder)
        if not files.exists(folder):
            return []
        matches = (self._pattern.fullmatch(path.rpartition("/")[2]) for path in files.ls(folder, detail=False))
        return sorted(int(match[1]) for match in matches if match)

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
            create_durably(*self._file(number), self.format.dump({**value, "token": token}))
            if self._parsed(number, lambda _, published: published["token"]) == token:
                return number

    def publish(self, number: int, value: object) -> T:
        """Publish an entry, unless the number has one; return the entry that it has then."""
        create_durably(*self._file(number), self.format.dump(value))
        return self[number]

    def replace(self, number: int, value: object) -> None:
        """Write an entry, of which there is one writer, in place of an older one."""
        write_durably(*self._file(number), self.format.dump(value))
        self._known.pop(number, None)

    def delete(self, number: int) -> None:
        """Delete an entry."""
        files, path = self._file(number)
        files.rm_file(path)
        self._known.pop(number, None)

    def _parsed(self, number: int, parse: Callable[[int, Any], U]) -> U:
        files, path = self._file(number)
        try:
            return parse(number, self.format.load(files.cat_file(path), path))
        except FileNotFoundError as error:
            raise damaged(path, "is missing") from error
        except MALFORMED as error:
            raise malformed(path, error) from error

    def _file(self, number: int) -> tuple[Any, str]:
        return filesystem(f"{self.url}/{self.name.format(number)}", {})

    @property
    def _pattern(self) -> re.Pattern[str]:
        before, after = re.split(r"\{[^}]*\}", self.name)
        return re.compile(f"{re.escape(before)}(\\d+){re.escape(after)}")
