"""Many tables in one sink: rows go where their columns say, once, whatever happens to one of the tables."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.iceberg.routed import QUERY, SCHEMA, Routed, rows, run, write
from tests.waiting import wait_until
from volley import (
    CommitStateUnknownError,
    ConfigError,
    Epoch,
    IcebergSink,
    LayoutChangedError,
    Metrics,
    PlanError,
    SchemaMismatchError,
    StorageError,
    TableFigures,
    TableNotFoundError,
    WriteResult,
    col,
    pack_rows,
)
from volley.iceberg import Maintenance, Partitioning, RoutedSink, Upsert
from volley.iceberg.route.committer import RoutedCommitter

# Too many characters, too many bytes, and a namespace that is too long with its dots.
LONG_NAMES = ["x" * 256, "é" * 128, f"{'n' * 128}.{'m' * 127}.x"]
ENVELOPE = pa.schema({"shop": pa.string(), "rows": pa.binary()})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Routed]:
    made = Routed(tmp_path)
    yield made
    made.close()


def packed(*tables: tuple[str, pa.RecordBatch, list[str]]) -> pa.RecordBatch:
    values = [{"shop": shop, "rows": pack_rows(batch, keys)} for shop, batch, keys in tables]
    return pa.RecordBatch.from_pylist(values, ENVELOPE)


def test_rows_go_to_the_tables_they_name_which_are_made_on_the_way(lake: Routed) -> None:
    driver = lake.driver()
    run(driver, 0, rows("oslo", 1, 2) + rows("bergen", 3), rows("bergen", 4))
    assert (lake.ids("oslo"), lake.ids("bergen"), lake.parked) == ([1, 2], [3, 4], [])
    results = run(driver, 1, rows("oslo", 5) + rows("voss", 6))
    assert (lake.ids("oslo"), lake.ids("bergen"), lake.ids("voss")) == ([1, 2, 5], [3, 4], [6])
    assert (lake.epochs("oslo"), lake.epochs("bergen"), lake.epochs("voss")) == (["0", "1"], ["0"], ["1"])
    # A table that is there is written by the tasks themselves.
    assert [route.result.files for route in results[0].committables] == [1, 0]


def test_a_new_table_has_the_partitions_of_the_config(lake: Routed) -> None:
    partitioned = lake.config.with_partitioning(Partitioning.bucket("id", n=2))
    driver = lake.driver(IcebergSink(partitioned).routed(omit=["shop"]))
    for number in range(2):
        run(driver, number, [row for id in range(8) for row in rows("oslo", id)])
    table = lake.table("oslo")
    assert [field.name for field in table.spec().fields] == ["id_bucket_2"]
    assert table.schema().column_names == ["id", "price"]
    assert {file.file.spec_id for file in table.scan().plan_files()} == {0}
    assert lake.ids("oslo") == sorted([*range(8)] * 2)


def test_tables_that_lack_a_half_committed_epoch_get_it_and_no_other(lake: Routed) -> None:
    shops = ["a", "b", "c", "d"]
    one = IcebergSink(lake.config).routed(commits_at_once=1)
    run(lake.driver(one), 0, [row for shop in shops for row in rows(shop, 0)])
    for survivors in range(5):
        dying = lake.driver(one)
        number = survivors + 1
        epoch, results = write(dying, number, [row for shop in shops for row in rows(shop, number)])
        # Only some of the tables are committed when the driver dies.
        alive = [replace(results[0], committables=results[0].committables[:survivors])]
        dying.commit(epoch, alive)
        run(lake.driver(one), number, [row for shop in shops for row in rows(shop, number)])
        assert {shop: lake.ids(shop) for shop in shops} == {shop: [*range(number + 1)] for shop in shops}
        assert {len(lake.epochs(shop)) for shop in shops} == {number + 1}


def test_an_epoch_of_another_plan_is_not_skipped(lake: Routed) -> None:
    driver = lake.driver()
    epoch, results = write(driver, 0, rows("oslo", 1))
    driver.commit(epoch, results)
    with pytest.raises(StorageError, match=r"epoch 0 is in table db\.oslo already"):
        lake.driver().writer(replace(epoch, offsets="others"))


@pytest.mark.parametrize("on_error", ["fail", "park"])
def test_a_table_that_is_gone(lake: Routed, on_error: Any) -> None:
    sink = IcebergSink(lake.config).routed(on_error=on_error)
    driver = lake.driver(sink)
    run(driver, 0, rows("oslo", 1) + rows("bergen", 1))
    metadata = lake.table("oslo").metadata_location
    epoch, results = write(driver, 1, rows("oslo", 2) + rows("bergen", 2))
    lake.catalog.drop_table("db.oslo")
    if on_error == "fail":
        with pytest.raises(TableNotFoundError, match=r"db\.oslo"):
            driver.commit(epoch, results)
        driver.abort(epoch, results)
        assert lake.ids("bergen") == [1, 2]
        with pytest.raises(TableNotFoundError, match="is gone"):
            lake.driver(sink).writer(epoch)
        return
    with pytest.raises(LayoutChangedError, match="parked"):
        driver.commit(epoch, results)
    driver.abort(epoch, results)
    run(driver, 1, rows("oslo", 2) + rows("bergen", 2))
    run(driver, 2, rows("oslo", 3), rows("oslo", 4) + rows("bergen", 3))
    assert (lake.ids("bergen"), len(lake.parked)) == ([1, 2, 3], 3)
    assert driver.parked["db.oslo"][0] == 3
    # The next driver knows what is parked; what dead attempts left is deleted.
    (lake.folder / "state" / "parked" / "00000001-00000-stray.arrow").touch()
    driver = lake.driver(sink)
    run(driver, 3, rows("oslo", 5))
    assert (driver.parked["db.oslo"][0], len(lake.parked)) == (4, 4)
    lake.catalog.register_table("db.oslo", metadata)
    run(driver, 4, rows("oslo", 6))
    assert (lake.ids("oslo"), lake.parked, driver.parked) == ([1, 2, 3, 4, 5, 6], [], {})
    assert lake.epochs("oslo") == ["0", "1", "2", "3", "4"]


def test_a_driver_that_dies_while_a_table_catches_up(lake: Routed) -> None:
    sink = IcebergSink(lake.config).routed(on_error="park")
    driver = lake.driver(sink)
    run(driver, 0, rows("oslo", 1))
    metadata = lake.table("oslo").metadata_location
    lake.catalog.drop_table("db.oslo")
    driver = lake.driver(sink)
    for number in (1, 2):
        run(driver, number, rows("oslo", number + 1))
    lake.catalog.register_table("db.oslo", metadata)
    saved = {path: path.read_bytes() for path in (lake.folder / "state").rglob("*") if path.is_file()}
    lake.driver(sink).writer(write(lake.driver(sink), 3)[0])
    assert lake.ids("oslo") == [1, 2, 3]
    for path, data in saved.items():
        path.write_bytes(data)  # as if the driver had died before it deleted what was parked
    run(lake.driver(sink), 3, rows("oslo", 4))
    assert (lake.ids("oslo"), lake.parked) == ([1, 2, 3, 4], [])


def test_a_table_that_was_made_again_is_not_filled(lake: Routed) -> None:
    parks = IcebergSink(lake.config).routed(on_error="park")
    run(lake.driver(parks), 0, rows("oslo", 1) + rows("bergen", 1))
    schema = lake.table("oslo").schema()
    lake.catalog.drop_table("db.oslo")
    lake.catalog.create_table("db.oslo", schema)
    driver = lake.driver(parks)
    run(driver, 1, rows("oslo", 2) + rows("bergen", 2))
    assert (lake.ids("oslo"), lake.ids("bergen")) == ([], [1, 2])
    assert "made again" in driver.parked["db.oslo"][1]
    with pytest.raises(PlanError, match=r"db\.oslo was dropped and made again"):
        write(lake.driver(), 2, rows("bergen", 3))


def test_a_table_that_was_put_back_from_an_old_copy_is_noticed(lake: Routed) -> None:
    driver = lake.driver()
    run(driver, 0, rows("oslo", 1))
    old = lake.table("oslo").metadata_location
    run(driver, 1, rows("oslo", 2))
    driver.stop()
    lake.catalog.drop_table("db.oslo")
    lake.catalog.register_table("db.oslo", old)
    with pytest.raises(StorageError, match=r"db\.oslo had epoch 1 of this job and now has none after 0"):
        write(lake.driver(), 2, rows("oslo", 3))
    parks = lake.driver(IcebergSink(lake.config).routed(on_error="park"))
    run(parks, 2, rows("oslo", 3) + rows("bergen", 3))
    assert (lake.ids("oslo"), lake.ids("bergen")) == ([1], [3])


def test_a_table_that_does_not_fit_is_parked_until_it_does(lake: Routed) -> None:
    strict = IcebergSink(lake.config.with_schema_evolution("strict")).routed(on_error="park")
    run(lake.driver(strict), 0, rows("oslo", 1) + rows("bergen", 1))
    with lake.table("oslo").update_schema() as update:
        update.rename_column("price", "cost")
    driver = lake.driver(strict)
    run(driver, 1, rows("oslo", 2) + rows("bergen", 2))
    assert (lake.ids("oslo"), lake.ids("bergen"), "price" in driver.parked["db.oslo"][1]) == ([1], [1, 2], True)
    with lake.table("oslo").update_schema() as update:
        update.rename_column("cost", "price")
    run(driver, 2, rows("oslo", 3))
    assert [row["price"] for row in lake.rows("oslo")] == [0.5, 1.0, 1.5]


def test_a_jobs_first_epoch_that_is_parked_outlives_a_restart(lake: Routed) -> None:
    parks = IcebergSink(lake.config.with_schema_evolution("strict")).routed(on_error="park")
    required = pa.schema([pa.field("operator", pa.string(), nullable=False)])
    lake.catalog.create_namespace_if_not_exists("db")
    lake.catalog.create_table("db.oslo", pa.unify_schemas([SCHEMA, required]))
    run(lake.driver(parks), 0, rows("oslo", 1) + rows("bergen", 1))
    driver = lake.driver(parks)
    run(driver, 1, rows("oslo", 2))
    assert (driver.parked["db.oslo"][0], len(lake.parked)) == (2, 2)
    with lake.table("oslo").update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("operator")
    for number in (2, 3):
        run(lake.driver(parks), number, rows("oslo", number + 1))
    assert (lake.ids("oslo"), lake.parked) == ([1, 2, 3, 4], [])


def test_a_catalog_that_is_down_parks_nothing(lake: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    from requests.exceptions import ConnectionError as Unreachable

    driver = lake.driver(IcebergSink(lake.config).routed(on_error="park", commits_at_once=1))
    run(driver, 0, rows("oslo", 1) + rows("bergen", 1))
    epoch, results = write(driver, 1, rows("oslo", 2) + rows("bergen", 2))

    def lost(*_: Any) -> None:
        raise Unreachable("connection reset")

    monkeypatch.setattr(driver._lanes[0].catalog, "commit_table", lost)
    with pytest.raises(CommitStateUnknownError):
        driver.commit(epoch, results)
    driver.abort(epoch, results)
    run(lake.driver(), 1, rows("oslo", 2) + rows("bergen", 2))
    assert (lake.ids("oslo"), lake.ids("bergen")) == ([1, 2], [1, 2])


def test_two_names_of_one_table_are_an_error_also_after_a_restart(lake: Routed) -> None:
    with pytest.raises(PlanError, match=r"'Oslo' and of 'oslo' both name|'oslo' and of 'Oslo' both name"):
        run(lake.driver(), 0, rows("oslo", 1) + rows("Oslo", 2))
    run(lake.driver(), 0, rows("oslo", 1))
    with pytest.raises(PlanError, match="both name table"):
        run(lake.driver(), 1, rows("OSLO", 2))
    joined = IcebergSink(lake.config).routed(col("shop").str.lower())
    run(lake.driver(joined), 1, rows("OSLO", 2))
    assert lake.ids("oslo") == [1, 2]


def test_limits(lake: Routed) -> None:
    few = IcebergSink(lake.config).routed(limit=3)
    run(lake.driver(few), 0, rows("a", 1) + rows("b", 1) + rows("c", 1))
    with pytest.raises(ConfigError, match="more than 3 tables"):
        run(lake.driver(few), 1, rows("d", 1))
    # Each task stays below the limit, and both together do not.
    driver = lake.driver(IcebergSink(lake.config).routed(limit=5))
    epoch, results = write(driver, 1, rows("d", 1) + rows("e", 1), rows("f", 1) + rows("g", 1))
    with pytest.raises(ConfigError, match="rows name 7 tables"):
        driver.commit(epoch, results)
    driver.abort(epoch, results)
    assert (lake.parked, len(lake.catalog.list_tables("db"))) == ([], 3)
    narrow = lake.driver(IcebergSink(lake.config).routed(max_open_writers=1))
    shops = [row for id in range(4) for shop in "abc" for row in rows(shop, id)]
    run(narrow, 1, shops)
    assert [lake.ids(shop) for shop in "abc"] == [[0, 1, 1, 2, 3]] * 3


@pytest.mark.parametrize("shop", [None, "", "a/b", "a..b", "\x1f", *LONG_NAMES])
def test_a_row_without_a_valid_name_is_a_bad_row(lake: Routed, shop: str | None) -> None:
    driver = lake.driver()
    epoch, _ = write(driver, 0)
    task = driver.writer(epoch).open(0)
    bad = pa.RecordBatch.from_pylist([{"id": 1, "shop": shop, "price": None}], SCHEMA)
    with pytest.raises(SchemaMismatchError, match="name"):
        task.check(bad)
    task.check(pa.RecordBatch.from_pylist(rows("oslo", 1), SCHEMA))


@pytest.mark.parametrize("shop", ["x" * 255, "é" * 127, f"{'n' * 127}.{'m' * 127}.x"])
def test_the_longest_names(lake: Routed, shop: str) -> None:
    run(lake.driver(), 0, rows(shop, 1) + rows("oslo", 2))
    name = shop if "." in shop else f"db.{shop}"
    assert lake.catalog.load_table(name).scan().to_arrow()["id"].to_pylist() == [1]


def test_upserts_by_the_keys_of_each_table(lake: Routed) -> None:
    sink = IcebergSink(lake.config).routed(key_fields={"oslo": ["id"]})
    driver = lake.driver(sink)
    for number in range(3):
        batch = rows("oslo", 1, 2 + number) + rows("bergen", 1)
        run(driver, number, [{**row, "price": float(number)} for row in batch])
    assert [(row["id"], row["price"]) for row in lake.rows("oslo")] == [(1, 2.0), (2, 0.0), (3, 1.0), (4, 2.0)]
    assert lake.ids("bergen") == [1, 1, 1]
    # A key is checked before its table is there, too.
    for other in (sink, IcebergSink(lake.config).routed("new_{shop}", key_fields=["id"])):
        task = lake.driver(other).writer(Epoch(QUERY, 3)).open(0)
        shutil.rmtree(lake.folder / "state", ignore_errors=True)
        with pytest.raises(SchemaMismatchError, match="'id' has"):
            task.check(pa.RecordBatch.from_pylist([{"id": None, "shop": "oslo", "price": 1.0}], SCHEMA))


def test_tables_of_different_schemas_that_grow_in_the_midst_of_an_epoch(lake: Routed) -> None:
    sink = IcebergSink(lake.config).routed(rows="rows", key_fields="primary_key")
    driver = lake.driver(sink, ENVELOPE)
    users, clicks = pa.record_batch({"id": [1, 2], "name": ["a", "b"]}), pa.record_batch({"id": [7], "url": ["/"]})
    run(driver, 0, packed(("users", users, ["id"]), ("clicks", clicks, [])))
    assert lake.rows("users") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert lake.rows("clicks") == [{"id": 7, "url": "/"}]
    # The first task has rows before and after a column was added, the second one only after: one snapshot.
    before = pa.record_batch({"id": [2, 3], "name": ["B", "c"]})
    after = pa.record_batch({"id": [3, 4], "name": ["C", "d"], "age": pa.array([30, 40], pa.int32())})
    later = pa.record_batch({"id": [4], "age": pa.array([41], pa.int32())})
    run(
        driver,
        1,
        packed(("users", before, ["id"]), ("users", after, ["id"]), ("clicks", clicks, [])),
        packed(("users", later, ["id"])),
    )
    assert lake.rows("users") == [
        {"id": 1, "name": "a", "age": None},
        {"id": 2, "name": "B", "age": None},
        {"id": 3, "name": "C", "age": 30},
        {"id": 4, "name": None, "age": 41},
    ]
    assert (lake.epochs("users"), lake.ids("clicks")) == (["0", "1"], [7, 7])
    # A restarted driver knows keys and columns.
    run(lake.driver(sink, ENVELOPE), 2, packed(("users", pa.record_batch({"id": [1], "name": ["A"]}), ["id"])))
    assert lake.rows("users")[0] == {"id": 1, "name": "A", "age": None}


def test_columns_of_one_name_that_do_not_fit_park_one_table(lake: Routed) -> None:
    sink = IcebergSink(lake.config).routed(rows="rows", on_error="park")
    driver = lake.driver(sink, ENVELOPE)
    run(driver, 0, packed(("a", pa.record_batch({"id": [1]}), []), ("b", pa.record_batch({"id": [1]}), [])))
    text = pa.record_batch({"id": ["one"]})
    run(driver, 1, packed(("a", text, []), ("b", pa.record_batch({"id": [2]}), [])))
    assert (lake.ids("a"), lake.ids("b")) == ([1], [1, 2])
    assert "don't fit" in driver.parked["db.a"][1]


def test_a_job_that_starts_over(lake: Routed) -> None:
    run(lake.driver(), 0, rows("oslo", 1))
    queries = (f"5f0c6a1{number}-0000-0000-0000-000000000000" for number in range(3))

    def start_over(into: str | None) -> tuple[RoutedCommitter, Epoch, list[WriteResult]]:
        shutil.rmtree(lake.folder / "state")
        driver = lake.driver()
        if into == "replace":
            driver.clear()
        elif into is None:
            assert driver.earlier_rows(QUERY) is None  # the tables are not known yet
        epoch, results = write(driver, 0, rows("oslo", 2) + rows("bergen", 2))
        return driver, replace(epoch, query_id=next(queries)), results

    driver, epoch, results = start_over(None)
    with pytest.raises(PlanError, match="earlier queries"):
        driver.commit(epoch, results)
    driver, epoch, results = start_over("append")
    driver.commit(epoch, results)
    assert (lake.ids("oslo"), lake.ids("bergen")) == ([1, 2], [2])
    driver, epoch, results = start_over("replace")
    driver.commit(epoch, results)
    assert (lake.ids("oslo"), lake.ids("bergen")) == ([2], [2])


def test_what_it_refuses(lake: Routed) -> None:
    routed: Callable[..., RoutedSink] = IcebergSink(lake.config).routed
    for route in ("orders", "{}", "{a", "{shop!r}", 3):
        with pytest.raises(ConfigError, match="route"):
            routed(route)
    wrong: list[dict[str, Any]]
    wrong = [{"limit": 0}, {"on_error": "skip"}, {"key_fields": "primary_key"}, {"rows": "r", "omit": ["a"]}]
    for settings in wrong:
        with pytest.raises(ConfigError):
            routed(**settings)
    unfit: list[dict[str, Any]]
    unfit = [{"omit": ["shp"]}, {"rows": "shop"}, {"key_fields": ["price"]}, {"omit": SCHEMA.names}]
    for settings in unfit:
        with pytest.raises(ConfigError):
            routed(**settings).check(SCHEMA)
    with pytest.raises(ConfigError, match="type double"):
        routed(col("price")).check(SCHEMA)
    assert routed(key_fields=["id"]).routing.key_fields.modes == [Upsert(["id"])]


def test_each_table_is_maintained(lake: Routed) -> None:
    often = Maintenance(commits=8, every="1h", budget=1)
    driver = lake.driver(IcebergSink(lake.config.with_maintenance(often)).routed())
    for epoch in range(8):
        run(driver, epoch, rows("oslo", epoch) + rows("bergen", 100 + epoch))

    def compacted() -> set[str]:
        assert driver.maintenance is not None
        return {run.table for run in driver.maintenance.runs if run.action == "compaction" and run.succeeded}

    def threads() -> int:
        return len([each for each in threading.enumerate() if each.name.startswith("volley-maintenance")])

    wait_until(lambda: compacted() == {"db.oslo", "db.bergen"}, 30, "a compaction of each table")
    assert threads() == 1
    driver.stop()
    wait_until(lambda: threads() == 0, 10, "the end of the thread")
    assert (lake.ids("oslo"), lake.ids("bergen")) == (list(range(8)), list(range(100, 108)))
    assert all(len(lake.table(shop).inspect.files()) < 8 for shop in ("oslo", "bergen"))


def test_each_table_has_figures_of_its_own(lake: Routed) -> None:
    driver = lake.driver(IcebergSink(lake.config).routed(on_error="park"))
    run(driver, 0, rows("oslo", 1, 2) + rows("bergen", 3))
    lake.catalog.drop_table("db.oslo")
    run(driver, 1, rows("oslo", 4, 5, 6) + rows("bergen", 7))
    metrics = driver._settings.context.metrics
    assert isinstance(metrics, Metrics)
    assert metrics.by_table == {"db.oslo": TableFigures(2, 1, 3), "db.bergen": TableFigures(2, 2, 0)}
    assert 'volley_iceberg_table_records_parked{table="db.oslo"} 3.0' in metrics.to_prometheus_format()
    for number in range(200):
        metrics.record_table(f"t{number}", rows=1)
    assert (len(metrics.by_table), metrics.by_table["other"].records_written) == (101, 102)


@pytest.mark.parametrize("packs", [False, True])
def test_incomplete_rows_of_each_table_by_the_sequence_of_an_expression(packs: bool, lake: Routed) -> None:
    columns = pa.schema({"id": pa.int64(), "price": pa.float64(), "label": pa.string(), "version": pa.string()})
    mode = Upsert("id", sequence=col("version").str.length(), ignore_nulls=["price", "label"])
    sink = IcebergSink(lake.config.with_commit_mode(mode))
    routed = sink.routed(rows="rows") if packs else sink.routed(omit=["shop"])
    schema = ENVELOPE if packs else pa.schema([("shop", pa.string()), *columns])
    driver = lake.driver(routed, schema)

    def of(shop: str, price: float | None, label: str | None, version: str) -> pa.RecordBatch:
        row = {"id": 1, "price": price, "label": label, "version": version}
        if packs:
            return packed((shop, pa.RecordBatch.from_pylist([row], columns), ["id"]))
        return pa.RecordBatch.from_pylist([row | {"shop": shop}], schema)

    run(driver, 0, of("oslo", 3.0, None, "xxx"), of("bergen", None, "b", "x"))
    run(driver, 1, of("oslo", 2.0, "late", "xx"), of("bergen", 2.0, None, "xx"))
    found = {shop: lake.rows(shop)[0] for shop in ("oslo", "bergen")}
    assert {shop: (row["price"], row["label"], row["_volley_sequence"]) for shop, row in found.items()} == {
        "oslo": (3.0, "late", 3),
        "bergen": (2.0, "b", 2),
    }


def test_a_job_goes_on_behind_an_epoch_whose_rows_were_all_too_late(lake: Routed) -> None:
    """Such an epoch leaves the table as it is, without a mark."""
    routed = IcebergSink(lake.config.with_commit_mode(Upsert("id", sequence="price"))).routed(omit=["shop"])

    def at(price: float) -> list[dict[str, Any]]:
        return [row | {"price": price} for row in rows("oslo", 1)]

    driver = lake.driver(routed)
    for number, price in enumerate([5.0, 3.0]):
        run(driver, number, at(price))
    # What is known of a table is written before the next epoch.
    run(driver, 2, rows("bergen", 1))
    run(lake.driver(routed), 3, at(7.0))
    assert [(row["id"], row["price"]) for row in lake.rows("oslo")] == [(1, 7.0)]
    assert lake.epochs("oslo") == ["0", "3"]
