"""Change capture, webhooks, sinks of many tables, windows, joins, branches and views in YAML are what Python builds."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.editor import validator
from volley import (
    AzureQueue,
    BearerAuth,
    ConfigError,
    ConsoleSink,
    Environment,
    FileSource,
    HmacAuth,
    MaterializedView,
    PostgresSource,
    PublicKeyAuth,
    PubSubSubscription,
    RateSource,
    ServerTls,
    SignatureScheme,
    SnsAuth,
    SqsQueue,
    WebhookSource,
    calendar,
    col,
    cumulative,
    load_config,
    session,
    sliding,
    sql,
    tumbling,
)
from volley.config.values import Config
from volley.documents.references import References
from volley.documents.yaml_text import parse
from volley.iceberg import (
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    IcebergTable,
    TableRef,
    Upsert,
)
from volley.plan.aggregates import avg, count, last, quantile, sum_, top
from volley.plan.over import dense_rank, lag, lead, rank, row_number, rows_between
from volley.plan.series import ewm_mean, increase, previous, rate, rolling, session_start
from volley.plan.windows import Window

TEXT = """
sources:
  shop:
    connector: postgres
    config: {host: db, database: shop, user: me, slot_name: orders, publication: orders, changelog: true}
    streams: [{name: orders, sync_mode: changes_only}]
sinks:
  lake:
    connector: iceberg
    config: {namespace: lake, table: all, local: {path: /lake}, route: {table: "{item}", omit: item, on_error: park}}
pipelines:
  shop:
    source: shop
    sink: lake
    steps:
      - expect: {name: there is a price, predicate: price is not null, on_fail: drop, max_failed: 0.5}
      - explode: tags
      - window: {keys: item, tumbling: 1m, on: at, lateness: 10s, aggregate: {n: count, total: {sum: price * 2}}}
"""


def config_of(folder: Path, text: str, **variables: str) -> Config:
    """The file is fine for editors, too."""
    validator().validate(parse(text, "volley.yaml", References(variables)).value)
    file = folder / "volley.yaml"
    file.write_text(text)
    return load_config(file, variables)


def test_a_connector_is_found_by_the_name_that_it_had_in_0_2_0(tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    file.write_text(TEXT.replace("connector: postgres", "connector: postgres-cdc"))
    assert load_config(file, {}).sources == config_of(tmp_path, TEXT).sources


def mistakes_of(folder: Path, text: str) -> str:
    file = folder / "volley.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    return str(caught.value).replace(f"{file}:", "")


def test_change_capture_routes_and_windows(tmp_path: Path) -> None:
    config = config_of(tmp_path, TEXT)
    source = PostgresSource(
        host="db",
        database="shop",
        user="me",
        slot_name="orders",
        publication="orders",
        tables="public.orders",
        load="none",
        changelog=True,
    )
    lake = IcebergSinkConfig(namespace="lake", table="all", storage=IcebergStorage.Local("/lake"))
    stream = (
        Environment()
        .from_source(source)
        .expect("there is a price", "price is not null", on_fail="drop", max_failed=0.5)
        .explode("tags")
        .key_by("item")
        .window(tumbling("1m"), on="at", lateness="10s")
        .aggregate(n=count(), total=sum_(col("price") * 2))
    )
    assert config.sources["shop"] == source
    assert config.sinks["lake"] == IcebergSink(lake).routed("{item}", omit="item", on_error="park")
    assert config.pipelines["shop"].stream == stream


MANY = """
sources:
  shop:
    connector: postgres
    config: {host: db, database: shop, user: me, slot_name: shop, publication: shop, on_rewrite: reload}
    streams: [{name: "order_*"}, {name: users, namespace: crm}]
sinks:
  lake:
    connector: iceberg
    config:
      {namespace: lake, table: all, local: {path: /lake}, commit_mode: upsert, schema_evolution: full,
       route: {table: "{namespace}_{table}", rows: rows}}
pipelines:
  shop: {source: shop, sink: lake}
