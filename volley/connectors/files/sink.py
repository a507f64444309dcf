"""FileSink: rows as files in a folder, on any fsspec storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.checks import keep, mapping, one_of, path
from volley.connectors.files.committer import FileCommitter
from volley.formats.encoders import ENCODERS, check_columns
from volley.secrets import redact_uri, redacted_repr
from volley.sink import Committer, Sink, SinkContext
from volley.storage.paths import absolute

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileSink"]


@dataclass(frozen=True, repr=False)
class FileSink(Sink):
    """Rows as files in a folder; an epoch that is repeated after a crash replaces what it left behind.

    An epoch's files get their names one after the other: who reads the folder meanwhile can see some of them.

    Args:
        path: The folder; a local path or an fsspec URL.
        format: ``"parquet"``, ``"json"`` (lines) or ``"csv"``.
        storage_options: For fsspec; secrets in it are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSink("out", format="json")
        FileSink(path='out', format='json')
    """

    path: str | os.PathLike[str]
    format: str = "parquet"
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, path=path, storage_options=mapping)
        one_of(ENCODERS)("FileSink format", self.format)

    @property
    def target(self) -> str | None:
        return f"files:{redact_uri(absolute(os.fspath(self.path)))}"

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            check_columns(self.format, schema)

    def open(self, context: SinkContext) -> Committer:
        self.check(context.schema)
        return FileCommitter(absolute(os.fspath(self.path)), self.format, dict(self.storage_options), context)

    def __repr__(self) -> str:
        return redacted_repr(self)
