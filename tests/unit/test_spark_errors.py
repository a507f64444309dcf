"""What Spark raises becomes an error that names the cause, and whether the next attempt may succeed."""

from __future__ import annotations

from volley import ConfigError
from volley.restart import may_pass
from volley.spark.errors import translate


def test_workers_of_another_python_are_a_lasting_failure() -> None:
    text = (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.11 than that in driver: 3.12, PySpark "
        "cannot run with different minor versions."
    )
    failure = translate(RuntimeError(text), "orders")
    assert isinstance(failure, ConfigError)
    assert failure.message == "the workers of job 'orders' run Python 3.11, its driver runs 3.12"
    assert not may_pass(failure)
