"""The events in a request: one, those of an array, the fields of a form, or CloudEvents in each of their modes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from volley.connectors.webhook.connections import Refused

__all__ = ["Split", "cloud_events", "cloud_key", "json_events"]

_MOST_EVENTS = 10_000
_SPACE = b" \t\r\n"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1_000
_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])

Split = Callable[[Mapping[str, str], bytes], Sequence[bytes]]
"""Takes a request's headers and body; returns its events as JSON objects. Raises ValueError if there are none."""


def json_events(headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
    """Return the events of a body of JSON, or of a form.

    An array has one event in each element. The fields of a form are those of one object, as texts; if it has only the
    field ``payload``, whose text is an object, the event is that object: Slack and GitHub send so.

    Raises:
        ValueError: If it is an array or a form that can't be read.
        Refused: If there are too many events.

    Example:
        >>> json_events({}, b'[{"id": 1}, {"id": 2}]')
        [b'{"id": 1}', b'{"id": 2}']
        >>> json_events({"Content-Type": "application/x-www-form-urlencoded"}, b"command=%2Fweather&text=Paris")
        [b'{"command": "/weather", "text": "Paris"}']
    """
    first = body[:1]
    if first == b"{":
        return [body]
    if first in _SPACE:
        first = body.lstrip(_SPACE)[:1]
    if first == b"[":
        if events := _elements(body):
            return events
        raise ValueError("an array without events")
    # curl, say, calls JSON a form.
    return [_form(body)] if first != b"{" and _media_type(headers) == _FORM else [body]


def _elements(body: bytes) -> list[bytes]:
    try:
        elements = [bytes(element) for element in _EVENTS.decode(body)]
    except RecursionError as error:
        raise ValueError("the array is nested too deep") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"the array is not JSON: {error}") from error
    if len(elements) > _MOST_EVENTS:
        raise Refused(413, f"the array has {len(elements)} events, at most {_MOST_EVENTS}")
    return elements


def _media_type(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _form(body: bytes) -> bytes:
    """Return the fields of a form as a JSON object; a name that is there several times has an array."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise ValueError("the form is not in UTF-8, or has too many fields") from error
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields[name] = value if name not in fields else [*_listed(fields[name]), value]
    if [*fields] == ["payload"] and str(fields["payload"]).lstrip().startswith("{"):
        return str(fields["payload"]).encode()
    return json.dumps(fields, ensure_ascii=False).encode()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class _Context(msgspec.Struct):
    """The attributes that each CloudEvent has."""

    specversion: str
    id: str
    source: str
    type: str


_CONTEXT = msgspec.json.Decoder(_Context)


def cloud_events(headers: Mapping[str, str], body: bytes) -> Sequence[bytes]:
    """Return the CloudEvents of a request in the form of the structured mode.

    Raises:
        ValueError: If one is no CloudEvent 1.0.
        Refused: If the request has none, or too many.

    Example:
        >>> cloud_events({"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "paid"}, b"5")
        [b'{"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", "data": 5}']
    """
    media = _media_type(headers)
    if media == "application/cloudevents+json":
        events: Sequence[bytes] = [body]
    elif media == "application/cloudevents-batch+json":
        events = _elements(body)
    elif media.startswith("application/cloudevents") or headers.get("ce-specversion") is None:
        raise Refused(415, "no CloudEvent in the binary mode, in JSON, or in a batch of JSON")
    else:
        events = [_structured(headers, media, body)]
    for number, event in enumerate(events):
        if fault := _fault(event):
            raise ValueError(f"event {number + 1}: {fault}" if len(events) > 1 else fault)
    return events


def cloud_key(event: bytes) -> str:
    """Return what no other CloudEvent has: its source and its id."""
    context = _CONTEXT.decode(event)
    return f"{context.source} {context.id}"


def _fault(event: bytes) -> str | None:
    """Return why an object is no CloudEvent 1.0; None if it is one."""
    try:
        context = _CONTEXT.decode(event)
    except RecursionError:
        return "nested too deep"
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return f"no CloudEvent: {error}"
    if context.specversion != "1.0":
        return f"a CloudEvent of version {context.specversion[:20]!r}; 1.0 is read"
    empty = [name for name in ("id", "source", "type") if not getattr(context, name)]
    return f"a CloudEvent with an empty {empty[0]}" if empty else None


def _structured(headers: Mapping[str, str], media: str, body: bytes) -> bytes:
    """Return an event of the binary mode, whose attributes are headers."""
    named = {name[3:].lower(): value for name, value in headers.items() if name[:3].lower() == "ce-"}
    attributes = {name: unquote(value, errors="strict") for name, value in named.items()}
    for name in attributes:
        if not re.fullmatch("[a-z0-9]+", name) or name in ("data", "datacontenttype"):
            raise ValueError(f"ce-{name} is no attribute of a CloudEvent")
    if "Content-Type" in headers:
        attributes["datacontenttype"] = headers["Content-Type"]
    member = _data(media, body)
    text = json.dumps(attributes, ensure_ascii=False).encode()
    return text if member is None else text[:-1] + b", " + member + b"}"


def _data(media: str, body: bytes) -> bytes | None:
    """Return the member of an event that has its data: JSON as it is, a text, or bytes in base64."""
    if not body:
        return None
    if media in ("", "application/json", "text/json") or media.endswith("+json"):
        try:
            msgspec.json.decode(body, type=msgspec.Raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"the data is not JSON: {error}") from error
        return b'"data": ' + body
    if media.startswith("text/"):
        try:
            return b'"data": ' + json.dumps(body.decode(), ensure_ascii=False).encode()
        except UnicodeDecodeError:
            pass
    return b'"data_base64": "' + base64.b64encode(body) + b'"'
