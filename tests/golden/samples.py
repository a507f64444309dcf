"""A small sample of each format: what writes its files into an empty folder, and what is read from them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch
from uuid import UUID

import pyarrow as pa

from tests.windows.local import LocalStep, windows
from volley import (
    Contract,
    Environment,
    Epoch,
    FileSink,
    FileSource,
    MemorySource,
    Metrics,
    SinkContext,
    SourceContext,
    SourceError,
    StorageError,
    WebhookSource,
    count,
    sum_,
    tumbling,
)
from volley.capture.segments import Segments
from volley.capture.selection import TableName
from volley.connectors.files.inbox import Inbox, listed_of
from volley.connectors.files.listing import LoggedFile
from volley.connectors.files.log import FileLog
from volley.connectors.mariadb import origin
from volley.connectors.mariadb.known import KnownTable as LoggedKnown
from volley.connectors.mariadb.known import KnownTables as LoggedTables
from volley.connectors.mariadb.loads import Loads as StagedLoads
from volley.connectors.mariadb.tables import Table as LoggedTable
from volley.connectors.mariadb.types import TableColumn as LoggedColumn
from volley.connectors.postgres import slot
from volley.connectors.postgres.known import CapturedTable, CapturedTables
from volley.connectors.postgres.loads import Fence, Load, Loads
from volley.connectors.postgres.tables import StoredFile, Table
from volley.connectors.postgres.types import TableColumn
from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.keys import KeyStore, digest
from volley.connectors.webhook.log import Log, LogFolder
from volley.contracts.rows import Seen, SeenColumns
from volley.engine.binding import Binding
from volley.engine.checkpoint import Checkpoint
from volley.engine.joins import JoinedTables
from volley.engine.records import Landed
from volley.engine.runs import RunRecorder, runs_of
from volley.formats.inferred import Inferred
from volley.iceberg.route.known import KnownTable, KnownTables
from volley.iceberg.route.parking import Backlog, ParkedRows, ParkingWriter
from volley.metrics.figures import FinishedEpoch
from volley.metrics.status import JobStatus
from volley.plan.graph import JobGraph
from volley.spark.log import SparkLog
from volley.storage.remembered import Record
from volley.storage.state_formats import LISTED
from volley.task.joined_rows import read_index, read_list, read_pin

__all__ = ["SAMPLES", "Sample"]

QUERY = "2b6f8a5e-0000-4000-8000-000000000000"
ROWS = pa.record_batch({"k": ["a", "b", None], "n": [1, 2, 3]})


@dataclass(frozen=True)
class Sample:
    """A sample of some formats.

    Args:
        write: Writes files into an empty folder.
        read: Returns what such files say.
        exact: True if the files have the same bytes whenever they are written.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    exact: bool = True


def write_pipeline(folder: Path) -> None:
    binding = Binding(QUERY, ["files"], ["aggregate"], {"db.t": "1"})
    (folder / "offsets").mkdir()
    (folder / "offsets" / "0").write_text("v1\n{}\n{}")
    (folder / "volley").mkdir()
    Checkpoint(str(folder), "job")._write(binding)


def read_pipeline(folder: Path) -> object:
    (folder / "metadata").write_text('{"id":"' + QUERY + '"}')
    with patch.object(Binding, "of", return_value=Binding(None, ["files"], ["aggregate"], {})):
        return Checkpoint(str(folder), "job").bind(JobGraph.of([]), backfill=False, new_query=False)


def _sink(folder: Path) -> Any:
    return FileSink(folder / "out", format="json").open(SinkContext("job", ROWS.schema, Metrics()))


def write_sink(folder: Path) -> None:
    with patch("uuid.uuid4", return_value=UUID(int=7)):
        _sink(folder).commit(Epoch(QUERY, 3, "offsets"), [])


def read_sink(folder: Path) -> object:
    sink = _sink(folder)
    return sink.identity, sink.last_epoch(QUERY), sink.landed_offsets(Epoch(QUERY, 3))


def write_landed(folder: Path) -> None:
    write_sink(folder)
    (folder / "volley").mkdir()
    Landed(SparkLog(str(folder))).remember([_sink(folder)], QUERY)


def read_landed(folder: Path) -> object:
    landed, sink = Landed(SparkLog(str(folder))), _sink(folder)
    try:
        landed.check(sink, 2)
    except StorageError as error:
        return error.message.partition("had ")[2]
    return None


