"""pyiceberg's Glue catalog with requests that end in time and metadata that is parsed once."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.session import get_session
from pyiceberg.catalog import BOTOCORE_SESSION
from pyiceberg.catalog.glue import GLUE_MAX_RETRIES, GlueCatalog
from pyiceberg.table import Table

from volley.iceberg.pyiceberg_private.cached import Thrifty

__all__ = ["LimitedGlueCatalog"]


class LimitedGlueCatalog(Thrifty, GlueCatalog):
    """A Glue catalog whose requests end in time.

    Args:
        name: The catalog's name.
        limits: The longest to wait for a connection, and for an answer, in seconds.
        properties: pyiceberg's.
    """

    def __init__(self, name: str, limits: tuple[float, float], **properties: Any) -> None:
        session = get_session()
        session.set_default_client_config(Config(connect_timeout=limits[0], read_timeout=limits[1]))
        # pyiceberg's own ten retries would outlast any timeout; as a text, it passes them to botocore, which fails.
        retries = int(properties.get(GLUE_MAX_RETRIES, 2))
        super().__init__(name, **{**properties, GLUE_MAX_RETRIES: retries, BOTOCORE_SESSION: session})
        # The properties travel to the executors with the tables' FileIO; a session can't.
        del self.properties[BOTOCORE_SESSION]

    def _convert_glue_to_iceberg(self, glue_table: Any) -> Table:
        read = super()._convert_glue_to_iceberg
        location = glue_table.get("Parameters", {}).get("metadata_location")
        return self._known((glue_table["DatabaseName"], glue_table["Name"]), location, lambda: read(glue_table))
