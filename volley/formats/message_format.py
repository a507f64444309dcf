"""The format of messages' values: what decodes them, with the schema given or a registry's, which is remembered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.formats.avro_references import self_contained
from volley.formats.registered import Registered
from volley.formats.schema_registry import Registry
from volley.storage.remembered import read_or_create
from volley.storage.state_formats import SCHEMA

if TYPE_CHECKING:
    from volley.formats.messages import Decoder

__all__ = ["MessageFormat"]


@dataclass(frozen=True)
class MessageFormat:
    """The format of values.

    Args:
        name: ``"json"``, ``"avro"``, ``"protobuf"``, ``"string"``, ``"raw"`` or one of `CHANGES`.
        schema: Their schema; None = that of the registry.
        registry: The registry that has the schemas they are written with; None = there is none.
        subject: The registry's subject whose latest schema is read by.
        message: The message of a Protobuf schema; None = its first one.
        on_unknown: What to do with fields of JSON that the schema lacks.
        unknown: The column that keeps them.
        options: Those of a format of changes.
    """

    name: str
    schema: Any
    registry: Registry | None
    subject: str | None
    message: str | None
    on_unknown: str
    unknown: str
    options: Mapping[str, Any]

    def decoder(self, state: str) -> Decoder:
        """Return what decodes values.

        Args:
            state: The folder below the job's checkpoint in which a schema of the registry is kept for its life.
        """
        match self.name:
            case "avro":
                return self._avro(state)
            case "protobuf":
                return self._protobuf(state)
            case "json" if self.registry is not None:
                return self._framed_json(state)
        return self._plain()

    def _framed_json(self, state: str) -> Decoder:
        from volley.formats.framed_values import FramedValues
        from volley.formats.json_schema_values import JsonSchemaValues, from_text, to_text

        if self.schema is not None:
            return FramedValues(self._plain())

        def latest() -> bytes:
            return to_text(self._latest("JSON")).encode()

        schema = read_or_create(f"{state}/schema.json", SCHEMA, latest, from_text)
        return FramedValues(JsonSchemaValues(schema, self.on_unknown, self.unknown))

    def _plain(self) -> Decoder:
        from volley.formats.decoders import decoder_of

        return decoder_of(self.name, self.schema, self.on_unknown, self.unknown, self.options)

    def _avro(self, state: str) -> Decoder:
        from volley.formats.avro import AvroValues

        if self.schema is not None:
            return AvroValues(str(self.schema), self.registry)

        def latest() -> bytes:
            return self_contained(self._latest("AVRO")).encode()

        # Parsed to check that the file is complete.
        return AvroValues(json.dumps(read_or_create(f"{state}/schema.avsc", SCHEMA, latest, json.loads)), self.registry)

    def _protobuf(self, state: str) -> Decoder:
        from volley.formats.protobuf import ProtobufValues
        from volley.formats.protobuf_schema import files_of, files_of_registered, message_named

        def latest() -> bytes:
            return files_of_registered(self._latest("PROTOBUF"))

        if self.schema is None:
            files = read_or_create(f"{state}/schema.protobuf", SCHEMA, latest, bytes)
        else:
            files = files_of(self.schema)
        return ProtobufValues(files, message_named(files, self.message).full_name, self.registry)

    def _latest(self, kind: str) -> Registered:
        assert self.registry is not None
        assert self.subject is not None
        return self.registry.latest(self.subject, kind)