"""


def test_several_tables_of_one_slot(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(MANY)
    config = load_config(tmp_path / "volley.yaml", {})
    assert config.sources["shop"] == PostgresSource(
        host="db",
        database="shop",
        user="me",
        slot_name="shop",
        publication="shop",
        tables=["public.order_*", "crm.users"],
        on_rewrite="reload",
    )
    lake = IcebergSinkConfig(namespace="lake", table="all", storage=IcebergStorage.Local("/lake"))
    lake = lake.with_commit_mode(Upsert()).with_schema_evolution("full")
    assert config.sinks["lake"] == IcebergSink(lake).routed("{namespace}_{table}", rows="rows")
    (tmp_path / "volley.yaml").write_text(MANY.replace("users,", "users, sync_mode: changes_only,"))
    with pytest.raises(ConfigError, match="differ in sync_mode"):
        load_config(tmp_path / "volley.yaml", {})


UPSERT = """
sources:
  shop:
    connector: postgres
    config: {host: db, database: shop, user: me, slot_name: orders, publication: orders, tables: public.orders}
  ticks: {connector: rate}
sinks:
  lake: {connector: iceberg, config: {namespace: lake, table: t, local: {path: /lake}, commit_mode: upsert}}
pipelines:
  shop: {source: shop, sink: lake}
"""


def test_an_upsert_by_the_primary_key_of_a_captured_table(tmp_path: Path) -> None:
    sink = config_of(tmp_path, UPSERT).sinks["lake"]
    assert isinstance(sink, IcebergSink)
    assert sink.config.commit_mode == Upsert()
    assert "key_fields are missing" in mistakes_of(tmp_path, UPSERT.replace("source: shop", "source: ticks"))


HOOKS = """
sources:
  github:
    connector: webhook
    config:
      port: 9000
      path: /github
      schema: {action: string}
      include: [received_at]
      header_columns: {event: X-GitHub-Event}
      idempotency: "header:X-GitHub-Delivery"
      auth: {hmac: github, secret: ["${SECRET}", old], tolerance: 1m}
      tls: {certificate: server.pem, key: server.key}
      max_body: 2MB
  open: {connector: webhook, config: {value_format: raw, auth: {bearer: "${SECRET}"}}}
  mail: {connector: webhook, config: {schema: id long, auth: {public_key: sendgrid, key: MFkw, tolerance: 1d}}}
  topic: {connector: webhook, config: {schema: id long, auth: {sns: "arn:aws:sns:eu-west-1:123456789012:orders"}}}
  own:
    connector: webhook
    config:
      value_format: cloudevents
      schema: id string
      idempotency: cloudevents
      trusted_proxies: 10.0.0.0/8
      allowed_origins: [eventgrid.azure.net]
      auth:
        hmac: custom
        secret: "${SECRET}"
        scheme: {header: X-S, signed: "{timestamp}.{body}", prefix: v1=, separator: ",", timestamp: t=}
"""


def test_webhooks(tmp_path: Path) -> None:
    config = config_of(tmp_path, HOOKS, SECRET="hunter2hunter2")
    assert config.sources["github"] == WebhookSource(
        port=9000,
        path="/github",
        schema={"action": "string"},
        include=["received_at"],
        header_columns={"event": "X-GitHub-Event"},
        idempotency="header:X-GitHub-Delivery",
        auth=HmacAuth("github", ["hunter2hunter2", "old"], "1m"),
        tls=ServerTls("server.pem", "server.key"),
        max_body="2MB",
    )
    assert config.sources["open"] == WebhookSource(value_format="raw", auth=BearerAuth("hunter2hunter2"))
    key = PublicKeyAuth("sendgrid", "MFkw", "1d")
    assert config.sources["mail"] == WebhookSource(schema="id long", auth=key)
    topic = SnsAuth("arn:aws:sns:eu-west-1:123456789012:orders")
    assert config.sources["topic"] == WebhookSource(schema="id long", auth=topic)
    scheme = SignatureScheme("X-S", "{timestamp}.{body}", prefix="v1=", separator=",", timestamp="t=")
    assert config.sources["own"] == WebhookSource(
        value_format="cloudevents",
        schema="id string",
        idempotency="cloudevents",
        trusted_proxies="10.0.0.0/8",
        allowed_origins="eventgrid.azure.net",
        auth=HmacAuth(scheme, "hunter2hunter2"),
    )
    assert "hunter2" not in repr(config) + config.text


def test_mistakes_of_webhooks(tmp_path: Path) -> None:
    told = mistakes_of(
        tmp_path,
        """
