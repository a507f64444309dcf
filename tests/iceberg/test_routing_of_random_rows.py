"""Random rows in random tasks: DuckDB finds in each table what it finds in the input under that table's name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.duck import query
from tests.iceberg.routed import Routed, run
from tests.tiers import examples
from volley import IcebergSink, col, concat_str
from volley.plan.expressions import Expr

SCHEMA = pa.schema({"id": pa.int64(), "region": pa.string(), "number": pa.int32(), "note": pa.string()})
TEMPLATE = "{region}.orders_{number}"
# The same names, as an expression and as DuckDB computes them.
EXPRESSION = concat_str(col("region"), ".orders_", col("number").cast("string"))
NAMES = "region || '.orders_' || number"

rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "region": st.sampled_from(["nord", "süd", "ost west", "a-b"]),
        "number": st.integers(0, 2),
        "note": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
    }
)
epochs = st.lists(st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3), min_size=1, max_size=2)


@settings(max_examples=examples(0.4))
@given(epochs, st.sampled_from([TEMPLATE, EXPRESSION]), st.sampled_from([1, 2, 100]))
def test_every_row_is_in_the_table_that_it_names(
    given_epochs: list[list[list[dict[str, object]]]], route: str | Expr, max_open_writers: int
) -> None:
    with TemporaryDirectory() as folder:
        lake = Routed(Path(folder))
        try:
            driver = lake.driver(IcebergSink(lake.config).routed(route, max_open_writers=max_open_writers), SCHEMA)
            batches = [[pa.RecordBatch.from_pylist(task, SCHEMA) for task in epoch] for epoch in given_epochs]
            for number, tasks in enumerate(batches):
                run(driver, number, *tasks)
            table = pa.Table.from_batches([task for epoch in batches for task in epoch], SCHEMA)
            expected: dict[str, Counter[tuple[object, ...]]] = {}
            for name, *values in query(f"select {NAMES}, * from events", events=table).fetchall():
                expected.setdefault(name, Counter())[tuple(values)] += 1
            found = {".".join(name): lake.catalog.load_table(name) for name in lake.tables()}
            assert {
                name: Counter(query(f"from iceberg_scan('{table.metadata_location}')").fetchall())
                for name, table in found.items()
            } == expected
        finally:
            lake.close()
