"""Cases on every catalog: branches that main overtakes, odd and dropped names, dead letters, old metadata files."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.recovery.lake import change_at, write
from tests.services import lakes
from tests.services.lakes import SCHEMA, Lake, driver
from tests.services.test_modes_of_catalogs import objects_of
from volley import (
    CatalogError,
    ConfigError,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg import IcebergTable, SnapshotManager, remove_orphan_files


@pytest.fixture(params=lakes.catalogs())
def lake(request: pytest.FixtureRequest) -> Lake:
    opened: Lake = request.param(request)
    return opened


def add(config: IcebergSinkConfig, number: int, *ids: int) -> None:
    """One epoch by a driver of its own."""
    ours = driver(config)
    ours.commit(*write(ours, number, [*ids]))


def ids_of(lake: Lake, config: IcebergSinkConfig, branch: str) -> list[int]:
    rows = lake.table(config).scan().use_ref(branch).to_arrow()
    return sorted(rows["id"].to_pylist())


def test_a_branch_whose_main_moves_while_it_is_written(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new branch begins with the rows of main; both keep what is written to them."""
    if lake.name == "nessie":
        pytest.skip("its tables have no branches")
    config = lake.config()
    add(config, 0, 1, 2)
    audit = driver(config.with_branch("audit"))
    for number in range(1, 3):
        epoch, results = write(audit, number, [10 + number])

        def append(id: int = 50 + number) -> None:
            lake.table(config).append(pa.table({"id": [id]}, schema=SCHEMA))

        change_at("while it commits", monkeypatch, audit, append)
        audit.commit(epoch, results)
    assert ids_of(lake, config, "main") == [1, 2, 51, 52]
    # The branch was made before its first epoch, or by its second attempt.
    assert ids_of(lake, config, "audit") in ([1, 2, 11, 12], [1, 2, 11, 12, 51])


def test_a_table_that_another_client_renames(lake: Lake) -> None:
    config = lake.config()
    add(config, 0, 1)
    ours, plain = driver(config), lake.open_plain()
    epoch, results = write(ours, 1, [2])
    elsewhere = (*config.identifier[:-1], f"{config.table}_2")
    plain.rename_table(config.identifier, elsewhere)
    with pytest.raises(TableNotFoundError, match=config.table):
        ours.commit(epoch, results)
    ours.abort(epoch, results)
    plain.rename_table(elsewhere, config.identifier)
    add(config, 1, 2)
    assert lake.ids(config) == [1, 2]


def test_old_metadata_files_are_few_where_the_table_asks_for_it(lake: Lake) -> None:
    few = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
    config = lake.config().with_table_properties(few)
    for number in range(5):
        add(config, number, number)
    left = [path for path in objects_of(lake.table(config)) if path.endswith((".metadata.json", ".metadata.json.gz"))]
    assert lake.ids(config) == [0, 1, 2, 3, 4]
    # Nessie keeps the properties, and all files.
    assert len(left) > 5 if lake.name == "nessie" else len(left) == 3


def refusal_of(config: IcebergSinkConfig) -> VolleyError | None:
    """Write an epoch; return the error of a catalog that does not take the name."""
    try:
        add(config, 0, 1)
    except (CatalogError, ConfigError) as error:
        return error
    return None


@pytest.mark.parametrize("name", ["a-b", "a b", "ä", "a=b", "1"])
def test_names_are_taken_or_refused_by_name(lake: Lake, name: str) -> None:
    config = replace(lake.config(), table=f"{name}{uuid.uuid4().hex}")
    refusal = refusal_of(config)
    if refusal is not None:
        assert config.table in str(refusal)
        assert refusal.hint
        return
    add(config, 1, 2)
    assert lake.ids(config) == [1, 2]


def test_files_are_compacted_and_those_of_nobody_removed(lake: Lake) -> None:
    config = lake.config()
    for number in range(4):
        add(config, number, number)
    dead = driver(config)
    write(dead, 9, [99])
    view = IcebergTable(config.ref)
    assert view.compact().files_after == 1
    if lake.name == "nessie":
        with pytest.raises(ConfigError, match=r"gc\.enabled is false"):
            remove_orphan_files(config, 0)
    else:
        SnapshotManager(config.ref).expire_snapshots("0s", retain_last=1)
        orphans = remove_orphan_files(config, 0)
        assert any(path.endswith(".parquet") for path in orphans)
        data = [path for path in objects_of(lake.table(config)) if path.endswith(".parquet")]
        assert len(data) == 1
    add(config, 4, 4)
    assert lake.ids(config) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("spark")
def test_bad_rows_are_in_the_table_beside(lake: Lake, tmp_path: Path) -> None:
    config = lake.config()
    letters = config.ref.beside(f"{config.table}_bad")
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = [json.dumps({"id": number}), f'{{"id": "bad {number}"}}']
        (tmp_path / "in" / f"{number}.json").write_text("\n".join(rows))
    source = FileSource(tmp_path / "in", format="json", schema={"id": "bigint"}, max_files_per_epoch=1)
    environment = Environment("local[2]", checkpoint_dir=str(tmp_path / "checkpoints"))
    environment.from_source(source).to_sink(IcebergSink(config.with_dead_letter(letters.table))).execute("bad")
    assert lake.ids(config) == [0, 1]
    bad = lake.open_plain().load_table(letters.identifier).scan().to_arrow()["payload"].to_pylist()
    assert sorted(bad) == [f'{{"id": "bad {number}"}}' for number in range(2)]
