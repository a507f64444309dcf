"""The examples that need no server do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import (
    ads_with_clicks,
    branch_and_publish,
    csv_to_partitions,
    orders_with_prices,
    own_sink,
    own_source,
    schema_change,
    tpch,
    upsert_and_time_travel,
    watched_folder,
)
from examples.nexmark.__main__ import main as nexmark

pytestmark = pytest.mark.usefixtures("spark")


def test_weather_goes_to_partitions_of_airports_and_months(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert csv_to_partitions.main(tmp_path) == 26_115
    assert "26,115 of 26,115 rows" in capsys.readouterr().out
    partitions = {path.parent.relative_to(tmp_path / "lake") for path in (tmp_path / "lake").rglob("*.parquet")}
    assert len(partitions) == 3 * 12


def test_files_of_a_watched_folder_are_in_the_table_while_the_job_runs(tmp_path: Path) -> None:
    assert watched_folder.main(tmp_path) == list(range(30))


def test_columns_are_added_and_renamed(tmp_path: Path) -> None:
    assert schema_change.main(tmp_path) == [
        {"id": 1, "full_name": "Ada", "email": None},
        {"id": 2, "full_name": "Bob Ross", "email": "bob@example.com"},
    ]


def test_changes_between_two_upserts(tmp_path: Path) -> None:
    changes = upsert_and_time_travel.main(tmp_path)
    assert [change.partition("(")[0] for change in changes] == ["Delete", "Insert", "Update"]


def test_a_branch_is_seen_when_it_is_published(tmp_path: Path) -> None:
    assert branch_and_publish.main(tmp_path) == (0, 2)


def test_a_source_of_ones_own(tmp_path: Path) -> None:
    assert own_source.main(tmp_path) == 2_000


def test_a_sink_of_ones_own(tmp_path: Path) -> None:
    assert own_sink.main(tmp_path) == list(range(30))


def test_orders_get_the_prices_of_their_time(tmp_path: Path) -> None:
    assert orders_with_prices.main(tmp_path) == {1: 15, 2: 15, 3: 21}


def test_ads_get_the_clicks_that_follow(tmp_path: Path) -> None:
    assert ads_with_clicks.main(tmp_path) == {1: 2, 2: 0, 3: 1}


def test_a_query_of_nexmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nexmark("q8", tmp_path)
    assert "from person" in capsys.readouterr().out


def test_a_view_of_a_query_of_tpc_h(tmp_path: Path) -> None:
    assert tpch.main(5, tmp_path) == ["full", "incremental"]


def test_each_example_says_how_to_run_it() -> None:
    for path in Path(own_sink.__file__).parent.glob("[a-z]*.py"):
        assert f"python -m examples.{path.stem}" in path.read_text(), path.name
