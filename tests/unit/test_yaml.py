"""Pipelines in YAML become the values that Python builds; mistakes are shown all at once, each at its place."""

from __future__ import annotations

import json
import textwrap
import warnings
from dataclasses import fields, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.unit.editor import validator
from volley import (
    ConfigError,
    ConsoleSink,
    Environment,
    FileSink,
    FileSource,
    KafkaSink,
    KafkaSource,
    RateSource,
    coalesce,
    col,
    load_config,
    sql,
)
from volley.config.connectors import SOURCE_CONNECTORS
from volley.config.json_schema import json_schema
from volley.config.values import Config
from volley.documents import yaml_text
from volley.documents.models import model_of
from volley.documents.references import References
from volley.documents.yaml_text import parse
from volley.engine.restart import Restart
from volley.iceberg import (
    BigLakeCatalog,
    History,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    Incremental,
    Maintenance,
    Partitioning,
    PolarisCatalog,
    RestCatalog,
    S3TablesCatalog,
    Upsert,
)
from volley.iceberg.documents.settings import sink_model, source_model
from volley.plan.keyed_nodes import Aggregate

ROOT = Path(__file__).parents[2]


def config_of(folder: Path, text: str, **variables: str) -> Config:
    file = folder / "volley.yaml"
    file.write_text(textwrap.dedent(text))
    return load_config(file, variables)


def mistakes_of(folder: Path, text: str, **variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, text, **variables)
    return str(caught.value).replace(f"{folder}/", "")


ARN = "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"


def value_of(text: str, **variables: str) -> Any:
    document = parse(text, "a.yaml", References(variables))
    assert document.mistakes == []
    return document.value


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[no, yes, off, 010, 0o10, 0x1f, 1e3, 1:30, 2026-11-01, ~, null, true, .5, -.inf, 1_000, '5', 1.0, +7]"
    assert value_of(text) == [
        *("no", "yes", "off", 10, 8, 31, 1000.0, "1:30", "2026-11-01", None, None, True, 0.5),
        *(float("-inf"), "1_000", "5", 1.0, 7),
    ]


def test_anchors_and_merge_keys() -> None:
    text = """
    common: &common {a: 1, b: 2}
    more: &more {b: 3, c: 4}
    one: {<<: *common, b: 5}
    two: {<<: [*more, *common]}
    three: *common
    """
    value = value_of(textwrap.dedent(text))
    assert value["one"] == {"a": 1, "b": 5}
    assert value["two"] == {"a": 1, "b": 3, "c": 4}
    assert value["three"] == {"a": 1, "b": 2}


NOT_YAML = {
    "a tab": ("a:\n\tb: 1\n", "2:1", "a tab, where YAML takes spaces only"),
    "two documents": ("a: 1\n---\nb: 2\n", "3:1", "a second document begins here"),
    "a duplicate": ("a: 1\nb: 2\na: 3\n", "3:1", "key 'a' is there already, in line 1"),
    "a bracket": ("a: [1, 2\nb: 3\n", "2:2", "this is not YAML"),
    "a bare reference": ("a: {b: ${HOST}, c: 1}\n", "1:9", "a reference inside {…} or […] needs quotes"),
    "a tag": ("a: !!python/object:os.system x\n", "1:4", "is not allowed"),
    "an alias to itself": ("a: &a {b: *a}\n", "1:4", "stands for itself"),
    "an unknown alias": ("a: *b\n", "1:4", "undefined alias"),
    "a character": ("a: \x07\n", "1:4", "is not allowed"),
    "nothing": ("# only a comment\n", "1:1", "the file is empty"),
    "a list": ("- a\n", "1:1", "not a mapping"),
    "a text": ("hello\n", "1:1", "not a mapping"),
}


@pytest.mark.parametrize("case", NOT_YAML)
def test_what_is_not_a_document(case: str, tmp_path: Path) -> None:
    text, place, message = NOT_YAML[case]
    told = mistakes_of(tmp_path, text)
    assert f"volley.yaml:{place}: " in told
    assert message in told


@pytest.mark.parametrize(("key", "value"), [("1.5", "1.5"), ("null", "None"), ("true", "True"), ("7", "7")])
def test_a_key_that_is_no_text_hides_no_other(key: str, value: str, tmp_path: Path) -> None:
    text = """
    sources:
      a: {connector: rate}
      KEY: {connector: rate}
    sinks: {o: {connector: console}}
    pipelines: {p: {source: a, sink: o}}
    """
    told = mistakes_of(tmp_path, textwrap.dedent(text).replace("KEY", key))
    assert f"volley.yaml:4:3: key {value} is not a text; quote it" in told
    assert "volley.yaml has 1 mistake" in told


def test_aliases_that_stand_for_too_many_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_MOST_VALUES", 100)
    levels = [f"l{number}: &l{number} [{', '.join([f'*l{number - 1}'] * 4)}]" for number in range(1, 4)]
    told = mistakes_of(tmp_path, "\n".join(["l0: &l0 [x, x]", *levels]))
    assert "aliases stand for too many values" in told


