"""The job that kill tests kill: files of S3, of which SQS tells, into a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.sinks import sink_of
from tests.waiting import wait_until
from volley import Environment, FileSource, Job, SqsQueue

__all__ = ["KEYS", "Bucket", "copy"]

KEYS = {"access_key_id": "id", "secret_access_key": "secret"}


class Bucket:
    """A bucket of moto that tells a queue of its files; the queue hides a received message for a second."""

    def __init__(self, uri: str, name: str) -> None:
        from botocore.session import get_session

        def client(service: str) -> Any:
            return get_session().create_client(
                service, "us-east-1", endpoint_url=uri, aws_access_key_id="id", aws_secret_access_key="secret"
            )

        self.uri = uri
        self.name = name
        self.s3, self.sqs = client("s3"), client("sqs")
        self.s3.create_bucket(Bucket=name)
        queue = self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "1"})
        self.queue: str = queue["QueueUrl"]

    def tell(self) -> None:
        """Let the bucket tell the queue of new files from now on."""
        asked = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])
        told = {"QueueArn": asked["Attributes"]["QueueArn"], "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        self.s3.put_bucket_notification_configuration(
            Bucket=self.name, NotificationConfiguration={"QueueConfigurations": [told]}
        )

    def put(self, number: int, key: str | None = None) -> None:
        """A file with one row."""
        self.s3.put_object(Bucket=self.name, Key=key or f"in/{number} a+b.json", Body=json.dumps({"id": number}))

    @property
    def messages(self) -> int:
        """The number of messages in the queue, none of which is hidden any more."""
        wait_until(lambda: self._count("ApproximateNumberOfMessagesNotVisible") == 0, 60, "the hidden messages")
        return self._count("ApproximateNumberOfMessages")

    def _count(self, name: str) -> int:
        asked = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=[name])
        return int(asked["Attributes"][name])


def copy(folder: Path, uri: str, bucket: str, queue: str) -> Job:
    """Write the files that are there, one an epoch."""
    source = FileSource(
        f"s3://{bucket}/in",
        format="json",
        schema="id long",
        max_files_per_epoch=1,
        notifications=SqsQueue(queue, "us-east-1", endpoint_url=uri, **KEYS),
        storage_options={"key": "id", "secret": "secret", "endpoint_url": uri},
    )
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    return environment.from_source(source).to_sink(sink_of(folder)).execute("copy")
