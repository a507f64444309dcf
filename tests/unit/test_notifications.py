"""New files by the messages of a queue: each once, under messages that come twice, late, in any order, or never."""

from __future__ import annotations

import base64
import http.server
import json
import pickle
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from volley import AzureQueue, ConfigError, FileSource, PubSubSubscription, Reader, SourceContext, SourceError, SqsQueue
from volley.connectors.files import inbox, listing
from volley.connectors.files.created import created_files
from volley.connectors.files.notifications import FileNotifications
from volley.connectors.files.queues import Message
from volley.contracts.rows import taken_notes

START = {"files": 0}


def s3_event(key: str, name: str = "ObjectCreated:Put", bucket: str = "lake") -> dict[str, Any]:
    """An event as S3 writes it, shortened."""
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventName": name,
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 10, "eTag": "d41d", "sequencer": "00"}},
    }


def s3_message(*keys: str, **more: str) -> str:
    return json.dumps({"Records": [s3_event(key, **more) for key in keys]})


GRID = {"id": "1", "subject": "/blobServices/default/containers/lake/blobs/in/a b.json", "data": {"contentLength": 9}}
GCS = {"bucketId": "lake", "objectId": "in/a b.json", "payloadFormat": "JSON_API_V1", "objectGeneration": "1"}
MESSAGES: dict[str, tuple[str, dict[str, str], list[str] | None]] = {
    "S3": (s3_message("in/day%3D1/a+b%C3%A4.json", "x"), {}, ["lake/in/day=1/a bä.json", "lake/x"]),
    "S3 deletes": (s3_message("in/a.json", name="ObjectRemoved:Delete"), {}, []),
    "S3 makes a folder": (s3_message("in/"), {}, []),
    "S3's test": (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}), {}, []),
    "S3 by SNS": (json.dumps({"Type": "Notification", "Message": s3_message("a%2Bb")}), {}, ["lake/a+b"]),
    "S3 by EventBridge": (
        json.dumps(
            {
                "source": "aws.s3",
                "detail-type": "Object Created",
                "detail": {"bucket": {"name": "lake"}, "object": {"key": "in/a+b%20c.json"}},
            }
        ),
        {},
        ["lake/in/a+b%20c.json"],
    ),
    "GCS": ("{}", {**GCS, "eventType": "OBJECT_FINALIZE"}, ["lake/in/a b.json"]),
    "GCS deletes": ("{}", {**GCS, "eventType": "OBJECT_DELETE"}, []),
    "Event Grid": (json.dumps([{**GRID, "eventType": "Microsoft.Storage.BlobCreated"}]), {}, ["lake/in/a b.json"]),
    "Event Grid as CloudEvent": (
        json.dumps({**GRID, "specversion": "1.0", "type": "Microsoft.Storage.BlobCreated"}),
        {},
        ["lake/in/a b.json"],
    ),
    "Event Grid deletes": (json.dumps({**GRID, "eventType": "Microsoft.Storage.BlobDeleted"}), {}, []),
    "none": ('{"id": 1}', {}, None),
    "no JSON": ("hello", {}, None),
    "no object": ("[1]", {}, None),
    "no attributes": ("{}", {"eventType": "OBJECT_FINALIZE"}, None),
    "half an event": ('{"Records": [{"eventName": "ObjectCreated:Put"}]}', {}, None),
}


@pytest.mark.parametrize("sender", MESSAGES)
def test_messages_of_storages(sender: str) -> None:
    body, attributes, paths = MESSAGES[sender]
    assert created_files(body, attributes) == paths


