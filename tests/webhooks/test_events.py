"""Arrays of events, forms, CloudEvents in each of their modes, and who the client is behind proxies."""

from __future__ import annotations

import hmac
import json
import time
from pathlib import Path

import pytest

from tests.webhooks.hooks import Hook, receiving
from tests.webhooks.test_signatures import SENDGRID_BODY, SLACK_BODY
from volley import ConfigError, HmacAuth, WebhookSource
from volley.connectors.webhook.events import cloud_events

FORM = "application/x-www-form-urlencoded"
EVENT = "specversion string, id string, source string, type string, time timestamp, data struct<total: long>"


def ids(hook: Hook) -> list[object]:
    return [row["id"] for row in hook.rows()]


def test_an_array_is_a_row_for_each_event(tmp_path: Path) -> None:
    with receiving(tmp_path, include=["received_at"], header_columns={"event": "X-Event"}) as hook:
        assert hook.post(b' [{"id": 1}, {"id": 2, "name": "[{\\"}"}]', X_Event="many").status == 202
        assert [(row["id"], row["name"], row["event"]) for row in hook.rows()] == [
            (1, None, "many"),
            (2, '[{"}', "many"),
        ]
        # All of a request is stored, or nothing.
        bad = hook.post(b'[{"id": 3}, {"id": "x"}, {"id": 4}]')
        assert (bad.status, "an event of the request: " in bad.text) == (400, True)
        for body in (
            b"[]",
            b"[1]",
            b'[{"id": 5}',
            b'[{"id": 5},]',
            b'[{"id": 5}] x',
            b'[{"id": 5}, [{}]]',
        ):
            assert hook.post(body).status == 400, body
        assert ids(hook) == [1, 2]
        assert hook.post(b"[" + b",".join([b"{}"] * 10_001) + b"]").status == 413


def test_the_sample_of_sendgrid_is_a_row_once(tmp_path: Path) -> None:
    schema = {"email": "string", "event": "string", "sg_event_id": "string", "timestamp": "long"}
    with receiving(tmp_path, schema=schema, idempotency="json:$.sg_event_id", include=["key"]) as hook:
        assert [hook.post(SENDGRID_BODY).status for _ in range(2)] == [202, 200]
        (row,) = hook.rows()
        assert (row["email"], row["event"], row["timestamp"]) == ("hello@world.com", "dropped", 1600112492)
        assert row["http_key"] == row["sg_event_id"] == "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA"


def test_keys_of_events(tmp_path: Path) -> None:
    with receiving(tmp_path, idempotency="json:$.id") as hook:
        assert hook.post([{"id": 1}, {"id": 2}]).status == 202
        # Those that are known are not stored again, the others are.
        assert hook.post([{"id": 2}, {"id": 3}, {"id": 3}]).status == 202
        assert hook.post([{"id": 1}, {"id": 3}]).status == 200
        # One that comes with another body, or twice with different ones, and the whole request is refused.
        assert hook.post([{"id": 4}, {"id": 1, "name": "x"}]).status == 409
        assert hook.post([{"id": 5}, {"id": 5, "name": "x"}]).status == 409
        assert hook.post([{"id": 6}, {"name": "x"}]).status == 400
        # What was refused may come again.
        assert hook.post([{"id": 7}, {"id": "8"}]).status == 400
        assert hook.post([{"id": 7}, {"id": 8}]).status == 202
        assert ids(hook) == [1, 2, 3, 7, 8]
    with receiving(tmp_path, idempotency="json:$.id") as hook:
        assert hook.post([{"id": 1}, {"id": 2}]).status == 200


def test_keys_of_headers_count_the_events(tmp_path: Path) -> None:
    with receiving(tmp_path, idempotency="header:Key", include=["key"]) as hook:
        assert [hook.post([{"id": 1}, {"id": 1}], "a").status for _ in range(2)] == [202, 200]
        hook.kill()
        assert hook.post([{"id": 1}, {"id": 1}], "a").status == 200
        assert hook.post([{"id": 1}, {"id": 2}], "a").status == 409
        assert hook.post([{"id": 1}]).status == 400
        assert [row["http_key"] for row in hook.rows()] == ["a/0", "a/1"]


