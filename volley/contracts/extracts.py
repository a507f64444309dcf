"""What a source needs so that its full extracts can be compared: which there are, and how each is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from volley.contracts.source import Source, SourceContext, Split, SplitReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Extract", "ExtractSource", "Extracts"]


@dataclass(frozen=True)
class Extract:
    """One full extract: all rows that a source had at a version.

    Args:
        version: Orders extracts: a whole number, the days of a date, or the microseconds of a time, since 1970.
        proof: Tells what is in it, by names, sizes or checksums.
        name: What it is called in errors: its path, without secrets.
        bytes: Its size; None = not known.
        modified: When it was last written, in seconds since 1970; None = it can't be written again.
        place: What `Extracts.splits` needs beside the version, as JSON values: it is in the offset.
    """

    version: int
    proof: str
    name: str
    bytes: int | None = None
    modified: float | None = None
    place: dict[str, Any] = field(default_factory=dict, hash=False)


class Extracts(ABC):
    """Runs a source whose extracts are compared: the driver lists them, the executors read their rows. Picklable."""

    @property
    def keeps_versions(self) -> bool:
        """False if the source has but its present state, and an extract's version is the time of the look at it."""
        return True

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; it may have the column of `version`."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The name of the column that gets the version."""

    @property
    @abstractmethod
    def version_type(self) -> pa.DataType:
        """The Arrow type of that column: int64, date32 or timestamp[us]."""

    @abstractmethod
    def listed(self, since: int | None) -> Sequence[Extract]:
        """Return the extracts that are there, by their versions; those up to `since` may be left out.

        Args:
            since: The version of the last one that was read; None = none was.

        Raises:
            SourceError: If the source can't be reached.
        """

    @abstractmethod
    def splits(self, version: int, proof: str, place: dict[str, Any]) -> list[Split]:
        """Return the splits of an extract that was listed, the same on every call.

        Raises:
            SourceError: If it is gone, or is not what it was.
        """

    def size(self, split: Split) -> int | None:
        """Return about how many bytes a split has; None = not known."""
        return None

    @abstractmethod
    def split_reader(self) -> SplitReader:
        """Return what reads the splits on executors."""


class ExtractSource(Source):
    """A source that keeps full extracts, each of a version; `Environment.changes_from_snapshots` compares them."""

    @abstractmethod
    def extracts(self, context: SourceContext, version: str | int | date | None) -> Extracts:
        """Return what lists and reads the extracts.

        Args:
            version: Where the version of an extract stands, as the user says; a number, date or time = the version of
                what is there now; None = the user does not say.

        Raises:
            ConfigError: If there is no such version.
            SourceError: If the source can't be read.
        """