@dataclass
class Box:
    """A queue: messages come again until they are deleted."""

    waiting: list[Message] = field(default_factory=list)
    hidden: dict[str, Message] = field(default_factory=dict)
    received: int = 0

    def send(self, body: str) -> None:
        number = str(len(self.waiting) + len(self.hidden) + self.received * 1_000)
        self.waiting.append(Message(number, f"{number}@0", body))

    def receive(self) -> Sequence[Message]:
        taken, self.waiting = self.waiting[:10], self.waiting[10:]
        self.received += len(taken)
        self.hidden.update({message.id: message for message in taken})
        return taken

    def delete(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.hidden.pop(message.id, None)

    def show_again(self) -> None:
        """The time is over for which messages are hidden."""
        again = [Message(message.id, message.receipt + "+", message.body) for message in self.hidden.values()]
        self.waiting, self.hidden = again + self.waiting, {}


@dataclass(frozen=True)
class Told(FileNotifications):
    box: Box = field(compare=False)
    list_every: Any = SqsQueue("https://q/x").list_every

    def open(self) -> Any:
        return self.box


@pytest.fixture
def box() -> Box:
    return Box()


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listings of the storage."""
    made: list[str] = []
    find = MemoryFileSystem.find

    def counted(self: MemoryFileSystem, path: str, *arguments: Any, **options: Any) -> Any:
        made.append(path)
        return find(self, path, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, "find", counted)
    return made


@pytest.fixture
def lake() -> Iterator[MemoryFileSystem]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    taken_notes()
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def put(lake: MemoryFileSystem, number: int, name: str | None = None) -> str:
    """A file with one row; return its key in the bucket."""
    key = name or f"in/{number}.json"
    lake.pipe_file(f"/lake/{key}", json.dumps({"id": number}).encode())
    return key


def opened(box: Box, state: Path, path: str = "memory://lake/in", **settings: Any) -> Reader:
    source = FileSource(path, format="json", schema="id long", bounded=False, notifications=Told(box), **settings)
    reader = source.open(SourceContext(str(state)))
    reader.start()
    return reader


def follow(reader: Reader, offset: dict[str, int]) -> tuple[list[int], dict[str, int]]:
    """The rows since an offset, as the copy that Spark asks and executors return them, and the offset behind them."""
    end = pickle.loads(pickle.dumps(reader)).latest_offset(offset, None, None)
    executor = pickle.loads(pickle.dumps(reader.split_reader()))
    splits = reader.splits(offset, end)
    return [row["id"] for split in splits for batch in executor.read(split) for row in batch.to_pylist()], end


def test_files_come_by_messages_without_a_listing(
    box: Box, lake: MemoryFileSystem, listings: list[str], tmp_path: Path
) -> None:
    put(lake, 1)
    reader = opened(box, tmp_path)
    rows, offset = follow(reader, START)
    # The first time all files are listed: those that were there before the queue.
    assert (rows, len(listings)) == ([1], 1)
    reader.committed(offset)
    for number in (2, 3):
        box.send(s3_message(put(lake, number)))
    put(lake, 4)
    rows, end = follow(reader, offset)
    assert (rows, len(listings)) == ([2, 3], 1)
    # Messages are deleted when their epoch is committed, not before.
    assert len(box.hidden) == 2
    reader.committed(offset)
    assert len(box.hidden) == 2
    reader.committed(end)
    assert not box.hidden
    # Not even a restart lists.
    reader.stop()
    assert (follow(opened(box, tmp_path), end), len(listings)) == (([], end), 1)


def test_messages_twice_late_in_any_order_and_of_other_things(
    box: Box, lake: MemoryFileSystem, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(lake, 0)
    reader = opened(box, tmp_path, "memory://lake/in/*.json", exclude=["x*"])
    rows, offset = follow(reader, START)
    keys = [put(lake, number) for number in range(1, 40)]
    other = [put(lake, 99, name) for name in ("out/1.json", "in/_a.json", "in/a.tmp", "in/sub/1.json", "in/x1.json")]
    messages = [s3_message(key) for key in [*keys, *keys, *other, "in/gone.json"]]
    dice = random.Random(7)
    dice.shuffle(messages)
    messages.append("hello")
    for start in range(0, len(messages), 13):
        for message in messages[start : start + 13]:
            box.send(message)
        if dice.random() < 0.5:
            # An epoch takes longer than messages are hidden.
            box.show_again()
        more, offset = follow(reader, offset)
        rows += more
        if dice.random() < 0.5:
            reader.committed(offset)
        if dice.random() < 0.3:
            reader.stop()
            box.show_again()
            reader = opened(box, tmp_path, "memory://lake/in/*.json", exclude=["x*"])
    assert sorted(rows) == [*range(40)]
    assert all("in/" in message.body for message in box.hidden.values() if message.body != "hello")
    box.show_again()
    reader.committed(offset)
    assert follow(reader, offset) == ([], offset)
    # What is none of a storage's stays, and is told of; all others are done with.
    assert [message.body for message in box.hidden.values()] == ["hello"]
    assert "is none of a storage" in caplog.text


def test_a_listing_finds_what_no_message_told_of(
    box: Box, lake: MemoryFileSystem, listings: list[str], tmp_path: Path
) -> None:
    put(lake, 1)
    reader = opened(box, tmp_path)
    rows, offset = follow(reader, START)
    put(lake, 2)
    assert follow(reader, offset)[0] == []
    day = inbox.inbox_of(reader.log.folder)  # type: ignore[attr-defined]
    assert day is not None
    later = time.time() + 86_401
    day._now = lambda: later
    rows, offset = follow(reader, offset)
    assert (rows, len(listings)) == ([2], 2)
    assert follow(reader, offset) == ([], offset)
    assert len(listings) == 2
    # A late message of the same file changes nothing, and is done with.
    reader.committed(offset)
    box.send(s3_message("in/2.json"))
    assert follow(reader, offset) == ([], offset)
    assert not box.hidden


def test_a_queue_that_fails(box: Box, lake: MemoryFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lake, 1)
    reader = opened(box, tmp_path)
    _, offset = follow(reader, START)
    box.send(s3_message(put(lake, 2)))

    def fails(*_: object) -> Any:
        raise SourceError("no way", hint="wait")

    with monkeypatch.context() as context:
        context.setattr(Box, "receive", fails)
        with pytest.raises(SourceError):
            follow(reader, offset)
    with monkeypatch.context() as context:
        context.setattr(MemoryFileSystem, "info", lambda *_: fails())
        with pytest.raises(SourceError):
            follow(reader, offset)
    # The message was received, and comes again.
    box.show_again()
    rows, end = follow(reader, offset)
    assert rows == [2]
    with monkeypatch.context() as context:
        context.setattr(Box, "delete", fails)
        with pytest.raises(SourceError):
            reader.committed(end)
    reader.committed(end)
    assert not box.hidden


def test_many_messages_are_taken_part_by_part(
    box: Box, lake: MemoryFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "_MOST_MESSAGES", 20)
    put(lake, 0)
    reader = opened(box, tmp_path)
    _, offset = follow(reader, START)
    for number in range(1, 51):
        box.send(s3_message(put(lake, number)))
    counts = []
    for _ in range(4):
        rows, offset = follow(reader, offset)
        counts.append(len(rows))
    assert counts == [20, 20, 10, 0]


def test_a_queue_that_hides_nothing(
    box: Box, lake: MemoryFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Box, "receive", lambda self: self.waiting[:10])
    put(lake, 0)
    reader = opened(box, tmp_path)
    _, offset = follow(reader, START)
    box.send(s3_message(put(lake, 1)))
    assert follow(reader, offset)[0] == [1]


def test_a_run_that_is_not_started_lists(box: Box, lake: MemoryFileSystem, tmp_path: Path) -> None:
    put(lake, 1)
    source = FileSource("memory://lake/in", format="json", schema="id long", notifications=Told(box))
    box.send(s3_message("in/1.json"))
    reader = source.open(SourceContext(str(tmp_path)))
    assert follow(reader, START)[0] == [1]
    assert box.received == 0


def test_what_is_looked_up_is_what_is_listed(lake: MemoryFileSystem, tmp_path: Path) -> None:
    names = ["a.json", "b.csv", ".c.json", "d/e.json", "d/_f.json", "_g/h.json", "_i=1/j.json", "k.json.tmp"]
    for name in names:
        lake.pipe_file(f"/lake/in/{name}", b"{}")
    for path in ("in", "in/", "in/*.json", "in/**/*.json", "in/a.json", "in/d"):
        url = f"memory://lake/{path}"
        listed = listing.list_files(url, {}, exclude=["e*"])
        paths = [f"lake/in/{name}" for name in [*names, "gone.json"]]
        assert listing.look_up(url, {}, paths, ["e*"]) == listed, path
        assert listed or path == "in/d"


class PubSub(http.server.BaseHTTPRequestHandler):
    """The part of Pub/Sub's API that is used, with messages as it answers them."""

    asked: list[tuple[str, Any]]
    answers: list[tuple[int, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        status, answer = self.answers.pop(0)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def test_a_subscription_of_pub_sub() -> None:
    data = base64.b64encode(json.dumps({"kind": "storage#object", "name": "in/a.json"}).encode()).decode()
    message = {"data": data, "attributes": {**GCS, "eventType": "OBJECT_FINALIZE"}, "messageId": "7"}
    PubSub.asked = []
    PubSub.answers = [
        (200, {"receivedMessages": [{"ackId": "a7", "message": message}]}),
        (200, {}),
        (200, {}),
        (403, {}),
    ]
    server = http.server.HTTPServer(("127.0.0.1", 0), PubSub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        name = "projects/p/subscriptions/s"
        queue = PubSubSubscription(name, endpoint_url=f"http://127.0.0.1:{server.server_port}").open()
        (received,) = queue.receive()
        assert created_files(received.body, received.attributes) == ["lake/in/a b.json"]
        assert queue.receive() == []
        queue.delete([received])
        with pytest.raises(SourceError, match="projects/p/subscriptions/s can't be read: 403"):
            queue.receive()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [path.rpartition(":")[2] for path, _ in PubSub.asked] == ["pull", "pull", "acknowledge", "pull"]
    assert PubSub.asked[2] == ("/v1/projects/p/subscriptions/s:acknowledge", {"ackIds": ["a7"]})


class AzureStorage(http.server.BaseHTTPRequestHandler):
    """The part of the queue service of Azure that is used, with answers as its documentation has them."""

    asked: list[str]
    texts: list[str]

    def _answer(self, status: int, content: str) -> None:
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content.encode())))
        self.end_headers()
        self.wfile.write(content.encode())

    def do_GET(self) -> None:
        items = "".join(
            f"<QueueMessage><MessageId>{number}</MessageId><InsertionTime>Fri, 27 Nov 2026 21:04:30 GMT</InsertionTime>"
            f"<ExpirationTime>Fri, 04 Dec 2026 21:04:30 GMT</ExpirationTime><PopReceipt>r{number}</PopReceipt>"
            "<TimeNextVisible>Fri, 27 Nov 2026 21:06:30 GMT</TimeNextVisible><DequeueCount>1</DequeueCount>"
            f"<MessageText>{text}</MessageText></QueueMessage>"
            for number, text in enumerate(self.texts)
        )
        self.texts = type(self).texts = []
        self._answer(200, f'<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>{items}</QueueMessagesList>')

    def do_DELETE(self) -> None:
        # The second one was received again meanwhile: its receipt is none any more.
        missing = '<?xml version="1.0"?><Error><Code>MessageNotFound</Code><Message>x</Message></Error>'
        self._answer(404, missing) if "/1?" in self.path else self._answer(204, "")

    def log_message(self, *_: object) -> None:
        pass


def test_a_queue_of_azure() -> None:
    event = json.dumps({**GRID, "eventType": "Microsoft.Storage.BlobCreated"})
    AzureStorage.asked, AzureStorage.texts = [], [base64.b64encode(event.encode()).decode(), event, "no event"]
    server = http.server.HTTPServer(("127.0.0.1", 0), AzureStorage)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        key = base64.b64encode(b"hush-hush").decode()
        queue = AzureQueue(f"http://127.0.0.1:{server.server_port}/lake/new-files", account_key=key).open()
        received = queue.receive()
        paths = [created_files(message.body, message.attributes) for message in received]
        assert paths == [["lake/in/a b.json"], ["lake/in/a b.json"], None]
        assert queue.receive() == []
        queue.delete(received[:2])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert all("numofmessages=32" in asked and "visibilitytimeout=120" in asked for asked in AzureStorage.asked[:2])
    assert [asked.partition("&")[0] for asked in AzureStorage.asked[2:]] == [
        f"DELETE /lake/new-files/messages/{number}?popreceipt=r{number}" for number in range(2)
    ]


def test_wrong_queues() -> None:
    wrong: list[Any] = [
        lambda: SqsQueue("new-files"),
        lambda: SqsQueue("https://user:secret@q/x"),
        lambda: SqsQueue("https://q/x", list_every=0),
        lambda: SqsQueue("https://q/x", access_key_id="a"),
        lambda: PubSubSubscription("new-files"),
        lambda: FileSource("in/*.json", notifications="https://q/x"),  # type: ignore[arg-type]
    ]
    for make in wrong:
        with pytest.raises(ConfigError) as error:
            make()
        assert error.value.hint
        assert "secret@" not in str(error.value)
    assert "hush" not in repr(SqsQueue("https://q/x", access_key_id="hush", secret_access_key="hush"))
