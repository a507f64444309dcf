"""A run that is killed is ended by the next one, which has an id of its own and tells of what it has done itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.drivers import Drivers
from tests.lineage import job
from tests.lineage.receiver import Receiver
from tests.recovery.runs import load
from tests.tiers import some


def tags(event: dict[str, Any]) -> tuple[str, str]:
    """The first and the last epoch that an event tells of."""
    told = {tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]}
    return told["volley.first_epoch"], told["volley.last_epoch"]


# The rows that the second run writes itself: what was committed already is not written, nor told, again.
ROWS = {"after-commit@1": 1, "before-commit@1": 2, "before-checkpoint@1": 1}


@pytest.mark.parametrize("point", some(ROWS))
def test_a_killed_run_is_ended_by_the_next_one(
    drivers: Drivers, receiver: Receiver, tmp_path: Path, point: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    drivers.die(point, job.main, tmp_path, receiver.url)
    assert "COMPLETE" not in [event["eventType"] for event in receiver.events()]
    assert drivers.run(job.main, tmp_path, receiver.url) == 0
    events = receiver.events("COMPLETE")
    killed, later = dict.fromkeys(event["run"]["runId"] for event in events)
    of_killed = [event for event in events if event["run"]["runId"] == killed]
    of_later = [event for event in events if event["run"]["runId"] == later]
    assert [event["eventType"] for event in of_killed] == ["START", "RUNNING", "FAIL"]
    assert "was killed" in of_killed[-1]["run"]["facets"]["errorMessage"]["message"]
    assert [event["eventType"] for event in of_later] == ["START", "RUNNING", "COMPLETE"]
    assert tags(of_killed[1]) == ("0", "0")
    assert tags(of_later[-1]) == ("1", "2")
    (output,) = of_later[-1]["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == ROWS[point]
    assert sorted(load(tmp_path, "db.events").scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]
