"""pyiceberg's Hive catalog with timeouts and cached metadata."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import hive
from pyiceberg.table import Table
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportBase

from volley.iceberg.pyiceberg_private.guarded import CachedMetadata

__all__ = ["TimeoutHiveCatalog"]

# Another writer holds the lock for the time of a commit: check twice a second for ten seconds, instead of pyiceberg's
# four times with seconds between.
_LOCKS = {hive.LOCK_CHECK_MAX_WAIT_TIME: "0.5", hive.LOCK_CHECK_RETRIES: "20"}


class _Client(hive._HiveClient):
    """A connection to the metastore with timeouts; pyiceberg's own client waits for ever."""

    def __init__(self, uri: str, seconds: float, **more: Any) -> None:
        self._seconds = seconds
        super().__init__(uri, **more)

    def _init_thrift_transport(self) -> TTransportBase:
        address = urlparse(self._uri)
        socket = TSocket(address.hostname, address.port)
        socket.setTimeout(self._seconds * 1000)
        if self._kerberos_auth:
            return TSaslClientTransport(socket, host=address.hostname, service=self._kerberos_service_name)
        return TBufferedTransport(socket)


class TimeoutHiveCatalog(CachedMetadata, hive.HiveCatalog):
    """A Hive catalog with timeouts."""

    def __init__(self, name: str, seconds: float, **properties: str) -> None:
        super().__init__(name, **{**_LOCKS, **properties})
        client = self._client
        self._client = _Client(
            client._uri,
            seconds,
            ugi=properties.get("ugi"),
            kerberos_auth=client._kerberos_auth,
            kerberos_service_name=client._kerberos_service_name,
        )

    def _convert_hive_into_iceberg(self, table: HiveTable) -> Table:
        read = super()._convert_hive_into_iceberg
        location = (table.parameters or {}).get("metadata_location")
        return self._cached_table((table.dbName, table.tableName), location, lambda: read(table))
