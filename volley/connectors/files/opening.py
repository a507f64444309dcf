"""Opens the files of a FileSource: as they were when they were found, decompressed, with errors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from volley.connectors.files.listing import LoggedFile
from volley.errors import SourceError
from volley.formats.files import FORMATS, Files
from volley.formats.input_file import InputFile
from volley.formats.unpacking import decompressed, members, opened_member
from volley.secrets import redact_uri, redacted
from volley.storage.paths import filesystem, modified_time

__all__ = ["ReplacedError", "input_files", "reading", "url_of"]

_REASON = 400
_GONE = "it was there when it was found: was it removed or cut?"
_PACKED = "it is damaged or cut, or other bytes stand behind what is compressed: compress it again"


class ReplacedError(SourceError):
    """A file is not the one any more that was found."""


@contextmanager
def reading(files: Files, logged: LoggedFile) -> Iterator[None]:
    """Translate exceptions of the storage, of the text's encoding and of Arrow, into SourceErrors."""
    try:
        yield
    except OSError as error:
        # Arrow's decompressors set no number, storages do.
        is_packed = error.errno is None and FORMATS[files.format].compression(logged.path) is not None
        raise _unreadable(logged.path, error, _PACKED if is_packed else _GONE) from redacted(error)
    except (pa.ArrowException, OverflowError) as error:
        raise _damaged(logged.path, error) from error
    except UnicodeDecodeError as error:
        raise _misencoded(files, logged.path, error) from error


def input_files(files: Files, logged: LoggedFile) -> list[InputFile]:
    """Return the input file, or those in a zip.

    Raises:
        ReplacedError: If its size is not the logged one.
        SourceError: If it can't be read.
    """
    storage, _ = filesystem(files.url, files.storage_options)
    try:
        info = storage.info(logged.path)
    except Exception as error:
        raise _unreadable(logged.path, error) from redacted(error)
    size, modified = info["size"], modified_time(info)
    if size != logged.size or (files.on_replaced != "warn" and logged.modified not in (None, modified)):
        raise ReplacedError(
            f"{logged.path} has {size} bytes now, it had {logged.size} when it was found",
            hint="files must be complete when they get their name, and never change",
        )

    codec = FORMATS[files.format].compression(logged.path)
    if codec != "zip":
        return [InputFile(logged.path, size, partial(_opened, files, logged.path, codec))]
    with storage.open(logged.path, "rb") as file:
        listed = members(file)
    return [
        InputFile(f"{logged.path}/{name}", size, partial(_opened, files, logged.path, codec, name))
        for name, size in listed
    ]


@contextmanager
def _opened(files: Files, path: str, codec: str | None, member: str = "") -> Iterator[Any]:
    """Open a file, or one in a zip, as what it holds; as UTF-8 if it has an encoding."""
    storage, _ = filesystem(files.url, files.storage_options)
    with ExitStack() as stack:
        file = stack.enter_context(storage.open(path, "rb"))
        text = stack.enter_context(opened_member(file, member)) if member else decompressed(file, codec)
        encoding = files.encoding
        yield text if encoding is None else pa.transcoding_input_stream(pa.input_stream(text), encoding, "utf8")


def url_of(files: Files, path: str) -> str:
    """Return the path of a local file, or the URL of another, without secrets."""
    if "://" not in files.url:
        return path
    storage, _ = filesystem(files.url, files.storage_options)
    return redact_uri(storage.unstrip_protocol(path))


def _misencoded(files: Files, path: str, error: UnicodeDecodeError) -> SourceError:
    encoding = files.encoding or error.encoding
    return SourceError(
        f"{redact_uri(path)} is not in the encoding {encoding!r}: {error.reason}", hint='options={"encoding": …}'
    )


def _damaged(path: str, error: Exception) -> SourceError:
    return SourceError(
        f"{redact_uri(path)} can't be read: {type(error).__name__}: {str(error)[:_REASON]}",
        hint="it is damaged, or has values that Arrow can't take: write it again",
    )


def _unreadable(path: str, error: Exception, hint: str = _GONE) -> SourceError:
    if isinstance(error, PermissionError):
        hint = "let this user read it"
    return SourceError(f"{redact_uri(path)} can't be read: {redact_uri(str(error))}", hint=hint)
