"""Schemas of a registry: found by id and subject, retried while it is busy, refused with the reason and no secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.avro import record
from volley import ConfigError, JobError, SourceError
from volley.formats.avro import avro_columns
from volley.formats.registered import Registered
from volley.formats.schema_registry import Registry

_LONG = '{"type": "long"}'


@dataclass
class Server:
    """A registry that asks for a password.

    Args:
        answers: The status and the body for each path; several are given one after the other.
        asked: The paths of all requests.
    """

    answers: dict[str, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, login: str | None) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if login != "Basic bWU6cEBzcw==":
            return 401, {"error_code": 40101, "message": "wrong password"}
        left = self.answers.get(path, [(404, {"error_code": 40403, "message": "not found"})])
        return left.pop(0) if len(left) > 1 else left[0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once: two tests would wait for half a second."""
    monkeypatch.setattr("volley.formats.schema_registry._RETRY_MS", 1)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = made.answer(self.path.partition("?")[0], self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # It looks often whether it is to stop: seven tests would wait half a second each.
    Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    made.url = f"http://me:p%40ss@127.0.0.1:{http.server_port}"
    yield made
    http.shutdown()
    http.server_close()


def test_a_schema_is_asked_for_once(server: Server) -> None:
    server.answers["/schemas/ids/7"] = [(200, {"schema": _LONG})]
    registry = Registry(server.url, 5)
    assert [registry.schema(7), registry.schema(7), Registry(server.url, 5).schema(7)] == [_LONG] * 3
    assert server.asked == ["/schemas/ids/7"]


def test_the_latest_schema_of_a_subject(server: Server) -> None:
    found = {"subject": "a/b-value", "version": 3, "id": 7, "schema": _LONG}
    server.answers["/subjects/a%2Fb-value/versions/latest"] = [(200, found)]
    assert Registry(server.url, 5).latest("a/b-value") == Registered("AVRO", _LONG)
    with pytest.raises(ConfigError, match="has no subject 'other'") as raised:
        Registry(server.url, 5).latest("other")
    assert "p%40ss" not in str(raised.value)


def test_a_busy_registry_is_asked_again(server: Server) -> None:
    server.answers["/schemas/ids/8"] = [(503, {"message": "busy"}), (200, {"schema": _LONG})]
    assert Registry(server.url, 5).schema(8) == _LONG
    assert len(server.asked) == 2


def test_what_is_not_avro_is_refused(server: Server) -> None:
    server.answers["/schemas/ids/9"] = [(200, {"schema": _LONG, "schemaType": "JSON"})]
    with pytest.raises(SourceError, match="schema 9 is JSON Schema, not Avro"):
        Registry(server.url, 5).schema(9)


def of_subject(schema: Any, *references: str) -> list[tuple[int, dict[str, Any]]]:
    named = [{"name": name, "subject": f"{name}-value", "version": 2} for name in references]
    body = {"subject": "s", "id": 3, "version": 2, "schema": json.dumps(schema), "references": named}
    return [(200, body)]


def test_an_avro_schema_has_what_it_refers_to_within_it(server: Server) -> None:
    """By subject and version, over one another, also a type that two of them use."""
    money = {**record(("units", "long"), name="Money"), "namespace": "cash"}
    price = {**record(("money", "cash.Money"), ("in", "shop.Country"), name="Price"), "namespace": "shop"}
    country = {"type": "enum", "name": "Country", "namespace": "shop", "symbols": ["de", "fr"]}
    order = {
        **record(
            ("a", "Price"), ("b", ["null", "shop.Price"]), ("c", {"type": "array", "items": "cash.Money"}), name="Order"
        ),
        "namespace": "shop",
    }
    server.answers["/schemas/ids/30"] = of_subject(order, "shop.Price", "cash.Money")
    server.answers["/subjects/shop.Price-value/versions/2"] = of_subject(price, "cash.Money", "shop.Country")
    server.answers["/subjects/cash.Money-value/versions/2"] = of_subject(money)
    server.answers["/subjects/shop.Country-value/versions/2"] = of_subject(country)
    columns = avro_columns(Registry(server.url, 5).schema(30))
    amount = pa.struct({"units": pa.int64()})
    priced = pa.struct({"money": amount, "in": pa.string()})
    assert columns == pa.schema({"a": priced, "b": priced, "c": pa.list_(amount)})


def test_a_reference_that_is_not_there(server: Server) -> None:
    server.answers["/schemas/ids/31"] = of_subject("other", "other")
    with pytest.raises(SourceError, match="no 'other-value' in version 2, to which schema 31 refers"):
        Registry(server.url, 5).schema(31)


def test_references_in_a_circle_end(server: Server) -> None:
    server.answers["/schemas/ids/32"] = of_subject("a", "a")
    server.answers["/subjects/a-value/versions/2"] = of_subject("a", "a")
    with pytest.raises(SourceError, match="refers to more than 500 schemas, or over more than 50 others"):
        Registry(server.url, 5).schema(32)


def test_a_schema_by_its_guid(server: Server) -> None:
    guid = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    server.answers[f"/schemas/guids/{guid}"] = [(200, {"schema": _LONG, "guid": str(guid)})]
    assert Registry(server.url, 5).avro(b"\x01" + guid.bytes) == _LONG
    with pytest.raises(SourceError, match="has no schema 00000000-0000-0000-0000-000000000000"):
        Registry(server.url, 5).avro(b"\x01" + bytes(16))


def test_a_schema_that_is_not_there(server: Server) -> None:
    with pytest.raises(SourceError, match="the schema registry has no schema 10"):
        Registry(server.url, 5).schema(10)


def test_a_schema_that_is_not_there_is_asked_for_once_a_minute(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 600.0
    monkeypatch.setattr("volley.formats.schema_registry.time.monotonic", lambda: now)
    missing = 404, {"error_code": 40403, "message": "not found"}
    server.answers["/schemas/ids/11"] = [missing, (200, {"schema": _LONG})]
    registry = Registry(server.url, 5)
    for _ in range(3):
        with pytest.raises(SourceError, match="has no schema 11"):
            registry.schema(11)
    assert server.asked == ["/schemas/ids/11"]
    now = 660.0
    assert registry.schema(11) == _LONG


def test_a_registry_that_is_down_is_asked_again(server: Server) -> None:
    server.answers["/schemas/ids/12"] = [(500, {"message": "down"})] * 4 + [(200, {"schema": _LONG})]
    with pytest.raises(JobError, match="gave no schema"):
        Registry(server.url, 5).schema(12)
    server.answers["/schemas/ids/12"] = [(200, {"schema": _LONG})]
    assert Registry(server.url, 5).schema(12) == _LONG


def test_a_wrong_password_is_told_without_it(server: Server) -> None:
    with pytest.raises(JobError, match="401 wrong password") as raised:
        Registry(server.url.replace("p%40ss", "hush-hush"), 5).schema(7)
    assert "hush" not in f"{raised.value!r} {raised.value.cause!r}"


def test_a_registry_that_is_not_there() -> None:
    with pytest.raises(JobError, match=r"gave no schema: .*refused") as raised:
        Registry("http://me:hush-hush@127.0.0.1:9", 1).schema(7)
    assert "registry=" in str(raised.value.hint)
    assert "hush" not in str(raised.value)
