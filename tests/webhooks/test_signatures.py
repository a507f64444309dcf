"""The samples that senders document, and what else may stand in the headers of a signature."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256

from tests.webhooks.hooks import receiving
from volley import ConfigError, HmacAuth, PublicKeyAuth, SignatureScheme, WebhookSource
from volley.connectors.webhook.signatures import verifier

Auth = HmacAuth | PublicKeyAuth

SENDGRID_KEY = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eN"
    "Ec6wEA3F+g=="
)
SENDGRID_EVENT = {
    "email": "hello@world.com",
    "event": "dropped",
    "reason": "Bounced Address",
    "sg_event_id": "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",
    "sg_message_id": "LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",
    "smtp-id": "<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>",
    "timestamp": 1600112492,
}
SENDGRID_BODY = (json.dumps([SENDGRID_EVENT], sort_keys=True, separators=(",", ":")) + "\r\n").encode()
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SVIX_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SVIX_SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
SVIX_BODY = b'{"test": 2432232314}'
STRIPE_BODY = b'{\n  "id": "evt_test_webhook",\n  "object": "event"\n}'
STRIPE = "5a97cdd6da7d8e23ac83779ac3599d581bc5114da79e227414b990817ae62bfc"


def svix_headers(prefix: str) -> dict[str, str]:
    return {
        f"{prefix}-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        f"{prefix}-timestamp": "1614265330",
        f"{prefix}-signature": SVIX_SIGNATURE,
    }


# The sender, what it checks, the headers and body of its sample, and the time at which that was sent.
SAMPLES: dict[str, tuple[Auth, dict[str, str], bytes, int]] = {
    # GitHub's page about validating deliveries.
    "github": (
        HmacAuth("github", "It's a Secret to Everybody"),
        {"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
        b"Hello, World!",
        0,
    ),
    # A test vector for Shopify's form that SQLPage publishes: Shopify's own pages have code only.
    "shopify": (
        HmacAuth("shopify", "test-webhook-secret"),
        {"X-Shopify-Hmac-Sha256": "QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="},
        b'{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}',
        0,
    ),
    # Slack's page about verifying requests.
    "slack": (
        HmacAuth("slack", "8f742231b10e8888abcd99yyyzzz85a5"),
        {
            "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            "X-Slack-Request-Timestamp": "1531420618",
        },
        SLACK_BODY,
        1531420618,
    ),
    # The payload and secret of stripe-python's tests, signed by stripe-python 16.1.0.
    "stripe": (
        HmacAuth("stripe", "whsec_test_secret"),
        {"Stripe-Signature": f"t=1686089970,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07ab,v1={STRIPE}"},
        STRIPE_BODY,
        1686089970,
    ),
    # The tests of sendgrid-python.
    "sendgrid": (
        PublicKeyAuth("sendgrid", SENDGRID_KEY),
        {
            "X-Twilio-Email-Event-Webhook-Signature": "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe"
            "5W0JuG+luQAbPIqHh89M15TluLtEZtM=",
            "X-Twilio-Email-Event-Webhook-Timestamp": "1600112502",
        },
        SENDGRID_BODY,
        1600112502,
    ),
    # The tests of Svix's and of Standard Webhooks' Python libraries.
    "svix": (HmacAuth("svix", SVIX_SECRET), svix_headers("svix"), SVIX_BODY, 1614265330),
    "standard": (HmacAuth("standard", SVIX_SECRET), svix_headers("webhook"), SVIX_BODY, 1614265330),
    # Svix's page about verifying by hand.
    "svix by hand": (
        HmacAuth("svix", "whsec_plJ3nmyCDGBKInavdOK15jsl"),
        {
            "svix-id": "msg_loFOjxBNrRLzqYUf",
            "svix-timestamp": "1731705121",
            "svix-signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        },
        b'{"event_type":"ping","data":{"success":true}}',
        1731705121,
    ),
}


def refusal(auth: Auth, headers: Mapping[str, str], body: bytes, now: float) -> str | None:
    return verifier(auth)(headers, body, now)


@pytest.mark.parametrize("sender", SAMPLES)
def test_documented_samples(sender: str) -> None:
    auth, headers, body, at = SAMPLES[sender]
    assert refusal(auth, headers, body, at) is None
    assert refusal(auth, headers, body + b" ", at) == "wrong signature"
    for name, value in headers.items():
        less = {other: text for other, text in headers.items() if other != name}
        assert refusal(auth, less, body, at) is not None
        assert refusal(auth, {**headers, name: value[:-8] + "AAAAAAAA"}, body, at) is not None
        for odd in ("", "=", "v1,", "t=,v1=", "ä", "\udcff", "v1,ä v1,\udcff"):
            assert refusal(auth, {**headers, name: odd}, body, at) is not None
    if at:
        assert refusal(auth, headers, body, at + 300) is None
        too_old = "the timestamp is too old, or a clock is wrong"
        assert [refusal(auth, headers, body, at + off) for off in (-301, 301)] == [too_old, too_old]


@pytest.mark.parametrize("sender", [name for name, (auth, *_) in SAMPLES.items() if isinstance(auth, HmacAuth)])
def test_a_secret_that_changes(sender: str) -> None:
    auth, headers, body, at = SAMPLES[sender]
    assert isinstance(auth, HmacAuth)
    other = "whsec_c2VjcmV0" if "whsec_" in auth.secret[0] else "another"
    assert refusal(HmacAuth(auth.scheme, [other, *auth.secret]), headers, body, at) is None
    assert refusal(HmacAuth(auth.scheme, [*auth.secret, other]), headers, body, at) is None
    assert refusal(HmacAuth(auth.scheme, other), headers, body, at) == "wrong signature"


@pytest.mark.parametrize("sender", ["stripe", "svix", "standard"])
def test_several_signatures_in_one_header(sender: str) -> None:
    """While a secret changes, its sender signs with both; signatures of other versions stand beside."""
    auth, headers, body, at = SAMPLES[sender]
    name = next(name for name in headers if "ignature" in name)
    parts = {"stripe": ("t=1686089970,v1=00,v1=", STRIPE, ",v9=x"), "svix": ("v1a,x v1,AA== ", SVIX_SIGNATURE, " v2,x")}
    before, signature, after = parts.get(sender, parts["svix"])
    assert refusal(auth, {**headers, name: before + signature + after}, body, at) is None
    # The same signature under another version is none.
    other = signature.replace("v1,", "v1a,") if sender != "stripe" else signature
    before = before.replace(",v1=00,v1=", ",v0=") if sender == "stripe" else ""
    assert refusal(auth, {**headers, name: before + other}, body, at) == "wrong signature"
    if sender == "stripe":
        assert refusal(auth, {**headers, name: f"t=1,t=1686089970,v1={STRIPE}"}, body, at) is not None


def test_schemes_of_other_senders() -> None:
    body, at = b'{"id": 1}', 1_700_000_000
    cases: list[tuple[SignatureScheme, str, bytes, Mapping[str, str]]] = [
        (SignatureScheme("X-S", algorithm="sha1"), "sha1", body, {}),
        (SignatureScheme("X-S", "{body}.{id}", "sha512", id="X-Id"), "sha512", body + b".7", {"X-Id": "7"}),
        (SignatureScheme("X-S", "{timestamp}|{body}", timestamp="X-T"), "sha256", b"%d|" % at + body, {"X-T": str(at)}),
    ]
    for scheme, algorithm, signed, headers in cases:
        signature = hmac.digest(b"key", signed, algorithm).hex()
        assert refusal(HmacAuth(scheme, "key"), {**headers, "X-S": signature.upper()}, body, at) is None
        assert refusal(HmacAuth(scheme, "key"), {**headers, "X-S": signature}, b"{}", at) == "wrong signature"


def test_public_keys() -> None:
    body = b"{}"
    curve, edwards = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    pem = curve.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    raw = edwards.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    by_curve = SignatureScheme("X-S", algorithm="ecdsa", encoding="base64")
    by_edwards = SignatureScheme("X-S", algorithm="ed25519")
    signatures = {
        PublicKeyAuth(by_curve, pem.decode()): base64.b64encode(curve.sign(body, ec.ECDSA(SHA256()))).decode(),
        PublicKeyAuth(by_edwards, ["00" * 32, raw.hex()]): edwards.sign(body).hex(),
    }
    for auth, signature in signatures.items():
        assert refusal(auth, {"X-S": signature}, body, 0) is None
        assert refusal(auth, {"X-S": signature}, b"[]", 0) == "wrong signature"
    for wrong in (
        PublicKeyAuth(by_curve, raw.hex()),
        PublicKeyAuth("sendgrid", "no key"),
        PublicKeyAuth(by_edwards, pem.decode()),
    ):
        with pytest.raises(ConfigError, match=r"key '.*' is no"):
            verifier(wrong)


def test_wrong_schemes() -> None:
    wrong: list[dict[str, Any]] = [
        {"header": ""},
        {"header": "X S"},
        {"signed": "body"},
        {"signed": "{body}{body}"},
        {"signed": "{body}{time}"},
        {"signed": "{timestamp}{body}"},
        {"timestamp": "X-T"},
        {"id": "X-Id"},
        {"signed": "{timestamp}{body}", "timestamp": "t="},
        {"algorithm": "md5"},
        {"encoding": "base32"},
        {"secret_encoding": "hex"},
        {"prefix": None},
        {"separator": ""},
    ]
    for settings in wrong:
        with pytest.raises(ConfigError) as error:
            SignatureScheme(**{"header": "X-S", **settings})
        assert error.value.hint, settings
    for make in (
        lambda: HmacAuth("sendgrid", "s"),
        lambda: HmacAuth("GitHub", "s"),
        lambda: HmacAuth("X S", "s"),
        lambda: PublicKeyAuth("github", "k"),
        lambda: PublicKeyAuth("X-S", "k"),
        lambda: PublicKeyAuth("sendgrid", "-----BEGIN PRIVATE KEY-----"),
        lambda: PublicKeyAuth("sendgrid", []),
    ):
        with pytest.raises(ConfigError) as error:
            make()
        assert error.value.hint


def test_a_secret_that_is_no_base64_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="no base64") as error:
        HmacAuth("svix", "whsec_hunter2!")
    assert "hunter2" not in f"{error.value!r} {error.value.__cause__!r} {error.value.hint}"


def test_what_is_not_signed_is_not_stored(tmp_path: Path) -> None:
    with receiving(tmp_path, auth=HmacAuth("standard", SVIX_SECRET), idempotency="header:webhook-id") as hook:

        def send(at: int, signature: str | None = None) -> int:
            right = hmac.digest(base64.b64decode(SVIX_SECRET[6:]), b'm1.%d.{"id": 1}' % at, "sha256")
            text = f"v1,{base64.b64encode(right).decode()}" if signature is None else signature
            headers = {"webhook_id": "m1", "webhook_timestamp": str(at), "webhook_signature": text}
            return hook.post(b'{"id": 1}', **headers).status

        now = int(time.time())
        assert [send(now - 400), send(now, ""), send(now, "v1,AAAA"), send(now, SVIX_SIGNATURE)] == [401] * 4
        assert hook.rows() == []
        assert not hook.folder.segments() or not Path(hook.folder.segments()[0].path).read_bytes()
        # A repetition has another time, and is the same request.
        assert [send(now - 10), send(now)] == [202, 200]
        assert len(hook.rows()) == 1


def test_a_wrong_key_stops_before_the_receiver_starts(tmp_path: Path) -> None:
    source = WebhookSource(0, schema="id long", auth=PublicKeyAuth("sendgrid", "no key"))
    from volley import SourceContext

    with pytest.raises(ConfigError, match="key 'no key' is no public key"):
        source.open(SourceContext(str(tmp_path), 1))
