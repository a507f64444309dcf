"""The format of messages' values: what decodes them, with the schema given or a registry's, which is remembered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.formats.change_options import ChangeOptions
from volley.formats.newer_schemas import KINDS, NewerSchemas, Subject
from volley.formats.options import Policy, kept_in
from volley.formats.schema_registry import Registry

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
        nanoseconds: True: timestamps with nanoseconds have all digits, those of Protobuf too; False: microseconds.
        alone: True: Avro may be any type, the column ``value`` if it is no record; False: it is a record.
        reserved: Names of columns that the source adds.
    """

    name: str
    schema: Any
    registry: Registry | None
    subject: str | None
    message: str | None
    on_unknown: Policy
    unknown: str
    options: Mapping[str, Any]
    nanoseconds: bool = False
    alone: bool = False
    reserved: Collection[str] = ()

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
            case "debezium" if self.registry is not None:
                return self._changes(state, self.registry)
        return self._plain(state)

    def newer(self, state: str) -> NewerSchemas | None:
        """Return what notices messages with fields that the kept schema lacks; None if no schema of a registry is read.

        Args:
            state: The folder that `decoder` was called with.
        """
        if self.schema is not None or self.registry is None:
            return None
        return NewerSchemas(self._subject, self._subject.kept(state))

    @property
    def _subject(self) -> Subject:
        assert self.registry is not None
        assert self.subject is not None
        return Subject(self.registry, self.subject, KINDS[self.name])

    def _framed_json(self, state: str) -> Decoder:
        from volley.formats.framed_values import FramedValues
        from volley.formats.json_schema_values import JsonSchemaValues, from_text

        if self.schema is not None:
            return FramedValues(self._plain(state))
        schema = from_text(self._subject.merged(state))
        return FramedValues(JsonSchemaValues(schema, str(self.on_unknown), self.unknown))

    def _changes(self, state: str, registry: Registry) -> Decoder:
        from volley.formats.changes.avro import columns_of_avro
        from volley.formats.changes.grouped import shape_of
        from volley.formats.changes.packed import change_values
        from volley.types.arrow import arrow_schema, canonical_schema

        options = ChangeOptions(**self.options)
        if self.schema is not None:
            columns = arrow_schema(self.schema)
        else:
            columns = columns_of_avro(self._subject.merged(state).decode(), shape_of(self.name, options).path or ())
            options.check(self.name, columns)
        return change_values(canonical_schema(columns), self.name, options, str(self.on_unknown), registry)

    def _plain(self, state: str) -> Decoder:
        from volley.formats.decoders import decoder_of

        unknown = kept_in(self.on_unknown, self.unknown, self.name) or self.unknown
        return decoder_of(self.name, self.schema, self.on_unknown, unknown, self.options, state, self.reserved)

    def _avro(self, state: str) -> Decoder:
        from volley.formats.avro import AvroValues, as_record
        from volley.formats.avro_defaults import in_nanoseconds

        text = self._subject.merged(state).decode() if self.schema is None else str(self.schema)
        text = as_record(text) if self.alone else text
        return AvroValues(in_nanoseconds(text) if self.nanoseconds else text, self.registry)

    def is_alone(self, decoder: Decoder) -> bool:
        """Return True if values are no records, but of one type."""
        from volley.formats.avro import ALONE, AvroValues

        return isinstance(decoder, AvroValues) and ALONE in decoder.text

    def _protobuf(self, state: str) -> Decoder:
        from volley.formats.protobuf import ProtobufValues
        from volley.formats.protobuf_schema import files_of, message_named

        files = self._subject.merged(state) if self.schema is None else files_of(self.schema)
        name = message_named(files, self.message).full_name
        return ProtobufValues(files, name, self.registry, self.nanoseconds)
