"""Unit tests start no JVM."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs that end with an error before they need Spark not start it in the background."""
    monkeypatch.setattr("volley.environment.Environment._begin_jvm", lambda environment, writes: None)