def test_bad_arrays_that_are_kept(tmp_path: Path) -> None:
    with receiving(tmp_path, on_bad="dead_letter") as hook:
        assert [hook.post(body).status for body in (b'[{"id": 1}, 5]', b'[{"id": 2}')] == [202, 202]
        begin = {"log": hook.folder.id, **vars(hook.folder.released)}
        splits = hook.reader.splits(begin, hook.reader.latest_offset(begin, None, None))
        items = [item for split in splits for item in hook.reader.read_tolerant(split)]
        assert [row for item in items if hasattr(item, "batch") for row in item.batch["id"].to_pylist()] == [1]
        assert [item.payload for item in items if hasattr(item, "payload")] == ["5", '[{"id": 2}']


def test_the_sample_of_slack_is_a_row(tmp_path: Path) -> None:
    schema = "command string, text string, user_name string, response_url string"
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    with receiving(tmp_path, schema=schema, auth=HmacAuth("slack", secret)) as hook:
        now = str(int(time.time()))
        signature = "v0=" + hmac.digest(secret.encode(), f"v0:{now}:".encode() + SLACK_BODY, "sha256").hex()
        headers = {"X_Slack_Signature": signature, "X_Slack_Request_Timestamp": now, "Content_Type": FORM}
        # Slack shows an error for another status than 200.
        assert hook.post(SLACK_BODY, **headers).status == 200
        assert hook.rows() == [
            {
                "command": "/webhook-collect",
                "text": "",
                "user_name": "roadrunner",
                "response_url": "https://hooks.slack.com/commands/T1DC2JH3J/397700885554/96rGlfmibIGlgcZRskXaIFfN",
            }
        ]


def test_forms(tmp_path: Path) -> None:
    with receiving(tmp_path, schema="a string, b array<string>, id long") as hook:

        def send(body: bytes, media: str = FORM) -> int:
            return hook.post(body, Content_Type=media).status

        assert send(b"a=%C3%A4+1&b=x&b=y", f"{FORM}; charset=utf-8") == 202
        # Slack's buttons and GitHub's forms have JSON in one field.
        assert send(b"payload=%7B%22id%22%3A+5%7D") == 202
        # curl calls JSON a form.
        assert send(b' {"id": 6}') == 202
        assert send(b"a=%ff") == send("a=ä".encode()) == send(b"x=1") == send(b"&".join([b"a=1"] * 1_001)) == 400
        assert send(b"a=1", "text/plain") == 400
        rows = [{name: value for name, value in row.items() if value is not None} for row in hook.rows()]
        assert rows == [{"a": "ä 1", "b": ["x", "y"]}, {"id": 5}, {"id": 6}]


def binary(**more: str) -> dict[str, str]:
    named = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", **more}
    return {f"ce_{name}": value for name, value in named.items()}


def test_cloud_events_in_each_mode_are_the_same_rows(tmp_path: Path) -> None:
    settings = {"value_format": "cloudevents", "schema": EVENT, "idempotency": "cloudevents", "include": ["key"]}
    with receiving(tmp_path, **settings) as hook:
        at = "2026-11-28T00:00:00Z"
        event = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", "time": at, "data": {"total": 5}}
        assert hook.post({"total": 5}, Content_Type="application/json", **binary(time=at)).status == 202
        two = {**event, "id": "2"}
        assert hook.post(two, Content_Type="application/cloudevents+json; charset=utf-8").status == 202
        batch = "application/cloudevents-batch+json"
        assert hook.post([{**event, "id": "3"}, two], Content_Type=batch).status == 202
        assert hook.post([two, {**event, "id": "3"}], Content_Type=batch).status == 200
        assert hook.post([], Content_Type=batch).status == 202
        rows = hook.rows()
        assert [row.pop("http_key") for row in rows] == ["/shop 1", "/shop 2", "/shop 3"]
        assert [row.pop("id") for row in rows] == ["1", "2", "3"]
        assert rows[0] == rows[1] == rows[2]
        assert (rows[0]["data"], rows[0]["time"].isoformat()) == ({"total": 5}, "2026-11-28T00:00:00+00:00")
        # Another source may have the same id.
        assert hook.post({"total": 6}, **binary(source="/other")).status == 202


