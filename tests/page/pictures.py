"""Takes the pictures of the page for the docs: ``python -m tests.page.pictures``."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.page.samples import NOW, RUNNING, Site
from tests.servers.browser import browser
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import Minute

_FOLDER = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    """Write a picture for each colour scheme."""
    minutes = tuple(
        Minute(NOW + timedelta(minutes=number), round(90_000 + 30_000 * math.sin(number / 7)), 6)
        for number in range(60)
    )
    epochs = tuple(
        FinishedEpoch(
            *(number, 15_000, 0, 2, 900_000, 1.0),
            phases={"plan": 0.05, "read": 0.5 + 0.2 * math.sin(number / 5), "merge": 0.1, "commit": 0.15},
        )
        for number in range(100)
    )
    _FOLDER.mkdir(exist_ok=True)
    with closing(Site()) as site, browser() as started:
        site.set(replace(RUNNING, minutes=minutes, recent=epochs, epoch=99, rows_per_second=15_000))
        for scheme in ("light", "dark"):
            context = started.new_context(color_scheme=scheme, viewport={"width": 1100, "height": 800})
            page = context.new_page()
            page.goto(site.endpoint.page)
            page.get_by_role("heading", level=2).wait_for()
            page.screenshot(path=_FOLDER / f"page-{scheme}.png", full_page=True)


if __name__ == "__main__":
    main()
