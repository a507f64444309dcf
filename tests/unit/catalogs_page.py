"""Makes docs/reference/catalogs.md from the capabilities of the catalogs: ``python -m tests.unit.catalogs_page``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.servers.vendors import VENDORS
from volley.iceberg import (
    BigLakeCatalog,
    GlueCatalog,
    GravitinoCatalog,
    HiveCatalog,
    LakekeeperCatalog,
    MemoryCatalog,
    NessieCatalog,
    OneLakeCatalog,
    PolarisCatalog,
    RestCatalog,
    S3TablesCatalog,
    SnowflakeOpenCatalog,
    SqlCatalog,
    UnityCatalog,
)
from volley.iceberg.catalogs.capabilities import FEATURES
from volley.iceberg.catalogs.config import CatalogConfig

__all__ = ["CATALOGS", "PAGE", "PROVEN", "RECORDED", "ROOT", "page"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "catalogs.md"

CATALOGS: Mapping[str, CatalogConfig] = {
    "Iceberg REST": RestCatalog("http://catalog:8181"),
    "Nessie": NessieCatalog("http://nessie:19120/iceberg"),
    "AWS Glue": GlueCatalog("us-east-1"),
    "Hive Metastore": HiveCatalog("thrift://metastore:9083"),
    "SQL": SqlCatalog("sqlite:////lake/catalog.db"),
    "memory": MemoryCatalog(),
}

RECORDED: Mapping[str, CatalogConfig] = {
    "Polaris": PolarisCatalog("http://polaris:8181", "lake"),
    "Snowflake Open Catalog": SnowflakeOpenCatalog("https://org-lake.snowflakecomputing.com", "lake"),
    "Gravitino": GravitinoCatalog("http://gravitino:9001"),
    "Lakekeeper": LakekeeperCatalog("http://lakekeeper:8181", "lake"),
    "Unity Catalog": UnityCatalog("http://unity:8080", "main"),
    "S3 Tables": S3TablesCatalog("arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"),
    "BigLake": BigLakeCatalog("gs://lake", project="my-project"),
    "OneLake": OneLakeCatalog("workspace/lake.Lakehouse"),
}
"""Catalogs that don't run here."""

_MODES = "tests/services/test_modes_of_catalogs.py"
_OPENED = "tests/services/test_catalogs.py"
_ANNOUNCED = "tests/services/test_capabilities_of_catalogs.py"
_TOGETHER = "tests/services/test_transactions_of_catalogs.py"
_REFUSED = "tests/unit/test_catalog_capabilities.py"
_DECEIVED = "tests/recovery/test_catalogs_that_deceive.py"
_NAMESPACES = "tests/recovery/test_namespaces.py"
_PROPERTIES = "tests/services/test_refused_properties.py"

PROVEN: Mapping[str, Sequence[str]] = {
    "tables": [_OPENED, _NAMESPACES],
    "namespaces": [_OPENED, _NAMESPACES],
    "commits": [_OPENED, _NAMESPACES],
    "branches": ["tests/services/test_travel.py", _DECEIVED, _REFUSED],
    "history": [_MODES, _DECEIVED],
    "nested_namespaces": [_ANNOUNCED, _NAMESPACES],
    "upper_case": [_ANNOUNCED, _REFUSED],
    "expiry": ["tests/services/test_travel.py", _REFUSED],
    "format_3": ["tests/services/test_format_3_of_catalogs.py", _REFUSED],
    "bounds": [_PROPERTIES],
    "transactions": [_TOGETHER, "tests/recovery/test_tables_together.py"],
}
"""Where each is proven, on servers that run; refusals without one."""

_HEAD = """# Catalogs

What each catalog can do, made from `capabilities` of its class. A job that needs what stands here as *no* is refused
before anything is written; so is one whose REST catalog announces its requests in `/v1/config`, and lacks one that the
job needs. *as the server* means that any server may stand behind it: what it does not announce is tried, a refusal is
an error with the server's own text, and an answer without what was asked for (a branch, a snapshot, a format version)
is found out.

Of the properties of a new table, those that bound its metadata (`write.metadata.delete-after-commit.enabled`,
`write.metadata.previous-versions-max`, `commit.manifest-merge.enabled`) are Volley's own: one that a catalog refuses is
left out, with a warning, and the job's later tables are made without it at once. `explain()` says so afterwards, and
`volley check` names those that a table lacks. A property that you ask for, and those in which a job keeps what it has
written (`volley.…`), are an error with the catalog's text.

`explain()` and `volley check` say what a job's catalog is known to lack, and whether it takes several tables in one
commit.

"""

