"""Webhooks in YAML: who may send stands under ``auth``, the files of HTTPS under ``tls``."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import Field, create_model

from volley.connectors.webhook.auth import BearerAuth, HmacAuth, ServerTls
from volley.connectors.webhook.source import WebhookSource
from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Span, given, model_of

__all__ = ["webhook_model", "webhook_source"]


class Auth(Model):
    """Who may send: those who sign with a secret, or those who have a token."""

    hmac: str | None = Field(None, description="How requests are signed: github, stripe, slack, or a header's name.")
    secret: Names | None = Field(None, description="For hmac: the secret, or two while they rotate.")
    tolerance: Span | None = Field(
        None, description="For hmac: the greatest difference between a signed timestamp and the clock; 5m by default."
    )
    bearer: Names | None = Field(None, description="The token, or several; instead of hmac.")


@cache
def webhook_model() -> type[Model]:
    """Return the model of the settings under ``config``."""
    base = model_of(WebhookSource, frozenset({"auth", "tls"}))
    auth: Any = (Auth | None, Field(None, description="Who may send; without it, everyone who reaches the port."))
    tls: Any = (model_of(ServerTls) | None, Field(None, description="The files for HTTPS; without them, HTTP."))
    return create_model("WebhookSource", __base__=base, auth=auth, tls=tls)


def webhook_source(values: Any, collector: Collector, path: Path) -> WebhookSource | None:
    """Return the source of a document's values; None after mistakes."""
    model = collector.check(webhook_model(), values, path)
    if model is None:
        return None
    arguments = given(model)
    if arguments.get("auth") is not None:
        arguments["auth"] = _auth(given(arguments["auth"]), collector, (*path, "auth"))
    if arguments.get("tls") is not None:
        arguments["tls"] = collector.make(ServerTls, given(arguments["tls"]), (*path, "tls"))
    source = collector.make(WebhookSource, arguments, path)
    return None if collector.has_mistakes(path) else source


def _auth(values: dict[str, Any], collector: Collector, path: Path) -> HmacAuth | BearerAuth | None:
    kinds = [name for name in ("hmac", "bearer") if name in values]
    if len(kinds) != 1:
        collector.add(path, f"auth has {' and '.join(kinds) or 'neither hmac nor bearer'}", "give one of them")
    elif "bearer" in values:
        for name in values.keys() - {"bearer"}:
            collector.add((*path, name), f"{name} is for hmac, not for bearer", "leave it out", of_key=True)
        return collector.make(BearerAuth, {"token": values["bearer"]}, path, {"token": "bearer"})
    elif "secret" not in values:
        collector.add(path, "secret is missing: hmac needs it", '"${file:/run/secrets/hook}"', of_key=True)
    else:
        arguments = {"scheme" if name == "hmac" else name: value for name, value in values.items()}
        return collector.make(HmacAuth, arguments, path, {"scheme": "hmac"})
    return None
