"""A stream to a Parquet file that adds annotations to the footer, as the last bytes pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from volley.formats.parquet_annotations import Annotation, annotated

__all__ = ["Annotated"]


class Annotated:
    """Writes to another stream, with annotations in the footer.

    Args:
        annotations: As for `annotated`.
    """

    def __init__(self, stream: Any, annotations: Mapping[str, Annotation]) -> None:
        self._stream = stream
        self._annotations = annotations
        self._held: bytearray | None = None

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return int(self._stream.tell()) + len(self._held or b"")

    def write(self, data: Any) -> int:
        if self._held is None:
            self._stream.write(data)
        else:
            self._held += data
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    @contextmanager
    def end(self) -> Iterator[None]:
        """Take what is written within the context for the end of the file, and write it with the annotations."""
        self._held = bytearray()
        yield
        held, self._held = annotated(bytes(self._held), self._annotations), None
        self._stream.write(held)

    def close(self) -> None:
        self._stream.close()
