"""``python -m examples.tpch 5 [FOLDER]``: a query of TPC-H as a view of its text, brought up to date by changes.

It needs ``pip install duckdb-extensions duckdb-extension-tpch``: DuckDB makes the rows, and has the texts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from volley import Environment, IcebergSinkConfig, IcebergStorage, IcebergTable, MaterializedView, TableRef

_SCALE = 0.01


def main(number: int, folder: Path) -> list[str]:
    """Make the tables and the view, delete a part of the lines, refresh; return how both refreshes were done."""
    connection = duckdb.connect()
    import_extension("tpch", con=connection)
    connection.load_extension("tpch")
    connection.execute(f"call dbgen(sf = {_SCALE})")
    (text,) = connection.execute("select query from tpch_queries() where query_nr = ?", [number]).fetchone() or ("",)
    lake = IcebergStorage.Local(str(folder))
    tables = {name: TableRef("tpch", name, lake) for (name,) in connection.execute("show tables").fetchall()}
    catalog = tables["lineitem"].load_catalog()
    catalog.create_namespace("tpch")
    for name, table in tables.items():
        rows = connection.table(name).to_arrow_table()
        catalog.create_table(table.name, rows.schema).append(rows)
    into = IcebergSinkConfig.from_table(tables["lineitem"].beside(f"q{number}"))
    sources = {name: IcebergTable(table) for name, table in tables.items() if re.search(rf"\b{name}\b", text)}
    view = MaterializedView(f"q{number}", sql=text, sources=sources, into=into, mode="incremental")
    modes: list[str] = [view.refresh().mode]
    catalog.load_table(tables["lineitem"].name).delete("l_orderkey < 100")
    modes.append(view.refresh().mode)
    Environment().from_source(view.to_source()).show()
    return modes


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else ".volley/tpch"))
