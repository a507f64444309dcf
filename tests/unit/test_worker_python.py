"""The Python of Spark's workers: this one, without Spark's archives in its path, and never in a user's way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from volley import _worker_python
from volley._worker_python import choose_worker_python

SCRIPT = str(_worker_python._SCRIPT)


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user's process begins; what a test sets is gone after it."""
    for name in ("PYSPARK_PYTHON", "VOLLEY_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


ARCHIVES = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10-src.zip", "/spark/jars/spark-core_2.13.jar"]


@pytest.mark.parametrize(
    "mine", [[], ["/mine/a b", "/mine/*"], ["/spark/python", "/other/python/lib/pyspark.zip", "/"]]
)
def test_the_script_leaves_out_sparks_archives_alone(mine: list[str]) -> None:
    path = ":".join([*ARCHIVES, *mine])
    environment = {"SPARK_HOME": "/spark", "VOLLEY_PYTHON": sys.executable, "PYTHONPATH": path}
    show = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sys.executable, sep='\\n')"
    ran = subprocess.run([SCRIPT, "-c", show, "x y", "*"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [":".join(mine), "['x y', '*']", sys.executable]


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_on_this_machine_the_script_starts_python(master: str) -> None:
    choose_worker_python(master, starts=True)
    assert os.environ["PYSPARK_PYTHON"] == SCRIPT
    assert os.environ["VOLLEY_PYTHON"] == sys.executable


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]", "yarn", None])
def test_elsewhere_python_itself_even_after_a_session_on_this_machine(master: str | None) -> None:
    choose_worker_python("local", starts=True)
    choose_worker_python(master, starts=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_users_choice_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/mine/python")
    choose_worker_python("local", starts=True)
    assert os.environ["PYSPARK_PYTHON"] == "/mine/python"


def test_a_jvm_that_runs_already_does_not_know_the_script() -> None:
    choose_worker_python("local", starts=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("why", ["home", "installed", "script"])
def test_not_where_workers_would_not_find_pyspark(why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if why == "home":
        monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    elif why == "installed":
        monkeypatch.setattr("sysconfig.get_path", lambda kind: str(tmp_path))
    else:
        monkeypatch.setattr(_worker_python, "_SCRIPT", tmp_path / "none.sh")
    choose_worker_python("local", starts=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
