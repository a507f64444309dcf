"""Tumbling windows in PyFlink, in its own idiom: SQL over files of JSON lines, into a sink that drops the rows."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.run import Result, Run
from tests.servers.downloads import java, other_version

__all__ = ["flink", "missing"]

_VERSION = "2.3.0"
_ROOT = Path(__file__).parents[2]
# Its timestamps have milliseconds at most where they carry a watermark; seconds make the same windows.
_EVENTS = """
create table events (
    `user` string, price double, `at` string,
    `second` as to_timestamp(substr(`at`, 1, 19)), watermark for `second` as `second` - interval '10' second
) with ('connector' = 'filesystem', 'path' = 'file://{file}', 'format' = 'json')
"""
_NOTHING = """
create table nothing (`start` timestamp(3), `user` string, n bigint, total double, low double, high double)
with ('connector' = 'blackhole')
"""
_WINDOWS = """
insert into nothing select window_start, `user`, count(*), sum(price), min(price), max(price)
from table(tumble(table events, descriptor(`second`), interval '1' minute)) group by window_start, window_end, `user`
"""


@cache
def missing() -> str | None:
    """Why it can't run here, or None if it can."""
    try:
        other_version("apache-flink", _VERSION)
        java()
    except (pytest.skip.Exception, pytest.fail.Exception) as reason:
        return str(reason)
    return None


def flink(run: Run, file: Path, rows: int) -> list[Result]:
    """Run it over one file of JSON lines in a Python that has PyFlink, whose package has no reader of Parquet.

    Args:
        run: The run.
        file: The file.
        rows: Its rows.
    """
    path = os.pathsep.join([str(other_version("apache-flink", _VERSION)), str(_ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "JAVA_HOME": str(Path(java()).parents[1])}
    return run.apart(_work, environment, rows=rows, options={"file": str(file)})


def _work(run: Run) -> None:
    from pyflink.table import EnvironmentSettings, TableEnvironment

    def work() -> dict[str, Any]:
        environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        environment.get_config().set("parallelism.default", str(os.cpu_count()))
        for statement in (_EVENTS.format(file=run.options["file"]), _NOTHING):
            environment.execute_sql(statement)
        environment.execute_sql(_WINDOWS).wait()
        return {}

    run.measure(work)
