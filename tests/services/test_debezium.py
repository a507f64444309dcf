"""Debezium beside real databases: what it writes becomes the database's rows, also when it is killed in between."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.servers.apicurio import Apicurio
from tests.servers.debezium import Debezium, avro_by, of_mariadb, of_postgres
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.postgres import Postgres
from tests.sinks import config_of
from tests.tiers import nightly
from tests.waiting import wait_until
from volley import (
    Environment,
    FileSource,
    History,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    KafkaSource,
    Source,
    Upsert,
)

WIRE = {"price": "Decimal", "at": "MicroTimestamp"}
CHANGES = (
    "update t set price = price + 1 where id < 4",
    "delete from t where id = 2",
    "insert into t values (9, 'new', null, null)",
    "update t set id = 20, name = 'key' where id = 5",
    "update t set name = 'last' where id = 3; update t set at = '2026-03-29 01:30:00.123456' where id = 20",
)
COLUMNS = ("id", "name", "price", "at")


@pytest.mark.parametrize(
    ("has_schemas", "in_order", "flattened"),
    [(True, True, False), (False, False, False), (False, True, True), (True, True, True)],
    ids=["in order", "by sequence", "flattened", "flattened with schemas"],
)
def test_the_table_has_the_rows_of_the_database(
    postgres: Postgres, tmp_path: Path, has_schemas: bool, in_order: bool, flattened: bool
) -> None:
    """Heartbeats and the ends of transactions stand among the rows."""
    uri = postgres.database()
    settings = {
        "value.converter.schemas.enable": str(has_schemas).lower(),
        **{"heartbeat.interval.ms": "100", "provide.transaction.metadata": "true"},
        **(flattening("rewrite") if flattened else {}),
    }
    debezium = Debezium(empty(tmp_path / "debezium"), of_postgres(uri), settings)
    marks = b'snapshot":"last"', b"1774747800123456"
    expected = captured(uri, debezium, None, *marks)
    source = FileSource(
        debezium.lines,
        format="debezium",
        schema="id long, name string, price decimal(10,2), at timestamp_ntz",
        options={"key_fields": ["id"], "flattened": flattened, **({} if has_schemas else {"wire": WIRE})},
    )
    written = debezium.lines.read_bytes()
    assert all(name in written for name in (b'"data_collections"', b'"status":"END"'))
    assert any(b"Heartbeat" in line or line.startswith(b'{"ts_ms"') for line in written.splitlines())
    assert rows(source, tmp_path, COLUMNS, in_order) == expected


def flattening(deletions: str, *added: str) -> dict[str, str]:
    unwrap = {
        "type": "io.debezium.transforms.ExtractNewRecordState",
        "delete.tombstone.handling.mode": deletions,
        "add.fields": ",".join(["op", "source.sequence", "source.snapshot", *added]),
    }
    return {"transforms": "unwrap", **{f"transforms.unwrap.{name}": value for name, value in unwrap.items()}}


@pytest.mark.parametrize("deletions", [None, "rewrite", "tombstone", "delete-to-tombstone"])
def test_avro_by_a_registry_needs_no_schema(
    postgres: Postgres, kafka: Kafka, apicurio: Apicurio, tmp_path: Path, deletions: str | None
) -> None:
    """Large values that are not sent again keep what is stored; deletions may be told by the keys of records alone."""
    flattened = deletions is not None
    uri = postgres.database()
    prefix = uri.rpartition("/")[2]
    topic = kafka.topic(3, name=f"{prefix}.public.t")
    settings = {"brokers": kafka.bootstrap, "topic.prefix": prefix, **avro_by(apicurio)}
    if flattened:
        settings |= flattening(str(deletions))
    debezium = Debezium(empty(tmp_path / "debezium"), of_postgres(uri), settings)

    def has(written: bytes) -> bool:
        return any(written in (message.value() or b"") for message in kafka.messages(topic))

    expected = captured(uri, debezium, has, b"\x08last", b"\x80\xe1\x89\xc3\xf5\x87\xa7\x06")
    source = KafkaSource(
        kafka.bootstrap,
        topic,
        value_format="debezium",
        registry=apicurio.uri,
        bounded=True,
        options={
            **{"key_fields": ["id"], "flattened": flattened},
            **({"tombstones": "delete"} if flattened and deletions != "rewrite" else {}),
        },
    )
    # Of one key, a topic is in order.
    assert rows(source, tmp_path, COLUMNS, in_order=flattened) == expected


def captured(
    uri: str, debezium: Debezium, has: Callable[[bytes], bool] | None, snapshot: bytes, last: bytes
) -> list[tuple[Any, ...]]:
    """Change a table while Debezium captures it, is killed and started again; return the rows at the end.

    Args:
        has: Whether something was written; None = look into the file of lines.
        snapshot: What is written at the end of the snapshot.
        last: What is written at the end.
    """
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text("create table t (id bigint primary key, name text, price numeric(10,2), at timestamp)"))
        # Random digits of 20 kB are stored out of line: an update that leaves them alone does not send them.
        large = "(select string_agg(md5(random()::text), '') from generate_series(1, 640) where g > 0)"
        connection.execute(text(f"insert into t select g, {large}, g + 0.5, now() from generate_series(1, 8) g"))
    debezium.start()
    try:
        debezium.wait_for(snapshot, has)
        for number, change in enumerate(CHANGES):
            with engine.begin() as connection:
                connection.execute(text(change))
            if number == 2:
                # One that dies before begins again with a snapshot, and tells nothing of rows that are gone by then.
                wait_until(debezium.has_streamed, 120, "Debezium has noted that the snapshot is done")
                debezium.kill()
                debezium.start()
        debezium.wait_for(last, has)
    finally:
        debezium.kill()
    expected = of_postgres_table(engine)
    engine.dispose()
    assert {len(name) for _, name, _, _ in expected} == {3, 4, 20480}
    assert (expected[0][2], expected[-1][0]) == (Decimal("2.50"), 20)
    return expected


@pytest.mark.parametrize("identity", ["default", "full"])
def test_large_values_that_no_update_touches(postgres: Postgres, tmp_path: Path, identity: str) -> None:
    """They are not sent, but for the full identity: then each version of a row is whole, in a history too."""
    uri = postgres.database()
    engine = create_engine(uri)
    run = partial(in_one_transaction, engine)
    run("create table t (id bigint primary key, n int, note text, raw bytea, tags text[], doc jsonb)")
    run(f"alter table t replica identity {identity}")
    # Random digits of 20 kB are stored out of line.
    large = "(select string_agg(md5(random()::text), '') v from generate_series(1, 640) where g > 0)"
    columns = "v, decode(v, 'hex'), array[v, null, 'x'], jsonb_build_object('k', v)"
    run(f"insert into t select g, 0, {columns} from generate_series(1, 4) g, lateral {large} l")
    debezium = Debezium(empty(tmp_path / "debezium"), of_postgres(uri), {}).start()
    try:
        debezium.wait_for(b'snapshot":"last"')
        run("update t set n = 1 where id <= 3", "update t set n = 2, note = 'short' where id = 2")
        run("update t set n = 3 where id = 2", "update t set tags = null, doc = null where id = 3")
        run(
            "update t set n = 4 where id = 3", "delete from t where id = 4", "insert into t values (9, 9, 'last', null)"
        )
        debezium.wait_for(b'"note":"last"')
    finally:
        debezium.kill()
    has_placeholders = b"__debezium_unavailable_value" in debezium.lines.read_bytes()
    assert has_placeholders == (identity == "default")
    source = FileSource(
        debezium.lines,
        format="debezium",
        schema="id long, n int, note string, raw binary, tags array<string>, doc string",
        options={"key_fields": ["id"]},
    )
    with engine.connect() as connection:
        stored = connection.execute(text("select id, n, note, raw, tags, doc::text from t order by id")).fetchall()
    engine.dispose()
    expected = [(*row[:3], None if row[3] is None else bytes(row[3]), *row[4:]) for row in stored]
    names = ["id", "n", "note", "raw", "tags", "doc"]
    assert rows(source, empty(tmp_path / "sequence"), names) == expected
    assert rows(source, empty(tmp_path / "arrival"), names, in_order=True) == expected
    if identity == "full":
        table = IcebergSinkConfig(namespace="db", table="h", storage=IcebergStorage.Local(f"{tmp_path}/lake"))
        stream = Environment("local[2]", checkpoint_dir=f"{tmp_path}/checkpoints").from_source(source)
        stream.to_sink(IcebergSink(table.with_commit_mode(History()))).execute("h")
        versions = table.ref.load().scan().to_arrow().sort_by([("id", "ascending"), ("valid_from", "ascending")])
        made = [(row["id"], row["n"], len(row["note"]), len(row["tags"] or ())) for row in versions.to_pylist()]
        assert made == [
            *((1, 0, 20480, 3), (1, 1, 20480, 3), (2, 0, 20480, 3), (2, 1, 20480, 3), (2, 2, 5, 3), (2, 3, 5, 3)),
            *((3, 0, 20480, 3), (3, 1, 20480, 3), (3, 1, 20480, 0), (3, 4, 20480, 0), (4, 0, 20480, 3), (9, 9, 4, 0)),
        ]
        current = [tuple(row[name] for name in names) for row in versions.to_pylist() if row["is_current"]]
        assert current == expected


def test_an_incremental_snapshot_while_its_rows_change(postgres: Postgres, tmp_path: Path) -> None:
    """Its rows come among the changes of the same keys, window by window."""
    uri = postgres.database()
    engine = create_engine(uri)
    run = partial(in_one_transaction, engine)
    run("create table t (id bigint primary key, n int, note text)", "alter table t replica identity full")
    run("create table signals (id varchar(64) primary key, type varchar(32), data varchar(2048))")
    # Random digits of 20 kB are stored out of line.
    large = "(select string_agg(md5(random()::text), '') from generate_series(1, 640) where g > 0)"
    run(f"insert into t select g, 0, case when g % 3 = 0 then {large} end from generate_series(1, 60) g")
    run("insert into t values (1000, 0, 'the end of the snapshot')")
    settings = {
        **{"snapshot.mode": "no_data", "table.include.list": "public.t,public.signals"},
        **{"signal.data.collection": "public.signals", "incremental.snapshot.chunk.size": "4"},
    }
    debezium = Debezium(empty(tmp_path / "debezium"), of_postgres(uri), settings).start()
    lines, dice = debezium.lines, random.Random(7)
    try:
        wait_until(partial(has_slot, engine), 60, "Debezium streams")
        run("""insert into signals values ('one', 'execute-snapshot', '{"data-collections": ["public.t"]}')""")

        def has_changed() -> bool:
            """Change rows, and say whether the snapshot has its last row."""
            id = dice.randrange(1, 61)
            run(f"update t set n = n + 1 where id between {id} and {id + 5}", f"delete from t where id = {id - 7}")
            run(f"update t set id = {id + 100} where id = {id}", f"insert into t values ({id}, -1, 'again')")
            run(f"delete from t where id = {id + 100}", f"update t set note = null where id = {id + 1}")
            return any(
                b'"the end of the snapshot"' in line and b'"incremental"' in line
                for line in lines.read_bytes().splitlines()
            )

        wait_until(has_changed, 240, "the end of the incremental snapshot")
        run("insert into t values (3000, 0, 'the last one')")
        debezium.wait_for(b'"the last one"')
    finally:
        debezium.kill()
    written = [json.loads(line) for line in kept(lines, '"table":"t"').read_text().splitlines()]
    first, *_, last = (at for at, event in enumerate(written) if event["source"]["snapshot"] == "incremental")
    read = {event["after"]["id"] for event in written[first:last] if event["op"] == "r"}
    changed = {event["after"]["id"] for event in written[first:last] if event["op"] == "u"}
    assert len(read & changed) > 3
    assert b"snapshot-window-close" in lines.read_bytes()
    source = FileSource(
        lines.with_suffix(".kept.json"),
        format="debezium",
        schema="id long, n int, note string",
        options={"key_fields": ["id"]},
    )
    with engine.connect() as connection:
        expected = [tuple(row) for row in connection.execute(text("select id, n, note from t order by id"))]
    engine.dispose()
    assert rows(source, empty(tmp_path / "sequence"), ["id", "n", "note"]) == expected
    assert rows(source, empty(tmp_path / "arrival"), ["id", "n", "note"], in_order=True) == expected


def has_slot(engine: Engine) -> bool:
    """Whether somebody reads the changes of the database."""
    query = "select count(*) from pg_replication_slots where database = current_database() and active"
    with engine.connect() as connection:
        return connection.execute(text(query)).scalar() == 1


def of_postgres_table(engine: Engine) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text("select id, name, price, at from t order by id"))]


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def rows(source: Source, folder: Path, columns: Sequence[str], in_order: bool = False) -> list[tuple[Any, ...]]:
    """The rows of a table that the changes were written to."""
    table = config_of(folder, "t")
    stream = Environment("local[2]", checkpoint_dir=f"{folder}/checkpoints").from_source(source)
    stream = stream.drop("_seq") if in_order else stream
    stream.to_sink(IcebergSink(table.with_commit_mode(Upsert()))).execute("t")
    stored = table.ref.load().scan().to_arrow().select(list(columns)).sort_by("id")
    return [tuple(row.values()) for row in stored.to_pylist()]


@pytest.mark.parametrize(
    ("encoding", "flattened"), [("json", False), ("avro", False), ("json", True), nightly("avro", True)]
)
def test_all_tables_of_a_database_by_one_job(
    postgres: Postgres, kafka: Kafka, request: pytest.FixtureRequest, tmp_path: Path, encoding: str, flattened: bool
) -> None:
    """Each has columns and keys of its own; one gets a column, and one is made later."""
    uri, registry = postgres.database(), None
    prefix = uri.rpartition("/")[2]
    settings = {"brokers": kafka.bootstrap, "topic.prefix": prefix, "value.converter.schemas.enable": "true"}
    if encoding == "avro":
        apicurio = request.getfixturevalue("apicurio")
        settings, registry = {**settings, **avro_by(apicurio)}, apicurio.uri
    if flattened:
        settings |= flattening("rewrite", "schema", "source.table")
    for table in ("users", "lines", "late"):
        kafka.topic(2, name=f"{prefix}.public.{table}")
    engine = create_engine(uri)
    run = partial(in_one_transaction, engine)
    run("create table users (id bigint primary key, name text, paid numeric(10,2))")
    run("create table lines (id int, line smallint, note text, primary key (id, line))")
    run("insert into users select g, 'u' || g, g + 0.5 from generate_series(1, 50) g")
    run("insert into lines select g % 9, g, 'l' || g from generate_series(1, 50) g")
    debezium = Debezium(empty(tmp_path / "debezium"), of_postgres(uri), settings).start()

    def has(table: str, written: bytes) -> bool:
        return any(written in (message.value() or b"") for message in kafka.messages(f"{prefix}.public.{table}"))

    lake = IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(tmp_path / "lake")))
    sink = IcebergSink(lake.with_commit_mode(Upsert()).with_schema_evolution("full")).routed(
        "{source_schema}.{source_table}", rows="rows", key_fields="primary_key"
    )
    source = KafkaSource(
        kafka.bootstrap,
        pattern=rf"{prefix}\.public\..*",
        value_format="debezium",
        schema="rows binary",
        registry=registry,
        options={"packed": True, "flattened": flattened, "source": ["schema", "table"]},
        bounded=True,
    )
    job = Environment("local[2]", checkpoint_dir=f"{tmp_path}/checkpoints").from_source(source).to_sink(sink)
    try:
        debezium.wait_for(b"u50", partial(has, "users"))
        debezium.wait_for(b"l50", partial(has, "lines"))
        job.execute("all")
        run("update users set paid = null where id <= 3", "delete from users where id = 4")
        run("update lines set line = 1000 where line = 7", "delete from lines where line = 8")
        run("alter table users add column seen timestamptz", "insert into users values (90, 'n', 1, now())")
        run("create table late (name text primary key, n int)", "insert into late values ('a', 1), ('b', null)")
        run("insert into lines values (1, 2000, 'the last one')")
        debezium.wait_for(b"the last one", partial(has, "lines"))
    finally:
        debezium.kill()
    job.execute("all")
    catalog = lake.ref.load_catalog()
    for table, columns in {"users": "id, name, paid, seen", "lines": "id, line, note", "late": "name, n"}.items():
        stored = catalog.load_table(f"public.{table}").scan().to_arrow().select(columns.split(", ")).to_pylist()
        with engine.connect() as connection:
            expected = [tuple(row) for row in connection.execute(text(f"select {columns} from {table} order by 1, 2"))]
        assert sorted(tuple(row.values()) for row in stored) == expected
    assert len(expected) == 2
    engine.dispose()


def in_one_transaction(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


TYPES = {
    **{"id": "bigint primary key", "name": "varchar(100)", "price": "decimal(10,2)", "big": "bigint unsigned"},
    **{"at": "datetime(6)", "zoned": "timestamp(6) null", "day": "date", "dur": "time(6)", "y": "year"},
    **{"b": "varbinary(20)", "fixed": "binary(4)", "bits": "bit(10)", "e": "enum('a','b,c')", "s": "set('x','y')"},
    **{"j": "json", "u": "int unsigned", "flag": "boolean", "f": "double", "txt": "text"},
}
SCHEMA = {
    **{"id": "long", "name": "string", "price": "decimal(10,2)", "big": "decimal(20,0)", "at": "timestamp_ntz"},
    **{"zoned": "timestamp", "day": "date", "dur": "long", "y": "int", "b": "binary", "fixed": "binary"},
    **{"bits": "string", "e": "string", "s": "string", "j": "string", "u": "long", "flag": "int", "f": "double"},
    **{"txt": "string", "added": "int"},
}
NULLS = ", null" * (len(TYPES) - 1)
# Values that all modes can write: times within a day, of milliseconds.
VALUES = """'Ünï', -1234.50, 18446744073709551615,
'2026-03-29 01:30:00.123', '2026-03-29 01:30:00.123', '2026-03-29',
'10:00:00.123', 2026, x'dead', x'dead', b'1000000001', 'b,c', 'x,y', '{"a": 1}', 4294967295, 2, 1.5,
repeat('x', 60000)"""
EXACT = """'x', 0.01, 0, '1000-01-01 00:00:00.000001', '2037-12-31 23:59:59.999999', '9999-12-31',
'-838:59:59.999999', 1901, x'', x'00000000', b'1', 'a', '', 'null', 0, -1, -0.0, ''"""
MODES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "default": ({}, {"big": "unsigned"}),
    "connect": (
        {
            **{"time.precision.mode": "connect", "decimal.handling.mode": "string"},
            **{"bigint.unsigned.handling.mode": "precise", "binary.handling.mode": "base64"},
        },
        {"b": "base64", "fixed": "base64"},
    ),
    "isostring": (
        {"time.precision.mode": "isostring", "binary.handling.mode": "hex"},
        {"big": "unsigned", "b": "hex", "fixed": "hex"},
    ),
}


@pytest.mark.parametrize("mode", MODES)
def test_mariadb_by_type_and_handling_mode(own_mariadb: MariaDb, tmp_path: Path, mode: str) -> None:
    """A snapshot and a stream, an incremental snapshot between, changed keys, and a column that is added."""
    name = own_mariadb.database()
    settings, wire = MODES[mode]
    columns = ", ".join(f"{column} {data_type}" for column, data_type in TYPES.items())
    others = [] if mode != "default" else [f"insert into t values (8, {EXACT})"]
    values = VALUES.replace("'10:00:00.123'", "null") if mode == "isostring" else VALUES
    own_mariadb.run(
        f"create table t ({columns})",
        "create table late (id bigint primary key)",
        "create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048))",
        f"insert into t values (1, {values})",
        f"insert into t values (2{NULLS})",
        f"insert into t values (3, {values})",
        *[statement.replace("(8,", "(7,") for statement in others],
        database=name,
    )
    signals = {"signal.data.collection": f"{name}.signals", "table.include.list": f"{name}.t,{name}.signals"}
    settings = {**settings, **signals, "value.converter.schemas.enable": "true"}
    debezium = Debezium(empty(tmp_path / "debezium"), of_mariadb(own_mariadb, name), settings).start()
    lines = debezium.lines
    try:
        debezium.wait_for(b'"snapshot":"last"')
        own_mariadb.run(
            f"insert into t values (4, {values})",
            f"insert into t values (5{NULLS})",
            "update t set id = 6, name = 'key' where id = 3",
            "update t set price = price + 1 where id = 1",
            "delete from t where id = 2",
            *others,
            database=name,
        )
        signal = f"""{{"data-collections": ["{name}.t"], "type": "incremental"}}"""
        own_mariadb.run(f"insert into signals values ('one', 'execute-snapshot', '{signal}')", database=name)
        ((rows_before,),) = own_mariadb.rows("select count(*) from t", name)
        debezium.wait_for(b'"snapshot":"incremental"', lambda part: lines.read_bytes().count(part) >= rows_before)
        # Debezium reads again what it has not noted, and would then read the column that is added.
        ((file, position, *_),) = own_mariadb.rows("show master status", name)
        ids = count(11)

        def has_noted(_: bytes) -> bool:
            own_mariadb.run(f"insert into t (id, name) values ({next(ids)}, 'a row behind it')", database=name)
            return debezium.has_noted(file, position)

        debezium.wait_for(b"the end of the snapshot", has_noted)
        debezium.kill()
        own_mariadb.run("alter table t add column added int default 7", database=name)
        own_mariadb.run(f"insert into t values (9, {values}, 9)", "update t set y = 2027 where id = 1", database=name)
        debezium.start()
        own_mariadb.run("insert into t (id, name) values (10, 'the last one')", database=name)
        debezium.wait_for(b"the last one")
    finally:
        debezium.kill()
    source = FileSource(
        kept(lines, '"table":"t"'),
        format="debezium",
        schema=", ".join(f"{column} {data_type}" for column, data_type in SCHEMA.items()),
        options={"key_fields": ["id"], "wire": wire},
    )
    stored = rows(source, tmp_path, [*SCHEMA])
    # The rows that no message has touched since the column was added do not have its default.
    assert {row[0]: row[-1] for row in stored} == {
        **dict.fromkeys(row[0] for row in stored),
        **{1: 7, 9: 9, 10: 7},
    }
    assert [row[:-1] for row in stored] == of_mariadb_table(own_mariadb, name)
    assert stored[0][2] == Decimal("-1233.50")


def kept(lines: Path, written: str) -> Path:
    """The lines that have something, in another file: an engine writes those of all tables to one."""
    file = lines.with_suffix(".kept.json")
    file.write_text("".join(line for line in lines.read_text().splitlines(keepends=True) if written in line))
    return file


def of_mariadb_table(server: MariaDb, database: str) -> list[tuple[Any, ...]]:
    """The rows of the table as the columns of the lake have them."""

    def converted(column: str, value: Any) -> Any:
        match value:
            case timedelta():
                return value // timedelta(microseconds=1)
            case datetime() if column == "zoned":
                return value.replace(tzinfo=UTC)
            case bytes() if column == "bits":
                return f"{int.from_bytes(value, 'big'):010b}"
            case int() if column == "big":
                return Decimal(value)
        return value

    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("set time_zone = '+00:00'")
        cursor.execute(f"select {', '.join(TYPES)} from t order by id")
        return [tuple(map(converted, TYPES, row)) for row in cursor.fetchall()]


def test_a_truncation_of_mariadb_is_a_bad_row_by_name(own_mariadb: MariaDb, tmp_path: Path) -> None:
    name = own_mariadb.database()
    own_mariadb.run("create table t (id bigint primary key)", "insert into t values (1)", database=name)
    debezium = Debezium(
        empty(tmp_path / "debezium"), of_mariadb(own_mariadb, name), {"skipped.operations": "none"}
    ).start()
    try:
        debezium.wait_for(b'"op":"r"')
        own_mariadb.run("truncate table t", database=name)
        debezium.wait_for(b'"op":"t"')
    finally:
        debezium.kill()
    source = FileSource(
        debezium.lines, format="debezium", schema="id long", on_unknown="drop", options={"key_fields": ["id"]}
    )
    with pytest.raises(Exception, match="the table was truncated, which a stream of rows can't carry"):
        rows(source, tmp_path, ["id"])


def test_the_history_of_a_system_versioned_table_does_not_replace_its_rows(
    own_mariadb: MariaDb, tmp_path: Path
) -> None:
    name = own_mariadb.database()
    period = "s timestamp(6) generated always as row start, e timestamp(6) generated always as row end"
    own_mariadb.run(
        f"create table t (id bigint primary key, v varchar(20), {period}, period for system_time (s, e)) "
        "with system versioning",
        "insert into t (id, v) values (1, 'a'), (2, 'b'), (3, 'c')",
        database=name,
    )
    debezium = Debezium(empty(tmp_path / "debezium"), of_mariadb(own_mariadb, name), {}).start()
    try:
        debezium.wait_for(b'"snapshot":"last"')
        own_mariadb.run("update t set v = 'x' where id = 1", database=name)
        own_mariadb.run("delete from t where id = 2", database=name)
        own_mariadb.run("delete history from t", database=name)
        own_mariadb.run("insert into t (id, v) values (4, 'the last one')", database=name)
        debezium.wait_for(b"the last one")
    finally:
        debezium.kill()
    source = FileSource(
        debezium.lines,
        format="debezium",
        schema="id long, v string, e timestamp",
        on_unknown="drop",
        options={"key_fields": ["id"], "row_end": "e"},
    )
    stored = rows(source, tmp_path, ["id", "v"])
    assert stored == sorted(own_mariadb.rows("select id, v from t", name)) == [(1, "x"), (3, "c"), (4, "the last one")]