def test_each_mistake_has_its_hint_and_the_error_no_other(tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    file.write_text("sources:\n  a: {conector: rate}\nsinks: {}\npiplines: {}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    lines = [line.strip() for line in str(caught.value).splitlines() if line]
    assert [lines[at - 1][:1] == "^" for at, line in enumerate(lines) if line.startswith("hint:")] == [True] * 3
    assert (lines[-1], caught.value.hint) == ("hint: did you mean 'pipelines'?", "did you mean 'pipelines'?")


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    file.write_bytes(b"\xef\xbb\xbfversion: '1.0'\r\nsources:\r\n  a: {connector: rate}\r\nsinks: {}\r\nx: 1\r\n")
    with pytest.raises(ConfigError, match=r"volley.yaml:5:1: unknown key 'x'"):
        load_config(file)
    file.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        load_config(file)
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("version", ["1.0", '"1.0"', "1", "'1'"])
def test_versions(version: str, tmp_path: Path) -> None:
    assert config_of(tmp_path, f"version: {version}\n").pipelines == {}


def test_references(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2hunter2\n")
    text = """
    sources:
      k:
        connector: kafka
        config:
          bootstrap_servers: "${HOST}:${PORT:-9092}"
          topics: [a, "${EMPTY:-b}", $$c]
          schema: id long
          bounded: ${BOUNDED}
          max_rows_per_epoch: ${ROWS}
          properties:
            {sasl.username: me, sasl.password: "${file:secret}", sasl.mechanism: PLAIN, security.protocol: SASL_SSL}
    """
    config = config_of(tmp_path, text, HOST="broker.internal", EMPTY="", BOUNDED="true", ROWS="500")
    source = config.sources["k"]
    assert isinstance(source, KafkaSource)
    assert source.bootstrap_servers == "broker.internal:9092"
    assert source.topics == ("a", "b", "$c")
    assert (source.bounded, source.max_rows_per_epoch) == (True, 500)
    assert source.properties["sasl.password"] == "hunter2hunter2"
    shown = config.redact(f"{source!r} broker.internal hunter2hunter2")
    assert "hunter2" not in shown + repr(config) + config.text
    assert "broker.internal" not in shown
    assert "${HOST}:${PORT:-9092}" in config.text


def test_all_missing_references_are_told_at_once(tmp_path: Path) -> None:
    text = """
    sinks:
      a: {connector: files, config: {path: "${A}", format: "${B:?ask Ann}"}}
      b: {connector: files, config: {path: "${file:nowhere}/${1}", format: "${C:-${D}}"}}
    """
    told = mistakes_of(tmp_path, text)
    assert "environment variable A is not set" in told
    assert "environment variable B is not set: ask Ann" in told
    assert "file nowhere can't be read" in told
    assert "has a reference inside it" in told
    assert told.startswith("volley.yaml has 4 mistakes")


def test_values_of_references_are_not_shown_in_mistakes(tmp_path: Path) -> None:
    text = """
    sources:
      k: {connector: kafka, config: {bootstrap_servers: "${BROKERS}", topics: a, schema: id long, timeout: "${WAIT}"}}
    sinks:
      s: {connector: files, config: {path: out, formt: json, password: hunter2}}
    """
    told = mistakes_of(tmp_path, text, BROKERS="http://user:hunter2@host", WAIT="hunter2hunter2")
    assert "bootstrap_servers" in told
    assert "timeout" in told
    assert "hunter2" not in told


def test_secrets_that_stand_in_the_file_are_not_shown(tmp_path: Path) -> None:
    text = """
    sources:
      signed: {connector: webhook, config: {schema: id long, auth: {hmac: stripe, secret: [hunter2a, "${SECRET}"]}}}
      open: {connector: webhook, config: {schema: id long, auth: {bearer: hunter2b}}}
      secrets:
        connector: files
        config:
          path: "s3://me:hunter2c$$@bucket/in"
          format: json
          storage_options:
            key: hunter2d
            connection_string: "AccountKey=hunter2e"
            sas: hunter2f
            headers: {x-team: hunter2g}
            token: "${SECRET:-hunter2h}"
            client_kwargs: {region: eu, api_key: "hunter2$$"}
    sinks: {out: {connector: console, config: {rows: 7}}}
    pipelines: {p: {source: secrets, sink: out}}
    """
    shown = config_of(tmp_path, text, SECRET="hunter2hunter2").text
    assert "hunter2" not in shown
    for kept in ("- ${SECRET}", "hmac: stripe", "connector: files", "region: eu", "rows: 7"):
        assert kept in shown


WORKING = """
sources: {a: {connector: files, config: {path: a, format: json, storage_options: {password: "${SECRET}"}}}}
sinks: {s: {connector: console}}
pipelines: {p: {source: a, sink: s}}
"""


@pytest.mark.parametrize("secret", ["hunter\\2a", "hunter\n2a", "it's hunter2a", '"it\'s" hunter2a', "hünter2a\t"])
def test_values_of_references_are_not_shown_in_quotes(secret: str, tmp_path: Path) -> None:
    text = """
    sources:
      a: {connector: "${SECRET}"}
      b: {connector: files, config: {path: a, format: "${SECRET}", foo: {"x": "${SECRET}"}}}
    """
    told = mistakes_of(tmp_path, text, SECRET=secret)
    assert "2a" not in told
    assert told.count("***") >= 2
    config = config_of(tmp_path, WORKING, SECRET=secret)
    quoted = [repr(secret), repr(f"{secret}'"), repr(f'{secret}"'), repr(f"""{secret}"'"""), json.dumps(secret)]
    for form in [secret, *quoted, json.dumps(secret, ensure_ascii=False), quote(secret)]:
        assert "2a" not in config.redact(f"said {form}")


def test_blank_values_of_references_mask_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, WORKING, SECRET=" a  ")
    assert config.redact("a banana") == "a banana"


SECRETS = """
sources:
  h1:
    connector: webhook
    config:
      schema: id long
      auth:
        hmac: stripe
        secret:
          - 4242424242
          - other
  h2: {connector: webhook, config: {schema: id long, auth: {hmac: stripe, secret: "hunter2 horse, 'battery'", foo: 1}}}
  h3:
    connector: webhook
    config:
      schema: id long
      auth:
        hmac: stripe
        secret:
          4242424242
  h4: {connector: webhook, config: {schema: id long, auth: {bearer: [4242424242]}}}
  h5: {connector: webhook, config: {schema: id long, auth: hunter2}}
  h6: {connector: files, config: {path: a, format: json, storage_options: {key: hunter2, sas: !!int hunter2}, foo: 1}}
  h7: {connector: files, config: {path: a, format: &shared hunter2, storage_options: {key: *shared}}}
  h8: {connector: files, config: {path: a, format: json, storage_options: {password: "hunter2
    battery"}, fop: 1}}
sinks: {s: {connector: console}}
pipelines:
  p: {dead_letter: {connector: console, config: {password: "hunter2 horse battery staple"}}, source: h1, filter: "id >"}
"""


def test_secrets_that_stand_in_the_file_are_not_shown_in_mistakes(tmp_path: Path) -> None:
    told = mistakes_of(tmp_path, SECRETS)
    lines = told.splitlines()
    for shown in (
        "h1.config.auth.secret[0]",
        "h2.config.auth.foo",
        "h3.config.auth.secret)",
        "h4.config.auth.bearer[0]",
    ):
        assert shown in told
    for shown in ("h5.config.auth)", "h6.config.foo", "h7.config.format", "h8.config.fop", "pipelines.p.filter"):
        assert shown in told
    told = told.replace("'hunter2' is unknown", "")  # a format's value, which only its alias makes a secret
    assert [text for text in ("hunter2", "4242", "horse", "battery") if text in told] == []
    # The caret stands below its place also where the line is shorter than in the file.
    carets = {line[at.index("^") :].partition(":")[0] for line, at in pairwise(lines) if "^" in at}
    assert {"foo", "fop"} <= carets


@pytest.mark.parametrize(
    "text",
    [
        'a: {secret: "hunter2 hunter2, hunter2}',
        "a: {token: hunter2, b: [c}",
        "a:\n  password:\n    hunter2 hunter2\n    hunter2: hunter2: x",
        "a:\n- secret:\n  - hunter2\n  - [hunter2\n  b: x",
        "a:\n  secret: |\n    x\n\n    hunter2\n\tb: c",
        "a: 1\n---\n{b: {password: hunter2}}",
        "a: {password: hunter2}\nb: \x07",
    ],
)
def test_secrets_are_not_shown_where_yaml_is_wrong(text: str, tmp_path: Path) -> None:
    assert "hunter2" not in mistakes_of(tmp_path, text)


MISTAKES = """
version: "2.0"                                                                #  1 an unknown version
sources:
  files:
    connector: files
    config:
      pth: in/*.json                                                          #  2 an unknown key, and 3 a missing one
      max_files_per_epoch: ten                                                #  4 a text for a number
      options: {delimeter: ";"}                                               #  5 an unknown option of CSV
      format: csv
  kafka:
    connector: kafak                                                          #  6 an unknown connector
  other:
    connector: kafka
    config:
      bootstrap_servers: ${BROKERS}                                           #  7 a variable that is not set
      topics: events
      schema: id lng                                                          #  8 an unknown type
      timeout: 5 parsecs                                                      #  9 a wrong time span
sinks:
  lake:
    connector: iceberg
    config:
      catalog: {type: rset, rest: {uri: "http://c:8181"}}                     # 10 an unknown type of catalog
      namespace: db
      table: events
      s3: {regoin: us-east-1, bucket: lake}                                   # 11 an unknown key inside
      compression: snapy                                                      # 12 an unknown codec
      batch_size: 0                                                           # 13 a number out of its range
      commit_mode: upsert                                                     # 14 keys are missing
      partitioning: bukcet                                                    # 15 an unknown partitioning
      schema_evolution: [strict]                                              # 16 a list for a text
      create_table: perhaps                                                   # 17 a text for a flag
  console: {connector: console}
pipelines:
  one:
    source: fles                                                              # 18 an unknown source
    sinks: [lake, laek]                                                       # 19 an unknown sink
    filter: "price > 10 and"                                                  # 20 SQL that ends too early
    steps:
      - with_columns: {net: "roundd(price, 2)"}                               # 21 an unknown function
      - dorp: [note]                                                          # 22 an unknown verb
      - {drop: [a], rename: {b: c}}                                           # 23 two verbs in a step
    restart: allways                                                          # 24 an unknown policy
  two: {source: files}                                                        # 25 a sink is missing
runtime:
  checkpoint_intervall: 5s                                                    # 26 an unknown setting
"""
TOLD = [
    "2:10: version '2.0' is unknown",
    "6:5: path is missing",
    "7:7: unknown key 'pth' (sources.files.config.pth)",
    "8:28: max_files_per_epoch 'ten' is not a whole number",
    "9:17: unknown key 'delimeter' (sources.files.config.options.delimeter)",
    "12:16: there is no connector 'kafak' among the sources",
    "16:26: environment variable BROKERS is not set",
    "18:15: unknown type 'lng'",
    "19:16: timeout '5 parsecs' is not valid",
    "24:23: type 'rset' is unknown (sinks.lake.config.catalog.type)",
    "27:12: unknown key 'regoin' (sinks.lake.config.s3.regoin)",
    "28:20: compression 'snapy' is unknown",
    "29:19: batch_size 0 is not valid",
    "23:5: key_fields are missing: commit_mode upsert needs them",
    "31:21: partitioning 'bukcet' is unknown",
    "32:25: schema_evolution ",
    "33:21: create_table 'perhaps' is not true or false",
    "37:13: there is no source 'fles'",
    "38:19: there is no sink 'laek'",
    "39:25: something is missing after 'and'",
    "41:29: there is no function 'roundd'",
    "42:9: unknown key 'dorp'",
    "43:9: a step has the verbs drop, rename",
    "44:14: restart 'allways' is unknown",
    "45:3: sink is missing",
    "47:3: unknown key 'checkpoint_intervall'",
]
NEAREST = [
    *("'path'", "'delimiter'", "'kafka'", "'rest'", "'region'", "'snappy'", "'bucket'", "'files'", "'lake'", "'round'"),
    *("'drop'", "'checkpoint_interval'"),
]


def test_every_mistake_is_told_in_one_run_at_its_place_with_the_nearest_key(tmp_path: Path) -> None:
    told = mistakes_of(tmp_path, MISTAKES)
    missing = [line for line in TOLD if f"volley.yaml:{line}" not in told]
    assert missing == [], told
    assert told.startswith(f"volley.yaml has {len(TOLD)} mistakes"), told
    for name in NEAREST:
        assert f"did you mean {name}" in told, name
    assert "\n      pth: in/*.json" in told
    assert "\n      ^\n" in told


def test_a_caret_stands_below_the_mistake(tmp_path: Path) -> None:
    told = mistakes_of(
        tmp_path, 'sources: {a: {connector: files, config: {path: "x", format: json, bounded: maybe}}}\n'
    )
    _, line, caret = told.split("\n\n")[1].splitlines()[:3]
    assert line[len(caret) - 1 :].startswith("maybe")


def test_names_that_do_not_fit_together(tmp_path: Path) -> None:
    text = """
    sources: {a: {connector: rate}, b: {connector: rate, streams: [{name: x}]}}
    sinks:
      lake: &lake {connector: iceberg, config: {namespace: db, table: t, local: {path: lake}}}
      same: *lake
      off: *lake
      spare: {connector: console}
    pipelines:
      one: {source: a, sink: lake, steps: [{union: [c]}]}
      two: {source: b, sinks: [same]}
      five: {source: b, sinks: [spare], sink: spare}
      three: {source: b, sink: off, enabled: false}
      four: {source: a, sinks: [spare, spare], dead_letter: spare}
    """
    told = mistakes_of(tmp_path, text)
    assert "'one' and 'two' both write to" in told
    assert "sink and sinks are both given" in told
    assert "there is no source 'c'" in told
    assert "rate has no streams" in told
    assert "sink 'spare' is there twice" in told
    assert "dead_letter 'spare' is a sink of the pipeline itself" in told


def test_what_is_not_used_is_a_warning(tmp_path: Path) -> None:
    text = """
    sources: {a: {connector: rate}, b: {connector: rate}, c: {connector: rate}}
    sinks: {used: {connector: console}, letters: {connector: files, config: {path: bad}}, spare: {connector: console}}
    pipelines:
      one: {source: a, sink: used, dead_letter: letters, steps: [{union: b}]}
    """
    assert config_of(tmp_path, text).warnings == ("sink 'spare' is not used", "source 'c' is not used")


def test_a_file_becomes_the_values_that_python_builds(tmp_path: Path) -> None:
    text = """
    version: 1.0
    sources:
      orders:
        connector: kafka
        config:
          bootstrap_servers: [a:9092, b:9092]
          topics: orders
          schema: {id: long, item: string, price: double, at: timestamp}
          include: [key, timestamp]
          starting_offsets: {orders: {0: 12, 1: 5}}
          timeout: 30s
      more: {connector: files, config: {path: "more/*.csv", options: {delimiter: ";"}, max_files_per_epoch: 3}}
      ticks: {connector: rate, config: {rows_per_second: 5}}
      table:
        connector: iceberg
        config:
          catalog: {type: sql, sql: {uri: "sqlite:////lake/catalog.db"}}
          namespace: db
          table: events
          local: {path: /lake}
          branch: audit
          mode: incremental
          poll_interval: 30s
          start_timestamp: 2026-11-01T00:00Z
          partition_filter: day > 5
          columns: [id, day]
    sinks:
      lake:
        connector: iceberg
        config:
          catalog:
            type: rest
            rest: {uri: "http://polaris:8181/api/catalog", warehouse: lake, credential: "id:hush", timeout: 10s}
          namespace: shop.raw
          table: orders
          s3: {region: eu-central-1, bucket: lake, endpoint: "http://minio:9000", path_style_access: true}
          tuning: low_latency
          flush_interval_secs: 120
          compression: zstd
          compression_level: 3
          partitioning: ["day(at)", "bucket[16](id)"]
          commit_mode: upsert
          key_fields: [id]
          order_by: at
          schema_evolution: full
          renames: {item: title}
          dead_letter: bad_orders
          maintenance: {compact_below: 64MB, every: 5m, expire_after: null}
          table_properties: {write.metadata.metrics.default: full}
      copy: {connector: kafka, config: {bootstrap_servers: "a:9092", topic: copy, key: id}}
      folder: {connector: files, config: {path: out, format: json}}
      console: {connector: console, config: {rows: 3}}
    pipelines:
      orders:
        source: orders
        sinks: [lake, copy]
        filter: price > 0
        steps:
          - union: more
          - with_columns: {net: price * 0.8, kind: 5, flag: true}
          - with_column: {upper: upper(item)}
          - with_processing_time: arrived
          - select: [id, item, at, {net: "round(net, 2)"}]
          - rename: {item: title}
          - drop: at
          - deduplicate: {keys: [id], event_time: at, within: 1h}
        restart: never
        metrics_port: 9100
      ticks: {source: ticks, sink: console, dead_letter: folder, enabled: false}
      copy: {source: table, sink: folder, steps: [{deduplicate: [id, day]}]}
    runtime: {checkpoint_dir: /var/volley, checkpoint_interval: 30s, max_restarts: 2, backoff: 1s}
    """
    config = config_of(tmp_path, text)
    environment = Environment(checkpoint_dir="/var/volley", checkpoint_interval=30)
    orders = KafkaSource(
        ["a:9092", "b:9092"],
        "orders",
        schema={"id": "long", "item": "string", "price": "double", "at": "timestamp"},
        include=["key", "timestamp"],
        starting_offsets={"orders": {0: 12, 1: 5}},
        timeout="30s",
    )
    more = FileSource("more/*.csv", options={"delimiter": ";"}, max_files_per_epoch=3)
    lake = (
        IcebergSinkConfig(
            catalog=RestCatalog("http://polaris:8181/api/catalog", "lake", credential="id:hush", timeout="10s"),
            namespace=["shop", "raw"],
            table="orders",
            storage=IcebergStorage.S3("eu-central-1", "lake", "http://minio:9000", path_style_access=True),
        )
        .with_tuning("low_latency")
        .with_flush_interval("120s")
        .with_compression("zstd", 3)
        .with_partitioning([Partitioning.time("at"), Partitioning.bucket("id", n=16)])
        .with_commit_mode(Upsert(["id"], order_by="at"))
        .with_schema_evolution("full", renames={"item": "title"})
        .with_dead_letter("bad_orders")
        .with_maintenance(Maintenance(compact_below="64MB", every="5m", expire_after=None))
        .with_table_properties({"write.metadata.metrics.default": "full"})
    )
    table = (
        IcebergSourceConfig(
            IcebergSinkConfig(
                catalog_uri="sqlite:////lake/catalog.db",
                namespace="db",
                table="events",
                storage=IcebergStorage.Local("/lake"),
                branch="audit",
            )
        )
        .with_mode(Incremental("30s", start_timestamp="2026-11-01"))
        .with_partition_filter("day > 5")
        .with_columns(["id", "day"])
    )
    copy = KafkaSink("a:9092", "copy", key="id")
    stream = (
        environment.from_source(orders)
        .filter(col("price") > 0)
        .union(environment.from_source(more))
        .with_columns(net=sql("price * 0.8"), kind=5, flag=True)
        .with_column("upper", sql("upper(item)"))
        .with_processing_time("arrived")
        .select("id", "item", "at", net=sql("round(net, 2)"))
        .rename({"item": "title"})
        .drop("at")
        .deduplicate("id", event_time="at", within="1h")
    )
    built = config.pipelines["orders"]
    assert config.environment == environment
    assert config.sources["orders"] == orders
    assert config.sinks["lake"] == IcebergSink(lake)
    assert built.stream == stream
    assert built.pipeline == stream.to_sink(IcebergSink(lake)).to_sink(copy)
    assert (built.sinks, built.restart, built.options) == (
        ("lake", "copy"),
        Restart("never", 2, "1s"),
        {"metrics_port": 9100},
    )
    ticks = environment.from_source(RateSource(5)).to_sink(ConsoleSink(3), dead_letter=FileSink("out", format="json"))
    assert config.pipelines["ticks"].pipeline == ticks
    assert not config.pipelines["ticks"].enabled
    copied = (
        environment.from_source(IcebergSource(table)).deduplicate("id", "day").to_sink(FileSink("out", format="json"))
    )
    assert config.pipelines["copy"].pipeline == copied


def test_iceberg_sources(tmp_path: Path) -> None:
    text = """
    sources:
      table:
        connector: iceberg
        config:
          catalog: {type: sql, sql: {uri: "sqlite:////lake/catalog.db"}}
          namespace: db
          table: events
          local: {path: /lake}
          branch: audit
          mode: incremental
          poll_interval: 30s
          start_timestamp: 2026-11-01T00:00Z
          columns: [id, day]
          changes: follow
          keys: id
          hold: 3d
      old: {connector: iceberg, config: {namespace: db, table: t, local: {path: /lake}, as_of: "2026-11-01"}}
    """
    sink = IcebergSinkConfig(
        catalog_uri="sqlite:////lake/catalog.db",
        namespace="db",
        table="events",
        storage=IcebergStorage.Local("/lake"),
        branch="audit",
    )
    table = (
        IcebergSourceConfig(sink)
        .with_mode(Incremental("30s", start_timestamp="2026-11-01"))
        .with_columns(["id", "day"])
        .with_changes("follow", "id")
        .with_hold("3d")
    )
    config = config_of(tmp_path, text)
    assert config.sources["table"] == IcebergSource(table)
    old = IcebergSourceConfig("t", namespace="db", storage=IcebergStorage.Local("/lake")).with_as_of("2026-11-01")
    assert config.sources["old"] == IcebergSource(old)
    told = mistakes_of(tmp_path, text.replace("as_of:", "poll_interval: 5s, as_of:"))
    assert "poll_interval is for mode incremental, not batch" in told


# Settings that documents write in another way, and how.
OTHERWISE = {
    **dict.fromkeys(["catalog_uri", "credential", "token", "warehouse"], "catalog"),
    "storage": "s3",
}


def test_documents_have_every_setting_of_the_sink_and_the_source() -> None:
    tables: list[tuple[Any, Any]] = [
        (sink_model(IcebergSinkConfig), IcebergSinkConfig),
        (source_model(IcebergSourceConfig), IcebergSourceConfig),
        (SOURCE_CONNECTORS["files"].model(), FileSource),
    ]
    for model, config in tables:
        assert {OTHERWISE.get(field.name, field.name) for field in fields(config)} <= set(model.model_fields)
    for settings in (KafkaSource, KafkaSink, FileSink, ConsoleSink, RateSource, Maintenance, RestCatalog):
        model = model_of(settings)
        assert set(model.model_fields) == {field.name for field in fields(settings) if not field.name.startswith("_")}
        assert all(field.description for field in model.model_fields.values())


def seeds() -> list[str]:
    """What the documents of the seeds show, with the names of environment variables."""
    catalog = "catalog: {type: rest, rest: {uri: http://localhost:8181, warehouse: %s}}"
    common = "namespace: analytics, table: events"
    return [
        f"{catalog % 's3://my-bucket/warehouse'}, {common}",
        "catalog: {type: rest, rest: {uri: http://polaris:8181, warehouse: s3://b/w, "
        f'credential: "${{SECRET}}", properties: {{oauth2-server-uri: https://auth.example.com/token}}}}}}, {common}',
        "catalog: {type: glue, glue: {region: us-west-2, catalog_id: '123456789012', profile: production}, warehouse: "
        f"s3://my-bucket/warehouse}}, {common}",
        f"catalog: {{type: memory, warehouse: /tmp/iceberg-warehouse}}, {common}",
        "catalog: {type: rest, rest: {uri: http://localhost:8181}}, s3: {region: us-west-2, bucket: b, access_key_id: "
        f'"${{SECRET}}", secret_access_key: "${{SECRET}}", session_token: "${{SECRET}}"}}, {common}',
        f"{catalog % 's3://my-bucket/warehouse'}, {common}, s3: {{region: us-east-1, endpoint: http://minio:9000, "
        'path_style_access: true, access_key_id: "${SECRET}", secret_access_key: "${SECRET}"}',
        f"{catalog % 'gs://my-bucket/warehouse'}, {common}, gcs: {{project_id: my-gcp-project, service_account_key: "
        '"${SECRET}"}',
        f"{catalog % 'abfss://container@account.dfs.core.windows.net/warehouse'}, {common}, azure: {{storage_account: "
        'account, access_key: "${SECRET}"}',
        f"{catalog % 's3://b/w'}, {common}, batch_size: 10000, flush_interval_secs: 60, target_file_size_mb: 128, "
        "compression: snappy",
        *(
            f"{catalog % 's3://b/w'}, {common}, {part}"
            for part in (
                "partitioning: none",
                "partitioning: table_default",
                "partitioning: identity, partition_fields: [region, country]",
                "partitioning: bucket, partition_fields: [user_id], num_buckets: 64",
                "partitioning: time, partition_fields: [event_date], time_granularity: day",
                "commit_mode: append",
                "commit_mode: overwrite",
                "commit_mode: upsert, key_fields: [id, event_date]",
                "schema_evolution: add_columns",
            )
        ),
        "catalog: {type: glue, glue: {region: us-west-2}, warehouse: s3://analytics-lake/warehouse}, "
        "namespace: ecommerce, table: orders, "
        "batch_size: 50000, flush_interval_secs: 120, target_file_size_mb: 256, partitioning: time, "
        "partition_fields: [order_date], time_granularity: day, commit_mode: upsert, key_fields: [order_id], "
        "schema_evolution: add_columns, s3: {region: us-west-2}",
    ]


def test_an_upsert_by_sequence(tmp_path: Path) -> None:
    settings = "namespace: db, table: t, local: {path: /lake}, commit_mode: upsert, key_fields: id, sequence: [day, at]"
    text = f"sinks: {{lake: {{connector: iceberg, config: {{{settings}, tombstones: 7d}}}}}}\n"
    sink = config_of(tmp_path, text).sinks["lake"]
    assert isinstance(sink, IcebergSink)
    assert sink.config.commit_mode == Upsert("id", sequence=["day", "at"], tombstones="7d")
    validator().validate(yaml.safe_load(text))


def test_a_history(tmp_path: Path) -> None:
    settings = "namespace: db, table: t, local: {path: /lake}, commit_mode: history, key_fields: id, op_field: op"
    settings += ', sequence: [day, "at + 1"], track: [name], tombstones: 7d, valid_from: since, is_current: holds'
    text = f"sinks: {{lake: {{connector: iceberg, config: {{{settings}}}}}}}\n"
    sink = config_of(tmp_path, text).sinks["lake"]
    assert isinstance(sink, IcebergSink)
    sequence: list[Any] = ["day", col("at") + 1]
    mode = History("id", sequence=sequence, op_field="op", track="name", tombstones="7d")
    assert sink.config.commit_mode == replace(mode, valid_from="since", is_current="holds")
    validator().validate(yaml.safe_load(text))


def test_an_upsert_by_an_expression_with_nulls_that_leave_values_as_they_are(tmp_path: Path) -> None:
    settings = "namespace: db, table: t, local: {path: /lake}, commit_mode: upsert, key_fields: id"
    settings += ', sequence: ["coalesce(updated_at, created_at)", "version"], ignore_nulls: [name, "e-mail"]'
    text = f"sinks: {{lake: {{connector: iceberg, config: {{{settings}}}}}}}\n"
    sink = config_of(tmp_path, text).sinks["lake"]
    assert isinstance(sink, IcebergSink)
    sequence: list[Any] = [coalesce(col("updated_at"), col("created_at")), "version"]
    assert sink.config.commit_mode == Upsert("id", sequence=sequence, ignore_nulls=["name", "e-mail"])
    validator().validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ('sequence: "coalesce(a"', "sequence"),
        ("sequence: a, update_columns: [b]", "update_columns and sequence are both given"),
        ("unchanged_field: m, ignore_nulls: true", "unchanged_field and ignore_nulls"),
        ("sequence: a, track: [b]", "track is for commit_mode history, not upsert"),
    ],
)
def test_upserts_that_make_no_sense(settings: str, said: str, tmp_path: Path) -> None:
    config = f"namespace: db, table: t, local: {{path: /lake}}, commit_mode: upsert, key_fields: id, {settings}"
    with pytest.raises(ConfigError, match=said):
        config_of(tmp_path, f"sinks: {{lake: {{connector: iceberg, config: {{{config}}}}}}}\n")


