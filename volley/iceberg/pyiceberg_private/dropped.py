"""Refuses metadata of which pyiceberg 0.12 would drop what tells how to read the table, without a word.

These are the keys of encrypted tables, and the columns of a transform of several if one of them is named apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict
from pyiceberg.catalog import rest
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import UnknownTransform

__all__ = ["keys_of", "transforms_of_several"]

_KEYS, _KEY, _SOURCES = "encryption-keys", "key-id", "source-ids"


def keys_of(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys of an encrypted table, as JSON has its metadata, each with the place that names it."""
    yield from ((key[_KEY], _KEYS) for key in metadata.get(_KEYS) or ())
    for snapshot in metadata.get("snapshots") or ():
        if snapshot.get(_KEY) is not None:
            yield snapshot[_KEY], f"{_KEY} of snapshot {snapshot['snapshot-id']}"


def transforms_of_several(metadata: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the fields whose transform takes several columns, as JSON has them, each after "partition" or "sort"."""
    for key, kind in (("partition-specs", "partition"), ("sort-orders", "sort")):
        fields = [field for part in metadata.get(key) or () for field in part["fields"]]
        yield from ((kind, field) for field in fields if len(field.get(_SOURCES) or ()) > 1)


def _check(text: str | bytes | bytearray, *path: str) -> None:
    """Raise ValidationError if something would be dropped; text without the names of that is not looked into.

    Args:
        path: Where in the text the metadata are.
    """
    content = text if isinstance(text, str) else bytes(text).decode()
    if not any(f'"{name}"' in content for name in (_KEYS, _KEY, _SOURCES)):
        return
    metadata = json.loads(content)
    for part in path:
        metadata = metadata[part]
    for _ in (*keys_of(metadata), *transforms_of_several(metadata)):
        raise ValidationError("the metadata have keys, or transforms of several columns")


class _Answer(rest.TableResponse):
    """A table as a REST catalog answers it."""

    # Errors of an answer in another form name the model of pyiceberg.
    model_config = ConfigDict(title=rest.TableResponse.__name__)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> _Answer:
        answer = super().model_validate_json(json_data, **options)
        _check(json_data, "metadata")
        return answer


_parse = TableMetadataUtil.parse_raw


def _checked(data: str) -> TableMetadata:
    metadata = _parse(data)
    _check(data)
    return metadata


def _name(self: UnknownTransform[Any, Any]) -> str:
    return self._transform


def _takes_any(self: UnknownTransform[Any, Any], source: object) -> bool:
    return True


TableMetadataUtil.parse_raw = staticmethod(_checked)  # type: ignore[method-assign]
rest.TableResponse = _Answer  # type: ignore[misc]
# pyiceberg writes "unknown" in place of its name, and refuses each change of such a table, whatever it is.
UnknownTransform.__str__ = _name  # type: ignore[method-assign, assignment]
UnknownTransform.can_transform = _takes_any  # type: ignore[method-assign]