sources:
  a: {connector: webhook, config: {pth: /a, schema: id long, auth: {bearer: x, tolerance: 5m}}}
  b: {connector: webhook, config: {schema: id long, auth: {hmac: github}, tls: {key: server.key}}}
  c: {connector: webhook, config: {schema: id long, auth: {}, max_body: 1 parsec}}
  d: {connector: webhook, config: {schema: id long, auth: {hmac: github, secret: ""}, port: 99999}}
  e: {connector: webhook, config: {schema: id long, auth: {public_key: sendgrid, secret: x}}}
  f: {connector: webhook, config: {schema: id long, auth: {hmac: custom, secret: x}}}
  g: {connector: webhook, config: {schema: id long, auth: {hmac: custom, secret: x, scheme: {header: S, id: I}}}}
  h: {connector: webhook, config: {schema: id long, auth: {sns: orders}}}
""",
    )
    for line in (
        "3:36: unknown key 'pth'",
        "3:80: tolerance is for hmac and public_key, not for bearer",
        "4:53: secret is missing: hmac needs it",
        "4:75: certificate is missing",
        "5:59: auth has none of hmac, public_key, sns, bearer",
        "5:73: max_body '1 parsec' is not valid",
        "6:82: secret ",
        "6:93: port 99999",
        "7:82: secret is for hmac, not for public_key",
        "7:53: key is missing: public_key needs it",
        "8:59: hmac is 'custom', and scheme is missing",
        "9:109: id is 'I', and signed '{body}'",
        "10:65: topics has 'orders'",
    ):
        assert line in told, told
    assert "did you mean 'path'" in told


FILES = """
sources:
  s3:
    connector: files
    config:
      path: s3://lake/in
      format: json
      exclude: ["*.bak"]
      on_replaced: read
      notifications: {sqs: {url: "https://sqs.eu-west-1.amazonaws.com/1/new", list_every: 6h}}
  gcs:
    connector: files
    config: {path: "gs://lake/in/*.json", notifications: {pub_sub: {name: projects/p/subscriptions/s}}}
  azure:
    connector: files
    config: {path: "abfs://lake/in/*.json", notifications: {azure: {url: "https://a.queue.core.windows.net/new"}}}
"""


def test_files_of_which_a_queue_tells(tmp_path: Path) -> None:
    config = config_of(tmp_path, FILES)
    queue = SqsQueue("https://sqs.eu-west-1.amazonaws.com/1/new", list_every="6h")
    assert config.sources["s3"] == FileSource(
        "s3://lake/in", format="json", exclude=["*.bak"], on_replaced="read", notifications=queue
    )
    storage = AzureQueue("https://a.queue.core.windows.net/new")
    assert config.sources["azure"] == FileSource("abfs://lake/in/*.json", notifications=storage)
    subscription = PubSubSubscription("projects/p/subscriptions/s")
    assert config.sources["gcs"] == FileSource("gs://lake/in/*.json", notifications=subscription)
    told = mistakes_of(
        tmp_path,
        FILES.replace("https://sqs.eu", "sqs.eu").replace("{pub_sub: {name: projects/p/subscriptions/s}}", "{}"),
    )
    assert "url is no URL" in told
    assert "notifications has 0 queues" in told


LAKE = """
sources:
  ticks: {connector: rate}
  customers: {connector: iceberg, config: {namespace: db, table: customers, local: {path: /lake}}}
  orders: {connector: iceberg, config: {namespace: db, table: orders, local: {path: /lake}}}
sinks:
  a: {connector: iceberg, config: {namespace: db, table: a, local: {path: /lake}}}
  b: {connector: iceberg, config: {namespace: db, table: b, local: {path: /lake}}}
  bad: {connector: iceberg, config: {namespace: db, table: bad, local: {path: /lake}}}
  c: {connector: console}
"""
STORAGE = IcebergStorage.Local("/lake")
CUSTOMERS = TableRef("db", "customers", STORAGE)


def lake(table: str) -> IcebergSink:
    return IcebergSink(IcebergSinkConfig(namespace="db", table=table, storage=STORAGE))


def test_joins(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  one:
    source: ticks
    sink: a
    steps:
      - join: {{table: customers, on: {{value: id}}, how: left, as_of: [timestamp, valid_from], columns: [name],
               suffix: _c, max_bytes: 1MB}}
      - join: {{table: orders, on: value, as_of: timestamp}}
"""
    config = config_of(tmp_path, text)
    stream = (
        Environment()
        .from_source(RateSource())
        .join(
            IcebergTable(CUSTOMERS),
            on={"value": "id"},
            how="left",
            as_of=("timestamp", "valid_from"),
            columns=["name"],
            suffix="_c",
            max_bytes=1 << 20,
        )
        .join(CUSTOMERS.beside("orders"), on="value", as_of="timestamp")
    )
    assert config.pipelines["one"].stream == stream
    assert config.pipelines["one"].sources == ("ticks", "customers", "orders")
    assert config.warnings == ("sink 'b' is not used", "sink 'bad' is not used", "sink 'c' is not used")