SCHEMA = pa.schema({"k": pa.string(), "i": pa.int64(), "at": pa.timestamp("us", "UTC")})
START = datetime(2026, 1, 1, tzinfo=UTC)


def _windows(folder: Path) -> LocalStep:
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by("k").window(tumbling("1m"), on="at")
    return windows(rows.aggregate(n=count(), total=sum_("i")), SCHEMA, folder)


def _events(*minutes: int) -> list[pa.RecordBatch]:
    rows = [{"k": f"k{minute % 2}", "i": minute, "at": START + timedelta(minutes=minute)} for minute in minutes]
    return [pa.RecordBatch.from_pylist(rows, SCHEMA)]


def write_windows(folder: Path) -> None:
    _windows(folder).epoch(0, [(0, _events(0, 1, 1))])


def read_windows(folder: Path) -> object:
    rows = _windows(folder).epoch(1, [(0, _events(1))], ends=True)
    return sorted(map(str, rows.to_pylist()))


def _first_rows(folder: Path) -> LocalStep:
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).deduplicate("i")
    return windows(rows, SCHEMA, folder)


def write_deduplicate(folder: Path) -> None:
    step = _first_rows(folder)
    for number, minutes in enumerate([range(100), range(3), range(100, 104), range(100, 101)]):
        step.epoch(number, [(0, _events(*minutes))])


def read_deduplicate(folder: Path) -> object:
    return sorted(_first_rows(folder).epoch(4, [(0, _events(*range(-2, 107)))])["i"].to_pylist())


def _joined(folder: Path) -> JoinedTables:
    tables = JoinedTables("job", str(folder / "joins"))
    table = MemorySource([{"id": 1, "name": "Ada"}, {"id": 2, "name": "Bob"}])
    tables.open([Environment().from_source(MemorySource([{"id": 1}])).join(table, on="id")._node])
    return tables


def write_join(folder: Path) -> None:
    _joined(folder).pin(0)


def read_join(folder: Path) -> object:
    _joined(folder).pin(0)
    (pin,) = folder.rglob("0.json")
    files = [file for path in pin.parent.glob("*.files") for file in read_list(str(path))]
    rows = [read_index(f"{pin.parent}/{file.name}").rows.to_pylist() for file in files]
    return read_pin(str(pin.parent), 0), rows


def write_inferred(folder: Path) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.json").write_text('{"k": "a", "n": 1}\n')
    read_inferred(folder)


def read_inferred(folder: Path) -> object:
    source = FileSource(folder / "in", format="json")
    return source.open(SourceContext(str(folder / "state"))).schema


_SEEN = [
    Seen(("id",), "long"),
    Seen(("address", "city"), "string"),
    Seen(("tags", None), "string"),
    Seen(("n",), "long"),
    Seen(("id",), "string"),
]


def _columns(folder: Path) -> Inferred:
    return Inferred(str(folder / "state"), pa.schema({"n": pa.int32()}), Contract(types="evolve"))


def write_seen(folder: Path) -> None:
    _columns(folder).learn([SeenColumns(str(folder / "state"), tuple(_SEEN))])


def read_seen(folder: Path) -> object:
    return _columns(folder).kept().schema


def write_file_log(folder: Path) -> None:
    log = FileLog(str(folder / "files"))
    log.append([LoggedFile("in/a.json", 3), LoggedFile("in/b.json", 4)])
    log.append([LoggedFile("in/c.json", 5)])


def read_file_log(folder: Path) -> object:
    return [(file.path, file.size) for file in FileLog(str(folder / "files")).files()]


def write_listed(folder: Path) -> None:
    _inbox(folder).note_listing()


def read_listed(folder: Path) -> object:
    inbox = _inbox(folder)
    return inbox.is_listing_due, inbox._listed


def _inbox(folder: Path) -> Inbox:
    record = Record(f"{folder}/listed.json", LISTED, listed_of)
    return Inbox(MagicMock(), 60.0, record, lambda: 1_700_000_000.0)


def write_merged_file_log(folder: Path) -> None:
    with patch("volley.connectors.files.log._FAN_IN", 2):
        log = FileLog(str(folder / "files"))
        for name in "abcde":
            log.append([LoggedFile(f"in/{name}.json", ord(name), 1.5)])


def read_merged_file_log(folder: Path) -> object:
    log = FileLog(str(folder / "files"))
    return [(file.path, file.size, file.modified) for file in log.files()], log.offset(3), log.offset(5)


