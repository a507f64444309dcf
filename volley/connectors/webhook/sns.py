"""Messages of Amazon SNS: their signature, by a certificate of SNS itself, and the confirmation of subscriptions."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from volley.connectors.webhook.connections import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

__all__ = ["Fetch", "Topics", "fetched"]

_log = logging.getLogger(__name__)

_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}
_SIGNED["UnsubscribeConfirmation"] = _SIGNED["SubscriptionConfirmation"]
_CERTIFICATE = re.compile(r"/SimpleNotificationService-[0-9a-zA-Z]{1,64}\.pem", re.ASCII)
_MOST_BYTES = 64 << 10
_MOST_KEYS = 16
_SECONDS = 10

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the content of an address; raises OSError if it can't."""


async def fetched(url: str) -> bytes:
    """Return the content of an address, without following a redirect.

    Raises:
        OSError: If it can't be read, or is too large.
    """
    try:
        async with (
            ClientSession(timeout=ClientTimeout(_SECONDS)) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise OSError(f"status {response.status}")
            content = await response.content.read(_MOST_BYTES + 1)
            # A read returns what is there: go on until the end.
            while len(content) <= _MOST_BYTES and (more := await response.content.read(_MOST_BYTES)):
                content += more
    except (ClientError, TimeoutError) as error:
        raise OSError(type(error).__name__) from error
    if len(content) > _MOST_BYTES:
        raise OSError(f"more than {_MOST_BYTES} bytes")
    return content


class Topics:
    """Checks messages of topics, and confirms their subscriptions.

    Args:
        topics: The ARNs.
        fetch: Fetches certificates, and the addresses that confirm subscriptions.
    """

    def __init__(self, topics: Sequence[str], fetch: Fetch = fetched) -> None:
        self._topics = frozenset(topics)
        self._fetch = fetch
        self._keys: dict[str, RSAPublicKey] = {}
        # One at a time: a flood of requests must not become one of fetches.
        self._lock = asyncio.Lock()

    async def receive(self, body: bytes) -> bool:
        """Check a message, and return True if it is a notification; confirm a subscription.

        Raises:
            Refused: If the message is none of SNS for these topics, or SNS can't be reached.
        """
        message = _message(body)
        topic = message.get("TopicArn", "")
        if topic not in self._topics:
            raise Refused(401, "a message of another topic, or of none")
        await self._check(message, _host(topic))
        if message["Type"] == "SubscriptionConfirmation":
            await self._confirm(message, _host(topic))
        elif message["Type"] == "UnsubscribeConfirmation":
            _log.warning("the subscription of %s has ended: SNS sends no further messages", topic)
        return message["Type"] == "Notification"

    async def _check(self, message: Mapping[str, str], host: str) -> None:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA1, SHA256

        algorithm = {"1": SHA1, "2": SHA256}.get(message.get("SignatureVersion", ""))
        if algorithm is None:
            raise Refused(401, "no SignatureVersion 1 or 2")
        url = message.get("SigningCertURL", "")
        if not _is_of(url, host) or not _CERTIFICATE.fullmatch(urlsplit(url).path):
            raise Refused(401, "the certificate is not at the address of SNS")
        key = await self._key(url)
        try:
            signature = base64.b64decode(message.get("Signature", ""), validate=True)
            key.verify(signature, _signed(message), PKCS1v15(), algorithm())
        except (InvalidSignature, ValueError) as error:
            raise Refused(401, "wrong signature") from error

    async def _key(self, url: str) -> RSAPublicKey:
        async with self._lock:
            if url not in self._keys:
                if len(self._keys) >= _MOST_KEYS:
                    self._keys.clear()
                self._keys[url] = _public_key(await self._fetched(url))
            return self._keys[url]

    async def _confirm(self, message: Mapping[str, str], host: str) -> None:
        url = message.get("SubscribeURL", "")
        if not _is_of(url, host):
            raise Refused(401, "the confirmation is not at the address of SNS")
        await self._fetched(url)
        _log.warning("the subscription of %s is confirmed", message["TopicArn"])

    async def _fetched(self, url: str) -> bytes:
        try:
            return await self._fetch(url)
        except OSError as error:
            # SNS sends the message again.
            raise Refused(503, f"SNS can't be reached: {error}", Retry_After="10") from error


def _message(body: bytes) -> dict[str, str]:
    """Return the texts of a message."""
    try:
        values: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(401, "no message of SNS") from error
    if not isinstance(values, dict) or not isinstance(values.get("Type"), str) or values["Type"] not in _SIGNED:
        raise Refused(401, "no message of SNS")
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _signed(message: Mapping[str, str]) -> bytes:
    """Return what SNS signs: names and texts of a message, each on a line."""
    names = (name for name in _SIGNED[message["Type"]] if name in message)
    return "".join(f"{name}\n{message[name]}\n" for name in names).encode()


def _host(topic: str) -> str:
    """Return the host of SNS for a topic's region."""
    _, partition, _, region, *_ = topic.split(":")
    return f"sns.{region}.amazonaws.com" + (".cn" if partition == "aws-cn" else "")


def _is_of(url: str, host: str) -> bool:
    """Return True if an address is one of this host, by HTTPS."""
    try:
        parts = urlsplit(url)
        return (
            (parts.scheme, parts.netloc) == ("https", host) and url.isascii() and url.isprintable() and "\\" not in url
        )
    except ValueError:
        return False


def _public_key(certificate: bytes) -> RSAPublicKey:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    try:
        key = x509.load_pem_x509_certificate(certificate).public_key()
    except ValueError as error:
        raise Refused(503, "the certificate of SNS can't be read", Retry_After="10") from error
    if not isinstance(key, RSAPublicKey):
        raise Refused(503, "the certificate of SNS has no RSA key", Retry_After="10")
    return key
