"""Commands print no secrets, and print JSON that can be parsed."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from volley import load_config
from volley.cli.output import log_to_stderr, print_json
from volley.config.values import Config

FILE = """
sources: {a: {connector: files, config: {path: in, format: json, storage_options: {password: "${SECRET}"}}}}
sinks: {out: {connector: console}}
pipelines: {p: {source: a, sink: out}}
"""


def config_of(folder: Path, secret: str) -> Config:
    (folder / "volley.yaml").write_text(FILE)
    return load_config(folder / "volley.yaml", {"SECRET": secret})


@pytest.mark.parametrize("secret", ["true", "3415", "2026", 'a\\"b\n', "null"])
def test_json_with_masked_texts_is_json(secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"ok": True, "id": 341534153415, "none": None, "rows": [{"detail": f"said {secret}", "rate": 0.3415}]}
    print_json({**values, "at": datetime(2025, 1, 1, tzinfo=UTC)}, config_of(tmp_path, secret))
    printed = json.loads(capsys.readouterr().out)
    expected = {**values, "rows": [{"detail": "said ***", "rate": 0.3415}], "at": "2025-01-01 00:00:00+00:00"}
    assert printed == expected


def test_tracebacks_in_the_log_are_masked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, logger = logging.getLogger(), logging.getLogger("volley")
    levels = root.level, logger.level
    monkeypatch.setattr(root, "handlers", [])
    try:
        log_to_stderr(config_of(tmp_path, "hunter2hunter2"))
        try:
            raise ValueError("login with hunter2hunter2 failed")
        except ValueError:
            logger.exception("%s is no password; start it with fresh=True", "hunter2hunter2", stack_info=True)
    finally:
        root.setLevel(levels[0])
        logger.setLevel(levels[1])
    printed = capsys.readouterr().err
    assert "ERROR *** is no password; start it with --fresh\n" in printed
    assert "ValueError: login with *** failed" in printed
    assert "hunter2" not in printed
