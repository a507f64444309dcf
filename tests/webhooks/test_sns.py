"""Messages of SNS: signed by a certificate of its own host, confirmed there, and nothing is fetched anywhere else."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.servers.certificates import self_signed
from tests.webhooks.hooks import receiving
from volley import ConfigError, SnsAuth
from volley.connectors.webhook.connections import Refused
from volley.connectors.webhook.sns import Topics, fetched

TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"
HOST = "https://sns.eu-west-1.amazonaws.com"
CERTIFICATE = f"{HOST}/SimpleNotificationService-0123456789abcdef.pem"
CONFIRM = f"{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=2336"
NOTIFICATION = {"Message": '{"id": 1}', "MessageId": "m1", "Subject": "s", "Timestamp": "2026-11-28T00:00:00.000Z"}
CONFIRMATION = {"Message": "…", "MessageId": "m2", "SubscribeURL": CONFIRM, "Timestamp": "2026-11-28", "Token": "2336"}


class Sns:
    """Signs as SNS does, serves its certificate, and writes down what is fetched."""

    def __init__(self, folder: Path) -> None:
        files = self_signed(folder)
        self.certificate = files.file.read_bytes()
        key = load_pem_private_key(files.key_file.read_bytes(), None)
        assert isinstance(key, RSAPrivateKey)
        self.key = key
        self.fetched: list[str] = []
        self.topics = Topics([TOPIC], self.fetch)

    async def fetch(self, url: str) -> bytes:
        self.fetched.append(url)
        return self.certificate

    def message(self, values: dict[str, str], kind: str = "Notification", version: str = "2", **more: str) -> bytes:
        message = {"Type": kind, "TopicArn": TOPIC, **values}
        # As SNS documents it: names and values in alphabetic order, each on a line.
        text = "".join(f"{name}\n{value}\n" for name, value in sorted(message.items()))
        signature = self.key.sign(text.encode(), PKCS1v15(), SHA1() if version == "1" else SHA256())
        encoded = base64.b64encode(signature).decode()
        signed = {"SignatureVersion": version, "Signature": encoded, "SigningCertURL": CERTIFICATE}
        return json.dumps({**message, **signed, **more}).encode()

    def receive(self, body: bytes) -> bool | int:
        """Return whether it is a notification, or the status with which it is refused."""
        try:
            return asyncio.run(self.topics.receive(body))
        except Refused as refusal:
            return refusal.status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sns")


@pytest.fixture
def sns(folder: Path) -> Sns:
    return Sns(folder)


@pytest.mark.parametrize("version", ["1", "2"])
def test_notifications(sns: Sns, version: str) -> None:
    assert sns.receive(sns.message(NOTIFICATION, version=version)) is True
    without = {name: value for name, value in NOTIFICATION.items() if name != "Subject"}
    assert sns.receive(sns.message(without, version=version)) is True
    # The certificate is fetched once.
    assert sns.fetched == [CERTIFICATE]


def test_a_subscription_is_confirmed(sns: Sns) -> None:
    assert sns.receive(sns.message(CONFIRMATION, "SubscriptionConfirmation")) is False
    assert sns.fetched == [CERTIFICATE, CONFIRM]
    assert sns.receive(sns.message(CONFIRMATION, "UnsubscribeConfirmation")) is False
    # Following it would subscribe again.
    assert sns.fetched == [CERTIFICATE, CONFIRM]


@pytest.mark.parametrize(
    "change",
    [
        {"Message": "another"},
        {"Signature": "AAAA"},
        {"Signature": "ä"},
        {"SignatureVersion": "1"},
        {"Type": "UnsubscribeConfirmation"},
        {"Subject": "another"},
    ],
)
def test_what_is_not_signed(sns: Sns, change: dict[str, str]) -> None:
    assert sns.receive(sns.message(NOTIFICATION, **change)) == 401


@pytest.mark.parametrize(
    "url",
    [
        "https://sns.eu-west-1.amazonaws.com.example.com/SimpleNotificationService-01.pem",
        "https://example.com/SimpleNotificationService-01.pem",
        "https://user@sns.eu-west-1.amazonaws.com/SimpleNotificationService-01.pem",
        "https://sns.eu-west-1.amazonaws.com:444/SimpleNotificationService-01.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-01.pem",
        "https://example.com#sns.eu-west-1.amazonaws.com/SimpleNotificationService-01.pem",
        "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-01.pem",
        "https://sns.eu-west-1.amazonaws.com/other.pem",
        "https://s3.eu-west-1.amazonaws.com/SimpleNotificationService-01.pem",
        "file:///etc/passwd",
        "https://[",
        "",
    ],
)
def test_nothing_is_fetched_from_another_host(sns: Sns, url: str) -> None:
    assert sns.receive(sns.message(NOTIFICATION, SigningCertURL=url)) == 401
    assert sns.fetched == []
    # Signed by SNS, and yet not followed.
    confirmation = sns.message({**CONFIRMATION, "SubscribeURL": url}, "SubscriptionConfirmation")
    if not url.startswith(HOST + "/"):
        assert sns.receive(confirmation) == 401
        assert sns.fetched == [CERTIFICATE]


def test_other_topics_and_other_bodies(sns: Sns) -> None:
    other = {**NOTIFICATION, "TopicArn": TOPIC + "2"}
    assert sns.receive(sns.message(other)) == 401
    for body in (
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"Type": []}',
        b'{"Type": "x"}',
        b'{"Type": "Notification"}',
    ):
        assert sns.receive(body) == 401, body
    assert sns.fetched == []


def test_sns_is_asked_to_send_again_while_its_certificate_can_not_be_read(sns: Sns) -> None:
    good = sns.certificate
    sns.certificate = b"no certificate"
    assert sns.receive(sns.message(NOTIFICATION)) == 503

    async def fails(url: str) -> bytes:
        raise OSError("status 302")

    sns.topics = Topics([TOPIC], fails)
    assert sns.receive(sns.message(NOTIFICATION)) == 503
    sns.certificate, sns.topics = good, Topics([TOPIC], sns.fetch)
    assert sns.receive(sns.message(NOTIFICATION)) is True


def test_a_topic_in_china() -> None:
    async def fetch(url: str) -> bytes:
        raise OSError(url)

    topic = "arn:aws-cn:sns:cn-north-1:123456789012:orders"
    body = {"Type": "Notification", "TopicArn": topic, "SignatureVersion": "2"}
    url = "https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-01.pem"
    with pytest.raises(Refused, match="SNS can't be reached"):
        asyncio.run(Topics([topic], fetch).receive(json.dumps({**body, "SigningCertURL": url}).encode()))


@pytest.fixture
def other_host() -> Iterator[tuple[str, list[str]]]:
    """A server that redirects, or sends a great deal; the paths that were asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302 if self.path == "/redirect" else 200)
            self.send_header("Location", "/followed")
            self.end_headers()
            self.wfile.write(b"x" * (70_000 if self.path == "/large" else 60_000))

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_redirect_is_not_followed(other_host: tuple[str, list[str]]) -> None:
    url, asked = other_host
    assert asyncio.run(fetched(f"{url}/small")) == b"x" * 60_000
    for path, fault in (("/redirect", "status 302"), ("/large", "more than 65536 bytes")):
        with pytest.raises(OSError, match=fault):
            asyncio.run(fetched(url + path))
    assert asked == ["/small", "/redirect", "/large"]
    with pytest.raises(OSError, match="ClientConnectorError"):
        asyncio.run(fetched("http://127.0.0.1:9"))


def test_a_receiver_of_sns(tmp_path: Path, sns: Sns) -> None:
    with receiving(tmp_path, auth=SnsAuth(TOPIC), schema="Message string") as hook:
        assert hook.post(sns.message(NOTIFICATION, SigningCertURL="https://example.com/x.pem")).status == 401
        assert hook.post({"Message": "raw delivery"}).status == 401
        assert hook.rows() == []


@pytest.mark.parametrize("topics", ["orders", [], "arn:aws:sqs:eu-west-1:123456789012:orders", None])
def test_wrong_topics(topics: object) -> None:
    with pytest.raises(ConfigError) as error:
        SnsAuth(topics)  # type: ignore[arg-type]
    assert error.value.hint
