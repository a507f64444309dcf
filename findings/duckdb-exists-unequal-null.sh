#!/usr/bin/env bash
# DuckDB 1.5.5: EXISTS with an equality and `<>` takes null as a value that differs, where it is not WHERE's condition.
#
# `2 <> null` is null, so no row of the query matches and EXISTS is false; as a condition of WHERE alone DuckDB has that,
# too. In a select list, or beside an OR, it is true. `<`, `>`, `<=` and `>=` are right there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5
"$folder/venv/bin/python" - <<'PYTHON'
import sqlite3

import duckdb

TABLES = (
    "create table a (id int, k int, x int)",
    "create table b (k int, y int)",
    "insert into a values (1, 0, null), (2, 0, 5), (3, 0, 2)",
    "insert into b values (0, 2)",
)
EXISTS = "exists (select 1 from b where b.k = a.k and b.y {} a.x)"
OR, WHERE = f"select id from a where {EXISTS} or x = 9", f"select id from a where {EXISTS}"
LISTED = f"select id, {EXISTS} from a"
peers = {"DuckDB": duckdb.connect(), "SQLite": sqlite3.connect(":memory:")}
seen = {}
for name, peer in peers.items():
    for statement in TABLES:
        peer.execute(statement)
    listed = [id for id, found in peer.execute(LISTED.format("<>")).fetchall() if found]
    others = [[id for (id,) in peer.execute(text.format("<>")).fetchall()] for text in (OR, WHERE)]
    less = [id for id, found in peer.execute(LISTED.format("<")).fetchall() if found]
    seen[name] = [sorted(ids) for ids in (listed, *others, less)]
    print(f"{name}: in a list {seen[name][0]}, beside OR {seen[name][1]}, in WHERE {seen[name][2]}; with <: {seen[name][3]}")
assert seen == {"DuckDB": [[1, 2], [1, 2], [2], [2]], "SQLite": [[2], [2], [2], [2]]}, "the behaviour has changed"
PYTHON
