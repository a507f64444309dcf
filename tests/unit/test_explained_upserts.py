"""What `explain` says of a sink that upserts: which of several rows of a key stays."""

from __future__ import annotations

import pytest

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, MemorySource, col
from volley.iceberg import Append, History, Upsert

CONFIG = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local("/tmp/lake"))
STAYS = "of the rows of a key, the one"
VERSIONS = "the rows of a key are its versions in the order of"
FOR_EVER = "stays, in whatever order and epoch they come"

MODES = [
    (Upsert("id"), f"{STAYS} that comes last in an epoch stays, and that of a later epoch"),
    (Upsert("id", "at"), f"{STAYS} with the greatest 'at' of an epoch stays, and that of a later epoch"),
    (Upsert("id", sequence=["day", "at"]), f"{STAYS} with the greatest 'day' and 'at' {FOR_EVER}"),
    (
        Upsert("id", sequence=col("a") + 1, op_field="op"),
        f"{STAYS} with the greatest '_volley_sequence' {FOR_EVER}; deletions are remembered for ever",
    ),
    (
        Upsert("id", sequence="at", op_field="op", tombstones="7d", ignore_nulls=True),
        f"{STAYS} with the greatest 'at' {FOR_EVER}; deletions are remembered for 7 days, 0:00:00; "
        "values stay for nulls",
    ),
    (
        History("id", sequence="at"),
        f"{VERSIONS} 'at', in whatever order and epoch they come, a new one where a value changed; what they "
        "don't show is remembered for ever",
    ),
    (
        History("id", sequence=["day", "at"], track=["name", "price"], tombstones="7d"),
        f"{VERSIONS} 'day' and 'at', in whatever order and epoch they come, a new one where the columns 'name' and "
        "'price' changed; what they don't show is remembered for 7 days, 0:00:00",
    ),
    (
        Upsert("id", update_columns=["a", "b"]),
        f"{STAYS} that comes last in an epoch stays, and that of a later epoch; values stay for columns but a, b",
    ),
]


def explained(mode: Append | Upsert | History, routed: bool, capsys: pytest.CaptureFixture[str]) -> str:
    sink = IcebergSink(CONFIG.with_commit_mode(mode))
    stream = Environment().from_source(MemorySource([{"id": 1, "shop": "x"}]))
    stream.to_sink(sink.routed("{shop}") if routed else sink).explain()
    lines = capsys.readouterr().out.rstrip().splitlines()
    # That of many tables has one more, about the commits.
    return lines[-2 if routed else -1]


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize(("mode", "said"), MODES)
def test_which_row_of_a_key_stays(
    mode: Upsert | History, said: str, routed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(mode, routed, capsys) == f"{'{shop}' if routed else 'db.t'}: {said}"


def test_a_sink_that_has_all_rows_says_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert "of the rows of a key" not in explained(Append(), False, capsys)
