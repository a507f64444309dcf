"""Clients of Kafka with Volley's settings: how they are made, what they report, whose errors become ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from volley.errors import ConfigError, MissingDependencyError, SourceError, VolleyError
from volley.secrets import redact, secrets_in

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["Client", "Reports", "check_properties"]

T = TypeVar("T")

_OURS = {
    "bootstrap.servers": "give them as bootstrap_servers",
    "group.id": "offsets live in the checkpoint, no consumer group is joined; publish_group shows them to monitoring",
    "enable.auto.commit": "offsets live in the checkpoint",
    "enable.auto.offset.store": "offsets live in the checkpoint",
    "auto.offset.reset": "say starting_offsets, and on_lost_offsets",
    "enable.partition.eof": "Volley needs it on",
    "isolation.level": "Volley reads what is committed, and nothing else",
    "enable.idempotence": "Volley needs it on",
    "transactional.id": "KafkaSink writes at least once, without transactions",
    "error_cb": "what it would be told is in Volley's errors",
}
_HEARD_SECONDS = 0.1
# A question to a broker that has gone away is only given up when its time is over, while others would know the answer.
_FIRST_TRY_SECONDS = 2.0
# Of the errors that our questions can meet: those that Kafka's protocol calls retriable (kafka.apache.org/protocol,
# "Error Codes"), and what the client says when a broker goes away that was asked (_NOENT: it knows of no leader).
_PASSING = frozenset(
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


def check_properties(properties: Mapping[str, Any]) -> None:
    """Raise ConfigError if there is a property that Volley sets itself."""
    for name in properties:
        if name in _OURS:
            raise ConfigError(f"the property {name!r} can't be set", hint=_OURS[name])


@dataclass
class Reports:
    """What a client has said about its connections; it tries on by itself, whatever it says.

    Args:
        last: The last thing it said.
        refused: True if the broker does not accept who we are: that does not mend itself.
        hear: Lets the client say what it has to say, for some seconds; one that is asked for messages says it then.
    """

    last: str = ""
    refused: bool = False
    hear: Callable[[float], object] = time.sleep

    def __call__(self, error: Any) -> None:
        self.refused |= error.code() in (error._AUTHENTICATION, error._SSL)
        if error.code() != error._ALL_BROKERS_DOWN or not self.last:
            self.last = error.str()


@dataclass(frozen=True)
class Client:
    """How to reach a cluster; travels to the executors.

    Args:
        bootstrap: The brokers to ask first.
        properties: The user's, for librdkafka.
        timeout: The longest to wait for an answer, in seconds.
        kind: The kind of errors to raise.
    """

    bootstrap: str
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    kind: type[VolleyError] = SourceError

    def consumer(
        self, reports: Reports, group: str = "volley", on_commit: Callable[[Any, Any], None] | None = None
    ) -> Any:
        """A consumer that is told which offsets to read; it joins no group.

        Args:
            reports: What it says about its connections.
            group: The group whose offsets it may commit.
            on_commit: Called with an error, or None, and the partitions of a commit that nobody waits for.

        Raises:
            ConfigError: If a property is wrong.
            MissingDependencyError: If confluent-kafka is not installed.
        """
        settings = {
            # Half a second of waiting for more is dear for an epoch, a millisecond of sleep between fetches is not.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 1,
            # What is fetched behind the end of a split is thrown away.
            "queued.min.messages": 20_000,
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
        return self._made("Consumer", reports, settings, fixed)

    def producer(self, reports: Reports) -> Any:
        """An idempotent producer: what it sends again for want of an answer is there once, and in order.

        Raises:
            ConfigError: If a property is wrong.
            MissingDependencyError: If confluent-kafka is not installed.
        """
        settings = {
            "compression.type": "lz4",
            "linger.ms": 20,
            "delivery.timeout.ms": round(self.timeout * 1000),
            "reconnect.backoff.max.ms": 1_000,
        }
        return self._made(
            "Producer", reports, settings, {"enable.idempotence": True, "delivery.report.only.error": True}
        )

    def admin(self, reports: Reports) -> Any:
        """What asks for topics and offsets.

        Raises:
            ConfigError: If a property is wrong.
            MissingDependencyError: If confluent-kafka is not installed.
        """
        made = self._made("admin.AdminClient", reports, {"reconnect.backoff.max.ms": 1_000}, {})
        reports.hear = made.poll
        return made

    def answer(self, ask: Callable[[float], T], reports: Reports, patience: float | None = None) -> T:
        """The answer to a question, asked again while what stands in its way passes: an election, a restart.

        Args:
            ask: Asks it, and waits for so many seconds; changes nothing.
            reports: What the client says.
            patience: The seconds after which it is not asked again; None = those of an answer.

        Raises:
            VolleyError: If there is none in time, the broker refuses, or answers with an error.
        """
        from confluent_kafka import KafkaException

        patience = self.timeout if patience is None else patience
        deadline = time.monotonic() + patience
        tries = count()

        def passes(error: BaseException) -> bool:
            reports.hear(0)
            return isinstance(error, KafkaException) and error.args[0].name() in _PASSING and not reports.refused

        def attempt() -> T:
            left = max(_HEARD_SECONDS, deadline - time.monotonic())
            return ask(min(left, _FIRST_TRY_SECONDS * 2 ** next(tries)))

        patient = Retrying(
            retry=retry_if_exception(passes),
            wait=wait_exponential(multiplier=0.05, max=1),
            stop=stop_after_delay(patience),
            reraise=True,
        )
        try:
            return patient(attempt)
        except KafkaException as error:
            raise self.failure(error.args[0], reports) from None

    def result(self, future: Future[T], reports: Reports, seconds: float) -> T:
        """What comes of a request within some seconds.

        Raises:
            VolleyError: If the broker refuses the connection.
            KafkaException: If nothing comes, or an error.
        """
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + seconds
        while not future.done():
            left = deadline - time.monotonic()
            wait([future], max(0, min(left, _HEARD_SECONDS)))
            reports.hear(0)
            if reports.refused:
                raise self.silence(reports)
            if left < 0:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return future.result()

    def failure(self, error: Any, reports: Reports) -> VolleyError:
        """What a broker or the client answered, as one of our errors."""
        if error.code() in (error._TRANSPORT, error._TIMED_OUT, error._ALL_BROKERS_DOWN):
            return self.silence(reports)
        mends = "check that all brokers run; timeout=… waits longer"
        return self.kind(
            f"Kafka at {self.bootstrap}: {self._hidden(error.str())}",
            hint=mends if error.name() in _PASSING else "the broker's log says more, if it refused",
        )

    def silence(self, reports: Reports) -> VolleyError:
        """The error that tells that the broker did not answer."""
        reports.hear(0)
        reason = self._hidden(reports.last)
        if reports.refused:
            return self.kind(
                f"Kafka at {self.bootstrap} refused the connection: {reason}",
                hint="check security.protocol, sasl.* and ssl.* in properties",
            )
        return self.kind(
            f"Kafka at {self.bootstrap} gave no answer within {self.timeout:g} s{reason and ': '}{reason}",
            hint="check bootstrap_servers and security.protocol, and that the broker runs; timeout=… waits longer",
        )

    def _made(self, name: str, reports: Reports, settings: Mapping[str, Any], fixed: Mapping[str, Any]) -> Any:
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError as error:
            raise MissingDependencyError(
                "Kafka needs confluent-kafka", hint='pip install "volley-stream[kafka]"'
            ) from error
        kind = confluent_kafka.admin.AdminClient if name.startswith("admin") else getattr(confluent_kafka, name)
        ours: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "error_cb": reports, "log_level": 0}
        try:
            return kind({**settings, **ours, **self.properties, **fixed})
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(
                f"Kafka's client refuses the properties: {self._hidden(_text(error))}",
                hint="their names are librdkafka's (CONFIGURATION.md), for example sasl.username; not Java's",
            ) from None

    def _hidden(self, text: str) -> str:
        return redact(text, secrets_in(self.properties))


def _text(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return str(told.str() if hasattr(told, "str") else told)
