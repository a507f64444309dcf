"""Catalogs by the names of their makers: what each is sent, and what is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers.identity import TOKEN, azure_identity, google_tokens, service_account_key
from tests.servers.vendors import KEY, SECRET, VENDORS, Front
from volley import CatalogAuthError, ConfigError, IcebergStorage, TableNotFoundError
from volley.iceberg import (
    BigLakeCatalog,
    GravitinoCatalog,
    LakekeeperCatalog,
    OneLakeCatalog,
    PolarisCatalog,
    RestCatalog,
    S3TablesCatalog,
    SnowflakeOpenCatalog,
    TableRef,
    UnityCatalog,
)

LOGIN = f"{KEY}:{SECRET}"
ARN = "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"
LOCAL = IcebergStorage.Local("/lake")
S3 = IcebergStorage.S3(region="eu-central-1", bucket="lake", access_key_id=KEY, secret_access_key=SECRET)
ONELAKE = IcebergStorage.Azure(storage_account="onelake", container="workspace")


def of(vendor: str, front: Front, folder: Path, login: str = LOGIN) -> RestCatalog:
    """The value for a vendor's catalog behind a front."""
    uri, keycloak = front.uri, f"{front.uri}/realms/lake/token"
    own = f"{uri}{front.vendor.base}"
    given: dict[str, Callable[[], RestCatalog]] = {
        "polaris": lambda: PolarisCatalog(uri, "lake", credential=login, realm="POLARIS"),
        "snowflake_open_catalog": lambda: SnowflakeOpenCatalog(
            uri, "lake", credential=login, scope="PRINCIPAL_ROLE:writer"
        ),
        "gravitino": lambda: GravitinoCatalog(
            uri, "lake", credential=login, oauth2_server_uri=keycloak, scope="gravitino"
        ),
        "lakekeeper": lambda: LakekeeperCatalog(
            *(uri, "lake", login),
            oauth2_server_uri=keycloak,
            scope="lakekeeper",
            project="019b0c5e-0000-7000-8000-000000000001",
        ),
        "unity": lambda: UnityCatalog(uri, "main", credential=login, oauth2_server_uri=f"{uri}/oidc/token"),
        "databricks": lambda: UnityCatalog(
            own, "main", credential=login, oauth2_server_uri=f"{uri}/oidc/v1/token", scope="all-apis"
        ),
        "s3_tables": lambda: S3TablesCatalog(ARN, uri=own),
        "biglake": lambda: BigLakeCatalog(
            "gs://lake", project="my-project", credentials_file=str(folder / "account.json"), uri=own
        ),
        "onelake": lambda: OneLakeCatalog("workspace/lake.Lakehouse", token=login.replace(":", "-"), uri=own),
    }
    return given[vendor]()


@contextmanager
def front_of(vendor: str, folder: Path, upstream: str | None = None) -> Iterator[Front]:
    """A vendor's front, with what signs in to it."""
    bearer = {"biglake": TOKEN, "onelake": f"{KEY}-{SECRET}"}.get(vendor)
    front = Front(VENDORS[vendor], upstream, bearer)
    with google_tokens() as google, front:
        (folder / "account.json").write_text(service_account_key(google.uri))
        yield front


def ref(catalog: RestCatalog, storage: IcebergStorage = LOCAL) -> TableRef:
    return TableRef("db", "events", storage, catalog)


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_a_vendors_catalog_is_sent(vendor: str, tmp_path: Path) -> None:
    storage = S3 if vendor == "s3_tables" else LOCAL
    with front_of(vendor, tmp_path) as front:
        with pytest.raises(TableNotFoundError):
            ref(of(vendor, front, tmp_path), storage).load()
        assert front.broken == []
        # One token is asked for, the settings and the table.
        assert len(front.given) == (0 if vendor == "s3_tables" else 1)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_wrong_secret_is_refused_and_not_shown(vendor: str, tmp_path: Path) -> None:
    wrong = "another-canary"
    with front_of(vendor, tmp_path) as front:
        if vendor == "biglake":
            front.given.clear()
        storage = IcebergStorage.S3("eu-central-1", "lake", access_key_id=KEY, secret_access_key=wrong)
        with pytest.raises(CatalogAuthError) as caught:
            ref(of(vendor, front, tmp_path, f"{KEY}:{wrong}"), storage).load()
    assert front.uri in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.hint


def test_requests_that_nothing_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with front_of("s3_tables", tmp_path) as front:
        with pytest.raises(CatalogAuthError, match="signed by AWS' credentials, and there are none"):
            ref(of("s3_tables", front, tmp_path)).load()
        assert front.given == front.broken == []


