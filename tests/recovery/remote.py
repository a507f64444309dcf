"""A table in a real REST catalog and real S3, and the drivers that write to it: what the fault tests share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog as PlainCatalog
from pyiceberg.table import Table

from tests.recovery.lake import SCHEMA
from tests.servers.seaweed import Seaweed
from tests.services.fault_proxy import FaultProxy
from volley import IcebergSink, IcebergSinkConfig, Metrics, SinkContext
from volley.iceberg.catalogs.values import RestCatalog
from volley.iceberg.commit.committer import IcebergCommitter


@dataclass(frozen=True)
class RemoteLake:
    """A table in a real REST catalog and real S3; drivers reach them through proxies, the test itself does not.

    Args:
        server: The real server.
        catalog_uri: Where drivers look for the catalog.
        table_name: The table.
        timeout: The longest that drivers wait for an answer, in seconds.
        has_manager: True: one of pyiceberg's managers of tokens signs the drivers in.
    """

    server: Seaweed
    catalog_uri: str
    table_name: str
    timeout: float = 2.0
    has_manager: bool = False

    @property
    def config(self) -> IcebergSinkConfig:
        credential = f"{self.server.key}:{self.server.secret}"
        if self.has_manager:
            login = {"client_id": self.server.key, "client_secret": self.server.secret}
            oauth2 = {**login, "token_url": f"{self.catalog_uri}/v1/oauth/tokens"}
            properties = {"auth": {"type": "oauth2", "oauth2": oauth2}}
            catalog = RestCatalog(self.catalog_uri, "s3://lake", properties=properties, timeout=self.timeout)
        else:
            catalog = RestCatalog(self.catalog_uri, "s3://lake", credential, timeout=self.timeout)
        return IcebergSinkConfig(
            namespace=["db"], table=self.table_name, storage=self.server.storage(), catalog=catalog
        )

    @property
    def path(self) -> str:
        """The regex of the table's own address: GET loads it, POST commits."""
        return rf"/tables/{self.table_name}(\?|$)"

    def through(self, storage: FaultProxy) -> RemoteLake:
        """The same table, its drivers' files going through a proxy too."""
        return replace(self, server=replace(self.server, s3_endpoint=storage.uri))

    def driver(self, metrics: Metrics | None = None) -> IcebergCommitter:
        """A driver of the job, with a catalog client of its own."""
        committer = IcebergSink(self.config).open(SinkContext("job", SCHEMA, metrics or Metrics()))
        assert isinstance(committer, IcebergCommitter)
        return committer

    def table(self) -> Table:
        """The table as plain pyiceberg sees it, past all proxies."""
        uri = self.server.rest_uri
        catalog = load_catalog(
            "other",
            **{
                "type": "rest",
                "uri": uri,
                "warehouse": "s3://lake",
                "oauth2-server-uri": f"{uri}/v1/oauth/tokens",
                "credential": f"{self.server.key}:{self.server.secret}",
                **self.server.storage().properties(),
            },
        )
        assert isinstance(catalog, PlainCatalog)
        table: Table = catalog.load_table(f"db.{self.table_name}")
        return table

    def rows(self) -> list[int]:
        return sorted(self.table().scan().to_arrow()["id"].to_pylist())

    def files(self) -> list[str]:
        """The data files in the storage, referenced or not."""
        import s3fs

        server = self.server
        storage = s3fs.S3FileSystem(key=server.key, secret=server.secret, endpoint_url=server.s3_endpoint)
        # A plain listing: where nothing is left, s3fs would ask for the folder itself, which a table bucket refuses.
        listed = storage.call_s3("list_objects_v2", Bucket="lake", Prefix=f"db/{self.table_name}/data/")
        return sorted(entry["Key"] for entry in listed.get("Contents", ()))
