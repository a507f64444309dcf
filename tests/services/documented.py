"""Configurations as the documents give them: what a user copies is what the tests run."""

from __future__ import annotations

import re
from typing import Any

from tests.processes import ROOT
from volley import IcebergSinkConfig

PAGE = ROOT / "docs" / "how-to" / "catalogs-and-storage.md"


def documented(heading: str, **exchanged: str) -> IcebergSinkConfig:
    """The ``config`` of the code below a heading, with the addresses of servers that run here.

    Args:
        heading: The heading's text.
        exchanged: Texts by the first word of the text they stand for, as in ``_EXAMPLES``.
    """
    section = re.split(rf"^### {re.escape(heading)}$", PAGE.read_text(), flags=re.M)[1].partition("\n#")[0]
    code = re.search(r"```python\n(.*?)```", section, re.S)
    assert code is not None, heading
    text = code[1]
    for name, real in exchanged.items():
        assert _EXAMPLES[name] in text, f"{heading}: {_EXAMPLES[name]}"
        text = text.replace(_EXAMPLES[name], real)
    made: dict[str, Any] = {}
    exec(text, made)
    config = made["config"]
    assert isinstance(config, IcebergSinkConfig)
    return config


_EXAMPLES = {
    "folder": "/data/lake",
    "database": "postgresql+psycopg2://volley:secret@db:5432/postgres",
    "catalog": "http://catalog:8181",
    "seaweed": "http://s3:8333",
    "nessie": "http://nessie:19120/iceberg",
    "keycloak": "http://keycloak:8080",
    "s3": "http://s3:9000",
    "bucket": 'bucket="my-bucket"',
    "account": 'storage_account="myaccount"',
    "access_key": 'access_key="base64=="',
    "project": 'project_id="my-project"',
    "key_file": '"/secrets/account.json"',
    "sqlite": "sqlite:////data/catalog.db",
    "metastore": "thrift://metastore:9083",
}
