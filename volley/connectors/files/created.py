"""Which files the messages of storages tell of: events of S3, GCS and Azure's Event Grid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus

from volley.storage.remembered import MALFORMED

__all__ = ["created_files"]

_BLOB_CREATED = "Microsoft.Storage.BlobCreated"


def created_files(body: str, attributes: Mapping[str, str]) -> list[str] | None:
    """Return the paths of the files that a message says were written: bucket or container, then the name in it.

    Args:
        attributes: The attributes of a message of Pub/Sub.

    Returns:
        The paths: none for events of another kind, such as deletions; None if it is no message of a storage.

    Example:
        >>> created_files('{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "lake"}, '
        ...               '"object": {"key": "in/day%3D1/a+b.json"}}}]}', {})
        ['lake/in/day=1/a b.json']
    """
    try:
        paths = _of_gcs(attributes) if "eventType" in attributes else [*_of_json(json.loads(body))]
    except (*MALFORMED, RecursionError):
        return None
    # A folder's own marker is no file.
    return [path for path in paths if not path.endswith("/")]


def _of_gcs(attributes: Mapping[str, str]) -> list[str]:
    path = f"{attributes['bucketId']}/{attributes['objectId']}"
    return [path] if attributes["eventType"] == "OBJECT_FINALIZE" else []


def _of_json(value: Any) -> Iterator[str]:
    """Yield the paths of a message; raise one of `MALFORMED` if it is of no known form."""
    if isinstance(value, list):
        for event in value:
            yield from _of_event_grid(event)
    elif value.get("Type") == "Notification":
        # S3 by way of SNS.
        yield from _of_json(json.loads(value["Message"]))
    elif "Records" in value:
        for record in value["Records"]:
            yield from _of_s3(record)
    elif value.get("source") == "aws.s3":
        detail = value["detail"]
        if value["detail-type"] == "Object Created":
            yield f"{detail['bucket']['name']}/{detail['object']['key']}"
    elif value.get("Event") != "s3:TestEvent":
        yield from _of_event_grid(value)


def _of_s3(record: Any) -> Iterator[str]:
    if record["eventName"].removeprefix("s3:").startswith("ObjectCreated:"):
        # Coded as in a form, unlike that of EventBridge.
        yield f"{record['s3']['bucket']['name']}/{unquote_plus(record['s3']['object']['key'])}"


def _of_event_grid(event: Any) -> Iterator[str]:
    """Yield the path of an event in Event Grid's own schema, or as a CloudEvent."""
    kind, subject = event["eventType"] if "eventType" in event else event["type"], event["subject"]
    if kind == _BLOB_CREATED:
        container, path = subject.partition("/containers/")[2].split("/blobs/", 1)
        yield f"{container}/{path}"
