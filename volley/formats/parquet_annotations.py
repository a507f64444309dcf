"""Says in a Parquet footer which columns are variants, geometries or geographies: pyarrow 26 writes no such footers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volley.formats.thrift import I8, I32, Malformed, read_struct, write_struct

if TYPE_CHECKING:
    from volley.formats.thrift import Fields

__all__ = ["VARIANT", "Annotation", "annotated", "geography", "geometry"]

Annotation = Mapping[int, Any]
"""A logical type of parquet.thrift."""

# Field numbers of parquet.thrift.
_SCHEMA, _NAME, _CHILDREN, _LOGICAL_TYPE = 2, 4, 5, 10
_NUMBERS = (1, 2, 3, 5, 6, 7, 8, 9)
_ELEMENT: Fields = {**dict.fromkeys(_NUMBERS, int), _NAME: bytes}
_TAIL = b"PAR1"
_LENGTH = 4
_DEFAULT_REFERENCE = "OGC:CRS84"
_ALGORITHMS = ("spherical", "vincenty", "thomas", "andoyer", "karney")

VARIANT: Annotation = {16: {1: (I8, 1)}}
"""Variants in version 1 of the encoding."""


def geometry(reference: str) -> Annotation:
    """Return the logical type of geometries with a coordinate reference system."""
    return {17: _reference(reference)}


def geography(reference: str, algorithm: str) -> Annotation:
    """Return the logical type of geographies with a coordinate reference system and an algorithm for edges."""
    return {18: {**_reference(reference), 2: (I32, _ALGORITHMS.index(algorithm))}}


def _reference(reference: str) -> dict[int, Any]:
    return {} if reference == _DEFAULT_REFERENCE else {1: reference.encode()}


def annotated(end: bytes, annotations: Mapping[str, Annotation]) -> bytes:
    """Return the end of a Parquet file, with annotations in its footer.

    Args:
        end: The last bytes of the file: the whole footer, and what may be before it.
        annotations: The logical types, by the names that lead to the column, joined by dots; each must be there.

    Raises:
        Malformed: If it is not the end of a Parquet file, or lacks a column.
    """
    length = int.from_bytes(end[-len(_TAIL) - _LENGTH : -len(_TAIL)], "little")
    before = len(end) - length - _LENGTH - len(_TAIL)
    if before < 0 or not end.endswith(_TAIL):
        raise Malformed("the file has no footer")
    footer = _with(end[before : before + length], annotations)
    return end[:before] + footer + len(footer).to_bytes(_LENGTH, "little") + _TAIL


def _with(footer: bytes, annotations: Mapping[str, Annotation]) -> bytes:
    fields, _ = read_struct(footer, 0, {_SCHEMA: [memoryview]})
    elements: Sequence[bytes] = fields[_SCHEMA]
    # They follow each other, so that the list keeps its head.
    old = b"".join(elements)
    start, lacking = footer.index(old), dict(annotations)
    paths = _paths(iter(_named(elements)))
    new = b"".join(_annotated(element, lacking.pop(path, None)) for path, element in zip(paths, elements, strict=True))
    if lacking:
        raise Malformed(f"the file has no column {min(lacking)!r}")
    return footer[:start] + new + footer[start + len(old) :]


def _annotated(element: bytes, annotation: Annotation | None) -> bytes:
    if annotation is None:
        return element
    fields, _ = read_struct(element, 0, _ELEMENT)
    written = {number: value if number == _NAME else (I32, value) for number, value in sorted(fields.items())}
    return write_struct({**written, _LOGICAL_TYPE: annotation})


def _named(elements: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """Yield the name of each element, and the number of its children."""
    for element in elements:
        fields, _ = read_struct(element, 0, {_NAME: bytes, _CHILDREN: int})
        yield fields[_NAME].decode(), fields.get(_CHILDREN, 0)


def _paths(elements: Iterator[tuple[str, int]]) -> Iterator[str]:
    """Yield the path of each element; that of the root, which is no column, is empty."""
    _, children = next(elements)
    yield ""
    for _ in range(children):
        yield from _below(elements, "")


def _below(elements: Iterator[tuple[str, int]], prefix: str) -> Iterator[str]:
    name, children = next(elements)
    yield prefix + name
    for _ in range(children):
        yield from _below(elements, f"{prefix}{name}.")
