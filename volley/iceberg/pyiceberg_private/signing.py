"""Files on a storage whose requests a REST catalog signs."""

from __future__ import annotations

from typing import Any

from pyiceberg.io import S3_CONNECT_TIMEOUT, S3_REQUEST_TIMEOUT
from pyiceberg.io.fsspec import SIGNERS, FsspecFileIO, S3V4RestSigner
from pyiceberg.typedef import Properties
from requests.exceptions import RequestException

from volley.iceberg.pyiceberg_private.timeouts import TimeoutAdapter, with_timeouts

__all__ = ["FILE_IO", "SIGNER", "SIGNS_BY_REST", "SigningFileIO"]

SIGNS_BY_REST = "S3V4RestSigner"
"""pyiceberg's name for the signer that waits for ever."""
SIGNER = "VolleySigner"
"""The name of `_Signer` for pyiceberg, in processes that have imported this module."""

FILE_IO = f"{__name__}.SigningFileIO"
"""The name by which pyiceberg loads `SigningFileIO`."""

_CONNECT_SECONDS, _REQUEST_SECONDS = 5.0, 30.0


class _Signer(S3V4RestSigner):
    """Has requests to the storage signed by the catalog, within timeouts."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        connect = float(properties.get(S3_CONNECT_TIMEOUT) or _CONNECT_SECONDS)
        self._seconds = float(properties.get(S3_REQUEST_TIMEOUT) or _REQUEST_SECONDS)
        with_timeouts(self._session, (connect, self._seconds), TimeoutAdapter)

    def __call__(self, request: Any, **more: Any) -> None:
        try:
            super().__call__(request, **more)
        except RequestException as error:
            # No TimeoutError: s3fs would ask five times.
            raise OSError(
                f"the catalog's signing service gave no answer within {self._seconds:g} s: {error}"
            ) from error


SIGNERS[SIGNER] = _Signer


class SigningFileIO(FsspecFileIO):
    """Files on a storage whose requests the catalog signs. Who unpickles it has the signer."""
