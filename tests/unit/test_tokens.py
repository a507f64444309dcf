"""Tokens of REST catalogs: the answers that servers give, renewal before their end and after a refusal, exchanges."""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.servers.vendors import KEY, SECRET, VENDORS, Front
from volley import CatalogAuthError, IcebergStorage, TableNotFoundError
from volley.iceberg import PolarisCatalog, TableRef
from volley.iceberg.pyiceberg_private import tokens
from volley.iceberg.pyiceberg_private.tokens import BearerManager, TokenServer

POLARIS = VENDORS["polaris"]
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


def ref(front: Front, **settings: Any) -> TableRef:
    login = {"credential": f"{KEY}:{SECRET}"} if "token" not in settings else {}
    catalog = PolarisCatalog(front.uri, "lake", realm="POLARIS", **{**login, **settings})
    return TableRef("db", "events", IcebergStorage.Local("/lake"), catalog)


def answering(**token: Any) -> Front:
    return Front(replace(POLARIS, token=token))


@pytest.mark.parametrize(
    "token",
    [
        {},
        {"token_type": None, "expires_in": None},
        {"token_type": "N_A", "expires_in": 3599.731},
        {"token_type": "bearer", "expires_in": "3600"},
        {"expires_in": "soon", "scope": ["a", "b"]},
        {"expires_in": -5},
    ],
    ids=["nothing else", "nulls", "a fraction", "text", "words", "in the past"],
)
def test_what_servers_answer_is_understood(token: Mapping[str, Any]) -> None:
    front = answering(**token)
    with front, pytest.raises(TableNotFoundError):
        ref(front).load()
    assert front.broken == []


@pytest.mark.parametrize("token", [{"access_token": None}, {"access_token": 5}])
def test_an_answer_without_a_token_is_named(token: Mapping[str, Any]) -> None:
    front = answering(**token)
    with front, pytest.raises(CatalogAuthError, match="has no access_token"):
        ref(front).load()


class Clock:
    """The time that passes for tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(tokens.time, "monotonic", lambda: self.now)  # type: ignore[attr-defined]


def test_a_token_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    front = answering(expires_in=100.5)
    with front:
        catalog = ref(front).load_catalog()
        for passed, asked in ((0, 1), (70, 1), (10, 2), (70, 2), (10, 3)):
            clock.now += passed
            with pytest.raises(NoSuchTableError):
                catalog.load_table("db.events")
            assert len(front.forms) == asked
    assert front.broken == []


@pytest.mark.parametrize("status", [401, 403, 419])
def test_a_refused_token_is_renewed_once(status: int) -> None:
    front = answering()
    front.status = status
    with front:
        catalog = ref(front).load_catalog()
        front.given.clear()
        with pytest.raises(NoSuchTableError):
            catalog.load_table("db.events")
        assert [said[2] for said in front.signed[1:]] == ["Bearer token-1", "Bearer token-2"]
        assert len(front.broken) == 1


@pytest.mark.parametrize("status", [403, 419])
def test_who_may_not_do_something_is_not_given_tokens_without_end(status: int) -> None:
    front = answering()
    front.status = status
    with front:
        catalog = ref(front).load_catalog()
        # What is given from now on is refused, too.
        front.given.clear()
        front.vendor = replace(POLARIS, token={"access_token": "a stranger's"})
        with pytest.raises(Exception, match="sign-in"):
            catalog.load_table("db.events")
        assert len(front.forms) <= 3


def jwt(lives: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + lives}).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{claims}.c2ln"


def test_a_given_token_is_exchanged_before_it_ends_if_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, first = Clock(monkeypatch), jwt(100)
    front = Front(replace(POLARIS, form={}, token={"expires_in": 100, "refresh_token": "again"}), bearer=first)
    with front:
        catalog = ref(front, token=first, properties={"token-exchange-enabled": "true"}).load_catalog()
        for passed in (0, 80, 80):
            clock.now += passed
            with pytest.raises(NoSuchTableError):
                catalog.load_table("db.events")
    assert front.broken == []
    assert [form["grant_type"] for form in front.forms] == [EXCHANGE, "refresh_token"]
    assert front.forms[0]["subject_token"] == first
    assert front.forms[1]["refresh_token"] == "again"


def test_a_given_token_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, first = Clock(monkeypatch), jwt(100)
    front = Front(POLARIS, bearer=first)
    with front:
        catalog = ref(front, token=first).load_catalog()
        clock.now += 1000
        with pytest.raises(NoSuchTableError):
            catalog.load_table("db.events")
        front.given.clear()
        with pytest.raises(CatalogAuthError, match="sign-in"):
            ref(front, token=first).load()
    assert front.forms == []


def test_a_manager_that_goes_to_tasks_asks_for_a_token_of_its_own() -> None:
    front = answering()
    with front:
        server = TokenServer(f"{front.uri}{POLARIS.tokens}", {}, True, None, (1.0, 5.0))
        manager = BearerManager(server, f"{KEY}:{SECRET}", None, {"scope": "PRINCIPAL_ROLE:ALL"})
        assert manager.auth_header() == "Bearer token-1"
        copy = pickle.loads(pickle.dumps(manager))
        assert (copy.auth_header(), manager.auth_header()) == ("Bearer token-2", "Bearer token-1")
    assert SECRET not in repr(manager)


def test_nothing_signs_in_where_nothing_is_given() -> None:
    manager = BearerManager(TokenServer("", {}, True, None, (1.0, 5.0)), None, None, {})
    assert manager.auth_header() is None
