"""The page of jobs in a browser: what it shows of each state, that it follows, and that all can use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.page.samples import NOW, PHASES, RUNNING, Site
from tests.servers.browser import browser as started
from volley.contracts.reports import TableTotals
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import FollowedView, GraphNode, JobStatus, SinkStatus, SourceStatus, TableStatus


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as browser:
        yield browser


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def opened(browser: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Opens the page; an error of its script, and a request to any other host, fail the test."""
    errors: list[str] = []
    contexts = []

    def open_page(heading: int = 2, **options: Any) -> Page:
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda sent: None if sent.url.startswith(site.endpoint.page) else errors.append(sent.url))
        page.goto(site.endpoint.page)
        page.get_by_role("heading", level=heading).wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def test_what_a_running_job_shows(opened: Callable[..., Page]) -> None:
    page = opened()
    for text in ("orders", "running", "1,234,567", "41", "1,500", "90 s", "3.0 s ago"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    expect(page.get_by_role("img", name="Rows a minute in the last hour: at most 29,000")).to_be_visible()
    expect(page.get_by_role("img", name="Seconds of the last 42 epochs by phase: at most 1.1 s")).to_be_visible()
    for text in (
        "source · 1,300,000 rows",
        "1.6K rows/s",
        "step · 1,234,577 rows · 3 bad",
        "keyed · 1,234,567 rows · 7 late",
        "sink · 1,234,567 rows",
        "dead letter · 3 rows",
        "12 files became 2",
    ):
        expect(page.get_by_text(text)).to_be_visible()
    heads = page.get_by_role("region", name="Sources").get_by_role("columnheader")
    assert heads.all_inner_texts() == ["source", "rows read", "time behind", "rows behind"]
    row = page.get_by_role("region", name="Tables").get_by_role("row").nth(1)
    assert row.inner_text().split() == ["shop.orders", "900,000", "40", "3.1MB", "2", "12", "17", "123MB", "5"]
    rule = page.get_by_role("region", name="Expectations").get_by_role("row").nth(1)
    assert rule.inner_text().split("\t") == ["price is not negative", "1,234,580", "11", "2", "drop", "1 %"]
    letter = page.get_by_role("region", name="Last dead letters").get_by_role("row").nth(1)
    assert letter.inner_text().split("\t")[1:3] == ['{"id": 17, "price": "n/a"}', "column 'price': 'n/a' is no double"]
    expect(page.get_by_text("table shop.late: 12 rows wait")).to_be_visible()
    expect(page.get_by_text("epoch 42 so far: 1,000 rows")).to_be_visible()
    assert page.title() == "orders · running · Volley"


def test_it_follows_the_job(opened: Callable[..., Page], site: Site) -> None:
    page = opened()
    failed = replace(RUNNING, state="restarting", reason="the catalog is gone", hint="look at it", next_restart=5.0)
    site.set(failed)
    expect(page.get_by_text("restarting", exact=True)).to_be_visible()
    error = page.get_by_label("Last error")
    expect(error).to_contain_text("the catalog is gone")
    expect(error).to_contain_text("hint: look at it")
    expect(error).to_contain_text("It starts again in 5.0 s.")
    site.close()
    expect(page.get_by_text("connection lost")).to_be_visible()


@pytest.mark.parametrize("state", ["starting", "finished", "stopped", "failed"])
def test_states_of_a_job_that_has_done_nothing(opened: Callable[..., Page], site: Site, state: str) -> None:
    site.set(JobStatus("empty", state, reason="it can't" if state == "failed" else None))
    page = opened()
    expect(page.get_by_text(state, exact=True)).to_be_visible()
    assert page.get_by_label("Last error").count() == (state == "failed")


def test_texts_of_the_data_are_no_markup(opened: Callable[..., Page], site: Site) -> None:
    name = "<b>bold</b> & 'quoted'"
    site.set(replace(RUNNING, job=name, notes=(name,), sources=(SourceStatus(name),)), JobStatus("b", "running"))
    page = opened()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    assert page.locator("main b").count() == 0


def test_several_jobs_on_one_page(opened: Callable[..., Page], site: Site) -> None:
    site.set(RUNNING, JobStatus("returns", "failed", reason="no such topic"))
    page = opened()
    page.get_by_role("button", name="returns · failed").click()
    expect(page.get_by_role("heading", name="returns")).to_be_visible()
    expect(page.get_by_text("no such topic")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="returns")).to_be_visible()


