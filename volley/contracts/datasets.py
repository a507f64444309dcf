"""The names that OpenLineage's specification gives to what jobs read and write: the same for every tool."""

from __future__ import annotations

import glob
from dataclasses import dataclass

from volley.html_table import settings_html
from volley.secrets import redact_uri
from volley.storage.paths import absolute

__all__ = ["Dataset"]

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
# A key in a bucket has no slash before it; a path of any other storage has.
_BUCKETS = {"s3", "gs", "wasbs"}


@dataclass(frozen=True)
class Dataset:
    """What a source reads or a sink writes, by its name in OpenLineage's specification; without secrets.

    Args:
        namespace: Where it is: ``"kafka://host:9092"``, ``"s3://bucket"``, ``"file"``.
        name: Its name there: a topic, a key in a bucket, a path.
        type: ``"TABLE"``, ``"FILE"``, ``"TOPIC"`` or ``"STREAM"``; empty = not known.
        table: Namespace and name of a table in its catalog, where `name` is the folder of its files; None = no table.
        fields: Names and types of its columns, if they are its own, and not those of what is read or written.

    Example:
        >>> Dataset("kafka://localhost:9092", "events", "TOPIC").name
        'events'
    """

    namespace: str
    name: str
    type: str = ""
    table: tuple[str, str] | None = None
    fields: tuple[tuple[str, str], ...] = ()

    _repr_html_ = settings_html

    @classmethod
    def of_path(cls, path: str, type: str = "FILE") -> Dataset:
        """Return the name of files.

        Args:
            path: A path or URL; of a pattern, the folder above it counts.

        Example:
            >>> Dataset.of_path("s3a://lake/orders/"), Dataset.of_path("/data/in/*.json").name
            (Dataset(namespace='s3://lake', name='orders', type='FILE', table=None, fields=()), '/data/in')
        """
        scheme, is_url, rest = redact_uri(_folder(absolute(path))).partition("://")
        if not is_url:
            return cls("file", scheme, type)
        authority, _, name = rest.partition("/")
        scheme = _SCHEMES.get(scheme, scheme)
        name = (name if scheme in _BUCKETS else f"/{name}").rstrip("/")
        return cls(f"{scheme}://{authority}", name or "/", type)


def _folder(path: str) -> str:
    """Return a path up to its first part that is a pattern."""
    parts = path.rstrip("/").split("/")
    plain = next((number for number, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return "/".join(parts[:plain]) or "/"
