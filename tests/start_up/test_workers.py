"""What a worker leaves to its next task."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from volley.task.worker import settle


def test_archives_in_the_path_are_not_read_again_but_still_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "sent.zip", "w") as archive:
        archive.writestr("volley_sent_first.py", "value = 1")
        archive.writestr("volley_sent_second.py", "value = 2")
    monkeypatch.syspath_prepend(tmp_path / "sent.zip")
    assert importlib.import_module("volley_sent_first").value == 1
    settle()
    assert not [each for each in sys.path_importer_cache.values() if isinstance(each, zipimporter)]
    assert importlib.import_module("volley_sent_second").value == 2
