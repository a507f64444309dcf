"""Redacts secrets in text and settings: values under secret-like names, passwords in URIs, bearer tokens → ``***``.

Settings that are for a library show only what is known to be harmless: new ones with secrets appear with each release.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import quote, quote_plus

from volley.html_table import changed_settings, titled

__all__ = [
    "FOREIGN",
    "MASK",
    "is_secret_name",
    "is_shown",
    "redact",
    "redact_mapping",
    "redact_uri",
    "redacted",
    "redacted_html",
    "redacted_repr",
    "secrets_in",
]

MASK = "***"

_MIN_LENGTH = 4

_WORDS = (
    r"credential|token|secret|passw|passphrase|pwd|key(?!_fields)|authorization|cookie|signature|connection.?string"
    r"|\bauth\b|\bsas\b"
)
# Any header may carry credentials, whatever its name.
_SECRET_NAME = re.compile(rf"{_WORDS}|^headers?\b", re.I)
# Bounds keep the time in proportion to the text's length.
# Match up to the last @: an unescaped password may contain one.
_PASSWORD = re.compile(r"((?<!\w)\w{1,40}://[^/\s:@]*):\S{1,4000}@")
# In http(s), a user without a password is a token; elsewhere (abfss://container@account) it is a name.
_USER = re.compile(r"(https?://)[^/\s:@]+@", re.I)
_BARE = re.compile(
    r"\b((?:Bearer|Basic) +)[^\s'\"]+|\beyJ[\w-]+\.[\w-]+\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
)
_LOGINS = r"\bsig|\bcode\b|\bassertion|\bjwt\b|\bsid\b|\bsession|\bticket\b|\bpass\b|\botp\b|\bpin\b"
_PART = r"[^=&#?;\s]{0,80}"
_PARAMETER = re.compile(rf"([?&;#]{_PART}(?:{_WORDS}|{_LOGINS}){_PART})=[^&#;\s]+", re.I)

# Secrets inside of a text of several settings, as in Kafka's sasl.jaas.config, a connection string, JSON or headers.
_INNER_NAME = (
    r"(?:[\w.-]{0,40}(?:passw|passphrase|pwd|secret|credential|token|signature|assertion|api.?key|access.?key|account.?key"
    r"|private.?key|shared.?key|master.?key)[\w.-]{0,40})"
)
_INNER = re.compile(
    rf"""(\b{_INNER_NAME} ?= ?|(["']){_INNER_NAME}\2 ?: ?)"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?!None\b|\*\*\*|…|\$\{)[^\s,;&#'"(){}\[\]]+)""",
    re.I,
)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:token|key|secret|auth))(: ?)[^\r\n'\"]+", re.I
)

# Web addresses of which each part may be the secret: whoever knows the address of a webhook may send to it.
_WEB = re.compile(r"(https?://)([^/?#\s'\"<>]*)([^?#\s'\"<>]*)(\?[^#\s'\"<>]*)?(#[^\s'\"<>]*)?", re.I)
_HOOK_HOST = re.compile(
    r"(^|\.)(web)?hooks?\d*\.|(^|\.)(discord(app)?|ifttt|hc-ping|pipedream)\.|^api\.telegram\.org|\.logic\.azure\.com"
    r"|^events\.pagerduty\.com",
    re.I,
)
_HOOK = re.compile(r"(/(?:web)?hooks?\w*)((?:/[^/]+)+)", re.I)
# A long text of letters of both cases and digits, or of hexadecimal digits, is nobody's name for a thing.
_TOKEN = re.compile(
    r"(?<![\w.~+%-])(?<!versionId=)(?:(?=[\w~+%-]*[a-z])(?=[\w~+%-]*[A-Z])(?=[\w~+%-]*\d)[\w~+%-]{20,}|[0-9a-f]{32,})(?![\w.~+%-])"
)
_HOOK_TOKEN = re.compile(r"(?=\D*\d)(?=[^a-z]*[a-z]).{8,}|.{20,}", re.I)

FOREIGN = ("storage_options", "properties", "headers", "options")
"""The names of settings whose content is for a library."""

# By their names, with hyphens for dots and underscores: Kafka's client, catalogs, fsspec and its storages, libpq, CSV.
_HARMLESS_NAMES = """
acks api-version-request auto-offset-reset bootstrap-servers broker-address-family check-crcs client-id client-rack
compression-codec compression-type debug group-id isolation-level partitioner partition-assignment-strategy
request-required-acks sasl-kerberos-principal sasl-kerberos-service-name sasl-mechanism sasl-mechanisms
sasl-username security-protocol ssl-ca-location ssl-certificate-location ssl-crl-location
ssl-endpoint-identification-algorithm

adls-account-host adls-account-name adls-anon adls-client-id adls-tenant-id audience cabundle cert client-region
downcast-ns-timestamp-to-us-on-write dynamodb-region echo format gcs-access gcs-consistency
gcs-default-bucket-location gcs-project-id gcs-requester-pays gcs-service-host gcs-version-aware glue-endpoint
glue-id glue-region glue-retry-mode glue-skip-archive hdfs-host hdfs-port hdfs-user hive-hive2-compatible
hive-kerberos-authentication hive-kerberos-service-name init-catalog-tables io-impl oauth2-server-uri pool-pre-ping
prefix proxy py-io-impl resource rest-metrics-reporting-enabled rest-sigv4-enabled rest-signing-name
rest-signing-region s3-anonymous s3-endpoint
s3-force-virtual-addressing s3-proxy-uri s3-region s3-resolve-region s3-server-side-encryption s3-signer
s3-signer-endpoint s3-signer-uri s3-path-style-access scope snapshot-loading-mode type uri warehouse

account-name addressing-style anon cache-regions default-acl default-block-size default-location
default-fill-cache default-cache-type endpoint-url host hostname path-style port project protocol region
region-name requester-pays ssl tenant-id use-listings-cache use-ssl user username verify version-aware

application-name channel-binding client-encoding gssencmode hostaddr keepalives keepalives-idle
load-balance-hosts ssl-max-protocol-version ssl-min-protocol-version sslcert sslcrl sslmode sslnegotiation
sslrootcert target-session-attrs

column-names date-formats decimal-point delimiter encoding epoch escape header newlines-in-values null-values quote
skip-rows
"""
_HARMLESS = frozenset(_HARMLESS_NAMES.split())
# Settings whose names end so are numbers, or switches.
_NUMBERS = re.compile(
    r"-(ms|bytes|kbytes|size|seconds|timeout|interval|count|retries|attempts|messages|level|ttl|enabled?|num|max|min)$"
    r"|^(enable|allow|max|min|timeout|retries|concurrency)\b"
)


def is_secret_name(name: str) -> bool:
    """Return True if `redact_mapping` masks the value of this key.

    Example:
        >>> is_secret_name("s3.secret-access-key"), is_secret_name("s3.region")
        (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def is_shown(name: str, value: Any) -> bool:
    """Return True if a setting that is for a library shows its value: by its name, or because it is a switch.

    Example:
        >>> is_shown("s3.region", "eu"), is_shown("sasl.jaas.config", "…"), is_shown("anything.else", True)
        (True, False, True)
    """
    if is_secret_name(name):
        return False
    plain = re.sub("[._]", "-", name.lower())
    return value is None or isinstance(value, bool) or plain in _HARMLESS or _NUMBERS.search(plain) is not None


def redact_mapping(values: Mapping[Any, Any], foreign: bool = False) -> dict[Any, Any]:
    """Return the mapping with the values of secret-like keys masked; keys may be numbers, too.

    Args:
        values: The mapping.
        foreign: True: it is for a library, and only values that are known to be harmless are shown.

    Example:
        >>> redact_mapping({"s3.region": "eu", "s3.secret-access-key": "x"})
        {'s3.region': 'eu', 's3.secret-access-key': '***'}
        >>> redact_mapping({"s3.region": "eu", "sasl.jaas.config": "x"}, foreign=True)
        {'s3.region': 'eu', 'sasl.jaas.config': '***'}
    """
    return {key: _redacted_setting(str(key), value, foreign) for key, value in values.items()}


def _redacted_setting(name: str, value: Any, foreign: bool) -> Any:
    if is_secret_name(name):
        return MASK
    if isinstance(value, Mapping):
        return redact_mapping(value, foreign)
    return _redacted_value(value) if not foreign or is_shown(name, value) else MASK


def redact_uri(text: str) -> str:
    """Return the text with its secrets masked.

    They are passwords in URIs, secret parameters and fragments, addresses of webhooks, bearer tokens, private keys, and
    what stands behind secret-like names in connection strings, JSON, headers and configurations of logins.

    Example:
        >>> redact_uri("postgresql://me:hunter2@host/db")
        'postgresql://me:***@host/db'
        >>> redact_uri("https://host/done#access_token=x&state=y"), redact_uri("https://hooks.slack.com/services/T/B/x")
        ('https://host/done#access_token=***&state=***', 'https://hooks.slack.com/***')
        >>> redact_uri("PlainLoginModule required username=\\"me\\" password=\\"hunter2\\";")
        'PlainLoginModule required username="me" password="***";'
    """
    text = _USER.sub(rf"\1{MASK}@", _PASSWORD.sub(rf"\1:{MASK}@", text))
    text = _INNER.sub(_redacted_inner, _HEADER.sub(rf"\1\2{MASK}", _PARAMETER.sub(rf"\1={MASK}", text)))
    return _WEB.sub(_redacted_address, _BARE.sub(lambda match: (match[1] or "") + MASK, text))


def _redacted_inner(match: re.Match[str]) -> str:
    quote_mark = match[3][0] if match[3][0] in "\"'" else ""
    return f"{match[1]}{quote_mark}{MASK}{quote_mark}"


def _redacted_address(match: re.Match[str]) -> str:
    """Return a web address without the parts that look like secrets."""
    scheme, host, path, query, fragment = (part or "" for part in match.groups())
    if _HOOK_HOST.search(host.rpartition("@")[2]) and len(path) > 1:
        path = f"/{MASK}"
    path = _HOOK.sub(lambda hook: hook[1] + "/".join(map(_redacted_segment, hook[2].split("/"))), path)
    # A browser keeps the fragment to itself: what has names and values there is the answer to a login.
    fragment = re.sub(r"=[^&]+", f"={MASK}", fragment)
    return scheme + host + "".join(_TOKEN.sub(MASK, part) for part in (path, query, fragment))


def _redacted_segment(segment: str) -> str:
    return MASK if _HOOK_TOKEN.fullmatch(segment) else segment


def redacted_repr(value: Any) -> str:
    """Return the repr of a dataclass: the fields that differ from their defaults, secrets masked."""
    parts = (f"{name}={content!r}" for name, content in _redacted_fields(value).items())
    return f"{type(value).__qualname__}({', '.join(parts)})"


def redacted_html(value: Any) -> str:
    """Return a dataclass as a table for notebooks: the fields that differ from their defaults, secrets masked."""
    return titled(value, _redacted_fields(value))


def _redacted_fields(value: Any) -> dict[str, Any]:
    # The options of a format are ours.
    ours = {field.name for field in fields(value) if "keys" in field.metadata}
    settings = changed_settings(value).items()
    return {
        name: _redacted_setting(name, content, name in FOREIGN and name not in ours and isinstance(content, Mapping))
        for name, content in settings
    }


def secrets_in(values: Mapping[str, Any]) -> set[str]:
    """Return the secrets in settings for a library, to redact them in other texts too.

    Example:
        >>> secrets_in({"s3.region": "eu", "s3.secret-access-key": "hush-hush"})
        {'hush-hush'}
        >>> sorted(secrets_in({"sasl.jaas.config": "required password='hush-hush';"}))
        ['hush-hush', "required password='hush-hush';"]
    """
    named, hidden = set(_texts_of(values, named=True)), set(_texts_of(values, named=False))
    inner = {match[3].strip("\"'") for text in hidden for match in _INNER.finditer(text)}
    # A short one may be a word that errors need.
    return named | {text for text in hidden if len(text) >= 12} | {text for text in inner if len(text) >= _MIN_LENGTH}


def _texts_of(values: Mapping[str, Any], named: bool) -> Iterator[str]:
    """Yield the texts that are secrets by their names, or those that are hidden because nothing is known of them."""
    for name, value in values.items():
        if is_secret_name(name):
            yield from _texts(value) if named else ()
        elif isinstance(value, Mapping):
            yield from _texts_of(value, named)
        elif not named and not is_shown(name, value):
            yield from _texts(value)


def redacted(error: BaseException, secrets: Collection[str] = ()) -> BaseException:
    """Return the error, or a redacted stand-in if its traceback contains a secret; for use after ``raise … from``.

    Args:
        error: What a library raised.
        secrets: Further secrets; those that `redact_uri` recognises are always redacted.
    """
    chain = "".join(traceback.format_exception(error))
    if redact(chain, secrets) == chain:
        return error
    return RuntimeError(redact(f"{type(error).__module__}.{type(error).__qualname__}: {error}", secrets))


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """Return the text without these secrets and those that `redact_uri` recognises.

    Example:
        >>> password = "a\\nb 'c'"
        >>> redact(f"the password {password!r} is wrong", {password})
        'the password "***" is wrong'
    """
    for form in sorted({form for secret in secrets for form in _forms(secret)}, key=len, reverse=True):
        text = text.replace(form, MASK)
    return redact_uri(text)


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it may stand in a text: as it is, in a URL, quoted by Python in either way, in JSON."""
    for text in {secret, secret.strip()} - {""}:
        yield from (text, quote(text), quote(text, safe=""), quote_plus(text))
        # The second is how Python quotes a text with double quotes in it, behind which the secret stands.
        yield from (repr(text)[1:-1], repr(f'"{text}')[2:-1])
        yield from (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value that are long enough to search for."""
    if isinstance(value, Mapping):
        # A service account's key also has the project's and the account's name, which bucket names often contain.
        has_public_fields = "private_key" in value
        value = [text for name, text in value.items() if not has_public_fields or is_secret_name(name)]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and len(value.strip()) >= _MIN_LENGTH:
        yield value


def _redacted_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact_mapping(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_redacted_value, value))
    return redact_uri(value) if isinstance(value, str) else value