def _captured() -> CapturedTable:
    columns = (TableColumn("id", 1, 23, -1, 0, False), TableColumn("total", 2, 1700, 655366, None, True))
    table = Table(TableName("public", "orders"), 77, columns, files=(StoredFile(77, 78, 900, False),), gone=(3,))
    return CapturedTable(table, frozenset({"old"}), (900, 901), (columns[0],))


def write_postgres(folder: Path) -> None:
    state = str(folder / "state")
    with patch("uuid.uuid4", return_value=UUID(int=7)):
        Loads(state).add(Load(0, 77, anew=True))
        Loads(state).begin(Loads(state).listed(), Fence(735, (731, 733), 5_000))
    tables = CapturedTables(state)
    tables.keep(_captured())
    slot.origin_record(state).write(asdict(slot.Origin(1, 2, 3)))


def write_merged_loads(folder: Path) -> None:
    loads = Loads(str(folder))
    with patch("volley.connectors.postgres.loads._FEW", 1):
        loads.add(Load(0, 77), Load(0, 78, replaced=76))
        loads.begin(loads.listed(), Fence(735, (731, 733), 5_000))
        loads.merge()


def read_merged_loads(folder: Path) -> object:
    loads = Loads(str(folder))
    return loads.listed(), {oid: (fence.xmax, fence.running) for oid, fence in loads.fences(2).items()}


def read_postgres(folder: Path) -> object:
    state = str(folder / "state")
    tables = CapturedTables(state)
    tables.read()
    fences = {oid: (fence.xmax, fence.running, fence.position) for oid, fence in Loads(state).fences(1).items()}
    return Loads(state).listed(), fences, tables[77], slot.origin_record(state).read()


def _logged() -> LoggedTable:
    columns = (
        LoggedColumn("id", "bigint", unsigned=True, key=0),
        LoggedColumn("kind", "enum", charset="utf8mb4", labels=("a", "b,c"), blank=True),
    )
    return LoggedTable(TableName("shop", "orders"), columns)


def write_mariadb(folder: Path) -> None:
    state, table = str(folder / "state"), _logged()
    loads = StagedLoads(state)
    with patch("uuid.uuid4", return_value=UUID(int=7)):
        loads.record([{"table": table.to_json(), "position": 5, "files": 1, "anew": True}])
    loads.write_file(table, 1, 0, iter([[(1, "a"), (2**64 - 1, None)]]), nulls=False)
    tables = LoggedTables(state)
    tables.keep(LoggedKnown(table, frozenset({"old"}), is_gone=True))
    origin.write_origin(state, origin.Origin("binlog.000001", 5, "0-1-2"))


def read_mariadb(folder: Path) -> object:
    state = str(folder / "state")
    loads, tables = StagedLoads(state), LoggedTables(state)
    tables.read()
    rows = [row for batch in loads.rows(1, 0) for row in batch.to_pylist()]
    return loads.listed(), loads.fences(1), rows, tables.numbered(), origin.origin_record(state).read()


def write_segment(folder: Path) -> None:
    segments = Segments(str(folder / "segments"))
    writer = segments.writer(segments.chain(100))
    writer.write(bytearray(b"onetwo"), array("i", [3, 3]))
    writer.write(bytearray(b"three"), array("i", [5]))
    writer.finish(200, 1.5)


def read_segment(folder: Path) -> object:
    segments = Segments(str(folder / "segments"))
    file = segments.opened(1)
    batches = [file.batch(number) for number in range(len(file))]
    messages = [message for batch in batches for message in batch.column("message").to_pylist()]
    return segments.chain(100), segments.last_commit(1), messages


def write_webhooks(folder: Path) -> None:
    (folder / "log").mkdir()
    with patch("uuid.uuid4", return_value=UUID(int=7)), patch("time.time_ns", return_value=7_000):
        log = LogFolder(str(folder / "log"))
        assert log.id
        writer = Log(log)
        writer.append([Entry(b"key", b"[]", b'{"id": 1}'), Entry(b"", b"", b"two")])
        writer.append([Entry(b"", b"", b"three")])
        writer.close()
        log.release(log.durable)
        log.failure.write(SourceError("the port is taken", hint="another port"))
        assert _hooks(folder).open(SourceContext(str(folder / "state"))).initial_offset()


def _hooks(folder: Path) -> WebhookSource:
    return WebhookSource(port=0, path="/", value_format="string", bounded=True, folder=str(folder / "log"))


