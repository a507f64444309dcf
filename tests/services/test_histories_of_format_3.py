"""Random histories of a table that becomes one of format version 3: rows and ids equal a model after each commit."""

from __future__ import annotations

import faulthandler

import pytest

from tests.servers.iceberg_spark import IcebergSpark
from tests.services.histories import History
from tests.services.readers import Lake
from tests.tiers import nightly


# 200 steps, each with a query of Spark or more, take seven minutes or, on a busy machine, half an hour.
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("seed", "steps"),
    [pytest.param(0, 25, marks=pytest.mark.services, id="short"), *(nightly(seed, 200) for seed in range(4))],
)
def test_rows_and_ids_equal_a_model(
    iceberg_spark: IcebergSpark, tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int
) -> None:
    faulthandler.cancel_dump_traceback_later()
    lake = Lake(tmp_path_factory.mktemp("lake"), iceberg_spark)
    History(lake, f"history_{seed}", seed).run(steps, upgrade_at=steps // 3)
