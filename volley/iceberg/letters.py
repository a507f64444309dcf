"""LettersSource: reads the dead letters of a job again that are in an Iceberg table, as rows of their source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from volley.contracts.datasets import Dataset
from volley.contracts.source import Reader, Source, SourceContext
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.source_config import IcebergSourceConfig

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LETTER_KEY", "LettersSource"]

LETTER_KEY = ("job", "epoch", "position", "payload")
"""The columns that tell letters apart."""


@dataclass(frozen=True, repr=False)
class LettersSource(Source):
    """The letters of one source that were not replayed yet, as rows that the source would have given.

    Args:
        table: The table of the dead letters.
        job: The job whose letters they are.
        source: The source that its rows came from.
        schema: The schema of the source's rows.
        sinks: The labels of the sinks; a letter is read if all sinks that lack it are among these.
        is_only: True if the job has no other source: letters of 0.2.0 don't name theirs.
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.iceberg.read.letters",)
    bounded: ClassVar[bool] = True
    reads_letters: ClassVar[bool] = True

    table: IcebergSinkConfig
    job: str
    source: Source
    schema: pa.Schema = field(compare=False)
    sinks: tuple[str, ...]
    is_only: bool

    @property
    def identity(self) -> str:
        return f"letters:{self.table.ref.address}:{self.table.table_name}:{self.source.identity}"

    def datasets(self) -> Sequence[Dataset]:
        return [self.table.ref.dataset()]

    def preview(self, context: SourceContext) -> pa.Schema | None:
        return self.schema

    def open(self, context: SourceContext) -> Reader:
        from volley.iceberg.read.letters import open_letters

        config = IcebergSourceConfig(self.table.ref)
        return open_letters(config, context, self.job, self.source, self.schema, frozenset(self.sinks), self.is_only)

    def __repr__(self) -> str:
        return f"LettersSource({self.table.table_name!r}, job={self.job!r}, source={self.source.identity!r})"