@pytest.mark.parametrize(
    ("catalog", "address", "told"),
    [
        (PolarisCatalog("http://p/own/path", "lake"), "http://p/own/path", {}),
        (
            UnityCatalog("https://dbc-1.cloud.databricks.com", "main", credential="id:hush"),
            "https://dbc-1.cloud.databricks.com/api/2.1/unity-catalog/iceberg-rest",
            {"oauth2-server-uri": "https://dbc-1.cloud.databricks.com/oidc/v1/token", "scope": "all-apis"},
        ),
        (
            S3TablesCatalog(ARN.replace("aws:", "aws-cn:").replace("eu-central-1", "cn-north-1")),
            "https://s3tables.cn-north-1.amazonaws.com.cn/iceberg",
            {"rest.signing-region": "cn-north-1", "rest.signing-name": "s3tables"},
        ),
        (BigLakeCatalog("bl://projects/p/catalogs/c", project="p", token="hush"), None, {"token": "hush"}),
        (
            OneLakeCatalog("w/i", credential="id:hush", tenant="t"),
            "https://onelake.table.fabric.microsoft.com/iceberg",
            {
                "oauth2-server-uri": "https://login.microsoftonline.com/t/oauth2/v2.0/token",
                "scope": "https://storage.azure.com/.default",
                "adls.account-host": "onelake.blob.fabric.microsoft.com",
                "adls.client-secret": "hush",
            },
        ),
        (
            OneLakeCatalog("w/i"),
            None,
            {"adls.account-host": "onelake.blob.fabric.microsoft.com", "credential": None},
        ),
    ],
    ids=["own path", "Databricks", "China", "BigLake's token", "service principal", "Entra's chain"],
)
def test_addresses_and_properties(catalog: RestCatalog, address: str | None, told: Mapping[str, Any]) -> None:
    if address is not None:
        assert catalog.address == address
    properties = catalog.to_properties(ONELAKE)
    assert {name: properties.get(name) for name in told} == told
    assert "hush" not in repr(catalog) + catalog.address


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LakekeeperCatalog("http://l", "lake", "id:hush"), "oauth2_server_uri is missing: Lakekeeper gives no"),
        (
            lambda: GravitinoCatalog("http://g", credential="id:hush"),
            "oauth2_server_uri is missing: Gravitino gives no",
        ),
        (lambda: UnityCatalog("http://u:8080", "main", "id:hush"), "oauth2_server_uri is missing: Unity Catalog gives"),
        (lambda: S3TablesCatalog("lake"), "warehouse 'lake' is not valid"),
        (lambda: S3TablesCatalog(ARN, credential="id:hush"), "S3TablesCatalog takes no credential"),
        (lambda: BigLakeCatalog("s3://lake", project="p"), "warehouse 's3://lake' is not valid"),
        (lambda: OneLakeCatalog("lake"), "warehouse 'lake' is not valid"),
        (lambda: OneLakeCatalog("w/i", credential="id:hush"), "tenant is missing"),
        (lambda: ref(S3TablesCatalog(ARN)).with_branch("audit").require("expiry", "x"), "x: S3 Tables says"),
        (
            lambda: TableRef("a.b", "t", LOCAL, UnityCatalog("http://u", "main")),
            "2 levels: Unity Catalog has one level",
        ),
    ],
)
def test_what_is_refused_when_built(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        make()
    assert caught.value.hint
    assert "hush" not in str(caught.value)


def test_names_are_lower_case_where_case_does_not_count() -> None:
    named = TableRef("DB", "Events", LOCAL, UnityCatalog("http://u", "main"))
    assert named.identifier == ("db", "events")


def test_entras_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    front = Front(VENDORS["onelake"])
    with azure_identity() as identity, front:
        monkeypatch.setenv("IDENTITY_ENDPOINT", identity.uri)
        monkeypatch.setenv("IDENTITY_HEADER", "header-of-the-machine")
        # The front knows this token not.
        with pytest.raises(CatalogAuthError, match="sign-in by 'Bearer"):
            ref(OneLakeCatalog("workspace/lake.Lakehouse", uri=f"{front.uri}/iceberg")).load()
    assert {asked["resource"] for asked in identity.asked} == {"https://storage.azure.com"}


def test_entras_chain_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.delenv("AZURE_CLIENT_ID", raising=False)
    with pytest.raises(CatalogAuthError, match="Entra's credentials"):
        ref(OneLakeCatalog("workspace/lake.Lakehouse", uri="http://127.0.0.1:9/iceberg")).load()


def test_google_without_credentials(tmp_path: Path) -> None:
    with front_of("biglake", tmp_path) as front:
        (tmp_path / "account.json").write_text("{}")
        with pytest.raises(CatalogAuthError, match="Google's credentials"):
            ref(of("biglake", front, tmp_path)).load()
