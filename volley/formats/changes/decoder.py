"""Decodes messages that are changes of rows: what is written, what it means, and which messages are none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.bisect import process_or_bisect
from volley.columns.roles import ChangeColumns
from volley.contracts.rows import Seen, note_seen, note_unknown, tally
from volley.errors import SourceError, message_of
from volley.formats.change_options import OPERATION, SEQUENCE, UNCHANGED
from volley.formats.changes.debezium import Keys
from volley.formats.changes.events import REMOVED, TRUNCATED, UPDATED, Events, Shape
from volley.formats.changes.grouped import GroupedChanges
from volley.formats.changes.logical import Values as Conversion
from volley.formats.changes.told import NO_SCHEMA, dropped_columns, faults_of_columns, told_columns
from volley.formats.changes.unchanged import Mask, Placeholder, lists_of
from volley.formats.changes.unwrap import Groups, fields_named, fields_with_values, unwrapped
from volley.formats.changes.warned import warn_of_defaults, warn_of_zeros
from volley.formats.changes.wire import Wire
from volley.formats.contract import DROPPED
from volley.formats.framing import Tombstone
from volley.formats.inferred import Inferred
from volley.formats.messages import Values
from volley.formats.rows import Sorted, joined

__all__ = ["ChangeValues"]

_LOOKED_AT = 10
# What the names of fields begin with that a program adds to rows.
_OWN = {"debezium": "__", "airbyte": "_ab_cdc_", "olake": "_"}
_PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS = {"olake": "__olake_unavailable_value__"}
# The end of a row that has none: the last second of 32 bits, which MariaDB 11.5 reads without a sign.
_NEVER = datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)
_TRUNCATED = (
    "the table was truncated, which a stream of rows can't carry: empty the table of the lake; "
    'truncations="skip" leaves such messages out'
)


@dataclass(frozen=True)
class _Messages:
    """Messages that were read, and what they are.

    Args:
        batch: Their fields.
        numbers: Their numbers among all messages of a call.
        payloads: Their texts.
        wires: How the columns of their rows are written.
        is_schemaless: True if they carry no schema: a field that is not there looks like a null.
    """

    batch: pa.RecordBatch
    numbers: np.ndarray[Any, Any]
    payloads: Sequence[bytes]
    wires: Mapping[str, Wire]
    is_schemaless: bool

    def slice(self, start: int, end: int) -> _Messages:
        return replace(
            self,
            batch=self.batch.slice(start, end - start),
            numbers=self.numbers[start:end],
            payloads=self.payloads[start:end],
        )

    def without(self, rows: Collection[int]) -> _Messages:
        """Return the others."""
        kept = [row for row in range(len(self.payloads)) if row not in rows]
        batch, payloads = self.batch.take(pa.array(kept, pa.int64())), [self.payloads[row] for row in kept]
        return replace(self, batch=batch, numbers=self.numbers[kept], payloads=payloads)


@dataclass(frozen=True)
class ChangeValues(GroupedChanges):
    """Decodes changes of rows into declared columns, or into those that schemas have told.

    Args:
        on_unknown: What to do with other fields of rows: ``"warn"``, ``"fail"`` or ``"drop"``.
        are_keys: True: values are the keys of rows that are deleted.
        inferred: The columns, if the schemas of messages tell further ones; None = they are declared.
        tells_place: True: flattened rows tell their place in the log of the database, as envelopes do.
    """

    on_unknown: str
    are_keys: bool = False
    inferred: Inferred | None = None
    tells_place: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        added: list[Any] = [(OPERATION, pa.string()), (SEQUENCE, pa.binary()), (UNCHANGED, pa.list_(pa.string()))]
        added += [(f"source_{name}", pa.int64() if name == "ts_ms" else pa.string()) for name in self.options.source]
        # Of other formats, and of flattened rows, the place is often not known.
        knows_place = self.value_format == "debezium" and (self.tells_place or not self.options.flattened)
        knows_place = knows_place or bool(self.options.unwrap and self.options.unwrap.sequence)
        sequence = (SEQUENCE,) if knows_place else ()
        keys = tuple(self.options.key_fields)
        roles = ChangeColumns(keys, operation=OPERATION, unchanged=UNCHANGED, sequence=sequence)
        return roles.noted(pa.schema([*self.columns, *added]))

    def sort(self, values: Values, place: str = "") -> Sorted:
        keys = {number: value for number, value in enumerate(values) if isinstance(value, Tombstone)}
        if keys:
            values = [None if number in keys else value for number, value in enumerate(values)]
        groups, faults = self._encoding.groups(values)
        if self._note_columns(groups, keys):
            return self._empty
        pieces = [Sorted([], [], {**faults, **self._tombstones(values, keys)})]
        pieces += [self.of_schema(schema, units, place) for schema, units in groups.items()]
        if keys:
            pieces.append(self._deletions(keys, place))
        return self._ordered(pieces)

    def _note_columns(self, groups: Groups, keys: Mapping[int, bytes]) -> bool:
        """Note what messages tell of columns that are not known yet; return True if they are to be read again."""
        if self.inferred is None or self.are_keys:
            return False
        numbers = [*keys]
        schemas = [(units[0][0], schema, False) for schema, units in groups.items()]
        schemas += [(numbers[units[0][0]], schema, True) for schema, units in unwrapped([*keys.values()]).items()]
        seen = list[Seen]()
        for _, schema, is_key in sorted(schemas, key=itemgetter(0)):
            with suppress(SourceError):
                told = told_columns(schema, () if is_key else self._path, self.options) if schema else ()
                seen += [each for each in told if not is_key or each.column in self.options.key_fields]
        if news := [each for each in seen if self.inferred.takes(each)]:
            note_seen(self.inferred.source, news)
        return bool(news)

    def _deletions(self, keys: Mapping[int, bytes], place: str) -> Sorted:
        """Return the deletions of the rows with these keys, by the numbers of their messages."""
        rows = replace(self, are_keys=True, on_unknown="drop").sort([*map(bytes, keys.values())], place)
        numbers = [*keys]
        faults = {numbers[number]: f"its key: {fault}" for number, fault in rows.faults.items()}
        return Sorted(rows.batches, [numbers[number] for number in rows.numbers], faults)

    @cached_property
    def _shape(self) -> Shape:
        return Keys(tuple(self.options.key_fields)) if self.are_keys else super()._shape

    @property
    def _path(self) -> tuple[str, ...]:
        return self._shape.path or ()

    @cached_property
    def _placeholder(self) -> Placeholder:
        return Placeholder(self.options.placeholder or _PLACEHOLDERS.get(self.value_format, _PLACEHOLDER))

    @cached_property
    def _conversion(self) -> Conversion:
        return Conversion(self.options.unrepresentable == "null")

    def of_schema(self, schema: bytes, units: Sequence[tuple[int, bytes]], place: str = "") -> Sorted:
        """Return the rows of messages that carry one schema.

        Args:
            units: The number and the payload of each.
        """
        numbers, payloads = [number for number, _ in units], [payload for _, payload in units]
        if not schema and self.inferred is not None and self.inferred.contract.evolves and not self.are_keys:
            return Sorted([], [], dict.fromkeys(numbers, NO_SCHEMA))
        try:
            wires = self._encoding.wires(schema)
        except SourceError as error:
            return Sorted([], [], dict.fromkeys(numbers, message_of(error)))
        read = self._encoding.read(schema, wires, payloads, place)
        bad = {numbers[number]: fault for number, fault in read.faults.items()}
        if not read.numbers:
            return Sorted([], [], bad)
        good = np.array(read.numbers)
        texts = payloads if len(good) == len(payloads) else [payloads[number] for number in good.tolist()]
        messages = _Messages(read.batch, np.array(numbers)[good], texts, wires, not schema)
        if unknown := self._unknown(schema, messages, place):
            bad |= {int(messages.numbers[row]): fault for row, fault in unknown.items()}
            messages = messages.without(unknown)
        rows = joined([Sorted([], [], bad), *(self._converted(messages) if messages.payloads else [])])
        if self.inferred is not None and not self.are_keys and rows.numbers:
            self._count_dropped(schema, messages, rows, self.inferred)
        return rows

    def _converted(self, messages: _Messages) -> Sequence[Sorted]:
        def bad(index: int, error: Exception) -> Sorted:
            return Sorted([], [], {int(messages.numbers[index]): message_of(error)})

        def rows(start: int, end: int) -> Sorted:
            return self._rows(messages.slice(start, end))

        return [*process_or_bisect(len(messages.payloads), rows, bad, (SourceError,))]

    def _rows(self, messages: _Messages) -> Sorted:
        """Return the rows of messages.

        Raises:
            SourceError: If a value of one does not fit its column.
        """
        events = self._present(self._shape.events(messages.batch), messages)
        at = np.arange(len(events)) if events.numbers is None else events.numbers
        faults, kept = self._kept(events, messages, at)
        rows = pa.array(kept)
        operation = events.operation.take(rows)
        raw, masks = self._raw(events, messages, at, rows, operation)
        warn_of_defaults(messages.wires, events.source.get("snapshot"))
        columns = [
            self._conversion.of(column.name, raw[column.name], messages.wires.get(column.name, Wire()), column.type)
            for column in self.columns
        ]
        added = [operation, events.sequence.take(rows), lists_of(masks, len(kept))]
        for name in self.options.source:
            values = events.source.get(name)
            field = self.schema.field(f"source_{name}")
            added.append(pa.nulls(len(kept), field.type) if values is None else values.take(rows).cast(field.type))
        numbers = messages.numbers
        batch = pa.RecordBatch.from_arrays([*columns, *added], schema=self.schema)
        bad = {int(numbers[number]): fault for number, fault in sorted(faults.items())}
        return Sorted([batch], numbers[at[kept]].tolist(), bad)

    def _present(self, events: Events, messages: _Messages) -> Events:
        """Return events without versions of rows that have ended; an update that ends a row is its deletion.

        Raises:
            SourceError: If the end of one is no time.
        """
        name = self.options.row_end
        if name is None or name not in events.row:
            return events
        wire = messages.wires.get(name, Wire())
        ends = self._conversion.of(name, events.row[name], wire, pa.timestamp("us", "UTC"))
        has_ended = pc.less(ends, pa.scalar(_NEVER, ends.type)).fill_null(False)
        is_update = pc.equal(events.operation, UPDATED).fill_null(False)
        ended = pc.if_else(is_update, REMOVED, pa.scalar(None, pa.string()))
        return replace(events, operation=pc.if_else(has_ended, ended, events.operation))

    def _kept(
        self, events: Events, messages: _Messages, at: np.ndarray[Any, Any]
    ) -> tuple[dict[int, str], np.ndarray[Any, Any]]:
        """Return the faults of messages, and the events that are rows."""
        faults = dict(events.faults)
        is_row = events.operation.is_valid().to_numpy(zero_copy_only=False)
        truncated = pc.equal(events.operation, TRUNCATED).fill_null(False).to_numpy(zero_copy_only=False)
        if truncated.any():
            is_row = is_row & ~truncated
            if self.options.truncations == "fail":
                faults.update(dict.fromkeys(at[truncated].tolist(), _TRUNCATED))
        for row, fault in self._lacking(events, messages, at, np.flatnonzero(is_row)):
            faults.setdefault(int(at[row]), fault)
        if faults:
            is_row = is_row & ~np.isin(at, list(faults))
        return faults, np.flatnonzero(is_row)

    def _lacking(
        self, events: Events, messages: _Messages, at: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]
    ) -> Iterator[tuple[int, str]]:
        """Yield the events without a key, or with none of the columns, and what they lack."""
        for name in self.options.key_fields:
            values = events.row.get(name)
            if name not in self.columns.names or (values is not None and not values.null_count):
                continue
            lacks = np.ones(len(rows), np.bool_) if values is None else _mask(values.take(pa.array(rows)).is_null())
            for row in rows[lacks]:
                what = "a deletion" if events.operation[int(row)].as_py() == REMOVED else "a row"
                yield int(row), f"{what} whose key has no {name!r}"
        if self._shape.path is None or not all(values.null_count for values in events.row.values()):
            return
        nulls = [_mask(values.take(pa.array(rows)).is_null()) for values in events.row.values()]
        for row in rows[np.logical_and.reduce([np.ones(len(rows), np.bool_), *nulls])]:
            names = _named(messages.payloads[at[row]], self._path) if messages.is_schemaless else {*messages.wires}
            if names and names.isdisjoint(self.columns.names):
                yield int(row), f"a row with none of the columns: it has {', '.join(map(repr, sorted(names)[:5]))}"

    def _raw(
        self, events: Events, messages: _Messages, at: np.ndarray[Any, Any], rows: pa.Array, operation: pa.Array
    ) -> tuple[dict[str, pa.Array], dict[str, Mask]]:
        """Return the columns as they are written, and which of their values are left out: these are null."""
        is_removed = _mask(pc.equal(operation, REMOVED))
        is_update = _mask(pc.equal(operation, UPDATED))
        raw, masks = {}, {}
        for column in self.columns:
            name, is_key = column.name, column.name in self.options.key_fields
            values = events.row.get(name)
            is_there = values is not None
            values = pa.nulls(len(rows), column.type) if values is None else values.take(rows)
            unchanged = self._placeholder.mask(values)
            if not is_there:
                unchanged = unchanged | is_update
            elif messages.is_schemaless and self._shape.path is not None and values.null_count:
                unchanged = unchanged | self._absent(name, values, messages, at[rows.to_numpy()], is_update)
            # Of a deletion, only the key is sure to be a value of the row.
            hidden = unchanged | is_removed if self.options.key_fields and not is_key else unchanged
            raw[name] = pc.if_else(pa.array(hidden), pa.scalar(None, values.type), values) if hidden.any() else values
            masks[name] = np.zeros(len(rows), np.bool_) if is_key else unchanged & ~is_removed
        warn_of_zeros([raw[key].filter(pa.array(is_removed)) for key in self.options.key_fields if key in raw])
        return raw, masks

    def _absent(
        self, column: str, values: pa.Array, messages: _Messages, at: np.ndarray[Any, Any], is_update: Mask
    ) -> Mask:
        """Return the updates that have no field of a column; what is null there may be one."""
        mask = np.zeros(len(values), np.bool_)
        for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False) & is_update):
            mask[row] = column not in _named(messages.payloads[at[row]], self._path)
        return mask

    def _unknown(self, schema: bytes, messages: _Messages, place: str) -> dict[int, str]:
        """Note the fields of rows that the columns lack; or return them as faults, by the numbers of messages."""
        if self.inferred is not None and not self.are_keys:
            return self._unknown_by_contract(schema, messages, self.inferred)
        if self.on_unknown == "drop" or self._shape.path is None:
            return {}
        many = len(messages.payloads) if self.on_unknown == "fail" else _LOOKED_AT
        path, texts = self._shape.path, messages.payloads[: 1 if schema else many]
        named = [frozenset(messages.wires) if schema else fields_named(text, path) for text in texts]
        others = [self._others(names) for names in named]
        if self.on_unknown == "warn":
            note_unknown(sorted({name for names in others for name in names}), place)
            return {}
        if schema and others:
            others *= len(messages.payloads)
        return {row: f"field {names[0][:100]!r} is not in the schema" for row, names in enumerate(others) if names}

    def _unknown_by_contract(self, schema: bytes, messages: _Messages, columns: Inferred) -> dict[int, str]:
        if schema:
            try:
                faults = faults_of_columns(told_columns(schema, self._path, self.options), columns)
            except SourceError as error:
                faults = [message_of(error)]
            return dict.fromkeys(range(len(messages.payloads)), faults[0]) if faults else {}
        named = [self._others(fields_named(text, self._path)) for text in messages.payloads]
        seen = [faults_of_columns([Seen((name,), "") for name in names], columns) for names in named]
        return {row: faults[0] for row, faults in enumerate(seen) if faults}

    def _count_dropped(self, schema: bytes, messages: _Messages, rows: Sorted, columns: Inferred) -> None:
        """Count the values that a contract leaves out of rows; of a deletion, they are not known."""
        told = dropped_columns(told_columns(schema, self._path, self.options), columns) if schema else frozenset()
        if schema and not told:
            return
        payloads = dict(zip(messages.numbers.tolist(), messages.payloads, strict=True))
        for number, operation in zip(rows.numbers, rows.batch.column(OPERATION).to_pylist(), strict=True):
            if operation != REMOVED:
                names = fields_with_values(payloads[number], self._path)
                dropped = told or dropped_columns([Seen((name,), "") for name in self._others(names)], columns)
                tally(DROPPED, len(names & dropped))

    def _others(self, names: frozenset[str]) -> list[str]:
        """Return the fields of a row that are in no column, and are not the format's own."""
        own = _OWN.get(self.value_format)
        if self.options.unwrap is not None:
            names -= self.options.unwrap.own
        return [name for name in sorted(names.difference(self.columns.names)) if not (own and name.startswith(own))]


def _mask(values: pa.Array) -> Mask:
    mask: Mask = values.fill_null(False).to_numpy(zero_copy_only=False)
    return mask


@lru_cache(maxsize=10_000)
def _named(payload: bytes, path: tuple[str, ...]) -> frozenset[str]:
    return fields_named(payload, path)
