"""The Python of Spark's workers: this one, without Spark's archives in its path, and never in a user's way."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import py4j
import pyspark
import pytest

from volley.spark import workers
from volley.spark.workers import choose_worker_python

SCRIPT = str(workers._SCRIPT)
ROOT = Path(workers.__file__).parents[2]


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


@pytest.mark.parametrize("why", ["home", "script"])
def test_not_with_another_spark_or_a_script_that_is_not_there(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if why == "home":
        monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    else:
        monkeypatch.setattr(workers, "_SCRIPT", tmp_path / "none.sh")
    choose_worker_python("local", starts=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


CHOOSE = f"""
import os, subprocess, sys
sys.path.append({str(ROOT)!r})
sys.path[:0] = sys.argv[1:]
from volley.spark.workers import choose_worker_python
import pyspark
choose_worker_python("local[2]", starts=True)
python = os.environ["PYSPARK_PYTHON"]
home = os.path.dirname(pyspark.__file__)
path = f"{{home}}/python/lib/pyspark.zip:{{home}}/python/lib/py4j-0.10-src.zip:{{os.environ.get('PYTHONPATH', '')}}"
show = "import pyspark, py4j; print(pyspark.__file__)"
worker = subprocess.run([python, "-c", show], env={{**os.environ, "SPARK_HOME": home, "PYTHONPATH": path}},
    capture_output=True, text=True)
print(os.path.basename(python), worker.stdout.strip() == pyspark.__file__)
"""


class Python:
    """A Python of its own, with nothing installed; PySpark is in the folder `packages`, as pip --target leaves it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=False)
        self.site_packages = next((folder / "venv" / "lib").glob("*/site-packages"))
        self.packages = folder / "packages"
        self.packages.mkdir()
        for package in (pyspark, py4j):
            home = Path(str(package.__file__)).parent
            (self.packages / home.name).symlink_to(home)
        self._folder = folder

    def choose(self, *paths: Path, path: str = "") -> str:
        """What is chosen in a process with `paths` in its own sys.path, and whether it finds the same PySpark."""
        command = [str(self._folder / "venv" / "bin" / "python"), "-c", CHOOSE, *map(str, paths)]
        environment = {"PATH": os.environ["PATH"], **({"PYTHONPATH": path} if path else {})}
        ran = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True)
        return ran.stdout.strip() or ran.stderr


@pytest.fixture
def python(tmp_path: Path) -> Python:
    return Python(tmp_path)


def test_the_script_where_a_pth_file_names_pysparks_folder(python: Python) -> None:
    (python.site_packages / "mine.pth").write_text(str(python.packages))
    assert python.choose() == "workers.sh True"


def test_the_script_where_pythonpath_has_pysparks_folder(python: Python) -> None:
    assert python.choose(path=f"/nowhere:{python.packages}") == "workers.sh True"


def test_the_script_where_pythonpath_is_relative_to_the_working_folder(python: Python) -> None:
    assert python.choose(path="packages") == "workers.sh True"


def test_not_where_only_this_process_knows_pysparks_folder(python: Python) -> None:
    assert python.choose(python.packages).startswith("python ")


def test_not_where_a_worker_would_find_another_pyspark(python: Python) -> None:
    other = python.packages.parent / "other"
    (other / "pyspark").mkdir(parents=True)
    (other / "pyspark" / "__init__.py").touch()
    (python.site_packages / "mine.pth").write_text(str(other))
    assert python.choose(python.packages).startswith("python ")
