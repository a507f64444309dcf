"""A history of Debezium's envelopes: every version by value, and none of a row whose values were not sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from volley import Environment, FileSource, History, IcebergSink, IcebergSinkConfig, VolleyError

PLACEHOLDER = "__debezium_unavailable_value"


def written(folder: Path, name: str, *changes: tuple[str, int, str | None, int]) -> FileSource:
    """A file of changes: what happened, the id, the note, and the place in the log."""
    lines = []
    for op, id, note, lsn in changes:
        source = {"connector": "postgresql", "snapshot": "false", "sequence": json.dumps(["1", str(lsn)])}
        row = {"id": id, "note": note}
        places: dict[str, Any] = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        lines.append(json.dumps({"op": op, **places, "source": source}))
    (folder / "changes").mkdir(exist_ok=True)
    (folder / "changes" / name).write_text("\n".join(lines))
    options = {"key_fields": ["id"]}
    return FileSource(f"{folder}/changes", format="debezium", schema="id long, note string", options=options)


def test_versions_by_value_and_no_version_of_a_placeholder(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table], tmp_path: Path
) -> None:
    sink = IcebergSink(config.with_commit_mode(History()))
    letters = IcebergSink(replace(config, table="letters"))

    def versions() -> list[tuple[Any, ...]]:
        rows = sorted(load().scan().to_arrow().to_pylist(), key=lambda row: (row["id"], row["valid_from"]))
        return [(row["id"], row["note"], row["valid_from"][8:16][-1], row["is_current"]) for row in rows]

    first = written(tmp_path, "1.json", ("c", 1, "a", 1), ("u", 1, "c", 5), ("c", 2, "x", 3), ("d", 2, None, 4))
    environment.from_source(first).to_sink(sink).execute("history")
    assert versions() == [(1, "a", 1, False), (1, "c", 5, True), (2, "x", 3, False)]
    late = written(tmp_path, "2.json", ("u", 1, "b", 2), ("u", 1, "c", 5))
    environment.from_source(late).to_sink(sink).execute("history")
    expected = [(1, "a", 1, False), (1, "b", 2, False), (1, "c", 5, True), (2, "x", 3, False)]
    assert versions() == expected
    unsent = written(tmp_path, "3.json", ("u", 1, PLACEHOLDER, 9))
    with pytest.raises(VolleyError, match="leave out values that have not changed"):
        environment.from_source(unsent).to_sink(sink).execute("history")
    assert versions() == expected
    environment.from_source(unsent).to_sink(sink, dead_letter=letters).execute("history")
    assert versions() == expected
    (letter,) = letters.to_arrow().to_pylist()
    assert "leave out values that have not changed" in letter["error"]
