"""What senders are answered, and which rows their requests become."""

from __future__ import annotations

import gzip
import hmac
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.servers.certificates import self_signed
from tests.webhooks.hooks import Answer, Hook, receiving
from volley import BearerAuth, ConfigError, HmacAuth, KafkaSource, ServerTls, WebhookSource
from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.reader import Requests, rows_of
from volley.formats.decoders import decoder_of

SECRET, OLD = "the-new-secret", "the-old-secret"


def signature(secret: str, signed: bytes) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """A receiver with keys and a body of at most 2,000 bytes."""
    with receiving(tmp_path_factory.mktemp("hook"), idempotency="header:Key", max_body=2_000, timeout=2) as running:
        yield running


def test_a_request_becomes_a_row(tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    with receiving(
        tmp_path,
        idempotency="header:Key",
        include=["key", "received_at"],
        header_columns={"event": "X-GitHub-Event"},
        on_unknown="keep",
    ) as hook:
        body = {"id": 1, "name": "ä", "more": [1]}
        assert hook.post(body, "k1", X_GitHub_Event="push").status == hook.post({"id": 2}, "k2").status == 202
        first, second = hook.rows()
        assert began < first.pop("http_received_at") <= second.pop("http_received_at") <= datetime.now(UTC)
        assert first == {"id": 1, "name": "ä", "http_unknown": '{"more": [1]}', "http_key": "k1", "event": "push"}
        assert second == {"id": 2, "name": None, "http_unknown": None, "http_key": "k2", "event": None}


def test_headers_that_are_not_utf_8(tmp_path: Path) -> None:
    with receiving(tmp_path, header_columns={"event": "X-Event"}) as hook:
        assert hook.send("POST", "/events", {"id": 1}, headers={"X-Event": b"\xc3\xa4\xff"}).status == 202
        assert [row["event"] for row in hook.rows()] == ["ä\ufffd"]


def test_headers_that_are_too_large(tmp_path: Path) -> None:
    names = [f"X-{number}" for number in range(9)]
    with receiving(tmp_path, header_columns={name[2:]: name for name in names}) as hook:
        # Each is small enough for aiohttp, and together they have more than 64 kB.
        refused = hook.send("POST", "/events", {"id": 1}, headers=dict.fromkeys(names, "x" * 8_000))
        assert (refused.status, "more than 65535 bytes" in refused.text) == (431, True)
        assert hook.send("POST", "/events", {"id": 2}, headers=dict.fromkeys(names, "ä".encode() * 3_500)).status == 202
        (row,) = hook.rows()
        assert row == {"id": 2, "name": None, **{name[2:]: "ä" * 3_500 for name in names}}


def test_a_log_with_headers_that_are_not_utf_8() -> None:
    """Earlier versions stored the surrogates that aiohttp decodes such bytes to."""
    requests = Requests([Entry(b"", b'["\\udcff", null]', b"x")], [0], 0)
    rows = rows_of(decoder_of("raw", None, "drop", "unknown", {}), [], ["a", "b"])
    (batch,) = rows.read([requests])
    assert batch.to_pylist() == [{"value": b"x", "a": "\ufffd", "b": None}]


@pytest.mark.parametrize(("value_format", "value"), [("raw", b"\xff\x00"), ("string", "ä{")])
def test_bodies_that_are_not_parsed(value_format: str, value: bytes | str, tmp_path: Path) -> None:
    with receiving(tmp_path, value_format=value_format) as hook:
        body = value if isinstance(value, bytes) else value.encode()
        assert hook.post(body).status == hook.post(body).status == 202
        assert hook.rows() == [{"value": value}, {"value": value}]
        if value_format == "string":
            assert hook.post(b"\xff").status == 400


def test_a_repeated_request_is_stored_once(hook: Hook) -> None:
    assert hook.post({"id": 1}, "again").status == 202
    before = hook.rows()
    assert [hook.post({"id": 1}, "again").status for _ in range(2)] == [200, 200]
    conflict = hook.post({"id": 2}, "again")
    assert conflict.status == 409
    assert "another body" in conflict.text
    assert hook.rows() == before


def test_one_key_on_many_connections_at_once(hook: Hook) -> None:
    before, statuses, ready = len(hook.rows()), [], threading.Barrier(16)

    def send() -> None:
        ready.wait()
        statuses.append(hook.post({"id": 3}, "at once").status)

    threads = [threading.Thread(target=send) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 15 + [202]
    assert len(hook.rows()) == before + 1


def test_a_key_in_the_body(tmp_path: Path) -> None:
    with receiving(tmp_path, idempotency="json:$.event.id", schema="n long") as hook:
        bodies = [{"event": {"id": 1}, "n": 1}, {"event": {"id": "1"}, "n": 1}, {"event": {"id": 2}, "n": 3}]
        # The number 1 and the text 1 are one key.
        assert [hook.post(body).status for body in [*bodies, bodies[0]]] == [202, 409, 202, 200]
        without: list[object] = [{"event": {}}, {"event": 1}, [], {"event": {"id": None}}]
        assert [hook.post(body).status for body in without] == [400] * 4
        assert hook.post(b'{"event": {"id": 3}').status == 400
        assert hook.post(b"[" * 2_000).status == 400
        half = hook.post({"event": {"id": "\ud800"}})
        assert (half.status, "half a surrogate pair" in half.text) == (400, True)
        assert [row["n"] for row in hook.rows()] == [1, 3]


def test_a_bad_body_is_refused_with_the_reason(hook: Hook) -> None:
    before = hook.rows()
    for body in (b"", b"{", b'{"id": "x"}', b'{"id": 1}{"id": 2}', b"[1]", b"\xff", b'{"id": 99999999999999999999}'):
        answer = hook.post(body, "bad")
        assert answer.status == 400, body
        assert json.loads(answer.text)["error"]
    # The key is free: the sender may send a good body under it.
    assert hook.post({"id": 4}, "bad").status == 202
    assert len(hook.rows()) == len(before) + 1


def test_a_bad_body_does_not_harm_those_beside_it(hook: Hook) -> None:
    before, statuses = len(hook.rows()), {}

    def send(number: int) -> None:
        body = {"id": number if number % 3 else "x"}
        statuses[number] = hook.post(body, f"beside {number}").status

    threads = [threading.Thread(target=send, args=[number]) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == {number: 202 if number % 3 else 400 for number in range(24)}
    assert len(hook.rows()) == before + 16


def test_without_a_key(hook: Hook) -> None:
    assert [hook.post({"id": 1}).status, hook.post({"id": 1}, "k" * 1_025).status] == [400, 400]


def test_other_paths_and_methods(hook: Hook) -> None:
    assert hook.send("GET", "/healthz").status == hook.send("GET", "/readyz").status == 200
    assert hook.send("POST", "/other").status == 404
    refused = hook.send("GET", "/events")
    assert (refused.status, refused.headers["Allow"]) == (405, "POST")
    assert hook.post({"id": 1}, "with a query", path="/events?source=a").status == 202


def test_compressed_bodies(hook: Hook) -> None:
    body = json.dumps({"id": 5, "name": "x" * 1_500}).encode()
    assert hook.post(gzip.compress(body), "gzip", Content_Encoding="gzip").status == 202
    assert hook.rows()[-1]["name"] == "x" * 1_500
    # The same body, not compressed, is the same request.
    assert hook.post(body, "gzip").status == 200
    large = gzip.compress(b"0" * 2_001)
    assert hook.post(large, "large", Content_Encoding="gzip").status == 413
    assert hook.post(gzip.compress(body)[:-9], "cut", Content_Encoding="gzip").status == 400
    assert hook.post(b"no gzip", "no", Content_Encoding="gzip").status == 400
    assert hook.post(body, "br", Content_Encoding="br").status == 415


def test_compressed_bodies_of_several_members(tmp_path: Path) -> None:
    with receiving(tmp_path, value_format="raw", max_body=100_000) as hook:
        content = random.Random(1).randbytes(90_000)
        parts = [content[:40_000], b"", content[40_000:50_000], content[50_000:]]
        members = b"".join(map(gzip.compress, parts))
        assert hook.post(members, Content_Encoding="gzip").status == 202
        assert hook.rows() == [{"value": content}]
        assert hook.post(members + gzip.compress(b"0" * 10_001), Content_Encoding="gzip").status == 413
        assert hook.post(members + b"no gzip", Content_Encoding="gzip").status == 400
        assert hook.post(members[:-9], Content_Encoding="gzip").status == 400
        assert hook.post(b"", Content_Encoding="gzip").status == 400


def test_bodies_that_are_too_large(hook: Hook) -> None:
    assert hook.post(b'{"name": "' + b"x" * 1_988 + b'"}', "just right").status == 202
    assert hook.post(b'{"name": "' + b"x" * 1_989 + b'"}', "too large").status == 413
    with socket.create_connection(("127.0.0.1", hook.port), timeout=20) as client:
        # Refused by what it announces, before it comes.
        client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nKey: a\r\nContent-Length: 9999999999\r\n\r\n")
        assert client.recv(1_000).startswith(b"HTTP/1.1 413")
    with socket.create_connection(("127.0.0.1", hook.port), timeout=20) as client:
        client.sendall(b"POST /events HTTP/1.1\r\nHost: x\r\nKey: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.sendall(b"5dc\r\n" + b"x" * 1_500 + b"\r\n" + b"5dc\r\n" + b"x" * 1_500 + b"\r\n")
        assert client.recv(1_000).startswith(b"HTTP/1.1 413")


def test_a_body_in_chunks_after_a_question(hook: Hook) -> None:
    with socket.create_connection(("127.0.0.1", hook.port), timeout=20) as client:
        client.sendall(
            b"POST /events HTTP/1.1\r\nHost: x\r\nKey: chunks\r\nExpect: 100-continue\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        assert client.recv(1_000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b'5\r\n{"id"\r\n')
        client.sendall(b"4\r\n: 6}\r\n0\r\n\r\n")
        assert client.recv(1_000).startswith(b"HTTP/1.1 202")
    assert hook.rows()[-1]["id"] == 6


def test_a_client_that_leaves_before_its_answer(hook: Hook) -> None:
    with socket.create_connection(("127.0.0.1", hook.port), timeout=20) as client:
        client.sendall(b'POST /events HTTP/1.1\r\nHost: x\r\nKey: gone\r\nContent-Length: 10\r\n\r\n{"id": 77}')
    # It does not know; it sends again.
    assert hook.post({"id": 77}, "gone").status in (200, 202)
    assert [row["id"] for row in hook.rows()].count(77) == 1


def test_http_1_0_and_clients_that_close(hook: Hook) -> None:
    for version, header in ((b"1.0", b""), (b"1.1", b"Connection: close\r\n")):
        with socket.create_connection(("127.0.0.1", hook.port), timeout=20) as client:
            client.sendall(
                b"POST /events HTTP/"
                + version
                + b"\r\nHost: x\r\nKey: v"
                + version
                + b"\r\n"
                + header
                + b"Content-Length: 2\r\n\r\n{}"
            )
            text = b"".join(iter(lambda: client.recv(1_000), b""))
            assert b" 202 " in text


def test_signatures_of_github(tmp_path: Path) -> None:
    with receiving(tmp_path, auth=HmacAuth("github", [SECRET, OLD])) as hook:
        body = b'{"id": 1}'
        for secret in (SECRET, OLD):
            assert hook.post(body, X_Hub_Signature_256=f"sha256={signature(secret, body)}").status == 202
        for wrong in ("", "sha256=", f"sha256={signature('another', body)}", "sha256=ä", signature(SECRET, b"{}")):
            assert hook.post(body, X_Hub_Signature_256=wrong.encode().decode("latin-1")).status == 401
        # Not parsed before it is known who sent it.
        assert hook.post(b"{").status == 401
        assert len(hook.rows()) == 2


def test_signatures_of_stripe(tmp_path: Path) -> None:
    with receiving(tmp_path, auth=HmacAuth("stripe", [SECRET, OLD], tolerance="5m")) as hook:
        body, now = b'{"id": 1}', int(time.time())

        def status(secret: str, at: int, **more: str) -> int:
            parts = {"t": str(at), "v1": signature(secret, f"{at}.".encode() + body), **more}
            header = ",".join(f"{name}={value}" for name, value in parts.items())
            return hook.post(body, Stripe_Signature=header).status

        assert status(SECRET, now, v0="x") == status(OLD, now - 290) == 202
        assert status(SECRET, now - 310) == status(SECRET, now + 310) == status("another", now) == 401
        assert status(SECRET, now, t=str(now - 1)) == status(SECRET, now, t="x") == 401
        assert hook.post(body, Stripe_Signature="v1").status == hook.post(body).status == 401


def test_signatures_of_slack(tmp_path: Path) -> None:
    with receiving(tmp_path, auth=HmacAuth("slack", SECRET)) as hook:

        def send(body: bytes, at: int, secret: str = SECRET) -> Answer:
            signed = signature(secret, f"v0:{at}:".encode() + body)
            return hook.post(body, X_Slack_Signature=f"v0={signed}", X_Slack_Request_Timestamp=str(at))

        now = int(time.time())
        # Slack shows an error for another one in answer to a command.
        assert send(b'{"id": 1}', now).status == 200
        assert send(b'{"id": 1}', now - 310).status == send(b'{"id": 1}', now, "another").status == 401
        # Slack asks once whether the URL is the user's.
        question = send(b'{"type": "url_verification", "challenge": "abc"}', now)
        assert (question.status, json.loads(question.text)) == (200, {"challenge": "abc"})
        assert len(hook.rows()) == 1


def test_signatures_in_another_header_and_tokens(tmp_path: Path) -> None:
    with receiving(tmp_path / "header", auth=HmacAuth("X-Signature", SECRET)) as hook:
        assert hook.post(b"{}", X_Signature=signature(SECRET, b"{}").upper()).status == 202
        assert hook.post(b"{}", X_Signature="0").status == 401
    with receiving(tmp_path / "bearer", auth=BearerAuth([SECRET, OLD])) as hook:
        sent = [f"Bearer {SECRET}", f"Bearer {OLD}", "Bearer x", SECRET, ""]
        assert [hook.post(b"{}", Authorization=text).status for text in sent] == [202, 202, 401, 401, 401]


def test_https_and_client_certificates(tmp_path: Path) -> None:
    made = self_signed(tmp_path)
    files = str(made.file), str(made.key_file)
    trusting = ssl.create_default_context(cafile=files[0])
    with receiving(tmp_path / "server", tls=ServerTls(*files)) as hook:
        assert hook.send("POST", "/events", b"{}", tls=trusting).status == 202
        with pytest.raises((ssl.SSLError, ConnectionError)):
            hook.post({})
    with receiving(tmp_path / "both", tls=ServerTls(*files, client_ca=files[0])) as hook:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            hook.send("POST", "/events", b"{}", tls=trusting)
        trusting.load_cert_chain(*files)
        assert hook.send("POST", "/events", b"{}", tls=trusting).status == 202


def test_settings_that_are_wrong() -> None:
    wrong: list[dict[str, Any]] = [
        {"port": -1},
        {"path": "events"},
        {"path": "/healthz"},
        {"schema": None},
        {"value_format": "raw"},
        {"include": ["body"]},
        {"include": ["key"]},
        {"include": ["received_at", "received_at"]},
        {"idempotency": "cookie:a"},
        {"idempotency": "json:id"},
        {"header_columns": {"id": "X-Id"}},
        {"header_columns": ["X-Id"]},
        {"auth": "secret"},
        {"tls": "server.pem"},
        {"on_bad": "drop"},
        {"max_body": "1 XB"},
        {"max_rate": 0},
    ]
    for settings in wrong:
        with pytest.raises(ConfigError) as error:
            WebhookSource(**{"schema": "id long", **settings})
        assert error.value.hint, settings
    for secret in ("", [], [""], None, 1):
        with pytest.raises(ConfigError):
            HmacAuth("github", secret)  # type: ignore[arg-type]


@pytest.mark.parametrize("data_type", ["map<long,string>", "array<map<string,time>>"])
def test_a_column_that_json_can_not_be_read_into_is_refused_before_a_request_comes(data_type: str) -> None:
    for source in (WebhookSource(schema=f"labels {data_type}"), KafkaSource("b:1", "t", schema=f"labels {data_type}")):
        with pytest.raises(ConfigError, match="column 'labels': JSON can't be read into"):
            source.declared()


def test_secrets_are_not_shown() -> None:
    source = WebhookSource(schema="id long", auth=HmacAuth("github", [SECRET, OLD]))
    assert SECRET not in f"{source!r} {source.auth!r} {BearerAuth(SECRET)!r}"