_TAIL = """
Names where upper case is *no* are written in lower case: `Orders` and `orders` are one table there.

Run against Iceberg's REST fixture 1.11 and 1.12, SeaweedFS 4.48, Nessie 0.99, moto 5 (for AWS Glue: it keeps upper
case, which AWS documents as folded, and does not check `VersionId`), Hive Metastore 3.1, PostgreSQL and SQLite. How to
write the settings: [Catalogs and storage](../how-to/catalogs-and-storage.md).

## Several tables in one commit

A job that writes several tables of one catalog commits an epoch to all of them in one request, where a REST catalog
announces `POST …/transactions/commit`, or announces nothing and takes an empty one (SeaweedFS), and in Nessie;
elsewhere, and with `on_error="park"`, table by table. What that means for a job:
[An epoch in all tables at once](../how-to/many-tables.md#an-epoch-in-all-tables-at-once).

| server | a wrong requirement of one table | one table twice | half an epoch, seen by a reader during commits |
| --- | --- | --- | --- |
| Iceberg's REST fixture 1.11 | 409, nothing changed | 204, the first change alone is made | in 18 of 120 rounds |
| SeaweedFS 4.48 | 409, nothing changed | 409, nothing changed | in 1 of some 400 rounds |
| Nessie 0.99 | 409 with an empty `type`, nothing changed | 400, nothing changed | in 0 of 192 rounds |

The first two change one table after the other while they make a commit, so a reader who loads several tables at that
moment may see one before another; once they have answered, all tables have it. Volley sends a table once.

## Manners

What servers take of the requests that spare them work, and tell them of it. [What a REST catalog is
sent](../how-to/catalogs-and-storage.md#what-a-rest-catalog-is-sent) says what each is for.

| server | tags of tables (`ETag`) | reports of metrics | `Idempotency-Key` |
| --- | --- | --- | --- |
| Iceberg's REST fixture 1.12 | of loads and commits; 304 without a body | announced, taken | known, not announced |
| Iceberg's REST fixture 1.11 | without quotes: not sent back | announced, taken | known, not announced |
| SeaweedFS 4.48 | none | not announced | not known |
| Nessie 0.99 | none | not announced | not known |

Proven by `tests/services/test_unchanged_tables.py`, `tests/services/test_metrics_reports.py` and
`tests/services/test_idempotency_keys.py`.

## Proofs

| capability | proven by |
| --- | --- |
"""

_RECORDED = """
## Recorded, not run against the service

None of these can be had where Volley is tested. Their addresses, sign-in, headers, answers and refusals are recorded,
each with its source, in `tests/servers/vendors.py`; fronts that behave so stand before Iceberg's REST fixture,
and jobs run over them (`tests/unit/test_vendor_catalogs.py`, `tests/services/test_vendor_catalogs.py`). What a catalog
announces in `/v1/config` narrows what stands here.

"""


_TOLD = """
What vendors, or those who have asked their services, tell of the properties of a table; of the others nothing was
found. AWS Glue refuses tables whose metadata have more than 20 MB
(docs.aws.amazon.com/glue, *Considerations and limitations*, November 2026).

| service | table properties |
| --- | --- |
"""


def page() -> str:
    """The page."""
    proofs = [
        f"| {FEATURES[name].title} | {', '.join(f'`{path}`' for path in paths)} |" for name, paths in PROVEN.items()
    ]
    return (
        _HEAD
        + _table(CATALOGS)
        + _TAIL
        + "\n".join(proofs)
        + "\n"
        + _RECORDED
        + _table(RECORDED)
        + _TOLD
        + "".join(_told())
    )


def _told() -> Iterator[str]:
    for name, vendor in VENDORS.items():
        if vendor.properties:
            yield f"| {_TITLES[name]} | {vendor.properties} |\n"


_TITLES = {
    "snowflake_open_catalog": "Snowflake Open Catalog",
    "unity": "Unity Catalog",
    "databricks": "Unity Catalog of Databricks",
    "s3_tables": "S3 Tables",
}


def _table(catalogs: Mapping[str, CatalogConfig]) -> str:
    lines = [f"| capability | {' | '.join(catalogs)} |", f"| --- |{' --- |' * len(catalogs)}"]
    for name, feature in FEATURES.items():
        cells = (_cell(getattr(catalog.capabilities, name)) for catalog in catalogs.values())
        lines.append(f"| {feature.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(known: bool | None) -> str:
    return {True: "yes", False: "no", None: "as the server"}[known]


if __name__ == "__main__":
    PAGE.write_text(page())
