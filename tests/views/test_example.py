"""The example of a view runs, and prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import daily_revenue


def test_daily_revenue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daily_revenue.main(tmp_path)
    printed = capsys.readouterr().out
    assert printed.startswith("daily_revenue: full refresh (it is the first one): 4 rows read, 2 written\n")
    assert printed.endswith("  01 Nov: 1 orders, 2.50, at most 2.50\n  02 Nov: 2 orders, 19.98, at most 9.99\n")
