"""The clients of queues: they receive messages, and delete them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from volley.errors import MissingDependencyError, SourceError
from volley.secrets import redact_uri, redacted

__all__ = ["Message", "Queue", "open_azure", "open_pub_sub", "open_sqs"]

_SQS_AT_ONCE = 10
_PUB_SUB_AT_ONCE = 1_000
_AZURE_AT_ONCE = 32
_SECONDS = 30
_HIDDEN_SECONDS = 120
_WAIT_SECONDS = 1


@dataclass(frozen=True)
class Message:
    """A message of a queue.

    Args:
        id: Its own for ever.
        receipt: By which it is deleted; another one each time it is received.
    """

    id: str
    receipt: str
    body: str
    attributes: Mapping[str, str] = field(default_factory=dict)


class Queue(Protocol):
    """A queue whose messages come again until they are deleted."""

    def receive(self) -> Sequence[Message]:
        """Return the next messages; none if there are no more for now.

        Raises:
            SourceError: If the queue can't be read.
        """

    def delete(self, messages: Sequence[Message]) -> None:
        """Delete messages; those that can't be deleted come again.

        Raises:
            SourceError: If the queue can't be reached.
        """


@contextmanager
def _errors(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise SourceError(
            f"the queue {redact_uri(name)} can't be read: {redact_uri(str(error))}",
            hint="check its name, the region, and that the credentials may receive and delete messages",
        ) from redacted(error)


@dataclass(frozen=True)
class _Sqs:
    url: str
    client: Any

    def receive(self) -> Sequence[Message]:
        with _errors(self.url):
            # To wait makes SQS ask all of its servers.
            answer = self.client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=_SQS_AT_ONCE, WaitTimeSeconds=_WAIT_SECONDS
            )
        return [
            Message(message["MessageId"], message["ReceiptHandle"], message["Body"])
            for message in answer.get("Messages", ())
        ]

    def delete(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), _SQS_AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt}
                for number, message in enumerate(messages[start : start + _SQS_AT_ONCE])
            ]
            with _errors(self.url):
                self.client.delete_message_batch(QueueUrl=self.url, Entries=entries)


def open_sqs(url: str, region: str | None, **settings: str | None) -> Queue:
    """Return a queue of SQS.

    Args:
        region: Its region; None = that of the URL, or of the environment.
        settings: Further ones of botocore's client.

    Raises:
        MissingDependencyError: If botocore is not installed.
        SourceError: If it can't be opened.
    """
    try:
        from botocore.session import get_session
    except ImportError as error:
        raise MissingDependencyError("SQS needs botocore", hint='pip install "volley-stream[s3]"') from error
    named = re.match(r"https://sqs\.([a-z0-9-]+)\.", url)
    with _errors(url):
        client = get_session().create_client("sqs", region_name=region or (named[1] if named else None), **settings)
    return _Sqs(url, client)


@dataclass(frozen=True)
class _Azure:
    url: str
    client: Any

    def receive(self) -> Sequence[Message]:
        with _errors(self.url):
            pages = self.client.receive_messages(
                messages_per_page=_AZURE_AT_ONCE, visibility_timeout=_HIDDEN_SECONDS
            ).by_page()
            return [Message(item.id, item.pop_receipt, _plain(item.content)) for item in next(pages, ())]

    def delete(self, messages: Sequence[Message]) -> None:
        from azure.core.exceptions import ResourceNotFoundError

        for message in messages:
            # One that was received again has another receipt, and comes again.
            with _errors(self.url), suppress(ResourceNotFoundError):
                self.client.delete_message(message.id, message.receipt)


def _plain(content: str) -> str:
    """Return the text of a message: Event Grid writes base64."""
    if content.lstrip()[:1] in ("{", "["):
        return content
    try:
        return base64.b64decode(content, validate=True).decode(errors="replace")
    except ValueError:
        return content


def open_azure(url: str, account_key: str | None) -> Queue:
    """Return a queue of Azure's storage.

    Args:
        account_key: The key of its account; None = the default credentials of the environment.

    Raises:
        MissingDependencyError: If azure-storage-queue is not installed.
        SourceError: If it can't be opened.
    """
    try:
        from azure.identity import DefaultAzureCredential
        from azure.storage.queue import QueueClient
    except ImportError as error:
        raise MissingDependencyError(
            "queues of Azure need azure-storage-queue", hint='pip install "volley-stream[azure]"'
        ) from error
    with _errors(url):
        host, _, path = url.partition("://")[2].partition("/")
        # An emulator has the account in the path.
        account = path.partition("/")[0] if "/" in path else host.partition(".")[0]
        named: Any = {"account_name": account, "account_key": account_key}
        client = QueueClient.from_queue_url(url, credential=named if account_key else DefaultAzureCredential())
    return _Azure(url, client)


@dataclass(frozen=True)
class _PubSub:
    name: str
    url: str
    session: Any

    def receive(self) -> Sequence[Message]:
        answer = self._call("pull", {"maxMessages": _PUB_SUB_AT_ONCE, "returnImmediately": True})
        return [
            Message(
                received["message"]["messageId"],
                received["ackId"],
                base64.b64decode(received["message"].get("data", "")).decode(errors="replace"),
                received["message"].get("attributes", {}),
            )
            for received in answer.get("receivedMessages", ())
        ]

    def delete(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), _PUB_SUB_AT_ONCE):
            part = messages[start : start + _PUB_SUB_AT_ONCE]
            self._call("acknowledge", {"ackIds": [message.receipt for message in part]})

    def _call(self, method: str, values: object) -> Any:
        with _errors(self.name):
            answer = self.session.post(f"{self.url}/v1/{self.name}:{method}", json=values, timeout=_SECONDS)
            answer.raise_for_status()
            return answer.json()


def open_pub_sub(name: str, endpoint: str | None) -> Queue:
    """Return a subscription of Pub/Sub.

    Args:
        endpoint: The address of a service like it, which asks for no credentials; None = Google's.

    Raises:
        MissingDependencyError: If google-auth or requests is not installed.
        SourceError: If there are no credentials.
    """
    try:
        import google.auth
        import requests
        from google.auth.transport.requests import AuthorizedSession
    except ImportError as error:
        raise MissingDependencyError("Pub/Sub needs google-auth", hint='pip install "volley-stream[gcs]"') from error
    if endpoint is not None:
        return _PubSub(name, endpoint.rstrip("/"), requests.Session())
    with _errors(name):
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/pubsub"])
    return _PubSub(name, "https://pubsub.googleapis.com", AuthorizedSession(credentials))  # type: ignore[no-untyped-call]
