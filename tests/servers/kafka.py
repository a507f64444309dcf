"""Kafka 4.1.1, a process a broker: listeners without SASL, with it, over TLS; brokers can be killed and come again."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.servers.certificates import self_signed
from tests.servers.downloads import class_path, jars, java
from tests.servers.process import ServerProcess, free_ports

_ARTIFACTS = ("org.apache.kafka:kafka_2.13:4.1.1", "org.slf4j:slf4j-simple:1.7.36")
_PROPERTIES = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAIN://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAIN://127.0.0.1:{plain},SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={login}
listener.name.tls.plain.sasl.jaas.config={login}
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={keystore}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:volley
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
metadata.max.idle.interval.ms=0
"""

_LOGIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}" user_guest="{password}";'
)

Message = Mapping[str, Any]
"""What `Producer.produce` takes beside the topic: value, key, partition, headers, timestamp."""


class Kafka:
    """A cluster, by default of one broker, and what a test does to its topics, of which each broker has a copy.

    Args:
        folder: Where it keeps its data and its logs.
        size: How many brokers it has.
    """

    user = "volley"
    guest = "guest"
    """A user with the same password, and without any right."""
    password = "k4fka-s3cret"

    def __init__(self, folder: Path, size: int = 1) -> None:
        self._size, self.certificate = size, self_signed(folder)
        keystore = folder / "keystore.pem"
        keystore.write_bytes(self.certificate.key_file.read_bytes() + self.certificate.file.read_bytes())
        listeners = ("plain", "sasl", "tls", "controller")
        free = iter(free_ports(len(listeners) * size))
        ports = {name: list(islice(free, size)) for name in listeners}
        self.bootstrap, self.sasl_bootstrap, self.tls_bootstrap, _ = (
            ",".join(f"127.0.0.1:{port}" for port in ports[name]) for name in listeners
        )
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(ports["controller"], 1))
        login = _LOGIN.format(user=self.user, password=self.password)
        common = {"keystore": keystore, "login": login, "voters": voters, "copies": size}
        home = jars("kafka-4.1.1", *_ARTIFACTS)
        run = [java(), "-Xmx384m", "-XX:+UseSerialGC", "-cp", class_path(home)]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.brokers: dict[int, ServerProcess] = {}
        for node, own in enumerate(zip(*ports.values(), strict=True), 1):
            settings = folder / f"broker-{node}.properties"
            mine = {"node": node, "data": folder / f"data-{node}", **dict(zip(listeners, own, strict=True))}
            settings.write_text(_PROPERTIES.format(**common, **mine))
            # With "=", since it may begin with "-".
            format_ = [*run, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(settings)]
            done = subprocess.run(format_, capture_output=True, text=True)
            if done.returncode:
                pytest.fail(f"Kafka's storage can't be formatted: {done.stderr[-2000:]}")
            command = [*run, "kafka.Kafka", str(settings)]
            self.brokers[node] = ServerProcess(f"Kafka {node}", command, folder / f"log-{node}")

    def start(self) -> Kafka:
        """Start the brokers that do not run; together, since one alone waits for most of them."""
        with ThreadPoolExecutor(self._size) as pool:
            list(pool.map(lambda broker: broker.start(broker.says("Kafka Server started")), self.brokers.values()))
        return self

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def leader(self, topic: str) -> ServerProcess:
        """The broker that leads a topic's partition 0."""
        return self.brokers[self.admin.list_topics(timeout=30).topics[topic].partitions[0].leader]

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Make a topic; by default one of this test's own."""
        from confluent_kafka.admin import NewTopic

        name = name or f"t{uuid.uuid4().hex}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self._done(self.admin.create_topics([NewTopic(name, partitions, self._size, config=settings)]))
        self._wait_for_partitions(name, partitions)
        return name

    def allow(self, topic: str, right: str) -> None:
        """Give the guest a right on a topic, such as ``"READ"``."""
        from confluent_kafka import admin

        who = (admin.ResourceType.TOPIC, topic, admin.ResourcePatternType.LITERAL, f"User:{self.guest}", "*")
        allowed = admin.AclBinding(*who, admin.AclOperation[right], admin.AclPermissionType.ALLOW)
        self._done(self.admin.create_acls([allowed]))

    def delete_topic(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))
        self._wait_for_partitions(topic, 0)

    def add_partitions(self, topic: str, count: int) -> None:
        """Let the topic have `count` partitions in all."""
        from confluent_kafka.admin import NewPartitions

        self._done(self.admin.create_partitions([NewPartitions(topic, count)]))
        self._wait_for_partitions(topic, count)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does."""
        from confluent_kafka import TopicPartition

        self._done(self.admin.delete_records([TopicPartition(topic, partition, offset)]))

    def produce(self, topic: str, messages: Iterable[Message], **properties: object) -> None:
        """Send messages, and wait until the broker has them."""
        producer = self.producer(**properties)
        for number, message in enumerate(messages):
            producer.produce(topic, **{"partition": 0, **message})
            if number % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, messages: Sequence[Message], *, commit: bool = True) -> None:
        """Send messages to partition 0 in one transaction."""
        producer = self.producer(**{"transactional.id": uuid.uuid4().hex})
        producer.init_transactions(30)
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, partition=0, **message)
        assert producer.flush(30) == 0
        self.end_transaction(producer, topic, commit=commit)

    def end_transaction(self, producer: Any, topic: str, *, commit: bool = True) -> None:
        """End the topic's only open transaction, and wait until readers see that."""
        from confluent_kafka import IsolationLevel

        written = self._end(topic, IsolationLevel.READ_UNCOMMITTED)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        # The mark of its end takes an offset of its own.
        self._wait(lambda: self._end(topic, IsolationLevel.READ_COMMITTED) > written)

    def compacted(self, topic: str) -> list[int]:
        """The offsets that a topic has left when the cleaner has been there: one of each key."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # A segment is closed by the message behind it, and only closed ones are cleaned.
            self.produce(topic, [{"key": "behind", "value": "{}"}])
            left = [message for message in self.messages(topic) if message.key() != b"behind"]
            if len({message.key() for message in left}) == len(left):
                return [message.offset() for message in left]
        pytest.fail("the cleaner did not come")

    def messages(self, topic: str) -> list[Any]:
        """All messages of a topic, partition by partition, read by a plain consumer."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": self.bootstrap, "group.id": "test", "enable.partition.eof": True}
        reader = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        found = []
        for partition in reader.list_topics(topic).topics[topic].partitions:
            reader.assign([TopicPartition(topic, partition, 0)])
            while (message := reader.poll(30)) is not None and message.error() is None:
                found.append(message)
        reader.close()
        return found

    def producer(self, **properties: object) -> Any:
        from confluent_kafka import Producer

        defaults = {"bootstrap.servers": self.bootstrap, "log_level": 0, "queue.buffering.max.messages": 2_000_000}
        return Producer({**defaults, **properties})

    @cached_property
    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        """Wait until the broker tells of a topic with `count` partitions; 0 = of none of this name."""

        def told() -> int:
            found = self.admin.list_topics(timeout=30).topics.get(topic)
            return 0 if found is None else len(found.partitions)

        self._wait(lambda: told() == count)

    @staticmethod
    def _wait(shows: Callable[[], bool]) -> None:
        """Wait until a change shows: the broker answers milliseconds before."""
        deadline = time.monotonic() + 30
        while not shows():
            if time.monotonic() > deadline:
                pytest.fail("Kafka has acknowledged a change that does not show")

    def _end(self, topic: str, level: Any) -> int:
        """The offset behind the last message of partition 0."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
        (future,) = self.admin.list_offsets(asked, isolation_level=level).values()
        return int(future.result(30).offset)

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(30)
