#!/usr/bin/env bash
# DuckDB 1.5.5 over tables of pyarrow 26.0.1: an inner join loses the row with 0.0 where the other side has 0.0 and -0.0.
#
# DuckDB gives the scan of one side the values that the other side of its hash join has, as `d IN (-0.0)`: 0.0 and -0.0
# are one value to it. pyarrow's `is_in`, which computes that, takes them for two, though `==` does not. A left join, the
# same join of DuckDB's own tables, and of the same rows behind a materialized CTE have the rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import duckdb
import pyarrow as pa
import pyarrow.compute as pc

ours, theirs = pa.table({"d": [0.0]}), pa.table({"o": [-0.0, 0.0]})
own = duckdb.connect()
own.execute("create table mine as from ours")
own.execute("create table yours as from theirs")
plain, behind = "from ours l {} join theirs r on l.d = r.o", "from a l {} join b r on l.d = r.o"
texts = {
    "Arrow tables": "select count(*) " + plain,
    "own tables": "select count(*) from mine l {} join yours r on l.d = r.o",
    "a materialized CTE": "with a as materialized (from ours), b as materialized (from theirs) select count(*) " + behind,
}
seen = {}
for name, text in texts.items():
    seen[name] = [own.execute(text.format(how)).fetchone()[0] for how in ("inner", "semi", "left")]
    print(f"{name}: inner {seen[name][0]}, semi {seen[name][1]}, left {seen[name][2]} rows")
zeros = ours["d"].combine_chunks()
found = pc.is_in(zeros, pa.array([-0.0])).to_pylist(), pc.equal(zeros, -0.0).to_pylist()
print(f"pyarrow: 0.0 is in [-0.0]: {found[0][0]}, 0.0 == -0.0: {found[1][0]}")
assert seen == {"Arrow tables": [0, 0, 2], "own tables": [2, 1, 2], "a materialized CTE": [2, 1, 2]}, "it has changed"
assert found == ([False], [True]), "it has changed"
PYTHON
