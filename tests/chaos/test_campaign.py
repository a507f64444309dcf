"""A short chaos campaign, by a fixed seed: nothing lost, nothing doubled, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import debezium, erased, maintained, mariadb, mirror, routed, together, webhooks
from tests.chaos.campaign import chaos
from tests.drivers import Drivers
from tests.servers.iceberg_spark import IcebergSpark
from tests.services import lakes

pytestmark = pytest.mark.nightly


@pytest.mark.usefixtures("spark")
def test_a_short_campaign(drivers: Drivers, tmp_path: Path) -> None:
    verdicts = chaos(drivers, tmp_path, seed=2026, kills=6, kinds=("append", "deduplicate", "copy_on_write"), ahead=5)
    assert [verdict for verdict in verdicts if not verdict.clean] == []
    assert all(verdict.rows.found == verdict.rows.expected > 0 for verdict in verdicts)
    assert sum(verdict.kills for verdict in verdicts) >= 6


@pytest.mark.usefixtures("spark")
def test_a_table_and_its_copy(drivers: Drivers, tmp_path: Path) -> None:
    assert mirror.run(drivers, tmp_path, kills=6, seed=2026, check_every=3) == 2


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_table_that_is_maintained(iceberg_spark: IcebergSpark, tmp_path: Path, version: str) -> None:
    assert maintained.run(iceberg_spark, tmp_path, 4, seed=2026, check_every=2, version=version).total() == 4


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_that_are_erased(tmp_path: Path, version: str) -> None:
    assert erased.run(tmp_path, kills=4, seed=2026, version=version).total() >= 4


@pytest.mark.usefixtures("spark")
def test_many_tables(drivers: Drivers, tmp_path: Path) -> None:
    assert routed.run(drivers, tmp_path, kills=3, seed=2026, check_every=3, tables=4, made=2, columns=3).total() == 3


@pytest.mark.services
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("lake", [lakes.rest, lakes.seaweed], ids=["fixture", "seaweed"])
def test_many_tables_in_one_commit(
    request: pytest.FixtureRequest, drivers: Drivers, tmp_path: Path, lake: lakes.Opener
) -> None:
    model = {"tables": 4, "made": 2, "columns": 3}
    died = together.run(drivers, tmp_path, lake(request), kills=3, seed=2026, check_every=3, **model)
    assert died.total() >= 3


@pytest.mark.usefixtures("spark")
def test_webhooks(drivers: Drivers, tmp_path: Path) -> None:
    died, requests, repeated = webhooks.run(drivers, tmp_path, kills=4, seed=2026)
    assert died.total() >= 4
    assert requests > 0
    assert repeated > 0


@pytest.mark.services
@pytest.mark.usefixtures("spark")
def test_mariadb(drivers: Drivers, tmp_path: Path) -> None:
    outcome = mariadb.run(drivers, tmp_path, kills=4, seed=2026)
    assert outcome.deaths.total() >= 4
    assert outcome.rows > 0


@pytest.mark.services
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", debezium.KINDS)
def test_debezium(drivers: Drivers, tmp_path: Path, kind: str) -> None:
    outcome = debezium.run(drivers, tmp_path, kills=4, seed=2026, kind=kind)
    assert outcome.deaths.total() >= 4
    assert outcome.versions > outcome.rows > 0
