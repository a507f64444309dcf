"""Fields that a source's schema lacks: warned of, kept, refused or dropped; and rows of which no field matches."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from volley import (
    ConfigError,
    Contract,
    DataStream,
    Environment,
    FileSource,
    KafkaSource,
    MemorySource,
    Reader,
    Source,
    SourceContext,
    SourceError,
    VolleyError,
    WebhookSource,
)
from volley.contracts.epoch import WriteResult
from volley.contracts.rows import BadRow, LostInput, UnknownField, note_lost, note_unknown, taken_notes
from volley.engine.history import Notes
from volley.formats.messages import JsonValues

Rows = list[dict[str, Any]]


def write_json(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_avro(path: Path, rows: Rows) -> None:
    kinds = {int: "long", float: "double", str: "string"}
    fields = [{"name": name, "type": kinds[type(value)]} for name, value in rows[0].items()]
    stream = io.BytesIO()
    fastavro.writer(stream, {"type": "record", "name": "row", "fields": fields}, rows)
    path.write_bytes(stream.getvalue())


FORMATS: dict[str, Callable[[Path, Rows], None]] = {
    "json": write_json,
    "csv": lambda path, rows: pcsv.write_csv(pa.Table.from_pylist(rows), path),
    "parquet": lambda path, rows: pq.write_table(pa.Table.from_pylist(rows), path),
    "orc": lambda path, rows: orc.write_table(pa.Table.from_pylist(rows), path),
    "avro": write_avro,
}


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    taken_notes()
    yield
    taken_notes()


def opened(folder: Path, kind: str, **settings: Any) -> Reader:
    columns = settings.pop("columns", None)
    context = SourceContext(str(folder / "state"), columns=columns)
    return FileSource(folder / "*", format=kind, **settings).open(context)  # type: ignore[arg-type]


def rows_of(reader: Reader) -> Rows:
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]


def bad_rows_of(reader: Reader) -> list[BadRow]:
    start = reader.initial_offset()
    splits = reader.splits(start, reader.latest_offset(start, None, None))
    return [item for split in splits for item in reader.read_tolerant(split) if isinstance(item, BadRow)]


@pytest.mark.parametrize("schema", ["id long", None], ids=["declared", "inferred"])
def test_a_field_that_comes_with_a_later_file_is_noted_with_the_file(
    kind: str, schema: str | None, tmp_path: Path
) -> None:
    FORMATS[kind](tmp_path / f"1.{kind}", [{"id": 1}])
    FORMATS[kind](tmp_path / f"2.{kind}", [{"id": 2, "price": 1.5}])
    assert rows_of(opened(tmp_path, kind, schema=schema)) == [{"id": 1}, {"id": 2}]
    noted = taken_notes()
    assert noted == (UnknownField("price", str(tmp_path / f"2.{kind}")),)
    assert ('"keep"' in noted[0].hint) == (kind == "json"), "only JSON takes on_unknown='keep'"


def test_fields_that_are_dropped_are_not_noted(kind: str, tmp_path: Path) -> None:
    FORMATS[kind](tmp_path / f"1.{kind}", [{"id": 1, "price": 1.5}])
    for policy in ("drop", "ignore"):
        assert rows_of(opened(tmp_path, kind, schema="id long", on_unknown=policy)) == [{"id": 1}]
    assert taken_notes() == ()


def test_a_file_with_a_field_that_must_not_be_is_refused(kind: str, tmp_path: Path) -> None:
    FORMATS[kind](tmp_path / f"1.{kind}", [{"id": 1, "price": 1.5}])
    with pytest.raises(SourceError, match="'price' is not in the schema"):
        rows_of(opened(tmp_path, kind, schema="id long", on_unknown="fail", columns=frozenset({"id"})))


def test_a_file_of_which_no_field_matches_is_refused(kind: str, tmp_path: Path) -> None:
    FORMATS[kind](tmp_path / f"1.{kind}", [{"ID": 1}])
    with pytest.raises(SourceError, match=r"has none of the columns \['id', 'name'\].*upper and lower case"):
        rows_of(opened(tmp_path, kind, schema="id long, name string"))


def test_a_column_that_no_step_uses_is_not_unknown(kind: str, tmp_path: Path) -> None:
    """Nor does a row need a value of those that are read."""
    FORMATS[kind](tmp_path / f"1.{kind}", [{"id": 1, "price": 1.5}])
    reader = opened(tmp_path, kind, schema="id long, name string", columns=frozenset({"name"}))
    assert [row["name"] for row in rows_of(reader)] == [None]
    assert [note.subject for note in taken_notes()] == ["price"]


def test_json_lines_without_a_match_are_bad_rows(tmp_path: Path) -> None:
    lines = ['{"id": 1}', '{"ID": 2}', "{}", '{"data": {"id": 3}}', '{"id": null, "x": 1}']
    (tmp_path / "a.json").write_text("\n".join(lines))
    letters = bad_rows_of(opened(tmp_path, "json", schema="id long"))
    assert [(letter.payload, letter.position) for letter in letters] == [
        (lines[1], f"{tmp_path}/a.json, line 2"),
        (lines[3], f"{tmp_path}/a.json, line 4"),
    ]
    assert letters[0].error == "has none of the columns ['id']: it has ['ID']; names differ in upper and lower case"
    assert letters[1].error == "has none of the columns ['id']: it has ['data']"


def test_elements_and_objects_over_several_lines_need_a_match(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"id": 1}, {"ID": 2}]')
    letters = bad_rows_of(opened(tmp_path, "json", schema="id long"))
    assert [letter.position for letter in letters] == [f"{tmp_path}/a.json, element 2"]
    (tmp_path / "a.json").unlink()
    (tmp_path / "b.json").write_text('{\n"id": 1}\n{"ID":\n2}\n')
    reader = FileSource(tmp_path / "b.json", schema="id long", on_unknown="drop")
    with pytest.raises(SourceError, match=r"b\.json, line 3"):
        rows_of(reader.open(SourceContext(str(tmp_path / "other"))))


def test_a_field_in_one_line_of_many_is_noted(tmp_path: Path) -> None:
    rows: Rows = [{"id": number} for number in range(5_000)]
    rows[4_321]["price"] = 1.5
    write_json(tmp_path / "a.json", rows)
    assert len(rows_of(opened(tmp_path, "json", schema="id long"))) == 5_000
    assert [note.subject for note in taken_notes()] == ["price"]


def test_nested_fields_are_noted_with_their_path(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "who": {"name": "ada", "age": 3}, "all": [{"x": 1}, {"y": 2}]}')
    schema = "id long, who struct<name string>, all array<struct<x long>>"
    rows = rows_of(opened(tmp_path, "json", schema=schema))
    assert rows == [{"id": 1, "who": {"name": "ada"}, "all": [{"x": 1}, {"x": None}]}]
    assert [note.subject for note in taken_notes()] == ["all.y", "who.age"]
    pq.write_table(pa.Table.from_pylist([{"id": 1, "who": {"name": "ada", "age": 3}}]), tmp_path / "a.parquet")
    opened_parquet = FileSource(tmp_path / "*.parquet", schema="id long, who struct<name string>")
    rows_of(opened_parquet.open(SourceContext(str(tmp_path / "other"))))
    assert [note.subject for note in taken_notes()] == ["who.age"]


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_fields_within_lists_and_maps_of_files_are_noted(format: str, tmp_path: Path) -> None:
    pair = pa.struct({"x": pa.int64(), "y": pa.int64()})
    types = {"all": pa.list_(pa.list_(pair)), "by": pa.map_(pa.string(), pair), "fixed": pa.list_(pair)}
    row = {"all": [[{"x": 1, "y": 2}]], "by": [("k", {"x": 3, "y": 4})], "fixed": [None]}
    write = pq.write_table if format == "parquet" else orc.write_table
    write(pa.Table.from_pylist([row], pa.schema(types)), tmp_path / f"a.{format}")
    only_x = "struct<x long>"
    schema = f"all array<array<{only_x}>>, by map<string, {only_x}>, fixed array<{only_x}>"
    rows = rows_of(opened(tmp_path, format, schema=schema))
    assert rows == [{"all": [[{"x": 1}]], "by": [("k", {"x": 3})], "fixed": [None]}]
    assert [note.subject for note in taken_notes()] == ["all.y", "by.y", "fixed.y"]
    with pytest.raises(SourceError, match=r"column 'all\.y' is not in the schema"):
        rows_of(opened(tmp_path, format, schema=schema, on_unknown="fail"))


def test_fields_of_json_files_are_kept(tmp_path: Path) -> None:
    text = '{"id": 1}\n{"id": 2, "price": 1.5, "tags": ["a", {"b": null}]}\n{"price": 2}\n'
    (tmp_path / "a.json").write_text(text)
    reader = opened(tmp_path, "json", schema="id long", on_unknown="keep", columns=frozenset({"file_unknown"}))
    assert reader.schema.names == ["id", "file_unknown"]
    assert rows_of(reader) == [
        {"id": 1, "file_unknown": None},
        {"id": 2, "file_unknown": '{"price": 1.5, "tags": ["a", {"b": null}]}'},
        {"id": None, "file_unknown": '{"price": 2}'},
    ]
    assert taken_notes() == ()
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    with pytest.raises(ConfigError, match="file_unknown"):
        opened(tmp_path, "json", schema="id long, file_unknown string", on_unknown="keep")
    with pytest.raises(ConfigError, match="for JSON, not for csv"):
        FileSource("a.csv", on_unknown="keep")


def test_a_json_line_with_a_field_that_must_not_be_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id": 2, "price": 1.5}\n')
    (letter,) = bad_rows_of(opened(tmp_path, "json", schema="id long", on_unknown="fail"))
    assert (letter.error, letter.position) == ("field 'price' is not in the schema", f"{tmp_path}/a.json, line 2")


@pytest.mark.parametrize("policy", ["warn", "drop", "fail"])
def test_messages_of_which_no_field_matches_are_bad(policy: str) -> None:
    decoder = JsonValues(pa.schema({"id": pa.int64()}), policy)
    assert decoder.decode([b'{"id": 1}', b"{}", None]).to_pylist() == [{"id": 1}, {"id": None}, {"id": None}]
    with pytest.raises((SourceError, pa.ArrowInvalid)) as caught:
        decoder.decode([b'{"id": 1}', b'{"Id": 2}'])
    assert "'Id'" in decoder.fault(b'{"Id": 2}', caught.value)


def test_fields_of_messages_are_noted_with_the_place() -> None:
    decoder = JsonValues(pa.schema({"id": pa.int64()}), "warn")
    decoder.decode([b'{"id": 1}', b'{"id": 2, "price": 1.5}'], "events/0/17")
    decoder.decode([b'{"id": 3, "price": 1.5, "day": 3}'], "events/0/19")
    assert taken_notes() == (UnknownField("price", "events/0/17"), UnknownField("day", "events/0/19"))


def test_all_sources_have_the_same_choices() -> None:
    sources: list[Callable[[Any], Any]] = [
        lambda policy: FileSource("a.json", on_unknown=policy).on_unknown,
        lambda policy: KafkaSource("b:1", "t", schema="id long", on_unknown=policy).on_unknown,
        lambda policy: WebhookSource(schema="id long", on_unknown=policy).on_unknown,
    ]
    for source in sources:
        assert [source(policy) for policy in ("warn", "keep", "rescue", "evolve", "fail", "drop", "ignore")] == [
            *("warn", "keep", "rescue", "evolve", "fail", "drop", "drop")
        ]


def test_a_contract_that_names_a_part_of_a_column_is_refused() -> None:
    contract = Contract(columns={"a.b": "drop", "c.d": "rescue"})
    sources: list[Callable[[Any], Any]] = [
        lambda schema: FileSource("a.json", schema=schema, on_unknown=contract),
        lambda schema: KafkaSource("b:1", "t", schema=schema, on_unknown=contract),
        lambda schema: WebhookSource(schema=schema, on_unknown=contract),
    ]
    for source in sources:
        with pytest.raises(ConfigError, match=r"columns names 'a\.b': a fate is one of a whole column"):
            source("id long, a struct<b: long>")
        # A field may have a dot in its name.
        source("id long")


@pytest.mark.parametrize(
    ("policy", "fate"),
    [
        ("warn", "are left out, and each is warned of once"),
        ("drop", "are left out without a warning"),
        ("fail", "make their row a bad row"),
        ("keep", "are kept in {}_unknown"),
        ("rescue", "and values that don't fit it are kept in rescued"),
        ("evolve", ": evolve; values that don't fit it: rescue"),
    ],
)
def test_explain_tells_what_becomes_of_them(policy: Any, fate: str, capsys: pytest.CaptureFixture[str]) -> None:
    sources: dict[str, Source] = {
        "file": FileSource("a.json", on_unknown=policy),
        "kafka": KafkaSource("b:1", "t", schema="id long", on_unknown=policy),
        "http": WebhookSource(schema="id long", on_unknown=policy),
    }
    for prefix, source in sources.items():
        Environment().from_source(source).explain()
        assert f": fields that the schema lacks {fate.format(prefix)}".replace(" :", ":") in capsys.readouterr().out
    if policy == "fail":
        Environment().from_source(FileSource("a.parquet", on_unknown=policy)).explain()
        assert "fields that the schema lacks are an error; several" in capsys.readouterr().out


def test_messages_that_are_one_value_have_no_fields(capsys: pytest.CaptureFixture[str]) -> None:
    Environment().from_source(KafkaSource("b:1", "t", value_format="raw")).explain()
    assert "the schema lacks" not in capsys.readouterr().out


def test_values_that_fit_no_column_are_kept_beside_unknown_fields() -> None:
    decoder = JsonValues(pa.schema({"id": pa.int64(), "s": pa.struct({"a": pa.int64()})}), "rescue", "rest")
    texts = {
        '{"id": 1}': (1, None, None),
        '{"id": 1.50, "z": 2}': (None, None, '{"id": 1.50, "z": 2}'),
        '{"id": 9223372036854775808, "s": {"a": 1}}': (None, {"a": 1}, '{"id": 9223372036854775808}'),
        '{"id": 2, "s": {"a": 1, "b": "x", "a": 2}}': (2, None, '{"s": {"a": 1, "b": "x", "a": 2}}'),
        '{"id": 1, "id": 2}': (None, None, '{"id": 1, "id": 2}'),
        '{"z": 1}': (None, None, '{"z": 1}'),
    }
    rows = decoder.sort([text.encode() for text in texts])
    assert not rows.faults
    assert [tuple(row.values()) for row in pa.Table.from_batches(rows.batches).to_pylist()] == [*texts.values()]


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"id": "a"}{"id": 1}', '{"id": NaN}', r'{"id": "\ud800"}', r'{"id": "a", "z": 1e999}']
)
def test_what_can_not_be_kept_stays_a_bad_row(text: str) -> None:
    rows = JsonValues(pa.schema({"id": pa.int64()}), "rescue", "rest").sort([b'{"id": 1}', text.encode()])
    assert ([*rows.numbers], [*rows.faults]) == ([0], [1])


def test_columns_of_a_registry_are_not_rescued() -> None:
    with pytest.raises(ConfigError, match="for declared columns"):
        KafkaSource("b:1", "t", registry="http://r:1", on_unknown="rescue")
    with pytest.raises(ConfigError, match="is for JSON"):
        FileSource("a.csv", on_unknown="rescue")


def test_the_driver_warns_of_each_loss_once(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes("job")
    for first in [2, 2, 9, 9]:
        # A task that is tried again loses the same.
        note_lost(f"events/0: 5 offsets from {first} on are lost, skipped", "keep them for longer")
        notes.record([[WriteResult(notes=taken_notes())]])
    assert caplog.messages == [
        "job: events/0: 5 offsets from 2 on are lost, skipped: keep them for longer",
        "job: events/0: 5 offsets from 9 on are lost, skipped: keep them for longer",
    ]
    assert [line.split()[4] for line in notes.lines] == ["2", "9"]


def test_losses_are_warned_of_without_end_but_the_last_ones_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes("job")
    for number in range(1_200):
        notes.record([[WriteResult(notes=(LostInput(f"loss {number}", "hint"),))]])
    assert len(caplog.messages) == 1_200
    assert notes.lines == [f"loss {number}" for number in range(1_100, 1_200)]


def test_names_of_fields_are_bounded() -> None:
    note_unknown((f"{number}" * 200 for number in range(500)), "a.json")
    names = [note.subject for note in taken_notes()]
    assert len(names) == 100
    assert max(map(len, names)) == 100


NESTED: dict[str, tuple[str, Any, Any]] = {
    "struct": ("a struct<x: long>", {"x": 1, "y": 2}, {"x": 1}),
    "struct in a struct": ("a struct<b: struct<x: long>>", {"b": {"y": 2}}, {"b": {"x": None}}),
    "list": ("a list<struct<x: long>>", [None, {"x": 1}, {"x": 1, "y": 2}], [{}, None]),
    "map": ("a map<string, struct<x: long>>", {"k": {"x": 1, "y": 2}}, {"k": {"x": 1}}),
    "pairs of a map": ("a map<string, struct<x: long>>", [("k", {"y": 2})], [("k", None)]),
}


@pytest.mark.parametrize("case", NESTED)
def test_fields_within_python_values_that_the_schema_lacks_are_refused(case: str) -> None:
    schema, bad, good = NESTED[case]
    rows = Environment().from_source(MemorySource([{"id": 1}]))
    ways: list[Callable[[Any], DataStream]] = [
        lambda value: Environment().from_source(MemorySource([{"a": None}, {"a": value}], schema=schema)),
        lambda value: rows.map(lambda _: {"a": value}, schema=schema),
        lambda value: rows.flat_map(lambda _: [{"a": None}, {"a": value}], schema=schema),
    ]
    for way in ways:
        with pytest.raises(VolleyError, match=r"column 'a\.(b\.)?y'"):
            way(bad).to_arrow()
        assert len(way(good).to_arrow()) > 0


def test_columns_and_fields_of_arrow_data_that_the_schema_lacks_are_refused() -> None:
    table = pa.table({"b": [1], "a": [{"x": 1, "y": 2}]})
    for data, unknown in ((table, "b"), (table.select(["a"]), "a.y")):
        with pytest.raises(SourceError, match=f"the column {unknown!r}, the schema has not"):
            Environment().from_source(MemorySource(data, schema="a struct<x: long>")).to_arrow()
    rows = Environment().from_source(MemorySource([{"id": 1}]))
    batch = table.select(["a"]).to_batches()[0]
    with pytest.raises(VolleyError, match=r"unknown column 'a\.y'"):
        rows.map_batches(lambda _: batch, schema="a struct<x: long>").to_arrow()
