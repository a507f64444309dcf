"""Creates Kafka clients with Volley's settings, retries their requests, and translates their errors."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from volley.errors import ConfigError, MissingDependencyError, SourceError, VolleyError
from volley.secrets import redact, secrets_in

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["RIGHTS", "Client", "ConnectionErrors", "check_properties"]

T = TypeVar("T")

_OURS = {
    "bootstrap.servers": "give them as bootstrap_servers",
    "group.id": "no consumer group is joined; publish_group publishes the offsets of the checkpoint for monitoring",
    "enable.auto.commit": "offsets are in the checkpoint",
    "enable.auto.offset.store": "offsets are in the checkpoint",
    "auto.offset.reset": "use starting_offsets and on_lost_offsets",
    "enable.partition.eof": "Volley needs it on",
    "isolation.level": "Volley reads only committed messages",
    "enable.idempotence": "Volley needs it on",
    "transactional.id": "KafkaSink writes at least once, without transactions",
    "error_cb": "Volley's errors have what it would report",
}
_NO_PROPERTY = "volley.no.property"
_UNKNOWN = ("No such configuration property", "Java JAAS configuration is not supported")
_PLUGINS = "plugin.library.paths"
_POLL_SECONDS = 0.1
# How many messages are fetched ahead: of a small range, and at most.
_FEW, _MANY = 1_000, 20_000
# A message, compressed with others, in bytes: a guess, which only says in how many fetches a small range comes.
_WIRE_BYTES = 256
# A fetch of a small range, and of a large one, in bytes.
_SMALL_FETCH, _FETCH = 64 << 10, 1 << 20
# A request to a broker that is gone fails only after its timeout, although another broker could answer: start short.
_FIRST_TIMEOUT_SECONDS = 2.0
# A wrong address, port or security.protocol fails at once, and for ever; a broker that starts takes some seconds.
_FIRST_CONNECTION_SECONDS = 10.0
# Where each address refuses it at once, or has no name: shorter.
_REFUSED_SECONDS = 5.0
_AT_ONCE = ("Connection refused", "Failed to resolve", "No route to host", "Network is unreachable")
_UNANSWERED = "no connection is answered: is security.protocol that of the listener?"
# Of a broker with a number, and not of one that is only known by its address.
_BROKER = re.compile(r"(?:\w+://)?([^/\s]+:\d+)/\d+: ")
_UNAUTHORIZED = ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
RIGHTS = (
    "the user lacks a right: a source needs Describe and Read on its topics, and Read on the group of publish_group; a "
    "sink Describe and Write on its topic, and on brokers before 3.0 IdempotentWrite on the cluster"
)
"""What to do where a broker denies a request."""

# Errors of our requests that Kafka's protocol calls retriable (kafka.apache.org/protocol, "Error Codes"), and errors of
# the client when the broker of a request goes away (_NOENT: it has no leader).
_RETRIABLE = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NETWORK_EXCEPTION",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PART",
        "_ALL_BROKERS_DOWN",
        "_DESTROY_BROKER",
        "_NOENT",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_TRANSPORT",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "_WAIT_COORD",
    }
)


def check_properties(properties: Mapping[str, Any], client: Literal["Consumer", "Producer"] = "Consumer") -> None:
    """Raise ConfigError for a property that Volley sets itself, or whose value librdkafka does not allow.

    Unknown names, files, and what belongs together are checked by `Client`: this may be another machine than the job's,
    with another version of librdkafka.
    """
    for name in properties:
        if name in _OURS:
            raise ConfigError(f"the property {name!r} can't be set", hint=_OURS[name])
    # A plugin has properties of its own, and would be loaded.
    if not properties or _PLUGINS in properties:
        return
    try:
        library = _library()
    except MissingDependencyError:
        # Said when the client is created.
        return
    for name, value in properties.items():
        try:
            # Properties are set one after the other: where the last one is refused, no client is created.
            getattr(library, client)({"group.id": "volley", name: value, _NO_PROPERTY: ""})
        except _refusals(library) as error:
            if not any(unknown in _text(error) for unknown in _UNKNOWN):
                raise _refused(properties, _text(error)) from None


@dataclass
class ConnectionErrors:
    """Collects a client's connection errors; librdkafka keeps retrying regardless."""

    last: str = ""
    at_once: bool = True  # True if no connection came as far as a broker: each was refused at once
    refused: bool = False  # True if the broker rejects the client's credentials or certificate: a retry does not help
    # Polls the client for some seconds, so that its error callback runs; a consumer also runs it when it fetches
    # messages.
    poll: Callable[[float], object] = time.sleep

    def __call__(self, error: Any) -> None:
        self.refused |= error.code() in (error._AUTHENTICATION, error._SSL)
        # All brokers are down also where each closes its connections, of which no other error tells.
        if error.code() != error._ALL_BROKERS_DOWN:
            self.last = error.str()
            self.at_once &= any(text in self.last for text in _AT_ONCE)
        self.last = self.last or _UNANSWERED

    def forget(self) -> None:
        """Forget the errors up to now."""
        self.last, self.at_once, self.refused = "", True, False


