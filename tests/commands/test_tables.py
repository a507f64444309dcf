"""The commands for tables take what their methods in Python take; plain pyiceberg reads what they leave."""

from __future__ import annotations

import inspect
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from typer.testing import CliRunner, Result

from volley.cli.app import app
from volley.iceberg import IcebergStorage, IcebergTable, SnapshotManager, TableRef


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with a table of three files, each of two rows."""
    (tmp_path / "lake").mkdir()
    config = f"{{namespace: db, table: t, local: {{path: {tmp_path}/lake}}}}"
    (tmp_path / "volley.yaml").write_text(f"sinks: {{lake: {{connector: iceberg, config: {config}}}}}\n")
    lake = {"uri": f"sqlite:///{tmp_path}/lake/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = SqlCatalog("volley", **lake)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema({"id": pa.int64(), "x": pa.int64()}))
    for number in range(3):
        table.append(pa.table({"id": [number, number + 10], "x": [5, number]}))
    return tmp_path


def ended(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [arguments[0], "-c", str(folder / "volley.yaml"), *arguments[1:]])


def volley(folder: Path, *arguments: str) -> str:
    result = ended(folder, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def table_in(folder: Path) -> Table:
    return SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db").load_table("db.t")


def test_compact_takes_each_setting(folder: Path) -> None:
    assert "3 data files" in volley(folder, "compact", "--dry-run", "--large-above", "2.5")
    assert len(table_in(folder).snapshots()) == 3
    assert "0 data files" in volley(folder, "compact", "--least-files", "4")
    volley(folder, "compact", "--sort-by", "x desc", "--sort-by", "id desc", "--rewrite-all", "--max-time", "5m")
    table = table_in(folder)
    assert table.inspect.data_files().num_rows == 1
    assert table.scan().to_arrow()["id"].to_pylist() == [2, 1, 0, 12, 11, 10]


def test_expire_takes_each_setting(folder: Path) -> None:
    first, second, _ = (snapshot.snapshot_id for snapshot in table_in(folder).snapshots())
    volley(folder, "expire", "--snapshot-ids", str(first), "--snapshot-ids", str(second), "--dry-run")
    assert len(table_in(folder).snapshots()) == 3
    volley(folder, "expire", "--older-than", "0s", "--max-snapshots", "1")
    assert table_in(folder).snapshots()[0].snapshot_id == second
    volley(folder, "expire", "--snapshot-ids", str(second))
    assert len(table_in(folder).snapshots()) == 1


def test_erase_takes_a_file_of_keys(folder: Path) -> None:
    keys = folder / "keys.jsonl"
    keys.write_text('{"id": 1}\n\n{"id": 12}\n')
    assert "2 rows of table db.t would be erased" in volley(folder, "erase", str(keys), "--dry-run")
    SnapshotManager(TableRef("db", "t", IcebergStorage.Local(f"{folder}/lake"))).create_tag("kept")
    assert "the tags kept" in ended(folder, "erase", str(keys)).output
    assert table_in(folder).scan().to_arrow().num_rows == 6
    (folder / "state").mkdir()
    (folder / "state" / "1.delta").touch()
    named = volley(folder, "erase", str(keys), "--dry-run", "--drop-tags", "--checkpoint", str(folder / "state"))
    assert "1.delta: it is state of Spark" in named
    (folder / "state" / "1.delta").unlink()
    settings = ["--drop-tags", "--orphans-older-than", "0s", "--checkpoint", str(folder / "state")]
    assert "none of" in volley(folder, "erase", str(keys), *settings)
    assert sorted(table_in(folder).scan().to_arrow()["id"].to_pylist()) == [0, 2, 10, 11]
    keys.write_text("id: 1")
    assert ended(folder, "erase", str(keys)).exit_code == 2
    assert "keys can't be read from" in ended(folder, "erase", str(folder / "none")).output


@pytest.mark.parametrize(
    "command",
    [
        "changes --to 5",
        "changes --from 5",
        "changes --from {last} --to {first}",
        "changes --key none",
        "compact --where none=1",
        "compact --sort-by none",
        "compact --large-above -1",
        "expire --older-than once",
        "expire --snapshot-ids 5",
        "expire --snapshot-ids {last}",
        "orphans --older-than once",
        "snapshots --sink none",
    ],
)
def test_options_that_fit_no_table_are_wrong_arguments(command: str, folder: Path) -> None:
    snapshots = table_in(folder).snapshots()
    last, first = snapshots[-1].snapshot_id, snapshots[0].snapshot_id
    result = ended(folder, *command.format(last=last, first=first).split())
    assert result.exit_code == 2, result.output


def test_a_table_whose_snapshots_have_expired_was_reached(folder: Path) -> None:
    volley(folder, "expire", "--older-than", "0s", "--retain-last", "1")
    result = ended(folder, "changes")
    assert result.exit_code == 1, result.output


@pytest.mark.parametrize(
    ("command", "method"), [("compact", IcebergTable.compact), ("expire", SnapshotManager.expire_snapshots)]
)
def test_options_are_those_of_python(command: str, method: object) -> None:
    own = {"--config", "-c", "--sink", "--help"}
    shown = {word for word in CliRunner().invoke(app, [command, "--help"]).output.split() if word.startswith("--")}
    names = set(inspect.signature(method).parameters) - {"self", "run"}  # type: ignore[arg-type]
    assert {f"--{name.replace('_', '-')}" for name in names} == {word.rstrip(",") for word in shown} - own
