"""Queues in which a storage tells of new files, as values."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from volley.checks import Duration, duration, keep, optional, secret, text
from volley.errors import ConfigError
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    from volley.connectors.files.queues import Queue

__all__ = ["AzureQueue", "FileNotifications", "PubSubSubscription", "SqsQueue"]

_SUBSCRIPTION = re.compile(r"projects/[^/\s]+/subscriptions/[^/\s]+")


class FileNotifications(ABC):
    """A queue in which a storage tells of new files."""

    list_every: Duration

    __repr__ = redacted_repr
    _repr_html_ = redacted_html

    @abstractmethod
    def open(self) -> Queue:
        """Return the queue.

        Raises:
            MissingDependencyError: If its package is not installed.
        """


def _url(name: str, value: Any) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", text(name, value)):
        raise ConfigError(f"{name} is no URL", hint='"https://sqs.eu-west-1.amazonaws.com/123456789012/new-files"')
    return str(value)


def _subscription(name: str, value: Any) -> str:
    if not _SUBSCRIPTION.fullmatch(text(name, value)):
        raise ConfigError(f"{name} {value!r} is not valid", hint='"projects/my-project/subscriptions/new-files"')
    return str(value)


@dataclass(frozen=True, repr=False)
class SqsQueue(FileNotifications):
    """A queue of Amazon SQS with the events of S3: sent by the bucket, through SNS, or by EventBridge.

    Args:
        url: The queue's URL.
        region: Its region; None = that of the URL, or of the environment.
        list_every: How often the folder is listed nevertheless, for messages that were lost: a timedelta, seconds or a
            text such as ``"1d"``.
        endpoint_url: The address of a service like SQS; None = Amazon's.
        access_key_id: A key that may receive and delete messages; None = that of the environment, a profile or a role.
        secret_access_key: Its secret.
        session_token: The token of temporary keys.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> SqsQueue("https://sqs.eu-west-1.amazonaws.com/123456789012/new-files").list_every
        datetime.timedelta(days=1)
    """

    url: str
    region: str | None = None
    list_every: Duration = timedelta(days=1)
    endpoint_url: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __post_init__(self) -> None:
        keep(self, url=_url, region=optional(text), list_every=duration, endpoint_url=optional(_url))
        keep(self, access_key_id=optional(secret), secret_access_key=optional(secret), session_token=optional(secret))
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigError("access_key_id and secret_access_key belong together", hint="give both, or neither")

    def open(self) -> Queue:
        from volley.connectors.files.queues import open_sqs

        return open_sqs(
            self.url,
            self.region,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            aws_session_token=self.session_token,
        )


@dataclass(frozen=True, repr=False)
class AzureQueue(FileNotifications):
    """A queue of Azure's storage to which Event Grid sends the events of a storage account.

    Args:
        url: The queue's URL.
        list_every: How often the folder is listed nevertheless, for messages that were lost.
        account_key: The key of the storage account; None = the default credentials of the environment.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> AzureQueue("https://lake.queue.core.windows.net/new-files", account_key="hush")
        AzureQueue(url='https://lake.queue.core.windows.net/new-files', account_key='***')
    """

    url: str
    list_every: Duration = timedelta(days=1)
    account_key: str | None = None

    def __post_init__(self) -> None:
        keep(self, url=_url, list_every=duration, account_key=optional(secret))

    def open(self) -> Queue:
        from volley.connectors.files.queues import open_azure

        return open_azure(self.url, self.account_key)


@dataclass(frozen=True, repr=False)
class PubSubSubscription(FileNotifications):
    """A subscription of Google's Pub/Sub to the topic that a bucket of GCS notifies.

    Args:
        name: Its name, ``"projects/…/subscriptions/…"``; it is pulled, not pushed.
        list_every: How often the folder is listed nevertheless, for messages that were lost.
        endpoint_url: The address of a service like Pub/Sub, which asks for no credentials; None = Google's, with the
            default credentials of the environment.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> PubSubSubscription("projects/shop/subscriptions/new-files", list_every="6h").list_every
        datetime.timedelta(seconds=21600)
    """

    name: str
    list_every: Duration = timedelta(days=1)
    endpoint_url: str | None = None

    def __post_init__(self) -> None:
        keep(self, name=_subscription, list_every=duration, endpoint_url=optional(_url))

    def open(self) -> Queue:
        from volley.connectors.files.queues import open_pub_sub

        return open_pub_sub(self.name, self.endpoint_url)