@dataclass(frozen=True)
class Client:
    """Creates clients of a cluster; picklable."""

    bootstrap: str  # the bootstrap servers, separated by commas
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout: float = 60.0  # the timeout of a request, retries included, in seconds
    error_type: type[VolleyError] = SourceError

    def __post_init__(self) -> None:
        # The first of many places that need it.
        _library()

    def consumer(
        self,
        errors: ConnectionErrors,
        largest: int = 0,
        group: str = "volley",
        on_commit: Callable[[Any, Any], None] | None = None,
    ) -> Any:
        """Return a consumer for assigned partitions; it joins no group.

        Args:
            largest: The number of offsets in the largest range to read.
            on_commit: Called with an error (or None) and the partitions when an asynchronous commit is done.
        """
        settings = {
            # All of a range is there when it is planned. A broker that waits for more than that delays the first fetch
            # of the next range.
            "fetch.wait.max.ms": 1,
            "fetch.queue.backoff.ms": 1,
            # Messages that are fetched beyond the end of a range are thrown away, which costs half of reading them.
            "queued.min.messages": min(max(largest // 32, min(largest, _FEW), 1), _MANY),
            "fetch.message.max.bytes": min(max(largest * _WIRE_BYTES, _SMALL_FETCH), _FETCH),
            "reconnect.backoff.max.ms": 1_000,
        }
        fixed = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **({"on_commit": on_commit} if on_commit else {}),
        }
        return self._create("Consumer", errors, settings, fixed)

    def producer(self, errors: ConnectionErrors) -> Any:
        """Return an idempotent producer: its retries neither duplicate nor reorder messages."""
        settings = {
            "compression.type": "lz4",
            "linger.ms": 20,
            "delivery.timeout.ms": round(self.timeout * 1000),
            "reconnect.backoff.max.ms": 1_000,
        }
        return self._create(
            "Producer", errors, settings, {"enable.idempotence": True, "delivery.report.only.error": True}
        )

    def admin(self, errors: ConnectionErrors) -> Any:
        """Return an admin client, for topics and offsets."""
        admin = self._create("admin.AdminClient", errors, {"reconnect.backoff.max.ms": 1_000}, {})
        errors.poll = admin.poll
        return admin

    def first_call(self, request: Callable[[float], T], errors: ConnectionErrors) -> T:
        """Return the result of the first request of a new job, as `call` does; soon fail if no connection is made."""
        began = time.monotonic()

        def remaining() -> float:
            limit = _REFUSED_SECONDS if errors.last and errors.at_once else _FIRST_CONNECTION_SECONDS
            return limit - (time.monotonic() - began)

        def attempt(seconds: float) -> T:
            try:
                return request(min(seconds, max(_POLL_SECONDS, remaining())))
            except Exception:
                errors.poll(0)
                waited = time.monotonic() - began
                if errors.last and remaining() <= _POLL_SECONDS and waited < self.timeout:
                    raise self.timeout_error(errors, waited) from None
                raise

        return self.call(attempt, errors)

    def call(self, request: Callable[[float], T], errors: ConnectionErrors, timeout: float | None = None) -> T:
        """Return the result of a request; retry transient errors such as an election or a broker's restart.

        Args:
            request: Sends the request with a timeout in seconds; must be free of side effects.
            timeout: The seconds after which no retry starts; None = the client's timeout.

        Raises:
            VolleyError: If the timeout passes, the broker refuses the connection, or responds with an error.
        """
        from confluent_kafka import KafkaException
        from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

        timeout = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        attempts = count()

        def is_retriable(error: BaseException) -> bool:
            errors.poll(0)
            return isinstance(error, KafkaException) and error.args[0].name() in _RETRIABLE and not errors.refused

        def attempt() -> T:
            remaining = max(_POLL_SECONDS, deadline - time.monotonic())
            return request(min(remaining, _FIRST_TIMEOUT_SECONDS * 2 ** next(attempts)))

        retry = Retrying(
            retry=retry_if_exception(is_retriable),
            wait=wait_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(timeout),
            reraise=True,
        )
        try:
            return retry(attempt)
        except KafkaException as error:
            raise self.error_of(error.args[0], errors) from None

    def result(self, future: Future[T], errors: ConnectionErrors, seconds: float) -> T:
        """Wait some seconds for the result of a request, and return it.

        Raises:
            VolleyError: If the broker refuses the connection.
            KafkaException: If the request fails or times out.
        """
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + seconds
        while not future.done():
            remaining = deadline - time.monotonic()
            wait([future], max(0, min(remaining, _POLL_SECONDS)))
            errors.poll(0)
            if errors.refused:
                raise self.timeout_error(errors)
            if remaining < 0:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return future.result()

    def error_of(self, error: Any, errors: ConnectionErrors) -> VolleyError:
        """Translate an error of a broker or of the client."""
        if error.code() in (error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN):
            return self.timeout_error(errors)
        hint = "the broker's log says more, if it refused"
        if error.name() in _RETRIABLE:
            hint = "check that all brokers run; timeout=… waits longer"
        elif error.name() in _UNAUTHORIZED:
            hint = RIGHTS
        return self.error_type(f"Kafka at {self.bootstrap}: {self._redacted(error.str())}", hint=hint)

    def timeout_error(self, errors: ConnectionErrors, waited: float | None = None) -> VolleyError:
        """Return the error for a broker that did not respond, or refused the connection.

        Args:
            waited: For how many seconds it was tried; None = the timeout.
        """
        errors.poll(0)
        reason = self._redacted(errors.last)
        if errors.refused:
            return self.error_type(
                f"Kafka at {self.bootstrap} refused the connection: {reason}",
                hint="check security.protocol, sasl.* and ssl.* in properties",
            )
        hint = self._told_elsewhere(reason) or "check bootstrap_servers and security.protocol, and that the broker runs"
        return self.error_type(
            f"Kafka at {self.bootstrap} gave no answer within {waited or self.timeout:.3g} s{reason and ': '}{reason}",
            hint=hint + ("; timeout=… waits longer" if waited is None else ""),
        )

    def _told_elsewhere(self, reason: str) -> str:
        """Return a hint if a connection failed to an address that a broker has told; else an empty text."""
        told = _BROKER.match(reason)
        if told is None or told[1] in self.bootstrap.split(","):
            return ""
        return f"the brokers send clients to {told[1]} (advertised.listeners), which can't be reached from here"

    def _create(
        self, name: str, errors: ConnectionErrors, settings: Mapping[str, Any], fixed: Mapping[str, Any]
    ) -> Any:
        library = _library()
        client_type = library.admin.AdminClient if name.startswith("admin") else getattr(library, name)
        ours: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "error_cb": errors, "log_level": 0}
        try:
            return client_type({**settings, **ours, **self.properties, **fixed})
        except _refusals(library) as error:
            raise _refused(self.properties, _text(error)) from None

    def _redacted(self, text: str) -> str:
        return redact(text, secrets_in(self.properties))


def _refusals(library: Any) -> tuple[type[Exception], ...]:
    return library.KafkaException, TypeError, ValueError


def _refused(properties: Mapping[str, Any], reason: str) -> ConfigError:
    return ConfigError(
        f"Kafka's client refuses the properties: {redact(reason, secrets_in(properties))}",
        hint="names and values are librdkafka's (CONFIGURATION.md), for example sasl.username; not Java's",
    )


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return str(reason.str() if hasattr(reason, "str") else reason).strip()


def _library() -> Any:
    """Return the module confluent_kafka."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise MissingDependencyError(
            "Kafka needs confluent-kafka", hint='pip install "volley-stream[kafka]"'
        ) from error
    return confluent_kafka
