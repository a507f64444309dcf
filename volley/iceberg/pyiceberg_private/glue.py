"""pyiceberg's Glue catalog with timeouts and cached metadata."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.session import get_session
from pyiceberg.catalog import BOTOCORE_SESSION
from pyiceberg.catalog.glue import GLUE_MAX_RETRIES, GlueCatalog
from pyiceberg.table import Table

from volley.iceberg.pyiceberg_private.guarded import CachedMetadata

__all__ = ["TimeoutGlueCatalog"]


class TimeoutGlueCatalog(CachedMetadata, GlueCatalog):
    """A Glue catalog with timeouts.

    Args:
        timeouts: The timeouts of a connection and of a response, in seconds.
    """

    def __init__(self, name: str, timeouts: tuple[float, float], **properties: Any) -> None:
        session = get_session()
        session.set_default_client_config(Config(connect_timeout=timeouts[0], read_timeout=timeouts[1]))
        # pyiceberg retries ten times by default, longer than any timeout; botocore needs an int here, not a string.
        retries = int(properties.get(GLUE_MAX_RETRIES, 2))
        super().__init__(name, **{**properties, GLUE_MAX_RETRIES: retries, BOTOCORE_SESSION: session})
        # The properties are pickled to the executors with the tables' FileIO; a session can't be pickled.
        del self.properties[BOTOCORE_SESSION]

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        read = super()._convert_glue_to_iceberg
        location = glue_table.get("Parameters", {}).get("metadata_location")
        return self._cached_table((glue_table["DatabaseName"], glue_table["Name"]), location, lambda: read(glue_table))
