"""WebhookSource: receives webhooks, and answers them when they are on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from volley.checks import (
    Duration,
    count,
    duration,
    flag,
    keep,
    mapping,
    of_type,
    one_of,
    optional,
    path,
    port,
    seconds,
    size,
    text,
)
from volley.connectors.webhook import settings
from volley.connectors.webhook.auth import Auth, ServerTls, SnsAuth
from volley.connectors.webhook.proxies import check_networks
from volley.contracts.reports import Probe
from volley.contracts.source import PayloadDecoder, Reader, Source, SourceContext
from volley.errors import ConfigError, brief_methods
from volley.formats.change_options import CHANGES, ChangeFormat, ChangeOptions, check_options
from volley.formats.contract import INFER, Contract, contract_of
from volley.formats.options import (
    Policy,
    check_columns,
    fate_of_unknown,
    kept_in,
    on_unknown,
    parts_of,
    policy_of,
    value_schema,
)
from volley.secrets import redacted_html, redacted_repr
from volley.storage.paths import absolute, write_and_delete
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import INITIAL_OFFSET
from volley.task.failpoints import SCHEMA_POINT, reach

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.formats.messages import Decoder, MessageRows
    from volley.types.names import SchemaLike

__all__ = ["WebhookSource"]

_AUTH_HINT = 'for example HmacAuth("github", secret), or BearerAuth(token)'


@brief_methods
@dataclass(frozen=True, repr=False)
class WebhookSource(Source):
    """Receives HTTP requests (POST), each of which is a row, and answers 202 once the request is on disk.

    Requests are received by a process of its own, as long as the job runs; also while the catalog or Spark can't be
    reached. They are kept in a log on the driver's disk until every sink has committed them.

    Args:
        port: The TCP port; 0 = a free one.
        path: The path of requests. ``/healthz`` answers 200, ``/readyz`` 503 while requests are refused.
        schema: For JSON, the columns: a text such as ``"id long, name string"``, a dict of names and types, a
            dataclass, a pydantic model or a `pyarrow.Schema`; missing fields are null. ``"infer"`` = they are found in
            the bodies, as ``on_unknown="evolve"`` does beside declared ones; of Debezium in their own schemas.
        value_format: The format of bodies. ``"json"`` (the default): an object, its fields are the columns.
            An array of objects is a row for each; the fields of a form are those of an object, as texts.
            ``"cloudevents"``: CloudEvents 1.0, in the binary, structured or batch mode; its attributes and ``data``
            are the columns. ``"string"``: text, in the column ``value``. ``"raw"``: bytes, in the column ``value``.
            ``"debezium"``, ``"maxwell"``, ``"canal"``, ``"dms"``, ``"airbyte"``, ``"olake"`` and ``"changes"``: changes
            of rows, as of `KafkaSource`.
        include: The parts of a request to add as columns: ``"key"`` (the idempotency key) as ``http_key``,
            ``"received_at"`` as ``http_received_at``, ``"client"`` (the client's address) as ``http_client``.
        header_columns: Columns to add, with the headers that they have: ``{"event": "X-GitHub-Event"}``.
        on_unknown: What to do with JSON fields that the schema lacks: ``"warn"`` (the default) leaves them out
            and warns once of each, ``"keep"`` keeps them as JSON in the column ``http_unknown``, ``"rescue"`` keeps
            them in ``rescued``, with values that don't fit their column, which is then null, ``"evolve"`` makes them
            columns, and rescues values that don't fit, ``"fail"`` makes the body bad, ``"drop"`` leaves them out; or a
            `Contract`. A body without any field of the schema is bad, unless they are kept.
        on_bad: What to do with a body that does not fit the format and schema: ``"reject"`` it with status 400 (the
            default), or store it and send it to the sink's ``"dead_letter"``.
        auth: Who may send: `HmacAuth`, `PublicKeyAuth`, `SnsAuth` or `BearerAuth`; others get 401. None = everyone
            who reaches the port.
        idempotency: Where a request's key is: ``"header:Idempotency-Key"``, or ``"json:$.event.id"``;
            ``"cloudevents"`` = the source and id of a CloudEvent. A repeated request gets 200 and is stored once;
            another body under a known key gets 409; without a key 400. Of an array each event has the key in its own
            JSON, or that of the header with ``/0``, ``/1``, … behind it. None = each request is stored.
        remember_keys: How long keys are known, at least: a timedelta, seconds or a text such as ``"7d"``.
        host: The address to listen at; ``"0.0.0.0"`` = all of this machine.
        tls: The files for HTTPS, also for client certificates; None = HTTP.
        max_body: The largest body, also after decompression (gzip), in bytes or a text such as ``"1MB"``; a larger one
            gets 413.
        max_waiting: The most requests at a time; more get 503.
        max_staged: The most bytes that wait for the job, in bytes or a text; then requests get 503.
        max_connections: The most connections; more get 503. Fewer, with a warning, if the hard limit of open files is
            lower.
        max_rate: The most requests a second from one address; more get 429. None = no limit.
        trusted_proxies: The networks or addresses of proxies in front, such as ``"10.0.0.0/8"``: the address that the
            last of them names in ``X-Forwarded-For`` is the client's. None of them = the one that is connected.
        allowed_origins: The senders of CloudEvents that may ask by OPTIONS (``WebHook-Request-Origin``) whether they
            may send, such as ``"eventgrid.azure.net"``; ``"*"`` = all. None of them = OPTIONS gets 405.
        timeout: How long a connection may take for the TLS handshake and a request's headers, for its body, and
            between two requests. Time in which the receiver could not read does not count.
        max_requests_per_epoch: The most requests per epoch, or those of one write if they are more; None = all.
        folder: The folder of the log, on a disk that the driver and all executors share; None = in the checkpoint,
            which is on a local disk then.
        bounded: True: receive nothing, read the requests that are in the log, then stop. False: keep receiving.
        options: Options of a format of changes: ``key_fields``, ``wire``, ``flattened``, ``documents``,
            ``placeholder``, ``unrepresentable``, ``truncations``, ``source`` and ``unwrap``, as in
            ``{"key_fields": ["id"]}``; see `ChangeOptions`.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from volley import HmacAuth
        >>> WebhookSource(8080, "/github", schema="action string", auth=HmacAuth("github", "secret"))
        WebhookSource(path='/github', schema='action string', auth='***')
    """

    port: int = 8080
    path: str = "/events"
    schema: SchemaLike | None = None
    value_format: Literal["json", "cloudevents", "string", "raw"] | ChangeFormat = "json"
    include: Sequence[str] = ()
    header_columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    on_unknown: Policy = field(default="warn", metadata={"keys": Contract})
    on_bad: Literal["reject", "dead_letter"] = "reject"
    auth: Auth | None = None
    idempotency: str | None = None
    remember_keys: Duration = timedelta(days=7)
    host: str = "127.0.0.1"
    tls: ServerTls | None = None
    max_body: int | str = 1 << 20
    max_waiting: int = 10_000
    max_staged: int | str = 10 << 30
    max_connections: int = 10_000
    max_rate: int | None = None
    trusted_proxies: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    timeout: Duration = timedelta(seconds=30)
    max_requests_per_epoch: int | None = None
    folder: str | None = None
    bounded: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, metadata={"keys": ChangeOptions})

    def __post_init__(self) -> None:
        keep(self, port=port, path=settings.check_path, host=text, bounded=flag)
        formats = ("json", "cloudevents", "string", "raw", *CHANGES)
        keep(self, value_format=one_of(formats), options=mapping, on_unknown=on_unknown)
        keep(self, on_bad=one_of(("reject", "dead_letter")), header_columns=settings.check_headers)
        keep(self, idempotency=settings.check_idempotency, remember_keys=duration, timeout=duration)
        keep(self, max_body=size, max_staged=size, max_waiting=count, max_connections=count)
        keep(self, trusted_proxies=check_networks, allowed_origins=settings.check_origins)
        keep(self, max_rate=optional(count), max_requests_per_epoch=optional(count), folder=optional(path))
        keep(self, tls=optional(of_type(ServerTls, 'ServerTls("server.pem", "server.key")')))
        if not isinstance(self.auth, Auth | None):
            raise ConfigError("auth is of another type", hint=_AUTH_HINT)
        schema, policy = policy_of(self.schema, self.on_unknown, self.value_format)
        object.__setattr__(self, "on_unknown", policy)
        if self.schema != INFER:
            schema = value_schema(self._format, self.schema)
            object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "include", parts_of(self.include, settings.METADATA))
        added = [*check_options(self.value_format, schema, self.options, policy), *self._added]
        check_columns(self._format, schema, self.on_unknown, settings.UNKNOWN, added)
        contract = contract_of(self.on_unknown)
        settings.check_contract(contract, self.on_bad, () if schema is None else schema, self.value_format in CHANGES)
        if "key" in self.include and self.idempotency is None:
            raise ConfigError("include has the key, and requests have none", hint='idempotency="header:…"')
        if self.idempotency == "cloudevents" != self.value_format:
            raise ConfigError(
                f"idempotency='cloudevents', and bodies are {self.value_format!r}", hint='value_format="cloudevents"'
            )

    @property
    def _added(self) -> list[str]:
        return [*(f"http_{part}" for part in self.include), *self.header_columns]

    @property
    def identity(self) -> str:
        return f"http:{self.path}"

    def preview(self, context: SourceContext) -> pa.Schema | None:
        return self.declared()

    def declared(self) -> pa.Schema | None:
        contract = contract_of(self.on_unknown)
        return None if contract and contract.evolves else self._rows("").schema

    def probes(self) -> Sequence[Probe]:
        # Opening would make a log, and a receiver would take requests that no job reads.
        folder = self.folder
        probes = [] if self.bounded else [Probe("address", self._look)]
        return [*probes, *([] if folder is None else [Probe("log", lambda: write_and_delete(_local(folder), {}))])]

    def _look(self) -> str:
        from volley.connectors.webhook.listener import check_address

        check_address(self.host, self.port, self.tls)
        return f"{self.host}:{self.port} is free"

    def explain(self, context: SourceContext) -> str | None:
        return fate_of_unknown(self.on_unknown, settings.UNKNOWN) if self._format in ("json", *CHANGES) else None

    def open(self, context: SourceContext) -> Reader:
        from volley.connectors.webhook.log import LogFolder
        from volley.connectors.webhook.process import ReceiverProcess
        from volley.connectors.webhook.reader import WebhookReader, parse_offset
        from volley.formats.inferred import learn_first

        folder = LogFolder(_local(self.folder or f"{context.state}/log"))
        rows = self._rows(context.state)

        def first() -> bytes:
            return json.dumps({"log": folder.id, **asdict(folder.released)}).encode()

        reader = WebhookReader(
            folder=folder,
            rows=rows,
            schema=rows.schema,
            initial=read_or_create(f"{context.state}/initial-offset.json", INITIAL_OFFSET, first, parse_offset),
            parallelism=context.parallelism,
            limit=self.max_requests_per_epoch,
            name=self.path,
            receiver=None if self.bounded else ReceiverProcess(self._receiver(folder.path)),
        )
        if learn_first(reader, rows.inferred):
            rows = self._rows(context.state)
            reader = replace(reader, rows=rows, schema=rows.schema)
        reach(SCHEMA_POINT, len(rows.schema))
        return reader

    def payload_decoder(self, format: str, schema: pa.Schema) -> PayloadDecoder | None:
        if format != self._format or format != "json":
            return None
        if contract := contract_of(self.on_unknown):
            from volley.formats.decoders import payload_values

            return payload_values(schema, contract, self._added)
        return self._decoder(warns=True)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html

    @property
    def _format(self) -> str:
        """The format of events."""
        return "json" if self.value_format == "cloudevents" else self.value_format

    def _rows(self, state: str) -> MessageRows:
        from volley.connectors.webhook.reader import rows_of

        return rows_of(self._decoder(warns=True, state=state), self.include, list(self.header_columns))

    def _decoder(self, warns: bool, state: str = "") -> Decoder:
        """Return what decodes bodies; the tasks warn of unknown fields, the receiver does not look for them."""
        from volley.formats.decoders import decoder_of

        schema, policy = policy_of(self.schema, self.on_unknown)
        if not warns:
            contract = contract_of(policy)
            policy = contract.fixed if contract else "drop" if policy == "warn" else policy
        unknown = kept_in(policy, settings.UNKNOWN) or settings.UNKNOWN
        return decoder_of(self._format, schema, policy, unknown, self.options, state, self._added)

    def _receiver(self, folder: str) -> settings.ReceiverSettings:
        from volley.connectors.webhook.signatures import verifier

        # A key that is none fails here, not in the receiver's process.
        verifier(None if isinstance(self.auth, SnsAuth) else self.auth)
        checks_bodies = self.on_bad == "reject" and self.value_format != "raw"
        return settings.ReceiverSettings(
            folder=folder,
            host=self.host,
            port=self.port,
            path=self.path,
            auth=self.auth,
            tls=self.tls,
            idempotency=self.idempotency,
            headers=tuple(self.header_columns.values()),
            remember_keys=seconds("remember_keys", self.remember_keys),
            max_body=size("max_body", self.max_body),
            max_waiting=self.max_waiting,
            max_staged=size("max_staged", self.max_staged),
            max_connections=self.max_connections,
            max_rate=self.max_rate,
            timeout=seconds("timeout", self.timeout),
            decoder=self._decoder(warns=False) if checks_bodies else None,
            value_format=self.value_format,
            keeps_bad=self.on_bad == "dead_letter",
            keeps_client="client" in self.include,
            trusted_proxies=tuple(self.trusted_proxies),
            allowed_origins=tuple(self.allowed_origins),
        )


def _local(folder: str) -> str:
    """Return the folder's path.

    Raises:
        ConfigError: If it is not on a local disk, where a write can be forced to disk.
    """
    folder = absolute(folder)
    if "://" in folder:
        raise ConfigError(
            f"requests can't be kept in {folder}, which is no local disk", hint='folder="/var/lib/volley/events"'
        )
    return folder
