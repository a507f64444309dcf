"""Tables that other projects publish as test data: what pyiceberg or DuckDB read is read, the rest refused by name.

The folder of the tables is `VOLLEY_CORPORA`, or `shared/corpora` beside the project or above it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import uuid
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.table import StaticTable

from tests.duck import query
from volley import IcebergStorage, VolleyError
from volley.iceberg import IcebergTable, TableRef

_ROOT = Path(__file__).parents[2]
_PLACES = [parent / "shared/corpora" for parent in _ROOT.parents]


def _corpora() -> Path | None:
    named = os.environ.get("VOLLEY_CORPORA")
    places = [Path(named)] if named else _PLACES
    return next((place / "iceberg" for place in places if (place / "iceberg/relocate.py").is_file()), None)


CORPORA = _corpora()
FILES = sorted(str(file.relative_to(CORPORA)) for file in CORPORA.rglob("*metadata.json")) if CORPORA else []

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not FILES, reason="there is no folder of public tables: set VOLLEY_CORPORA"),
]

# pyiceberg turns null lists and maps of structs into empty ones; the tables' files tell.
_BY_FILES = "complextypestbl_iceberg_orc/metadata/v2"
# The vector names its data file by the path that it had: pyiceberg does not apply it.
_BY_DUCKDB = "iceberg_v3_deletion_vectors/metadata/v3"
# Nobody reads these, for a fault of the table's own or a format that no one has.
REFUSED = {
    "metastore_table/metadata/00000": "No such file",
    "internal_metadata_inconsistent_partitions": r"has 1 partition values, but partition spec \d+ of the table has 2",
    "airports_orc/metadata/v2": "has no field ids, and the table has no property schema.name-mapping.default",
    "airports_parquet/metadata/v2": "has no field ids, and the table has no property schema.name-mapping.default",
    "iceberg_migrated_complex_test/metadata/v2": "is not a whole Parquet file",
    "iceberg_migrated_complex_test_orc/metadata/v2": "in field 'string_col' .* where the table has list<int>",
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TableRef]:
    """The tables with the paths of this machine, in one catalog."""
    assert CORPORA is not None
    folder = tmp_path_factory.mktemp("public")
    out, storage = folder / "out", IcebergStorage.Local(str(folder / "lake"))
    subprocess.run([sys.executable, CORPORA / "relocate.py", out], check=True, capture_output=True)
    refs = {file: TableRef("db", f"t{number}", storage) for number, file in enumerate(FILES)}
    with TableRef("db", "any", storage).load_catalog() as catalog:
        catalog.create_namespace("db")
    with sqlite3.connect(folder / "lake/catalog.db") as database:
        # `register_table` would parse the metadata; other clients of a catalog may have put in what pyiceberg refuses.
        database.executemany(
            "insert into iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "values ('volley', 'db', ?, ?)",
            [(ref.table, f"file://{out / file}") for file, ref in refs.items()],
        )
    database.close()
    return refs


def plain(value: Any) -> Any:
    """The same value for all readers: they differ in zones, classes of UUIDs, and pairs of maps."""
    if isinstance(value, dict):
        return sorted((name, plain(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value.bytes if isinstance(value, uuid.UUID) else value


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(plain(row)) for row in table.to_pylist())


def by_pyiceberg(metadata: str) -> pa.Table | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return StaticTable.from_metadata(metadata).scan().to_arrow()
    except Exception:
        return None


def by_duckdb(metadata: str, columns: str = "*") -> pa.Table | None:
    try:
        return query(f"select {columns} from iceberg_scan('{metadata.removeprefix('file://')}')").to_arrow_table()
    except Exception:
        return None


def by_files(metadata: str) -> pa.Table:
    files = (Path(metadata.removeprefix("file://")).parents[1] / "data").glob("*")
    return pa.concat_tables(orc.ORCFile(file).read() for file in files)


def judged(file: str, metadata: str) -> pa.Table | None:
    """The rows, by another reader; None if none reads them."""
    if _BY_FILES in file:
        return by_files(metadata)
    table = None if _BY_DUCKDB in file else by_pyiceberg(metadata)
    return by_duckdb(metadata) if table is None else table


def location_of(ref: TableRef) -> str:
    with sqlite3.connect(str(ref.file)) as database:
        row = database.execute("select metadata_location from iceberg_tables where table_name = ?", [ref.table])
        (location,) = row.fetchone()
    database.close()
    return str(location)


@pytest.mark.parametrize("file", FILES)
def test_it_is_read_as_others_do_or_refused_by_name(file: str, tables: dict[str, TableRef]) -> None:
    ref, reason = tables[file], next((reason for name, reason in REFUSED.items() if name in file), None)
    if reason is not None:
        with pytest.raises(VolleyError, match=reason) as caught:
            IcebergTable(ref).to_arrow()
        assert caught.value.hint
        return
    rows = IcebergTable(ref).to_arrow()
    judge = judged(file, location_of(ref))
    assert judge is None or rows_of(rows) == rows_of(judge)


def test_those_that_are_refused_are_read_by_nobody(tables: dict[str, TableRef]) -> None:
    refused = [file for file in FILES if any(name in file for name in REFUSED)]
    assert [file for file in refused if by_pyiceberg(location_of(tables[file])) is not None] == []
    # DuckDB 1.5.5 does not survive the others.
    whole = [file for file in refused if "metastore" not in file]
    assert [file for file in whole if by_duckdb(location_of(tables[file])) is not None] == []


def test_variants_of_trino_are_read(tables: dict[str, TableRef]) -> None:
    """Their files lack Parquet's annotation; pyiceberg reads none, and DuckDB 1.5.5 their bytes, or nothing."""
    at = "impala/iceberg_test/iceberg_v3/{}/metadata/v2.metadata.json"
    rows = IcebergTable(tables[at.format("trino_variant")]).to_arrow().sort_by("id").to_pylist()
    known = {"bool": {"true": "true", "false": "false"}, "variant": {"null": "null"}}
    told = [row["descr"].split() for row in rows[1:16]]
    expected = [None, *(known.get(kind, {}).get(value) or value.replace("1e10", "10000000000") for kind, value in told)]
    assert [row["v"] and row["v"].strip('"') for row in rows[:16]] == expected
    nested = IcebergTable(tables[at.format("trino_nested_variant")]).to_arrow().sort_by("id").to_pylist()
    assert [list(row.values())[2:] for row in nested] == [
        ["42", ["1", '"a"'], [("k1", "10"), ("k2", '"x"')], {"a": '{"age":30}', "b": 5}, [{"v": "7"}]],
        [
            *('{"name":"Alice"}', ["[1,2,3]"], [("obj", '{"page":"home","retries":3}')]),
            *({"a": '["iceberg","string"]', "b": 9}, [{"v": '{"k":1}'}, {"v": "null"}]),
        ],
    ]
