"""FileSink: writes rows as files into a folder, on any fsspec storage."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from volley.checks import keep, mapping, one_of, path
from volley.connectors.files.committer import FileCommitter
from volley.contracts.datasets import Dataset
from volley.contracts.reports import Probe
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.formats.encoders import ENCODERS, check_columns
from volley.formats.files import WrittenFormat
from volley.secrets import redact_uri, redacted_html, redacted_repr
from volley.storage.paths import absolute

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileSink"]


@dataclass(frozen=True, repr=False)
class FileSink(Sink):
    """Writes rows as files into a folder, exactly once: an epoch that is repeated after a crash replaces its files.

    The files of an epoch are renamed one after the other: a reader of the folder may see only some of them meanwhile.

    Args:
        path: The folder; a local path or an fsspec URL.
        format: ``"parquet"`` (the default), ``"json"`` (one object per line) or ``"csv"``.
        storage_options: Options of the fsspec file system; secrets in them are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> FileSink("out", format="json")
        FileSink(path='out', format='json')
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.connectors.files.committer",)

    path: str | os.PathLike[str]
    format: WrittenFormat = "parquet"
    storage_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, path=path, storage_options=mapping)
        one_of(ENCODERS)("FileSink format", self.format)

    @property
    def target(self) -> str | None:
        return f"files:{redact_uri(absolute(os.fspath(self.path)))}"

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            self.check_columns(schema)

    def check_columns(self, schema: pa.Schema) -> None:
        check_columns(self.format, schema)

    def datasets(self, tables: Sequence[str] = ()) -> Sequence[Dataset]:
        return [Dataset.of_path(os.fspath(self.path))]

    def probes(self, schema: pa.Schema | None) -> Sequence[Probe]:
        from volley.storage.paths import write_and_delete

        def run() -> str:
            self.check(schema)
            return write_and_delete(absolute(os.fspath(self.path)), self.storage_options)

        return [Probe("folder", run)]

    def open(self, context: SinkContext) -> Committer:
        self.check(context.schema)
        return FileCommitter(absolute(os.fspath(self.path)), self.format, dict(self.storage_options), context)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html