def read_webhooks(folder: Path) -> object:
    log = LogFolder(str(folder / "log"))
    writer = Log(log)
    entries = [(entry, frame.head.time) for frame in writer.frames_from(0) for entry in frame.entries]
    writer.close()
    offset = _hooks(folder).open(SourceContext(str(folder / "state"))).initial_offset()
    return log.id, log.durable, str(log.failure.read()), entries, {name: offset[name] for name in ("log", "position")}


def write_keys(folder: Path) -> None:
    store = KeyStore(str(folder / "keys.sqlite"), remember=1e9)
    store.add([(digest(bytes([number])), digest(b"body")) for number in range(5)], indexed=70)
    store.close()


def read_keys(folder: Path) -> object:
    store = KeyStore(str(folder / "keys.sqlite"), remember=1e9)
    try:
        return store.indexed, [store.find(digest(bytes([number]))) for number in range(6)]
    finally:
        store.close()


def write_route(folder: Path) -> None:
    tables = KnownTables.load(str(folder))
    schema = ROWS.schema.serialize().to_pybytes()
    tables.tables["a"] = KnownTable(0, "a", ("db", "a"), str(UUID(int=7)), ("k",), schema, 4)
    tables.tables["b"] = KnownTable(1, "b", ("db", "b"))
    tables.save()
    Backlog(str(folder / "backlog"), QUERY).add(Epoch(QUERY, 3, "offsets"), [ParkedRows("parked.arrow", 3, schema)])


def read_route(folder: Path) -> object:
    epochs = Backlog(str(folder / "backlog"), QUERY).epochs
    parked = [(epoch, [(file.url, file.rows, file.arrow_schema) for file in files]) for epoch, files in epochs.items()]
    known = [
        (table.number, table.name, table.uuid, table.epoch) for table in KnownTables.load(str(folder)).tables.values()
    ]
    return known, parked


def write_parked(folder: Path) -> None:
    writer = ParkingWriter(f"{folder}/parked-")
    with patch("uuid.uuid4", return_value=UUID(int=7)):
        writer.write(ROWS)
        writer.write(ROWS.slice(1, 1))
        writer.close()


def read_parked(folder: Path) -> object:
    (path,) = folder.glob("parked-*")
    return [row for batch in ParkedRows(str(path), 4, b"").read() for row in batch.to_pylist()]


def write_runs(folder: Path) -> None:
    began = datetime(2026, 11, 1, tzinfo=UTC)
    status = JobStatus("orders", "failed", reason="no disk", began=began, epochs=1, rows=5)
    recorder = RunRecorder(f"{folder}/orders", lambda: "a-plan", lambda: status)
    recorder.add(FinishedEpoch(7, 5, 1, 2, 3_000, 0.5, ended=began, phases={"read": 0.25}))
    recorder.begin("orders")
    recorder.end(lambda: status)


def read_runs(folder: Path) -> object:
    (run,) = runs_of(f"{folder}/orders")
    return run.number, run.job, run.state, run.began, run.error, run.rows, run.plan, run.recent, run.recent[0].phases


SAMPLES = {
    "runs": Sample(write_runs, read_runs, exact=False),
    "pipeline": Sample(write_pipeline, read_pipeline),
    "landed": Sample(write_landed, read_landed),
    "file-sink": Sample(write_sink, read_sink),
    "windows": Sample(write_windows, read_windows, exact=False),
    "deduplicate": Sample(write_deduplicate, read_deduplicate, exact=False),
    "join": Sample(write_join, read_join, exact=False),
    "schema": Sample(write_inferred, read_inferred, exact=False),
    "inferred-schema": Sample(write_seen, read_seen),
    "file-log": Sample(write_file_log, read_file_log),
    "listed": Sample(write_listed, read_listed),
    "merged-file-log": Sample(write_merged_file_log, read_merged_file_log, exact=False),
    "merged-loads": Sample(write_merged_loads, read_merged_loads),
    "postgres": Sample(write_postgres, read_postgres),
    "mariadb": Sample(write_mariadb, read_mariadb, exact=False),
    "segment": Sample(write_segment, read_segment, exact=False),
    "webhooks": Sample(write_webhooks, read_webhooks),
    "keys": Sample(write_keys, read_keys, exact=False),
    "route": Sample(write_route, read_route),
    "parked": Sample(write_parked, read_parked, exact=False),
}
