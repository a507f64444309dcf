"""Secrets inside of settings of several parts, and in web addresses; settings of libraries show what is harmless."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from volley import (
    ConfigError,
    Environment,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    KafkaSink,
    KafkaSource,
    PostgresSource,
    VolleyError,
    load_config,
)
from volley.iceberg import RestCatalog
from volley.secrets import redact, redact_uri, secrets_in

CANARY = "cAnArYqz7"
LONG = "cAnArYqz7cAnArYqz7cAnArYqz7"

COMPOUND = {
    "sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{CANARY}";'
    ),
    "sasl.oauthbearer.config": f"principal=admin extension_id={CANARY}",
    "sasl.oauthbearer.extensions": f"cluster={CANARY}",
    "sasl.login.pin": CANARY,
    "plugin.something.new": {"deep": {"thing": CANARY}},
    "a.list": [CANARY, {"x": CANARY}],
    "a.number": 4242424242,
}


def kafka_source(properties: dict[str, Any]) -> KafkaSource:
    return KafkaSource("host:9092", "t", schema="id long", properties=properties)


def rest(properties: dict[str, Any]) -> IcebergSinkConfig:
    return IcebergSinkConfig(
        namespace="db",
        table="t",
        storage=IcebergStorage.Local("/tmp/lake"),
        catalog=RestCatalog("http://127.0.0.1:1", properties=properties),
        properties=properties,
    )


def postgres(options: dict[str, Any]) -> PostgresSource:
    return PostgresSource(
        host="h",
        database="d",
        user="u",
        password="x",
        slot_name="s",
        publication="p",
        tables="public.t",
        options=options,
    )


VALUES = [
    kafka_source(COMPOUND),
    KafkaSink("host:9092", "t", key="id", properties=COMPOUND),
    FileSource("s3://bucket/in/", format="json", schema="id long", storage_options=COMPOUND),
    FileSink("s3://bucket/out", format="json", storage_options=COMPOUND),
    rest(COMPOUND),
    rest(COMPOUND).ref,
    rest(COMPOUND).ref.catalog,
    IcebergSink(rest(COMPOUND)),
    postgres({"oauth_client_thing": CANARY, "options": f"-c app.pin={CANARY}", "number": "4242424242"}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_settings_of_libraries_show_only_what_is_harmless(value: Any) -> None:
    for shown in (repr(value), str(value), value._repr_html_()):
        assert CANARY not in shown
        assert "4242" not in shown
    assert "***" in repr(value)


def test_plans_show_none_either() -> None:
    stream = Environment().from_source(kafka_source(COMPOUND)).to_sink(KafkaSink("h:1", "u", properties=COMPOUND))
    for shown in (repr(stream), str(stream), stream._repr_html_()):
        assert CANARY not in shown


@pytest.mark.parametrize(
    ("make", "harmless"),
    [
        (kafka_source, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}),
        (
            kafka_source,
            {"fetch.max.bytes": 1048, "socket.timeout.ms": "1049", "queued.min.messages": 7},
        ),
        (rest, {"s3.region": "eu-1", "header": True, "warehouse": "lake", "snapshot-loading-mode": "all"}),
        (postgres, {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem", "application_name": "volley"}),
    ],
)
def test_what_is_known_to_be_harmless_is_shown(make: Any, harmless: dict[str, Any]) -> None:
    shown = repr(make(harmless))
    for name, value in harmless.items():
        assert f"{name!r}: {value!r}" in shown or name == "header"


def test_the_options_of_a_format_are_shown() -> None:
    source = FileSource("/in", format="csv", schema="id long", options={"delimiter": ";", "null_values": ["NA"]})
    assert "{'delimiter': ';', 'null_values': ['NA']}" in repr(source)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://host/#access_token={CANARY}&state=s", "https://host/#access_token=***&state=***"),
        (f"https://host/#id_token={CANARY}", "https://host/#id_token=***"),
        (f"https://host/#{LONG}", "https://host/#***"),
        (f"https://host/done?code={CANARY}", "https://host/done?code=***"),
        (f"https://host/done?a=1&code={CANARY}&b=2", "https://host/done?a=1&code=***&b=2"),
        (f"https://host/f?session={CANARY}", "https://host/f?session=***"),
        (f"https://host/x?v={LONG}", "https://host/x?v=***"),
        (f"https://hooks.slack.com/services/T0/B0/{CANARY}", "https://hooks.slack.com/***"),
        (f"https://hooks.slack.com/workflows/T0/{CANARY}", "https://hooks.slack.com/***"),
        (f"https://discord.com/api/webhooks/1/{CANARY}", "https://discord.com/***"),
        (f"https://acme.webhook.office.com/webhookb2/{CANARY}", "https://acme.webhook.office.com/***"),
        (f"https://api.telegram.org/bot1:{CANARY}/sendMessage", "https://api.telegram.org/***"),
        (f"https://chat.example.com/hooks/{CANARY}", "https://chat.example.com/hooks/***"),
        (f"https://host/x/{LONG}/y", "https://host/x/***/y"),
        (f"https://host/x/{'0123456789abcdef' * 2}", "https://host/x/***"),
        (f"wss://host/x?token={CANARY}", "wss://host/x?token=***"),
        (f"jdbc:postgresql://host/db?user=me&password={CANARY}", "jdbc:postgresql://host/db?user=me&password=***"),
        (f"host=h user=me password={CANARY} port=1", "host=h user=me password=*** port=1"),
        (f"host=h password = '{CANARY} x' port=1", "host=h password = '***' port=1"),
        (f"AccountName=a;AccountKey={CANARY}==;Suffix=s", "AccountName=a;AccountKey=***;Suffix=s"),
        (f'{{"id": 1, "client_secret": "{CANARY}"}}', '{"id": 1, "client_secret": "***"}'),
        (f"{{'id': 1, 'api_key': '{CANARY}'}}", "{'id': 1, 'api_key': '***'}"),
        (f"Authorization: Token {CANARY}", "Authorization: ***"),
        (f"said: X-Api-Token: {CANARY}", "said: X-Api-Token: ***"),
        (f'Module required username="me" password="{CANARY}\\" x";', 'Module required username="me" password="***";'),
    ],
)
def test_secrets_are_known_by_what_stands_around_them(text: str, shown: str) -> None:
    assert redact_uri(text) == shown
    assert redact(f"failed: {text}") == f"failed: {shown}"
    # What is masked stays as it is.
    assert redact_uri(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://docs.example.com/page.html#section-two",
        "https://host/data/2026-01-01/part-00000-6f1c2f5e-7a0e-4c39-9d7a-0b5b3d1f6a11.parquet?versionId=3sL4kqtJlcpXroDTDmJ",
        "http://0.0.0.0:8080/hooks/orders",
        "http://catalog:8181/v1/namespaces/db/tables/customers_by_region_2026",
        "s3://bucket/day=2026-01-01/a#b.parquet",
        "give a token=… or set password=None",
        "Unexpected token: <",
        "the primary key: id",
        "schema='id long, token string'",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert redact_uri(text) == text


def test_errors_do_not_show_parts_of_compound_settings() -> None:
    secrets = secrets_in(COMPOUND | {"security.protocol": "SASL_SSL", "client.x": "lz4"})
    assert redact(f"login with {CANARY} by SASL_SSL failed, lz4", secrets) == "login with *** by SASL_SSL failed, lz4"


def test_a_failed_login_shows_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "volley")
    with pytest.raises(VolleyError) as caught:
        rest({"sasl.jaas.config": COMPOUND["sasl.jaas.config"]}).ref.load_catalog()
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + caplog.text


@pytest.mark.parametrize("query", ["?code=cAnArYqz7", "#access_token=cAnArYqz7", "?x=cAnArYqz7cAnArYqz7cAnArYqz7"])
def test_an_address_with_a_secret_is_no_path_of_files(query: str) -> None:
    with pytest.raises(ConfigError, match="holds a secret") as caught:
        FileSource(f"https://host/a.csv{query}", format="csv", schema="id long")
    assert CANARY not in str(caught.value)
    # A long name is none.
    FileSource("https://host/Orders2026AllRegionsTotal/a.csv?year=2026", format="csv", schema="id long")


YAML = f"""
sources:
  in:
    connector: kafka
    config:
      bootstrap_servers: host:9092
      topics: t
      schema: id long
      properties:
        security.protocol: SASL_SSL
        sasl.mechanism: PLAIN
        sasl.jaas.config: 'required password="{CANARY}";'
        sasl.oauthbearer.config: principal={CANARY}
        sasl.login.pin: 4242424242
        from.outside: "${{OUTSIDE}}"
