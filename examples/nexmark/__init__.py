"""Nexmark: 23 queries over the persons, auctions and bids of an auction house, each a job from its SQL text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from examples.nexmark.events import side_input
from volley import DataStream, Environment, FileSource, IcebergSink, IcebergSinkConfig, Source, Upsert

__all__ = ["QUERIES", "Query", "sources_of"]


@dataclass(frozen=True)
class Query:
    """One of the queries.

    Args:
        name: ``q0`` to ``q22``.
        tables: Those that its text names.
        keys: Of its rows, where they change; () = they come out once.
    """

    name: str
    tables: tuple[str, ...] = ("bid",)
    keys: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The query, as its file has it."""
        return Path(__file__).with_name(f"{self.name}.sql").read_text()

    def rows(self, environment: Environment, sources: Mapping[str, Source]) -> DataStream:
        """Return the rows of the query over sources, each by the name of its table."""
        streams = {name: environment.from_source(sources[name]) for name in self.tables}
        if self.name == "q12":
            streams["bid"] = streams["bid"].with_processing_time("p_time")
        tables = {"side_input": side_input()} if self.name == "q13" else {}
        return environment.sql(self.text, lateness="4s", ttl="1d", **streams, **tables)

    def sink(self, config: IcebergSinkConfig) -> IcebergSink:
        """Return the table that its rows go to: appended, or as what is valid of each key."""
        return IcebergSink(config.with_commit_mode(Upsert(self.keys)) if self.keys else config)


_BOTH = ("auction", "bid")
QUERIES = {
    query.name: query
    for query in (
        *(Query(name) for name in ("q0", "q1", "q2")),
        Query("q3", ("auction", "person")),
        Query("q4", _BOTH, ("category",)),
        Query("q5"),
        Query("q6", _BOTH, ("id",)),
        Query("q7"),
        Query("q8", ("person", "auction")),
        Query("q9", _BOTH, ("id",)),
        *(Query(name) for name in ("q10", "q11", "q12", "q13", "q14")),
        Query("q15", keys=("day",)),
        Query("q16", keys=("channel", "day")),
        Query("q17", keys=("auction", "day")),
        Query("q18", keys=("auction", "bidder")),
        Query("q19", keys=("auction", "rank_number")),
        Query("q20", _BOTH),
        *(Query(name) for name in ("q21", "q22")),
    )
}
"""The queries, by their names."""


def sources_of(folder: Path, files_per_epoch: int = 1) -> dict[str, Source]:
    """Return the sources of the tables that `examples.nexmark.events.write` has written into a folder."""
    return {
        name: FileSource(str(folder / name), format="parquet", max_files_per_epoch=files_per_epoch)
        for name in ("person", "auction", "bid")
    }
