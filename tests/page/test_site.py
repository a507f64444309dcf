"""The documentation as a site: built without a warning, without another host, found by the words people use."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.processes import ROOT, plain_environment
from tests.servers.browser import browser

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's folder; links between pages are checked when it is built."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**plain_environment(), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Print no line for a request."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as program:
        yield program


def test_the_site_has_the_reference(site: Path) -> None:
    assert "from_source" in (site / "reference" / "api" / "index.html").read_text()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("troubleshooting", "how-to/troubleshooting"),
        ("replay", "how-to/replay"),
        ("backfill", "how-to/backfill"),
        ("lineage", "how-to/lineage"),
        ("docker", "how-to/containers"),
        ("kubernetes", "how-to/containers"),
        ("upgrade", "explanation/compatibility"),
        ("deduplicate", "how-to/streams"),
        ("duplicates", "how-to/streams"),
        ("late data", "how-to/windows"),
        ("missing rows", "how-to/missing-rows"),
        ("overwrite", "how-to/overwrite"),
        ("rename", "how-to/move-a-job"),
        ("dead letter", "how-to/missing-rows"),
        ("exactly once", "explanation/exactly-once"),
        ("cdc", "how-to/postgres"),
        ("airflow", "how-to/schedulers"),
    ],
)
def test_a_page_is_found_by_the_words_people_use(words: str, page: str, address: str, started: Browser) -> None:
    """It is among the first three pages that the site's own search shows."""
    tab = started.new_page()
    tab.goto(f"{address}/?q={words.replace(' ', '+')}")
    tab.locator(".md-search-result__item").first.wait_for(state="attached")
    links = tab.locator(".md-search-result__item > a").evaluate_all("links => links.map(link => link.pathname)")
    tab.close()
    assert page in [link.strip("/") for link in dict.fromkeys(links)][:3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_home_page_asks_no_other_host_and_shows_its_pictures(scheme: Any, address: str, started: Browser) -> None:
    context = started.new_context(color_scheme=scheme)
    tab, asked = context.new_page(), list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(address, wait_until="networkidle")
    visible = tab.locator("article img").evaluate_all(
        "all => all.filter(one => one.offsetWidth).map(one => [one.getAttribute('src'), one.naturalWidth])"
    )
    context.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    names = [Path(source.partition("#")[0]).name for source, width in visible if width]
    assert names == [f"page-{scheme}.png", "epoch.svg"]