sinks: {{out: {{connector: console}}}}
pipelines: {{p: {{source: in, sink: out}}}}
"""


def test_a_shown_file_shows_none(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(YAML)
    config = load_config(file, {"OUTSIDE": CANARY})
    shown = config.text + config._repr_html_() + repr(config.sources["in"])
    assert CANARY not in shown
    assert "4242" not in shown
    for kept in ("security.protocol: SASL_SSL", "sasl.mechanism: PLAIN", "from.outside: ${OUTSIDE}"):
        assert kept in config.text


@pytest.mark.parametrize("fault", ["      wrong: 1\n", "    ]: 1\n"])
def test_mistakes_in_a_file_show_none(fault: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(YAML.replace("sasl.login.pin: 4242424242\n", f"sasl.login.pin: 4242424242, {CANARY}\n{fault}"))
    with pytest.raises(ConfigError) as caught:
        load_config(file, {"OUTSIDE": CANARY})
    assert CANARY not in str(caught.value)
    assert "4242" not in str(caught.value)


@pytest.mark.parametrize(
    "part", ["a-", "aA1", "x;", "a://b:", "token ", "?a=1&", "https://h/aA1/", "x-", 'password="', "cookie: "]
)
@pytest.mark.timeout(60)
def test_the_time_is_in_proportion_to_the_text(part: str) -> None:
    # Without bounds, twice the text takes four times as long: here minutes instead of half a second.
    text = part * (150_000 // len(part))
    assert len(redact_uri(text)) > 0
