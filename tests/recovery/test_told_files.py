"""Drivers die while they read files of which a queue tells: each file is in the table once, and each message goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery.runs import load
from tests.recovery.told_files import Bucket, copy
from tests.servers.glue import MotoServer
from tests.tiers import some

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.services]

DEATHS = ["before-commit", "after-commit", "before-checkpoint"]


@pytest.mark.parametrize("point", some(DEATHS))
def test_each_file_is_read_once(drivers: Drivers, point: str, tmp_path: Path, moto: MotoServer) -> None:
    bucket = Bucket(moto.uri, f"told-{point}")
    bucket.put(0)
    bucket.tell()
    at = (tmp_path, moto.uri, bucket.name, bucket.queue)
    assert drivers.run(copy, *at) == 0
    expected = [0]
    for round in range(3):
        for number in range(1 + 3 * round, 4 + 3 * round):
            bucket.put(number)
            expected.append(number)
        # Told again, of another folder, and gone before it is read.
        bucket.put(2 + 3 * round)
        bucket.put(99, f"out/{round}.json")
        bucket.put(98, f"in/gone-{round}.json")
        bucket.s3.delete_object(Bucket=bucket.name, Key=f"in/gone-{round}.json")
        drivers.die(f"{point}@{2 + 3 * round}", copy, *at)
        assert bucket.messages > 0
    assert drivers.run(copy, *at) == 0
    assert load(tmp_path).scan().to_arrow().sort_by("id").to_pylist() == [{"id": id} for id in expected]
    assert bucket.messages == 0
