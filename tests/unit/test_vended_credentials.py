"""When credentials that a catalog has given are asked for anew, and what happens if it gives none."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from volley.iceberg.pyiceberg_private import renewing
from volley.iceberg.pyiceberg_private.access import file_system
from volley.iceberg.pyiceberg_private.renewing import VENDED, RenewingFileIO, Vended, are_vended


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


@pytest.mark.parametrize("end", [None, "soon", "nan", "inf", "-1", "9e18"])
def test_without_an_end_they_are_renewed_after_some_minutes(clock: Catalog, end: str | None) -> None:
    clock.lives = iter([100])
    ends = {} if end is None else {"s3.session-token-expires-at-ms": end}
    vended = Vended(clock, {"s3.session-token": "first", **ends})
    assert vended.ends.timestamp() == 1600
    clock.now += 440
    assert token(vended) == "first"
    clock.now += 20
    assert token(vended) == "token-1"


def test_where_clocks_differ_they_are_not_asked_for_all_the_time(clock: Catalog) -> None:
    """By this clock all have ended when they come; those that came first may be old ones."""
    vended = start(clock, -5, -5, 100)
    assert token(vended) == token(vended) == "token-2"
    clock.now += 440
    assert token(vended) == "token-2"
    clock.now += 20
    assert token(vended) == "token-3"


def test_those_that_a_storage_refuses_are_replaced(clock: Catalog) -> None:
    vended = start(clock, 3600, None, 3600)
    vended.ask_again()
    # The catalog does not answer, and they may be good still.
    assert token(vended) == "token-1"
    clock.now += 6
    assert token(vended) == token(vended) == "token-3"


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
        ({"adls.token": "x"}, True),
        ({"s3.access-key-id": "x", "s3.secret-access-key": "y", "s3.endpoint": "z"}, False),
        ({}, False),
    ],
)
def test_what_is_vended(properties: dict[str, str], are: bool) -> None:
    assert are_vended(properties) is are


def entra(end: float) -> str:
    """A token that says its end, as those of Microsoft Entra do."""
    claims = base64.urlsafe_b64encode(json.dumps({"aud": "https://storage.azure.com", "exp": int(end)}).encode())
    return f"head.{claims.decode().rstrip('=')}.signature"


def test_a_token_of_azure_says_its_end_itself(clock: Catalog) -> None:
    vended = Vended(lambda: {"adls.token": entra(9000)}, {"adls.token": entra(5000)})
    assert vended.ends.timestamp() == 5000
    clock.now = 4701.0
    assert vended.current() == {"adls.token": entra(9000)}
    assert vended.ends.timestamp() == 9000


def test_a_token_of_azure_that_does_not_is_renewed_after_some_minutes(clock: Catalog) -> None:
    vended = Vended(lambda: {"adls.token": "second"}, {"adls.token": "first"})
    clock.now += 440
    assert vended.current() == {"adls.token": "first"}
    clock.now += 20
    assert vended.current() == {"adls.token": "second"}


def test_files_in_azure_are_reached_with_the_token_that_is_good(clock: Catalog) -> None:
    first, second = entra(5000), entra(9000)
    vended = Vended(Answer({"adls.token": second}), {"adls.token": first})
    properties = {"adls.account-name": "account", "adls.token": "of the table's first answer", VENDED: {"": vended}}
    io = pickle.loads(pickle.dumps(RenewingFileIO(properties)))
    files: Any = file_system(io, "abfss://lake@account.dfs.core.windows.net/table")
    assert asyncio.run(files.credential.get_token()) == (first, 5000)
    clock.now = 4701.0
    assert asyncio.run(files.credential.get_token("https://storage.azure.com/.default")) == (second, 9000)


@dataclass(frozen=True)
class Answer:
    """What a catalog gives; it travels."""

    properties: dict[str, Any]

    def __call__(self) -> dict[str, Any]:
        return self.properties
