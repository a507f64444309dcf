"""SnapshotSource: reads the full extracts of another source, one an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, get_args

from volley.checks import keep, one_of, optional, text
from volley.contracts.datasets import Dataset
from volley.contracts.extracts import Extracts, ExtractSource
from volley.contracts.source import Reader, Source, SourceContext, SparkSource
from volley.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["OnEmpty", "SnapshotSource"]

OnEmpty = Literal["refuse", "delete_all"]
"""What an extract without rows means."""


@dataclass(frozen=True, repr=False)
class SnapshotSource(Source):
    """Reads the extracts of a source in the order of their versions; `Environment.changes_from_snapshots` makes it.

    Args:
        source: What has the extracts.
        version: Where the version of an extract stands; a number, date or time = the version of what is there now;
            None = where the source says.
        on_empty: What an extract without rows means.
        max_deleted: An extract that is smaller than the one before by more than this share is not read.
    """

    source: Source
    version: str | int | date | None = None
    on_empty: OnEmpty = "refuse"
    max_deleted: float | None = None

    def __post_init__(self) -> None:
        keep(self, version=optional(_version), on_empty=one_of(get_args(OnEmpty)))
        if isinstance(self.source, SparkSource) or not (self.source.bounded or isinstance(self.source, ExtractSource)):
            raise ConfigError(
                f"{self.source!r} has no extracts: it is a stream of rows", hint="take a source that has an end"
            )
        if isinstance(self.version, str) and not isinstance(self.source, ExtractSource):
            raise ConfigError(
                f"version {self.version!r} of {self.source!r}: such a source has its present state only",
                hint="give a number, a date or a time; or leave it out: it is the time of the look",
            )

    @property
    def worker_modules(self) -> tuple[str, ...]:  # type: ignore[override]
        """What tasks import to read it."""
        return ("volley.connectors.snapshots.reader", *self.source.worker_modules)

    @property
    def bounded(self) -> bool:
        return self.source.bounded

    @property
    def identity(self) -> str:
        return f"snapshots:{self.source.identity}{f'@{self.version}' if isinstance(self.version, str) else ''}"

    def datasets(self) -> Sequence[Dataset]:
        return self.source.datasets()

    def is_small(self) -> bool:
        return self.source.is_small()

    def declared(self) -> pa.Schema | None:
        from volley.connectors.snapshots.reader import declared

        schema = self.source.declared()
        return None if schema is None else declared(schema, self.version)

    def open(self, context: SourceContext) -> Reader:
        from volley.connectors.snapshots.reader import open_reader

        whole = SourceContext(f"{context.state}/source", context.parallelism)
        return open_reader(self._extracts(whole), self.on_empty == "delete_all", self.max_deleted)

    def _extracts(self, context: SourceContext) -> Extracts:
        from volley.connectors.snapshots.states import PresentStates

        if isinstance(self.source, ExtractSource):
            return self.source.extracts(context, self.version)
        assert not isinstance(self.version, str)
        return PresentStates(self.source.open(context), self.version)

    def explain(self, context: SourceContext) -> str | None:
        return self.source.explain(context)

    def __repr__(self) -> str:
        settings: dict[str, Any] = {"version": self.version, "on_empty": self.on_empty}
        shown = [f"{name}={value!r}" for name, value in settings.items() if value not in (None, "refuse")]
        return f"SnapshotSource({', '.join([repr(self.source), *shown])})"


def _version(name: str, value: Any) -> Any:
    is_given = isinstance(value, int | date) and not isinstance(value, bool)
    return value if is_given else text(name, value)
