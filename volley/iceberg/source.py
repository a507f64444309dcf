"""IcebergSource: reads a table's snapshots, follows it, or reads its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, ClassVar

from volley.checks import keep, of_type
from volley.contracts.datasets import Dataset
from volley.contracts.extracts import Extracts, ExtractSource
from volley.contracts.source import Reader, SourceContext
from volley.errors import ConfigError
from volley.html_table import settings_html
from volley.iceberg.source_config import Batch, IcebergSourceConfig, Incremental, Snapshot

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["IcebergSource"]


@dataclass(frozen=True, repr=False)
class IcebergSource(ExtractSource):
    """Reads an Iceberg table: one snapshot, or each new one as it is committed, every row once.

    Files are read in parallel by tasks, under the table's schema, whichever engine wrote them: position deletes,
    deletion vectors and equality deletes are applied. A `filter_expr` or `select` right behind the source prunes files
    and columns.

    Args:
        config: The table and all settings.

    Raises:
        ConfigError: If `config` is not an `IcebergSourceConfig`.

    Example:
        >>> from volley import Environment, col
        >>> from volley import IcebergSource, IcebergSourceConfig, IcebergStorage
        >>> config = IcebergSourceConfig("events", namespace="db", storage=IcebergStorage.Local("/tmp/lake"))
        >>> print(Environment().from_source(IcebergSource(config.with_columns(["id"]))).filter_expr(col("id") > 5))
        filter col('id') > lit(5)
          read IcebergSource('db.events', columns=('id',))
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.iceberg.read.reader",)

    config: IcebergSourceConfig

    def __post_init__(self) -> None:
        keep(
            self, config=of_type(IcebergSourceConfig, "IcebergSourceConfig(table), or namespace=…, table=…, storage=…")
        )

    @property
    def bounded(self) -> bool:
        return not isinstance(self.config.mode, Incremental)

    @property
    def identity(self) -> str:
        config = self.config
        pin = config.as_of or (config.mode.snapshot_id if isinstance(config.mode, Snapshot) else config.ref.branch)
        return f"iceberg:{config.ref.address}:{config.ref.name}@{pin}"

    def datasets(self) -> Sequence[Dataset]:
        return [self.config.ref.dataset()]

    def preview(self, context: SourceContext) -> pa.Schema | None:
        from volley.iceberg.read.whole import table_schema

        return table_schema(self.config)

    def explain(self, context: SourceContext) -> str | None:
        from volley.iceberg.read.whole import explain

        return explain(self.config, context)

    def open(self, context: SourceContext) -> Reader:
        from volley.iceberg.commit.hold import Hold, hold_name
        from volley.iceberg.read.reader import open_reader

        reader = open_reader(self.config, context)
        max_age = self.config.hold
        if not isinstance(max_age, timedelta):
            return reader
        return replace(reader, hold=Hold(self.config.ref, hold_name(context.state), max_age))

    def extracts(self, context: SourceContext, version: str | int | date | None) -> Extracts:
        from volley.iceberg.read.extracts import TableExtracts
        from volley.iceberg.read.reader import open_reader

        if version is not None or self.config.changes != "fail":
            raise ConfigError(
                f"version {version!r} of table {self.config.ref.name}, with changes {self.config.changes!r}",
                hint="leave both out: each snapshot is an extract, and the time of its commit the version",
            )
        config = self.config if self.bounded else self.config.with_mode(Batch())
        return TableExtracts(config, open_reader(config, context))

    def __repr__(self) -> str:
        return f"IcebergSource({self.config.summary})"

    _repr_html_ = settings_html
