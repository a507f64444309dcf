"""Bad input gets a clear error of ours with a way out, and nothing half-written shows in the table."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from volley import (
    CatalogUnreachableError,
    Environment,
    ExpressionError,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    MemorySource,
    PlanError,
    SchemaMismatchError,
    SourceError,
    StorageError,
    TableNotFoundError,
    VolleyError,
    col,
)

Rows = Callable[[], list[dict[str, Any]]]


def run(environment: Environment, source: Any, config: IcebergSinkConfig, error: type[VolleyError]) -> VolleyError:
    """Run source → table, which must fail with `error`, and its hint."""
    with pytest.raises(error) as caught:
        environment.from_source(source).to_sink(IcebergSink(config)).execute("bad")
    assert caught.value.hint
    return caught.value


def test_missing_table(native: Environment, config: IcebergSinkConfig) -> None:
    error = run(native, MemorySource([{"id": 1}]), config.with_create_table(False), TableNotFoundError)
    assert "db.events" in error.message


def test_a_pattern_that_matches_no_file(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path, rows: Rows
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n')
    error = run(native, FileSource(tmp_path / "in" / "*.jsonl", schema="id long"), config, SourceError)
    assert "in/*.jsonl matches no file" in error.message
    assert "'a.json'" in str(error.hint)
    assert not (tmp_path / "lake").exists()
    stream = native.from_source(FileSource(tmp_path / "in" / "*.json", schema="id long"))
    stream.to_sink(IcebergSink(config)).execute("bad")
    assert rows() == [{"id": 1}]


def test_unknown_column(environment: Environment, config: IcebergSinkConfig) -> None:
    stream = environment.from_source(MemorySource([{"id": 1, "status": "x"}])).filter_expr(col("statsu") == "x")
    with pytest.raises(ExpressionError, match="statsu") as caught:
        stream.to_sink(IcebergSink(config)).execute("bad")
    assert "'status'" in str(caught.value.hint)


def test_wrong_type_in_an_expression(environment: Environment, config: IcebergSinkConfig) -> None:
    stream = environment.from_source(MemorySource([{"id": 1}])).filter_expr(col("id").starts_with("x"))
    with pytest.raises(ExpressionError, match="id"):
        stream.to_sink(IcebergSink(config)).execute("bad")


def test_unwritable_warehouse(native: Environment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file stands where the warehouse should be")
    storage = IcebergStorage.Local(str(tmp_path / "file" / "lake"))
    config = IcebergSinkConfig(namespace=["db"], table="events", storage=storage)
    error = run(native, MemorySource([{"id": 1}]), config, StorageError)
    assert str(tmp_path / "file") in error.message


def test_unreachable_rest_catalog(native: Environment, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}"
    config = IcebergSinkConfig(
        catalog_uri=uri,
        warehouse="warehouse",
        namespace=["db"],
        table="events",
        storage=IcebergStorage.Local(str(tmp_path)),
    )
    error = run(native, MemorySource([{"id": 1}]), config, CatalogUnreachableError)
    assert uri in error.message


def test_corrupt_json_line_after_good_epochs(
    environment: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "in" / "2.json").write_text('{"id": 3}\n{"id": 4\n{"id": 5}\n')
    source = FileSource(str(tmp_path / "in"), format="json", schema="id long", max_files_per_epoch=1)
    error = run(environment, source, config, SourceError)
    assert "2.json, line 2" in error.message
    assert rows() == [{"id": 1}, {"id": 2}]


def test_parquet_file_cut_short(
    environment: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "in" / "1.parquet")
    pq.write_table(pa.table({"id": [3, 4]}), tmp_path / "in" / "2.parquet")
    whole = (tmp_path / "in" / "2.parquet").read_bytes()
    (tmp_path / "in" / "2.parquet").write_bytes(whole[: len(whole) // 2])
    source = FileSource(str(tmp_path / "in"), format="parquet", schema="id long", max_files_per_epoch=1)
    error = run(environment, source, config, SourceError)
    assert "2.parquet" in error.message
    assert rows() == [{"id": 1}, {"id": 2}]


def test_a_string_that_is_not_utf8(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table], tmp_path: Path
) -> None:
    texts = pa.array([b"caf\xc3\xa9", b"caf\xe9"]).view(pa.string())
    pq.write_table(pa.table({"id": [1, 2], "text": texts}), tmp_path / "in.parquet")
    error = run(environment, FileSource(str(tmp_path / "in.parquet"), format="parquet"), config, SourceError)
    assert "column 'text' has a string that is not UTF-8" in error.message
    assert "caf\\\\xe9" in error.message
    assert load().snapshots() == []


def test_schema_mismatch_lists_every_difference(
    environment: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    environment.from_source(MemorySource([{"id": 1, "a": "x", "b": True}])).to_sink(IcebergSink(config)).execute("good")
    strict = config.with_schema_evolution("strict")
    error = run(environment, MemorySource([{"id": 1, "a": 2.5, "b": "no", "c": 1}]), strict, SchemaMismatchError)
    assert all(f"{name!r}" in error.message for name in ("a", "b", "c"))
    assert rows() == [{"id": 1, "a": "x", "b": True}]


def test_an_error_in_a_users_function_names_it(
    environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table]
) -> None:
    def explode(row: dict[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("on purpose")

    with pytest.raises(VolleyError, match=r"explode[\s\S]*on purpose"):
        environment.from_source(MemorySource([{"id": 1}])).map(explode).to_sink(IcebergSink(config)).execute("bad")
    assert load().snapshots() == []


def test_a_changed_pipeline_on_an_old_checkpoint_is_refused(native: Environment, config: IcebergSinkConfig) -> None:
    native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("job")
    other = native.from_source(MemorySource([{"id": 2}], name="other")).to_sink(IcebergSink(config))
    with pytest.raises(PlanError, match="have changed since checkpoint"):
        other.execute("job")


@pytest.mark.parametrize("letters", [None, "db.first"])
def test_two_sinks_of_one_stream_on_one_table(letters: str | None, native: Environment, tmp_path: Path) -> None:
    storage = IcebergStorage.Local(str(tmp_path / "lake"))
    first, second = (IcebergSinkConfig(namespace=["db"], table=name, storage=storage) for name in ("first", "second"))
    again = first.with_max_records(5) if letters is None else second.with_dead_letter(letters)
    stream = native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(first)).to_sink(IcebergSink(again))
    with pytest.raises(PlanError, match=r"two sinks .*db\.first") as caught:
        stream.execute("twice")
    assert "of its own" in str(caught.value.hint)
    assert not list(tmp_path.rglob("*.parquet"))
