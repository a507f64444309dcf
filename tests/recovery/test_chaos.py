"""A short campaign of the chaos benchmark, by a fixed seed: nothing lost, nothing doubled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.chaos import Chaos


def test_a_short_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What it starts is not measured: that would double its time.
    for name in [name for name in os.environ if name.startswith("COVERAGE")]:
        monkeypatch.delenv(name)
    chaos = Chaos(tmp_path, seed=2026)
    verdict = chaos.run(kills=6)
    assert (verdict.lost, verdict.doubled) == (0, 0)
    assert verdict.found == verdict.expected > 0
    assert verdict.kills >= 6
    assert chaos.tidy() == verdict.found