def test_runs_of_a_finished_job(opened: Callable[..., Page], site: Site) -> None:
    run = {"job": "orders", "state": "died", "began": NOW.isoformat(), "ended": None, "epochs": 4, "rows": 777}
    other = {**run, "job": "returns", "number": 1, "rows": 1, "error": None}
    site.set(RUNNING, runs=[{**run, "number": 5, "error": None}, {**run, "number": 6, "error": "no disk"}, other])
    rows = opened().get_by_role("region", name="Runs").get_by_role("row")
    assert [row.inner_text().split()[:2] for row in rows.all()][1:] == [["6", "died"], ["5", "died"]]
    expect(rows.nth(1)).to_contain_text("no disk")


REFRESH = {"mode": "full", "reason": "it is the first one", "ended": NOW, "seconds": 2, "rows_read": 5, "rows_added": 4}


def test_views_that_are_kept_up_to_date(opened: Callable[..., Page], site: Site) -> None:
    later = {**REFRESH, "mode": "incremental", "reason": "few rows have changed", "rows_read": 7_777}
    site.set(
        views=(FollowedView("revenue", "waiting", "the catalog is gone", "look at it", refreshes=(REFRESH, later)),)
    )
    page = opened(heading=3)
    rows = page.get_by_role("region", name="Views").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("the catalog is gone (hint: look at it)")
    expect(rows.nth(2)).to_contain_text("7,777")
    expect(rows.nth(3)).to_contain_text("full refresh")
    site.set(RUNNING, views=(FollowedView("revenue", "running"),))
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.get_by_role("region", name="Views")).to_contain_text("running")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_all_can_use_it(opened: Callable[..., Page], site: Site, scheme: str, width: int) -> None:
    """No rule of axe is broken, and nothing but tables and the graph is wider than a phone."""
    site.set(replace(RUNNING, reason="it failed", hint="mend it"), JobStatus("b", "failed"))
    page = opened(viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_many_tables_and_epochs(opened: Callable[..., Page], site: Site) -> None:
    """A job of 50 tables that runs for days: what is sent each second stays small."""
    sinks = tuple(SinkStatus(f"shop.table_{number}", rows=number) for number in range(50))
    epochs = tuple(FinishedEpoch(number, 1, seconds=0.5, phases=PHASES) for number in range(9_900, 10_000))
    nodes = tuple(GraphNode(number, "sink", f"write {number}", (0,) if number else (), number) for number in range(51))
    totals = TableTotals(1_000_000, 1_000, 500, 50, 10**9, 100)
    tables = tuple(TableStatus(f"shop.table_{number}", f"shop.table_{number}", totals) for number in range(50))
    site.set(replace(RUNNING, epoch=9_999, sinks=sinks, tables=tables, recent=epochs, graph=nodes))
    page = opened()
    expect(page.get_by_role("region", name="Tables", exact=True).get_by_role("row")).to_have_count(51)
    expect(page.get_by_role("region", name="Sinks").get_by_role("row")).to_have_count(51)
    expect(page.get_by_text("epoch 9900", exact=True)).to_be_visible()
    assert len(site.json) < 100_000
    assert (
        page.evaluate("(() => { const began = performance.now(); show(); return performance.now() - began })()") < 1_000
    )


def test_all_pages_get_one_event(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are open, the status is made once."""
    made: list[str] = []

    def status() -> str:
        made.append("{}")
        return made[-1]

    site.endpoint.show(status)
    monkeypatch.setattr("volley.metrics.endpoint.time", SimpleNamespace(monotonic=lambda: 1e9))
    with ExitStack() as streams:
        for _ in range(5):
            stream = streams.enter_context(urlopen(f"{site.endpoint.page}events", timeout=60))
            assert [stream.readline() for _ in range(3)][-1] == b"data: {}\n"
    assert len(made) == 1


def test_a_history_of_an_older_version_is_shown(opened: Callable[..., Page], site: Site) -> None:
    site.set_older(RUNNING)
    page = opened()
    expect(page.get_by_text("source · 1,300,000 rows")).to_be_visible()
    assert "NaN" not in page.content()
    assert "undefined" not in page.get_by_role("main").inner_text()


def test_it_is_not_drawn_anew_under_a_reader(opened: Callable[..., Page], site: Site) -> None:
    page = opened()
    page.get_by_role("region", name="Sinks").focus()
    seen = page.get_by_role("status").inner_text()
    site.set(replace(RUNNING, rows=2))
    expect(page.get_by_role("status")).not_to_have_text(seen)
    assert page.get_by_text("1,234,567").count() > 0
    page.get_by_role("main").focus()
    expect(page.locator("dd").nth(1)).to_have_text("2")


def test_the_status_as_json_is_the_status(site: Site) -> None:
    (job,) = json.loads(site.json)["jobs"]
    assert job == json.loads(RUNNING.to_json())
    assert (job["version"], job["began"], job["sources"][0]["lag"]["rows"]) == (1, "2026-11-01T12:00:00+00:00", 50)
