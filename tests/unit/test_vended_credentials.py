"""When credentials that a catalog has given are asked for anew, and what happens if it gives none."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from volley.iceberg.pyiceberg_private import renewing
from volley.iceberg.pyiceberg_private.renewing import Vended, are_vended


class Catalog:
    """Gives keys that end after so many seconds; or fails."""

    def __init__(self, *lives: float | None) -> None:
        self.lives: Iterator[float | None] = iter(lives)
        self.asked = 0
        self.now = 1000.0

    def __call__(self) -> dict[str, Any]:
        life = next(self.lives)
        self.asked += 1
        if life is None:
            raise OSError("no answer")
        ends = str((self.now + life) * 1000)
        return {"s3.session-token": f"token-{self.asked}", "s3.session-token-expires-at-ms": ends}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Catalog:
    catalog = Catalog()
    monkeypatch.setattr(renewing.time, "time", lambda: catalog.now)  # type: ignore[attr-defined]
    return catalog


def start(catalog: Catalog, *lives: float | None) -> Vended:
    catalog.lives = iter(lives)
    return Vended(catalog, catalog())


def token(vended: Vended) -> str:
    return str(vended.current()["s3.session-token"])


@pytest.mark.parametrize(("life", "good"), [(2.0, 1.4), (100.0, 74), (3600.0, 3299)])
def test_they_are_renewed_before_they_end(clock: Catalog, life: float, good: float) -> None:
    vended = start(clock, life, life)
    clock.now += good
    assert token(vended) == "token-1"
    clock.now += life - good - 0.2
    assert token(vended) == token(vended) == "token-2"
    assert clock.asked == 2


def test_a_catalog_that_fails_is_asked_again_until_they_end(clock: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    vended = start(clock, 100, None, 100)
    clock.now += 80
    assert token(vended) == "token-1"
    assert "new ones were not given: no answer" in caplog.text
    clock.now += 2
    assert (token(vended), clock.asked) == ("token-1", 2)
    clock.now += 4
    assert token(vended) == "token-3"


def test_when_they_have_ended_the_failure_is_said(clock: Catalog) -> None:
    vended = start(clock, 100, None)
    clock.now += 101
    with pytest.raises(OSError, match="no answer"):
        vended.current()


@pytest.mark.parametrize("ends", [{}, {"s3.session-token-expires-at-ms": "soon"}])
def test_without_an_end_they_are_renewed_after_some_minutes(clock: Catalog, ends: dict[str, str]) -> None:
    clock.lives = iter([100])
    vended = Vended(clock, {"s3.session-token": "first", **ends})
    clock.now += 440
    assert token(vended) == "first"
    clock.now += 20
    assert token(vended) == "token-1"


def test_they_travel_with_their_end(clock: Catalog) -> None:
    vended = Vended(dict, {"s3.session-token": "first", "s3.session-token-expires-at-ms": "2000000"})
    copy = pickle.loads(pickle.dumps(vended))
    assert (copy.ends, token(copy)) == (vended.ends, "first")
    assert "first" not in repr(vended)


@pytest.mark.parametrize(
    ("properties", "are"),
    [
        ({"s3.session-token": "x"}, True),
        ({"gcs.oauth2.token": "x"}, True),
        ({"adls.sas-token.account.dfs.core.windows.net": "x"}, True),
        ({"s3.access-key-id": "x", "s3.secret-access-key": "y", "s3.endpoint": "z"}, False),
        ({}, False),
    ],
)
def test_what_is_vended(properties: dict[str, str], are: bool) -> None:
    assert are_vended(properties) is are
