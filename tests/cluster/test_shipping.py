"""How Volley reaches the workers, as the README says: as a zip beside the script, or as a whole environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import volley
from tests.cluster.standalone import SPARK_HOME, Cluster
from tests.processes import ROOT, RUN_SECONDS
from tests.recovery.runs import check_exactly_once, write_input
from volley.spark.java import find_java

SCRIPT = ROOT / "examples" / "spark_submit.py"
FILES = 1

# Its processes take half a minute to start.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The package as a zip."""
    folder = tmp_path_factory.mktemp("zip")
    source = Path(volley.__file__).parent
    command = [sys.executable, "-m", "zipfile", "-c", str(folder / "volley.zip"), source.name]
    subprocess.run(command, cwd=source.parent, check=True)
    return str(folder / "volley.zip")


@pytest.fixture(scope="module")
def environment_without_volley(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with all that Volley needs, but without Volley: this one's packages, on a path."""
    folder = tmp_path_factory.mktemp("venv") / "environment"
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(packages) / "packages.pth").write_text(sysconfig.get_path("purelib"))
    command = [str(folder / "bin" / "python"), "-I", "-c", "import pyspark, volley"]
    asked = subprocess.run(command, capture_output=True, text=True)
    assert "No module named 'volley'" in asked.stderr
    return folder


@pytest.fixture(scope="module")
def environment_with_volley(
    environment_without_volley: Path, zipped: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same with Volley."""
    folder = tmp_path_factory.mktemp("whole") / "environment"
    shutil.copytree(environment_without_volley, folder, symlinks=True)
    (packages,) = folder.glob("lib/*/site-packages")
    shutil.unpack_archive(zipped, packages)
    return folder


def submit(folder: Path, *arguments: str, python: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit in a folder, as from a shell that knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE"))}
    environment = {**kept, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": str(python), **more}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *arguments]
    ran = subprocess.run(command, cwd=folder, env=environment, timeout=RUN_SECONDS, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.mark.parametrize("where", ["locally", "on the cluster"])
def test_a_script_and_a_zip_are_submitted(
    where: str, cluster: Cluster, environment_without_volley: Path, zipped: str, tmp_path: Path
) -> None:
    write_input(tmp_path, FILES)
    options = [
        "--master",
        cluster.master if where == "on the cluster" else "local[2]",
        "--py-files",
        zipped,
        "--name",
        "billing",
    ]
    # The cluster's settings for drivers lead the workers to this checkout; without them the zip is all they have.
    python = environment_without_volley / "bin" / "python"
    ran = submit(tmp_path, *options, str(SCRIPT), str(tmp_path), python=python, SPARK_CONF_DIR=str(tmp_path))
    # Spark hands on what the script shows, on its standard output; what it shows itself is the user's affair here.
    shown = ran.stdout.splitlines()
    assert all(line.startswith("submitted: ") for line in shown)
    assert shown[-1].startswith("submitted: finished")
    assert "Submitted application: billing" in ran.stderr
    check_exactly_once(tmp_path, FILES)


def test_a_notebook_brings_its_session_and_an_environment(
    cluster: Cluster, environment_with_volley: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_input(tmp_path, FILES)
    # The driver asks for Python by the same name as the workers, who unpack the archive.
    (tmp_path / "environment").symlink_to(environment_with_volley)
    subprocess.run(["tar", "-czf", "environment.tar.gz", "-C", "environment", "."], cwd=tmp_path, check=True)
    cells = [
        f"""
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("{cluster.master}")
    .config("spark.archives", "environment.tar.gz#environment")
    .getOrCreate()
)
""",
        SCRIPT.read_text()
        .replace("sys.argv[1]", repr(str(tmp_path)))
        .replace("Environment(", "Environment(spark=spark, "),
        "spark.stop()",
    ]
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=RUN_SECONDS, resources={"metadata": {"path": str(tmp_path)}}).execute()
    check_exactly_once(tmp_path, FILES)