def test_joins_of_streams(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  one:
    source: ticks
    sink: c
    steps:
      - join: {{stream: orders, on: {{value: id}}, within: [0s, 1h], time: [timestamp, at], lateness: 1m, late: drop}}
      - join: {{stream: orders, on: value, within: 5m, time: at, max_ahead: null, suffix: _o}}
"""
    config = config_of(tmp_path, text)
    orders = Environment().from_source(IcebergSource(IcebergSourceConfig(CUSTOMERS.beside("orders"))))
    stream = (
        Environment()
        .from_source(RateSource())
        .join(orders, on={"value": "id"}, within=("0s", "1h"), time=("timestamp", "at"), lateness="1m")
        .join(orders, on="value", within="5m", time="at", max_ahead=None, suffix="_o")
    )
    assert config.pipelines["one"].stream == stream


def test_branches(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  one:
    source: ticks
    filter: value > 0
    split:
      if: value < 100
      then: {{sink: a}}
      else:
        steps: [{{drop: timestamp}}]
        dead_letter: c
        split: {{if: value < 1000, then: {{sinks: [b]}}, else: {{sink: bad}}}}
"""
    config = config_of(tmp_path, text)
    few, many = Environment().from_source(RateSource()).filter(col("value") > 0).split(sql("value < 100"))
    several, most = many.drop("timestamp").split(sql("value < 1000"))
    built = config.pipelines["one"]
    assert [branch.stream for branch in built.branches] == [few, several, most]
    assert built.sinks == ("a", "b", "bad")
    console = ConsoleSink()
    expected = [few.to_sink(lake("a")), several.to_sink(lake("b"), console), most.to_sink(lake("bad"), console)]
    assert str(built.pipeline) == "\n".join(map(str, expected))


def test_views(tmp_path: Path) -> None:
    text = f"""{LAKE}
views:
  revenue:
    source: orders
    sink: a
    filter: price > 0
    steps:
      - join: {{table: customers, on: customer}}
      - aggregate: {{keys: customer, aggregate: {{n: count, total: {{sum: price * amount}}}}}}
    mode: incremental
    strict: true
    interval: 1m
  off: {{source: orders, sink: a, enabled: false}}
"""
    config = config_of(tmp_path, text)
    query = (
        Environment()
        .from_source(IcebergSource(IcebergSourceConfig(CUSTOMERS.beside("orders"))))
        .filter(col("price") > 0)
        .join(IcebergTable(CUSTOMERS), on="customer")
        .key_by("customer")
        .aggregate(n=count(), total=sum_(sql("price * amount")))
    )
    revenue = config.views["revenue"]
    assert revenue.view == MaterializedView("revenue", query, lake("a").config, "incremental", strict=True)
    assert (revenue.sources, revenue.sink, revenue.interval) == (("orders", "customers"), "a", timedelta(minutes=1))
    assert not config.views["off"].enabled


def test_mistakes_of_joins_branches_and_views(tmp_path: Path) -> None:
    told = mistakes_of(
        tmp_path,
        f"""{LAKE}
pipelines:
  one:
    source: orders
    sink: c
    steps:
      - join: {{table: custmers, on: id}}
      - join: {{table: ticks, on: id}}
      - join: {{table: customers, on: id, how: outer, colums: [a]}}
      - join: {{table: customers, on: id, as_of: [a, b, c]}}
      - join: {{on: id}}
      - join: {{stream: orders, on: id, within: 1 parsec}}
      - aggregate: {{keys: item, aggregate: {{n: {{quantil: price}}, m: {{quantile: price, p: 1}}}}}}
    split:
      if: price >
      then: {{sink: a, filter: price > 1}}
      else: {{sink: a}}
  two: {{source: orders, sink: b, split: {{if: a > 1, then: {{sink: b}}}}}}
views:
  one: {{source: orders, sink: b}}
  three: {{source: ticks, sink: b}}
  four: {{source: orders, sink: c, mode: quick}}
  five: {{source: orders, sink: bad, steps: [{{limit: 5}}], interval: never}}
""",
    )
    for line in (
        "there is no source 'custmers'",
        "a stream is joined with a table, not with RateSource",
        "how 'outer' is unknown",
        "unknown key 'colums'",
        "as_of is ('a', 'b', 'c')",
        "a join has one of table and stream",
        "within '1 parsec' is not valid",
        "there is no aggregate 'quantil'",
        "quantile has no argument 'p'",
        "sink beside split",
        "something is missing after '>'",
        "unknown key 'filter'",
        "else is missing",
        "sink 'a' is in 2 branches",
        "there is a pipeline 'one', too",
        "a view can't read RateSource",
        "sink 'c' is no Iceberg table",
        "mode 'quick' is unknown",
        "a view can't have the step limit 5",
        "interval 'never' is not valid",
    ):
        assert line in told, told


def test_aggregates_with_arguments(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  one:
    source: ticks
    sink: c
    steps: [{{window: {{keys: value, tumbling: 1m, on: timestamp, aggregate: {{p: {{quantile: value, q: 0.9}}}}}}}}]
"""
    config = config_of(tmp_path, text)
    ticks = Environment().from_source(RateSource())
    windows = ticks.key_by("value").window(tumbling("1m"), on="timestamp").aggregate(p=quantile("value", 0.9))
    assert config.pipelines["one"].stream == windows


def test_series_gaps_and_the_steps_of_written_files(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  filled:
    source: ticks
    sink: c
    steps:
      - window:
          keys: value
          tumbling: 1m
          on: timestamp
          fill_gaps: 1h
          aggregate:
            n: {{count: value}}
            latest: {{last: value * 2, gaps: forward_fill}}
            mean: {{avg: value, gaps: interpolate}}
            best: {{top: value, limit: 3, by: value % 10}}
      - repartition: {{tasks: 4, by: value}}
      - sort_within_epoch: [window_start desc, n]
  series:
    source: ticks
    sink: b
    steps:
      - series:
          keys: [value]
          on: timestamp
          lateness: 10s
          late: drop
          pause: 1d
          max_ahead: null
          columns:
            mean: {{rolling: 5m, aggregation: {{avg: value}}}}
            n: {{rolling: 5m, aggregation: count}}
            smooth: {{ewm_mean: value, half_life: 1m}}
            grown: {{increase: value}}
            speed: {{rate: value, per: 1m}}
            before: {{previous: value + 1}}
            session: {{session_start: 30m}}
      - repartition: 2
"""
    config = config_of(tmp_path, text)
    by_value = Environment().from_source(RateSource()).key_by("value")
    filled = by_value.window(tumbling("1m"), on="timestamp", fill_gaps="1h").aggregate(
        n=count("value"),
        latest=last(sql("value * 2")).forward_fill(),
        mean=avg("value").interpolate(),
        best=top("value", 3, by=sql("value % 10")),
    )
    sorted_rows = filled.repartition(4, by="value").sort_within_epoch("window_start desc", "n")
    assert config.pipelines["filled"].stream == sorted_rows
    series = by_value.series(on="timestamp", lateness="10s", pause="1d", max_ahead=None).with_columns(
        mean=rolling("5m", avg("value")),
        n=rolling("5m", count()),
        smooth=ewm_mean("value", "1m"),
        grown=increase("value"),
        speed=rate("value", per="1m"),
        before=previous(sql("value + 1")),
        session=session_start("30m"),
    )
    assert config.pipelines["series"].stream == series.repartition(2)


def test_places(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  places:
    source: ticks
    sink: b
    steps:
      - order_by:
          keys: value
          order: [timestamp desc]
          buckets: 4
          ttl: 2h
          columns:
            place: row_number
            shared: rank
            dense: dense_rank
            n: count
            before: {{lag: value + 1, rows: 2}}
            behind: {{lead: value}}
            total: {{sum: value}}
            five: {{rows_between: {{avg: value}}, before: 4, after: null}}
      - filter: place <= 3
"""
    ordered = Environment().from_source(RateSource()).key_by("value").order_by("timestamp desc", ttl="2h", buckets=4)
    placed = ordered.with_columns(
        place=row_number(),
        shared=rank(),
        dense=dense_rank(),
        n=count(),
        before=lag(sql("value + 1"), 2),
        behind=lead("value"),
        total=sum_("value"),
        five=rows_between(avg("value"), before=4, after=None),
    )
    assert config_of(tmp_path, text).pipelines["places"].stream == placed.filter(col("place") <= 3)


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ("tumbling: 1d, offset: 6h", tumbling("1d", offset="6h")),
        ("sliding: {size: 5m, every: 1m, offset: 30s}", sliding("5m", every="1m", offset="30s")),
        ("cumulative: {size: 1d, step: 1h}", cumulative("1d", step="1h")),
        ("calendar: month", calendar("month")),
        ("calendar: day, zone: Europe/Berlin", calendar("day", "Europe/Berlin")),
        ("session: 30m", session("30m")),
    ],
)
def test_kinds_of_windows(shape: str, window: Window, tmp_path: Path) -> None:
    step = f"window: {{keys: value, on: timestamp, {shape}, aggregate: {{n: count}}}}"
    text = f"{LAKE}\npipelines:\n  p: {{source: ticks, sink: b, steps: [{{{step}}}]}}\n"
    keyed = Environment().from_source(RateSource()).key_by("value")
    stream = config_of(tmp_path, text).pipelines["p"].stream
    assert stream == keyed.window(window, on="timestamp").aggregate(n=count())


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("tumbling: 1d, zone: UTC", "a tumbling window has zone"),
        ("calendar: day, offset: 1h", "a calendar window has offset"),
        ("calendar: fortnight", "'fortnight'"),
        ("cumulative: {size: 1h, step: 7m}", "don't consist of steps"),
    ],
)
def test_wrong_windows_are_named(shape: str, message: str, tmp_path: Path) -> None:
    step = f"window: {{keys: value, on: timestamp, {shape}, aggregate: {{n: count}}}}"
    told = mistakes_of(tmp_path, f"{LAKE}\npipelines:\n  p: {{source: ticks, sink: b, steps: [{{{step}}}]}}\n")
    assert message in told


def test_groups_that_are_kept_for_some_time(tmp_path: Path) -> None:
    text = f"""{LAKE}
pipelines:
  groups: {{source: ticks, sink: b, steps: [{{aggregate: {{keys: value, ttl: 30d, aggregate: {{n: count}}}}}}]}}
"""
    groups = Environment().from_source(RateSource()).key_by("value").retain("30d").aggregate(n=count())
    assert config_of(tmp_path, text).pipelines["groups"].stream == groups


def test_mistakes_of_series_and_gaps(tmp_path: Path) -> None:
    told = mistakes_of(
        tmp_path,
        f"""{LAKE}
pipelines:
  one:
    source: ticks
    sink: c
    steps:
      - series:
          keys: value
          on: timestamp
          columns:
            a: {{rollin: 5m}}
            b: {{rolling: 5m}}
            c: {{rolling: 5m, aggregation: {{sum: value >}}}}
            d: {{rate: value, per: 1 parsec}}
            e: {{previous: value, rate: value}}
      - window:
          keys: value
          tumbling: 1m
          on: timestamp
          aggregate:
            f: {{quantile: value, q: 2}}
            g: {{last: value, gaps: zero}}
            h: {{top: value}}
            i: {{last: value, gaps: forward_fill}}
      - repartition: 0
      - sort_within_epoch: []
""",
    )
    lines = {
        "a: {rollin: 5m}": "there is no series function 'rollin'",
        "b: {rolling: 5m}": "rolling has no aggregation",
        "c: {rolling: 5m, aggregation: {sum: value >}}": "something is missing after '>'",
        "d: {rate: value, per: 1 parsec}": "per '1 parsec' is not valid",
        "e: {previous: value, rate: value}": "a series function has 2 functions",
        "f: {quantile: value, q: 2}": "quantile 2 is not valid",
        "g: {last: value, gaps: zero}": "gaps is 'zero'",
        "h: {top: value}": "top has no limit",
        "keys: value": "without windows that fill gaps",
        "- repartition: 0": "tasks 0 is not valid",
        "- sort_within_epoch: []": "sort_within_epoch without columns",
    }
    for line, message in lines.items():
        assert f"  {line}\n" in told.partition(message)[2][:200], (line, message)
