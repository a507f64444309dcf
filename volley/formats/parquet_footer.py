"""What a Parquet file's footer says of its columns and row groups.

pyarrow's objects for it end the whole process when a column is encrypted, or has fewer chunks than the schema says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.errors import SourceError
from volley.formats.input_file import InputFile
from volley.formats.thrift import Malformed, read_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = [
    "BYTE_ARRAY",
    "FIXED_LEN_BYTE_ARRAY",
    "Chunk",
    "Footer",
    "Group",
    "Leaf",
    "damaged",
    "read_footer",
    "refuse_encrypted",
]

BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = 6, 7

_TAIL = 64 << 10
_MAGIC, _MAGIC_ENCRYPTED = b"PAR1", b"PARE"

# The numbers of the fields as parquet.thrift has them.
_ELEMENT: Fields = {1: int, 2: int, 4: bytes, 5: int, 6: int, 10: {5: {}}}
_CHUNK: Fields = {5: int, 7: int, 9: int, 11: int}
_FOOTER: Fields = {2: [_ELEMENT], 4: [{1: [{3: _CHUNK, 8: {}}], 3: int}]}
_DECIMAL = 5


@dataclass(frozen=True)
class Leaf:
    """A column that holds values; those of nested types have several.

    Args:
        path: Its name, with those of the columns it is in before it, and dots between them.
        kind: The number of its physical type.
        length: The bytes of a value of fixed length.
        is_decimal: True if its values are decimals, as which integers and bytes can be stored.
    """

    path: str
    kind: int
    length: int
    is_decimal: bool


@dataclass(frozen=True)
class Chunk:
    """The values of a leaf in a row group.

    Args:
        leaf: The leaf.
        start: Where in the file its first page begins.
        size: Its bytes in the file.
        values: How many values it has, nulls among them.
        is_encrypted: True if it can't be read without a key.
    """

    leaf: Leaf
    start: int
    size: int
    values: int
    is_encrypted: bool


@dataclass(frozen=True)
class Group:
    """A row group.

    Args:
        rows: How many rows it has.
        chunks: A chunk for each leaf.
    """

    rows: int
    chunks: Sequence[Chunk]


@dataclass(frozen=True)
class Footer:
    """All that is needed of a footer.

    Args:
        leaves: The leaves, in the order of the schema.
        groups: The row groups.
    """

    leaves: Sequence[Leaf]
    groups: Sequence[Group]


def read_footer(file: InputFile, stream: Any) -> Footer:
    """The footer of an open file.

    Raises:
        SourceError: If it is encrypted, damaged or not there.
    """
    try:
        found, _ = read_struct(_text_of_footer(file, stream), 0, _FOOTER)
        leaves = list(_leaves(iter(found[2])))
        return Footer(leaves, [_group(each, leaves) for each in found[4]])
    except (Malformed, KeyError, RecursionError) as error:
        raise damaged(file, f"its footer is damaged ({error})") from error


def damaged(file: InputFile, reason: object) -> SourceError:
    """The error of a file that is not what a writer of Parquet leaves."""
    return SourceError(f"{file.name} is not a whole Parquet file: {reason}", hint="write it again; it may be cut short")


def refuse_encrypted(file: InputFile, chunks: Iterable[Chunk]) -> None:
    """Raise SourceError if one of these chunks is encrypted; names its column."""
    for chunk in chunks:
        if chunk.is_encrypted:
            raise SourceError(
                f"{file.name}: column {chunk.leaf.path!r} is encrypted, and can't be read",
                hint="decrypt the file before, or declare a schema without that column: schema=…",
            )


def _text_of_footer(file: InputFile, stream: Any) -> bytes:
    stream.seek(0, os.SEEK_END)
    size = stream.tell()
    stream.seek(max(0, size - _TAIL))
    tail: bytes = stream.read(_TAIL)
    if tail.endswith(_MAGIC_ENCRYPTED):
        raise SourceError(
            f"{file.name} is an encrypted Parquet file, which can't be read",
            hint="decrypt it before, or write it with a plain footer and the columns that are needed unencrypted",
        )
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if not tail.endswith(_MAGIC) or length > size:
        raise damaged(file, "it has no footer")
    if length > len(tail):
        stream.seek(size - length)
        tail = stream.read(length)
    return tail[-length:-8]


def _leaves(elements: Iterator[Mapping[int, Any]]) -> Iterator[Leaf]:
    """The leaves below the root, which itself is no column."""
    for _ in range(_next(elements).get(5, 0)):
        yield from _below(elements, "")


def _below(elements: Iterator[Mapping[int, Any]], prefix: str) -> Iterator[Leaf]:
    element = _next(elements)
    path = prefix + element[4].decode(errors="replace")
    if not element.get(5):
        decimal = element.get(6) == _DECIMAL or _DECIMAL in element.get(10, ())
        yield Leaf(path, element[1], element.get(2, 0), decimal)
    for _ in range(element.get(5, 0)):
        yield from _below(elements, f"{path}.")


def _next(elements: Iterator[Mapping[int, Any]]) -> Mapping[int, Any]:
    element = next(elements, None)
    if element is None:
        raise Malformed("the schema ends in the middle of a column")
    return element


def _group(found: Mapping[int, Any], leaves: Sequence[Leaf]) -> Group:
    if len(found[1]) != len(leaves):
        raise Malformed(f"a row group has {len(found[1])} columns, the schema has {len(leaves)}")
    return Group(found[3], [_chunk(each, leaf) for each, leaf in zip(found[1], leaves, strict=True)])


def _chunk(found: Mapping[int, Any], leaf: Leaf) -> Chunk:
    is_encrypted = 8 in found
    # A column with a key of its own may have nothing else to say.
    about = found.get(3, {}) if is_encrypted else found[3]
    pages, dictionary = about.get(9, 0), about.get(11, 0)
    start, size = dictionary if 0 < dictionary < pages else pages, about.get(7, 0)
    if start < 0 or size < 0:
        raise Malformed(f"column {leaf.path!r} has {size} bytes from byte {start} on")
    return Chunk(leaf, start, size, about.get(5, 0), is_encrypted)
