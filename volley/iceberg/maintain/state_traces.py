"""Tells which files of jobs' checkpoints have rows with some keys, or values of them: states, staged rows, segments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from volley.errors import ConfigError, SourceError, StorageError, VolleyError
from volley.formats.packed_rows import unpack_rows
from volley.iceberg.maintain.sought import SoughtKeys
from volley.storage.paths import filesystem
from volley.storage.state_formats import JOIN_ROWS, MERGED_FILE_LOG, PARKED_ROWS, SEGMENT, STAGED_ROWS, STATE
from volley.store.files import open_file

__all__ = ["StateTraces", "check_folders"]

_OVER = "start the job over with fresh=True, then delete the old folder"
_STATE = f"run the job on until its windows and joins have let go of them, and three epochs more, or {_OVER}"
_STAGED = (
    f"run the job until it has committed them and a later segment has begun: it deletes the file itself; or {_OVER}"
)
_RECEIVED = (
    "run the job until it has committed them and a later file has begun, after 64 MB of requests: it deletes the file "
    "itself; or stop it, and start it over with another folder and fresh=True, then delete this one"
)
_FORMATS = {
    STATE.name: (STATE, _STATE),
    JOIN_ROWS.name: (JOIN_ROWS, "erase from the joined table too, then run the job on for three epochs"),
    SEGMENT.name: (SEGMENT, _STAGED),
    STAGED_ROWS.name: (STAGED_ROWS, _STAGED),
    PARKED_ROWS.name: (PARKED_ROWS, "run the job until their table takes them: it deletes the file itself"),
    MERGED_FILE_LOG.name: (MERGED_FILE_LOG, _OVER),
}
# A file of batches, and one of version 1: of Arrow itself, with batches or without.
_BATCHES = re.compile(rb"volley ([a-z-]+) \d{1,9}\n|ARROW1|\xff\xff\xff\xff")
_LONGEST_HEAD = 64
_ARROW_STREAM = b"\xff\xff\xff\xff"
# The log of a webhook's requests, whose bodies stand in it as they came.
_REQUESTS = b"VWL1"
_ENCODINGS = ("utf-8", "latin-1", "utf-16-le", "utf-16-be", "utf-32-be")
# Parquet, Avro, gzip, Zstandard: nothing of Volley's own below a checkpoint.
_COMPRESSED = (b"PAR1", b"Obj\x01", b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_OF_SPARK = (".delta", ".snapshot", ".zip", ".sst", ".changelog")


def check_folders(folders: Iterable[str]) -> None:
    """Raise ConfigError if a folder is not there."""
    for folder in folders:
        files, path = filesystem(folder, {})
        if not files.isdir(path):
            raise ConfigError(
                f"checkpoints has {folder!r}, and there is no such folder",
                hint="name the folder of a job's checkpoint, or of a webhook's log; nothing was changed",
            )


@dataclass(frozen=True)
class _Value:
    """A value of a key, and how it may stand in a file."""

    value: Any
    words: re.Pattern[str]
    bytes: frozenset[bytes] | None  # None = it may stand in bytes in a way that is not known here

    @classmethod
    def of(cls, value: Any, text: str) -> _Value:
        texts = {text, text.replace(" ", "T"), json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
        if isinstance(value, datetime):
            texts.add(str(_micros(value)))
        words = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
        return cls(value, re.compile(rf"(?<!\w)(?:{words})(?!\w)"), _in_bytes(value, texts))

    def is_leaf(self, leaf: Any) -> bool:
        """Return True if it is a value of a row, or stands in its text."""
        if isinstance(leaf, bytes):
            # What may have it has it: rather one file too many.
            return self.bytes is None or any(form in leaf for form in self.bytes)
        return bool(leaf == self.value or self.words.search(str(leaf)))


def _micros(time: datetime) -> int:
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _in_bytes(value: Any, texts: Iterable[str]) -> frozenset[bytes] | None:
    """Return how a value stands in messages: as text, as its bytes, of numbers in either order and as variable ones."""
    forms = {text.encode(encoding, "ignore") for text in texts for encoding in _ENCODINGS} - {b""}
    if isinstance(value, bytes):
        # MariaDB has the groups of a UUID's bytes in another order.
        groups = [value[10:16], value[8:10], value[6:8], value[4:6], value[:4]]
        return frozenset({*forms, value, *([b"".join(groups)] if len(value) == 16 else ())})
    if isinstance(value, str):
        return frozenset(forms)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    orders = {value.to_bytes(size, order, signed=True) for order in ("little", "big")}
    # A type without a sign, or a wider one, has the same lowest bytes.
    orders |= {each.strip(b"\0") or b"\0" for each in orders} if value >= 0 else set()
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    return frozenset({*forms, *orders, _varint(value & (1 << 64) - 1), _varint(zigzag)})


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


class StateTraces:
    """Looks for rows in the files of checkpoints, whose columns have names of their own: in whatever column.

    A row is one of those that are sought if each value of a key stands in it.
    """

    def __init__(self, keys: SoughtKeys) -> None:
        rows = zip(*(column.to_pylist() for column in keys.keys.columns), strict=True)
        self._keys = [
            tuple(_Value.of(value, text) for value, text in zip(row, texts, strict=True))
            for row, texts in zip(rows, keys.texts, strict=True)
        ]
        self._are_texts = all(isinstance(value.value, str | bytes) for value in self._keys[0])

    def looked_through(self, folder: str) -> Iterator[tuple[str, str | None]]:
        """Yield the files of a folder, and why each is one that has such rows, with the way out; None = it has none.

        Raises:
            StorageError: If the folder can't be read.
        """
        files, path = filesystem(folder, {})
        files.invalidate_cache()
        try:
            found = sorted(files.find(path))
        except OSError as error:
            raise StorageError(f"{folder} can't be read: {error}", hint="check who may read there") from error
        for name in found:
            try:
                yield name, self._reason(files, name)
            except FileNotFoundError:
                continue  # The job, which runs, has let go of it.
            except (OSError, ValueError, ArithmeticError, pa.ArrowException, VolleyError) as error:
                yield name, f"it can't be read, so it may have such rows: {error}"

    def _reason(self, files: Any, path: str) -> str | None:
        if path.endswith(_OF_SPARK):
            return f"it is state of Spark, which is not read here: {_OVER}"
        with files.open(path, "rb") as file:
            beginning = file.read(_LONGEST_HEAD)
        if beginning.startswith(_COMPRESSED):
            return f"it is compressed, and not read here: {_OVER}"
        head = _BATCHES.match(beginning)
        if head is None:
            return self._reason_of_bytes(path, files.cat_file(path))
        name = (head[1] or STATE.name.encode()).decode()
        if name not in _FORMATS:
            return f"it has the format {name!r}, which is not read here: {_OVER}"
        if name == MERGED_FILE_LOG.name and not self._are_texts:
            return None
        format, way = _FORMATS[name]
        opened = open_file(files.unstrip_protocol(path), format, _fault)
        found = any(self._in_rows(opened.batch(number)) for number in range(len(opened)))
        return f"it has such rows, or values of them: {way}" if found else None

    def _reason_of_bytes(self, path: str, content: bytes) -> str | None:
        if content.startswith(_REQUESTS):
            return f"it has such rows, or values of them: {_RECEIVED}" if self._in_leaves([content]) else None
        # Numbers of epochs and positions would be taken for values.
        found = self._are_texts and self._in_leaves([content.decode(errors="replace")])
        return f"it has values of such rows: {_OVER}" if found else None

    def _in_rows(self, rows: pa.RecordBatch) -> bool:
        return any(self._in_leaves(list(_leaves(row))) for row in rows.to_pylist())

    def _in_leaves(self, leaves: Sequence[Any]) -> bool:
        packed = [leaf for leaf in leaves if isinstance(leaf, bytes) and leaf.startswith(_ARROW_STREAM)]
        return any(all(any(map(value.is_leaf, leaves)) for value in key) for key in self._keys) or any(
            self._in_rows(rows) for leaf in packed for rows in _unpacked(leaf)
        )


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values in a nested one that are not null."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _unpacked(value: bytes) -> list[pa.RecordBatch]:
    """Return packed rows; none if these are other bytes that begin alike."""
    try:
        return unpack_rows(value)
    except SourceError:
        return []


def _fault(path: str, fault: str) -> StorageError:
    return StorageError(f"{path} {fault}", hint=_OVER)
