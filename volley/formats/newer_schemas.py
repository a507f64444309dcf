"""Keeps the schema of a subject that messages are read by, and notices messages of a later one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from volley.errors import SchemaChangedError, SourceError, VolleyError
from volley.formats.avro_references import self_contained
from volley.formats.framing import head_of
from volley.formats.registered import Registered
from volley.formats.schema_registry import Registry, name_of
from volley.storage.remembered import read_or_create, replace
from volley.storage.state_formats import SCHEMA

if TYPE_CHECKING:
    from volley.formats.joined_values import Joined

__all__ = ["KINDS", "Kind", "NewerSchemas", "Subject"]


@dataclass(frozen=True)
class Kind:
    """A kind of schema.

    Args:
        name: What a registry calls it.
        file: Where it is kept, in a job's checkpoint.
        parse: Parses what is kept, to check that the file is complete.
        text: Returns a registry's schema as it is kept.
        merged: Merges a later one into the one that is kept; returns that one itself if nothing is new.
    """

    name: str
    file: str
    parse: Callable[[bytes], Any]
    text: Callable[[Registered], bytes]
    merged: Callable[[bytes, bytes], bytes]


@dataclass(frozen=True)
class Subject:
    """A subject of a registry, by whose schemas messages are read."""

    registry: Registry
    name: str
    kind: Kind

    def merged(self, state: str) -> bytes:
        """Return the schema to read by: what was kept, and what the latest schema has besides; keep that.

        Args:
            state: A folder below the job's checkpoint.

        Raises:
            ConfigError: If there is no such subject.
            SourceError: If the latest schema does not go with the one that is kept.
            JobError: If the registry does not answer.
        """
        latest = self.latest()
        kept = self.kept(state, latest)
        if (now := self.kind.merged(kept, latest)) != kept:
            replace(f"{state}/{self.kind.file}", SCHEMA, now)
        return now

    def kept(self, state: str, first: bytes | None = None) -> bytes:
        """Return the schema that is kept.

        Args:
            first: What to keep if nothing is; None = the latest schema.
        """

        def parse(value: bytes) -> bytes:
            self.kind.parse(value)
            return value

        return read_or_create(f"{state}/{self.kind.file}", SCHEMA, lambda: first or self.latest(), parse)

    def latest(self) -> bytes:
        """Return the latest schema, as it is kept; raises like `merged`."""
        return self.kind.text(self.registry.latest(self.name, self.kind.name))


@dataclass
class _Seen:
    """What messages begin with that have nothing new."""

    heads: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class NewerSchemas:
    """Notices messages with fields that the schema lacks which is read by, and the subject's latest one has.

    Args:
        kept: The schema that is read by.
    """

    subject: Subject
    kept: bytes

    def check(self, values: Joined) -> None:
        """Check messages that begin with what names their schema.

        Raises:
            SchemaChangedError: If a job that starts now reads more of them.
            JobError: If the registry does not answer.
        """
        rest = values.rows
        for head in self._seen.heads:
            rest = values.others(rest, head)
        while len(rest):
            value, rest = values[int(rest[0])], rest[1:]
            if value and (seen := self._looked(value)):
                self._seen.heads = (*self._seen.heads, seen)
                rest = values.others(rest, seen)

    def _looked(self, value: bytes) -> bytes | None:
        """Return what names the schema of a message, which has nothing new; None if nothing can be told of it."""
        try:
            head = head_of(value)
            written = self.subject.registry.registered(head, self.subject.kind.name)
        except SourceError:
            # The decoder says what is wrong with it, if it matters.
            return None
        if _adds(self.subject.kind, self.kept, written) and self._is_old():
            raise SchemaChangedError(
                f"{name_of(head)} has fields or types that were not there when the job started",
                hint="start it again: it reads by the latest schema then",
            )
        return head

    def _is_old(self) -> bool:
        return self.subject.kind.merged(self.kept, self.subject.latest()) != self.kept

    @cached_property
    def _seen(self) -> _Seen:
        return _Seen()

    def __getstate__(self) -> dict[str, Any]:
        return {"subject": self.subject, "kept": self.kept}


@lru_cache(maxsize=1_000)
def _adds(kind: Kind, kept: bytes, written: Registered) -> bool:
    """Return True if a schema has something that the one which is read by lacks."""
    try:
        return kind.merged(kept, kind.text(written)) != kept
    except VolleyError:
        # Of a message that has nothing to do with it, maybe.
        return True


def _text_of_avro(schema: Registered) -> bytes:
    return self_contained(schema).encode()


def _merged_avro(kept: bytes, latest: bytes) -> bytes:
    from volley.formats.avro import merged_texts

    return merged_texts(kept.decode(), latest.decode()).encode()


def _text_of_json(schema: Registered) -> bytes:
    from volley.formats.json_schema_values import to_text

    return to_text(schema).encode()


def _merged_json(kept: bytes, latest: bytes) -> bytes:
    from volley.formats.json_schema_values import merged_texts

    return merged_texts(kept, latest)


def _text_of_protobuf(schema: Registered) -> bytes:
    from volley.formats.protobuf_schema import files_of_registered

    return files_of_registered(schema)


def _merged_protobuf(kept: bytes, latest: bytes) -> bytes:
    from volley.formats.protobuf_merge import merged

    return merged(kept, latest)


_AVRO = Kind("AVRO", "schema.avsc", json.loads, _text_of_avro, _merged_avro)
KINDS = {
    "avro": _AVRO,
    "debezium": _AVRO,
    "json": Kind("JSON", "schema.json", json.loads, _text_of_json, _merged_json),
    "protobuf": Kind("PROTOBUF", "schema.protobuf", bytes, _text_of_protobuf, _merged_protobuf),
}
"""The kinds of schemas, by the format of values."""