def test_what_is_no_cloud_event(tmp_path: Path) -> None:
    with receiving(tmp_path, value_format="cloudevents", schema=EVENT) as hook:
        structured = "application/cloudevents+json"
        good = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
        assert hook.post(good).status == hook.post(good, Content_Type="application/json").status == 415
        assert hook.post(good, Content_Type="application/cloudevents+avro").status == 415
        for wrong in ({"specversion": "0.3"}, {"id": ""}, {"source": None}, {"type": 1}):
            assert hook.post({**good, **wrong}, Content_Type=structured).status == 400, wrong
        batch = hook.post([good, {**good, "id": ""}], Content_Type="application/cloudevents-batch+json")
        assert (batch.status, json.loads(batch.text)["error"]) == (400, "event 2: a CloudEvent with an empty id")
        assert hook.post(b"{", Content_Type=structured).status == hook.post(b"{", **binary()).status == 400
        assert hook.post(b"{}", **binary(data="x")).status == hook.post(b"{}", **binary(id="%ff")).status == 400
        assert hook.rows() == []


@pytest.mark.parametrize(
    ("media", "body", "member"),
    [
        ("application/json", b"[1]", {"data": [1]}),
        ("application/problem+json", b'"x"', {"data": "x"}),
        ("text/plain; charset=utf-8", "ä".encode(), {"data": "ä"}),
        ("text/plain", b"\xff", {"data_base64": "/w=="}),
        ("image/png", b"\x00", {"data_base64": "AA=="}),
        ("image/png", b"", {}),
    ],
)
def test_data_of_the_binary_mode(media: str, body: bytes, member: dict[str, object]) -> None:
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "%F0%9F%98%80",
        "ce-source": "/s",
        "ce-type": "t",
        "Content-Type": media,
    }
    (event,) = cloud_events(headers, body)
    expected = {"specversion": "1.0", "id": "😀", "source": "/s", "type": "t", "datacontenttype": media}
    assert json.loads(event) == expected | member


def test_a_sender_of_cloud_events_asks_whether_it_may_send(tmp_path: Path) -> None:
    cloud = {"value_format": "cloudevents", "schema": EVENT, "auth": HmacAuth("github", "secret")}

    def ask(hook: Hook, origin: str | None) -> tuple[int, str | None, str | None]:
        headers = {} if origin is None else {"WebHook-Request-Origin": origin, "WebHook-Request-Rate": "120"}
        answer = hook.send("OPTIONS", "/events", headers=headers)
        return answer.status, answer.headers.get("WebHook-Allowed-Origin"), answer.headers.get("WebHook-Allowed-Rate")

    with receiving(tmp_path / "named", allowed_origins=["EventGrid.azure.net"], max_rate=10, **cloud) as hook:
        assert ask(hook, "eventgrid.azure.net") == (200, "eventgrid.azure.net", "600")
        assert ask(hook, "evil.example")[:2] == ask(hook, None)[:2] == (403, None)
    with receiving(tmp_path / "all", allowed_origins="*", **cloud) as hook:
        assert ask(hook, "any.example") == (200, "any.example", "*")
    with receiving(tmp_path / "none", **cloud) as hook:
        assert ask(hook, "any.example") == (405, None, None)


def test_clients_behind_proxies(tmp_path: Path) -> None:
    with receiving(tmp_path / "trusted", include=["client"], trusted_proxies=["127.0.0.1", "10.0.0.0/8"]) as hook:
        sent = ["203.0.113.7", "6.6.6.6, 203.0.113.7, 10.1.2.3", "[2001:db8::1]:443", "203.0.113.7:5000", "unknown", ""]
        assert [hook.post({"id": 1}, X_Forwarded_For=text).status for text in sent] == [202] * 6
        expected = ["203.0.113.7"] * 2 + ["2001:db8::1", "203.0.113.7"] + ["127.0.0.1"] * 2
        assert [row["http_client"] for row in hook.rows()] == expected
    with receiving(tmp_path / "limited", trusted_proxies="127.0.0.1", max_rate=1) as hook:
        clients = ["203.0.113.1", "203.0.113.2", "6.6.6.6, 203.0.113.1"]
        statuses = [hook.post({"id": 1}, X_Forwarded_For=client).status for client in clients]
        assert statuses[:2] == [202, 202]
    with receiving(tmp_path / "not", include=["client"]) as hook:
        assert hook.post({"id": 1}, X_Forwarded_For="6.6.6.6").status == 202
        assert [row["http_client"] for row in hook.rows()] == ["127.0.0.1"]


def test_settings_that_are_wrong() -> None:
    for settings in ({"trusted_proxies": "10.0.0.1/8"}, {"trusted_proxies": ["x"]}, {"idempotency": "cloudevents"}):
        with pytest.raises(ConfigError) as error:
            WebhookSource(schema="id long", **settings)
        assert error.value.hint