def test_changes_from_snapshots(tmp_path: Path) -> None:
    text = """
sources: {dumps: {connector: files, config: {path: in, format: csv, schema: "id long, day date"}}}
sinks: {lake: {connector: iceberg, config: {namespace: db, table: t, local: {path: /lake}, commit_mode: upsert}}}
pipelines:
  dumps: {source: dumps, changes_from_snapshots: {keys: id, version: day, max_deleted: 0.1}, sink: lake}
"""
    stream = config_of(tmp_path, text).pipelines["dumps"].stream
    source = FileSource("in", "csv", "id long, day date")
    assert str(stream) == str(Environment().changes_from_snapshots(source, "id", "day", max_deleted=0.1))
    validator().validate(yaml.safe_load(text))
    with pytest.raises(ConfigError, match=r"max_deleted 1.5 is not valid \(pipelines.dumps.changes_from_snapshots"):
        config_of(tmp_path, text.replace("0.1", "1.5"))


@pytest.mark.parametrize("settings", seeds())
def test_sinks_of_the_seeds(settings: str, tmp_path: Path) -> None:
    text = f"sinks: {{lake: {{connector: iceberg, config: {{{settings}}}}}}}\n"
    config = config_of(tmp_path, text, SECRET="hunter2hunter2")
    assert isinstance(config.sinks["lake"], IcebergSink)
    assert "hunter2" not in repr(config)
    validator().validate(yaml.safe_load(text))


def examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.yaml"))


def test_the_json_schema_takes_examples_and_finds_mistakes() -> None:
    for example in examples():
        assert list(validator().iter_errors(yaml.safe_load(example.read_text()))) == []
    wrong = yaml.safe_load(MISTAKES)
    places = {".".join(map(str, error.absolute_path)) for error in validator().iter_errors(wrong)}
    assert {"version", "sources.files.config", "sources.kafka.connector", "sinks.lake.config", "runtime"} <= places
    assert len(json.dumps(json_schema())) < 200_000


def test_models_warn_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of.__wrapped__(FileSource, frozenset({"notifications"}))


class TestFromDocuments:
    def test_dicts(self) -> None:
        settings = {"namespace": "db", "table": "t", "local": {"path": "/lake"}, "max_records": 5}
        storage = IcebergStorage.Local("/lake")
        assert IcebergSinkConfig.from_dict(settings) == IcebergSinkConfig(
            namespace="db", table="t", storage=storage, max_records=5
        )
        source = IcebergSourceConfig.from_dict({"namespace": "db", "table": "t", "local": {"path": "/lake"}})
        assert source == IcebergSourceConfig("t", namespace="db", storage=storage)

    def test_all_mistakes_of_a_dict_are_told_at_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            IcebergSinkConfig.from_dict(
                {"tabel": "t", "local": {"path": "/lake"}, "compression": "snapy", "batch_size": 0}
            )
        told = str(caught.value)
        assert told.startswith("IcebergSinkConfig has 5 mistakes")
        for part in ("unknown key 'tabel'", "did you mean 'table'", "'snappy'", "batch_size 0", "table is missing"):
            assert part in told

    def test_environment_variables(self) -> None:
        variables = {
            "LAKE_CATALOG__TYPE": "rest",
            "LAKE_CATALOG__REST__URI": "http://polaris:8181",
            "LAKE_CATALOG__REST__CREDENTIAL": "id:hush",
            "LAKE_NAMESPACE": "shop.raw",
            "LAKE_TABLE": "orders",
            "LAKE_S3__REGION": "us-east-1",
            "LAKE_S3__BUCKET": "lake",
            "LAKE_BATCH_SIZE": "500",
            "LAKE_CREATE_TABLE": "false",
            "LAKE_FLUSH_INTERVAL": "30",
            "LAKE_COMMIT_MODE": "upsert",
            "LAKE_KEY_FIELDS": "[id, at]",
            "OTHER_TABLE": "x",
        }
        assert IcebergSinkConfig.from_env("LAKE_", variables) == IcebergSinkConfig(
            catalog=RestCatalog("http://polaris:8181", credential="id:hush"),
            namespace="shop.raw",
            table="orders",
            storage=IcebergStorage.S3("us-east-1", "lake"),
            batch_size=500,
            create_table=False,
            commit_mode=Upsert(["id", "at"]),
        ).with_flush_interval(30)

    def test_the_process_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"NAMESPACE": "db", "TABLE": "t", "LOCAL__PATH": "/lake"}.items():
            monkeypatch.setenv(f"VOLLEY_TEST_{name}", value)
        assert IcebergSinkConfig.from_env("VOLLEY_TEST_").table_name == "db.t"
        monkeypatch.setenv("VOLLEY_TEST_KEY_FIELDS", "[a")
        with pytest.raises(ConfigError, match="VOLLEY_TEST_KEY_FIELDS"):
            IcebergSinkConfig.from_env("VOLLEY_TEST_")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 101 + "]" * 101,
        "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 101)),
        "a: " + "{b: " * 101 + "1" + "}" * 101,
    ],
)
def test_values_that_are_nested_too_deep(tmp_path: Path, text: str) -> None:
    assert "nested more than 100 levels deep" in mistakes_of(tmp_path, text)


