"""pyiceberg's Hive catalog with calls that end in time and metadata that is parsed once."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog import hive
from pyiceberg.table import Table
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportBase

from volley.iceberg.pyiceberg_private.cached import Thrifty

__all__ = ["LimitedHiveCatalog"]
# Others hold the lock for as long as a commit takes: asked twice a second for ten, not four times with seconds between.
_LOCKS = {hive.LOCK_CHECK_MAX_WAIT_TIME: "0.5", hive.LOCK_CHECK_RETRIES: "20"}


class _Client(hive._HiveClient):
    """A connection to the metastore whose every step ends in time; pyiceberg's own wait for ever."""

    def __init__(self, uri: str, seconds: float, **more: Any) -> None:
        self._seconds = seconds
        super().__init__(uri, **more)

    def _init_thrift_transport(self) -> TTransportBase:
        place = urlparse(self._uri)
        socket = TSocket(place.hostname, place.port)
        socket.setTimeout(self._seconds * 1000)
        if self._kerberos_auth:
            return TSaslClientTransport(socket, host=place.hostname, service=self._kerberos_service_name)
        return TBufferedTransport(socket)


class LimitedHiveCatalog(Thrifty, hive.HiveCatalog):
    """A Hive catalog whose calls end in time.

    Args:
        name: The catalog's name.
        seconds: The longest to wait for a connection, and for an answer.
        properties: pyiceberg's.
    """

    def __init__(self, name: str, seconds: float, **properties: str) -> None:
        super().__init__(name, **{**_LOCKS, **properties})
        theirs = self._client
        self._client = _Client(
            theirs._uri,
            seconds,
            ugi=properties.get("ugi"),
            kerberos_auth=theirs._kerberos_auth,
            kerberos_service_name=theirs._kerberos_service_name,
        )

    def _convert_hive_into_iceberg(self, table: HiveTable) -> Table:
        read = super()._convert_hive_into_iceberg
        location = (table.parameters or {}).get("metadata_location")
        return self._known((table.dbName, table.tableName), location, lambda: read(table))
