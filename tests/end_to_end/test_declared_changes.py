"""Changes in a shape that a user declares, upserted by a job: the table, read back, has the rows of the database."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, Upsert

UNWRAP = {
    "fields": "kind string, at struct<file: long, pos: long>",
    "row": ["new", "old"],
    "before": "old",
    "operation": "case kind when '+' then 'insert' when '~' then 'update' when '-' then 'delete' "
    "when 'ping' then null else kind end",
    "sequence": ["at.file", "at.pos"],
}


def change(kind: str, place: tuple[int, int], new: dict[str, Any] | None, old: dict[str, Any] | None = None) -> str:
    return json.dumps({"kind": kind, "at": {"file": place[0], "pos": place[1]}, "new": new, "old": old})


def test_late_and_repeated_changes_of_a_declared_shape_make_the_rows_of_the_database(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table], tmp_path: Path
) -> None:
    folder = tmp_path / "changes"
    folder.mkdir()
    files = [
        # Written in this order: +1, ~1, +2, 2 becomes 3, +4, -4, +5, 5 without its note.
        [change("~", (9, 7), {"id": 1, "note": "late"}, {"id": 1, "note": "a"}), change("-", (10, 1), None, {"id": 4})],
        [change("+", (9, 1), {"id": 1, "note": "a"}), change("+", (9, 8), {"id": 2, "note": "b"}), '{"kind": "ping"}'],
        [change("~", (9, 9), {"id": 3, "note": "b"}, {"id": 2, "note": "b"}), change("?", (11, 1), {"id": 1})],
        [change("+", (9, 100), {"id": 4, "note": "gone"}), change("+", (9, 8), {"id": 2, "note": "b"})],
        [change("+", (11, 2), {"id": 5, "note": "kept", "n": 1}), change("~", (11, 3), {"id": 5, "n": 2})],
    ]
    for number, lines in enumerate(files):
        (folder / f"{number}.json").write_text("\n".join(lines))
    options = {"key_fields": ["id"], "unwrap": UNWRAP}
    schema = "id long, note string, n int"
    source = FileSource(folder, format="changes", schema=schema, options=options, max_files_per_epoch=1)
    letters = IcebergSink(replace(config, table="letters"))
    sink = IcebergSink(config.with_commit_mode(Upsert()))
    environment.from_source(source).to_sink(sink, dead_letter=letters).execute("declared")
    rows = sorted((row["id"], row["note"], row["n"]) for row in load().scan().to_arrow().to_pylist())
    assert rows == [(1, "late", None), (3, "b", None), (5, "kept", 2)]
    (letter,) = letters.to_arrow().to_pylist()
    assert letter["error"] == "what happened is not known: '?'"