def test_merged_keys_count_as_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "_MOST_VALUES", 60)
    lines = ["a0: &a0 {b: 1, c: 2}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 5))]
    assert "aliases stand for too many values" in mistakes_of(tmp_path, "\n".join(lines))


def test_a_line_is_masked_for_its_mistakes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # To mask a line once for each of its values takes minutes for one of some kilobytes.
    masked: list[str] = []

    def mask(line: str) -> str:
        masked.append(line)
        return line

    monkeypatch.setattr(yaml_text, "redact_uri", mask)
    text = "a: [" + "b, " * 100 + "!c d]\n" + "e: [" + "f, " * 400 + "!g h]\n"
    document = parse(text, "a.yaml", References({}))
    assert len(document.value["e"]) == 401
    assert len(masked) == 2
    assert [mistake.describe("a.yaml").splitlines()[-3:] for mistake in document.mistakes] == [
        [text.splitlines()[0], " " * 304 + "^", "  hint: leave it out"],
        ["(a line of 1,209 characters)", "^", "  hint: leave it out"],
    ]


@pytest.mark.parametrize("item", ["b{}: !x 1", "b{}: ${{NONE}}", "b{}: 1"])
def test_some_mistakes_of_many_are_told(tmp_path: Path, item: str) -> None:
    told = mistakes_of(tmp_path, "\n".join(item.format(number) for number in range(300)))
    assert "has 100 mistakes or more" in told
    assert told.count("volley.yaml:") == 100


@pytest.mark.parametrize("value", ["!secret {b: 1}", "!!set {b}", "!!omap [b: 1]", "!list [1, 2]"])
def test_tags_of_collections_are_refused(tmp_path: Path, value: str) -> None:
    assert "is not allowed" in mistakes_of(tmp_path, f"a: {value}")


@pytest.mark.parametrize(
    ("text", "catalog"),
    [
        ("{type: polaris, warehouse: lake, polaris: {uri: 'http://p'}}", PolarisCatalog("http://p", "lake")),
        ("{type: polaris, polaris: {uri: 'http://p', warehouse: lake}}", PolarisCatalog("http://p", "lake")),
        (f"{{type: s3_tables, warehouse: '{ARN}', s3_tables: {{profile: x}}}}", S3TablesCatalog(ARN, profile="x")),
        (
            "{type: biglake, warehouse: 'gs://lake', biglake: {project: p, token: hush}}",
            BigLakeCatalog("gs://lake", project="p", token="hush"),
        ),
    ],
)
def test_the_warehouse_of_a_catalog_stands_beside_its_type_or_among_its_settings(
    tmp_path: Path, text: str, catalog: RestCatalog
) -> None:
    settings = f"catalog: {text}, namespace: db, table: t, local: {{path: /lake}}"
    sink = config_of(tmp_path, f"sinks: {{lake: {{connector: iceberg, config: {{{settings}}}}}}}\n").sinks["lake"]
    assert isinstance(sink, IcebergSink)
    assert (sink.config.ref.catalog, sink.config.ref.to_properties()["warehouse"]) == (catalog, catalog.warehouse)


def test_a_catalog_without_its_warehouse(tmp_path: Path) -> None:
    settings = "catalog: {type: unity, unity: {uri: 'http://u'}}, namespace: db, table: t, local: {path: /lake}"
    said = mistakes_of(tmp_path, f"sinks: {{lake: {{connector: iceberg, config: {{{settings}}}}}}}\n")
    assert "unity.warehouse is missing" in said
    assert "or warehouse beside the type" in said


QUERIES = """
sources:
  orders: {connector: files, config: {path: o, format: json, schema: "id long, n int, at timestamp", bounded: false}}
  names: {connector: files, config: {path: n, format: json, schema: "id long, name string", bounded: true}}
sinks:
  out: {connector: console}
  lake: {connector: iceberg, config: {namespace: db, table: t, local: {path: lake}}}
pipelines:
  p:
    query: QUERY
    sink: out
VIEWS
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that has the sources' files."""
    monkeypatch.chdir(tmp_path)
    for name in ("o", "n"):
        Path(name).mkdir()
        Path(name, "one.json").write_text('{"id": 1}')
    return tmp_path


def test_a_query_stands_in_place_of_a_source(in_folder: Path) -> None:
    text = "|\n      select o.id, name from orders o\n      join names using (id) where n > 1\n    steps: [{drop: id}]"
    config = config_of(in_folder, QUERIES.replace("QUERY", text).replace("VIEWS", ""))
    pipeline = config.pipelines["p"]
    assert pipeline.sources == ("orders", "names")
    orders, names = (config.environment.from_source(config.sources[name]) for name in ("orders", "names"))
    query = "select o.id, name from orders o\njoin names using (id) where n > 1\n"
    expected = config.environment.sql(query, orders=orders, names=names).drop("id")
    assert repr(pipeline.stream) == repr(expected)
    timed = "{text: 'select window.end as t, sum(n) as n from orders group by window(at, ''1 hour'')', lateness: 5m}"
    config = config_of(in_folder, QUERIES.replace("QUERY", timed).replace("VIEWS", ""))
    (groups,) = config.pipelines["p"].stream._node.inputs
    assert isinstance(groups, Aggregate)
    assert groups.windowing is not None
    assert groups.windowing.lateness == timedelta(minutes=5)


def test_mistakes_of_queries_are_told_at_their_place(in_folder: Path) -> None:
    view = "views: {v: {query: select id from lakes, sink: lake}, w: {sink: lake}}"
    told = mistakes_of(in_folder, QUERIES.replace("QUERY", '"select nope from orders"').replace("VIEWS", view))
    for part in (
        "10:12: there is no column nope in line 1, column 8",
        "12:20: there is no source 'lakes'",
        "12:55: source is missing",
    ):
        assert part in told, told
    both = QUERIES.replace("QUERY", "select id from orders\n    source: names").replace("VIEWS", "")
    assert "11:5: source beside query" in mistakes_of(in_folder, both)
