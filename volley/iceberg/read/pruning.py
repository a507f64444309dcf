"""Decides whether a manifest or a data file may have rows that match a filter, from what is known of its columns.

The rules are those of Iceberg's evaluators, with three differences that keep more files. A NaN is greater than all
other numbers, as in Spark and in Volley's expressions: a file with NaN may match ``x > 5`` whatever its bounds are.
Bounds of UUIDs count by their first half if its sign is the same, as Iceberg's Java library orders them differently.
A bound that can't be decoded is no bound.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any, Generic, NamedTuple, TypeVar

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, BoundPredicate, BoundReference, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import (
    BoundBooleanExpressionVisitor,
    InclusiveProjection,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, NestedField, PrimitiveType, UUIDType

from volley.iceberg.read.entries import FileEntry

__all__ = [
    "Predicate",
    "always",
    "decoded_bounds",
    "file_predicate",
    "manifest_predicate",
    "partition_predicate",
    "projected",
]

T = TypeVar("T")
Predicate = Callable[[T], bool]

_SIGN = 0x80


def always(_: Any) -> bool:
    """Return True: nothing can be left out."""
    return True


def _never(_: Any) -> bool:
    return False


def projected(schema: Schema, spec: PartitionSpec, row_filter: BooleanExpression) -> BooleanExpression:
    """Return what the partitions of a spec must fulfil to have rows that match a filter.

    Args:
        schema: The schema whose names the filter uses.
        spec: A partition spec of the table, also an old one.
    """
    return _Projection(schema, spec, True).project(row_filter)


def manifest_predicate(
    schema: Schema, spec: PartitionSpec, partition_filter: BooleanExpression
) -> Predicate[ManifestFile]:
    """Return whether a manifest may have partitions that fulfil a filter, by the summaries in the manifest list.

    Args:
        schema: The schema that the filter was projected from.
    """
    fields = len(spec.fields)
    matches: Predicate[ManifestFile] = _compiled(_partition_schema(schema, spec), partition_filter, _OfSummaries())
    return lambda manifest: len(manifest.partitions or ()) != fields or matches(manifest)


def partition_predicate(
    schema: Schema, spec: PartitionSpec, partition_filter: BooleanExpression
) -> Predicate[tuple[Any, ...]]:
    """Return whether a partition fulfils a filter; `always` if all do.

    Args:
        schema: The schema that the filter was projected from.
    """
    return _compiled(_partition_schema(schema, spec), partition_filter, _OfPartition())


def file_predicate(schema: Schema, row_filter: BooleanExpression) -> Predicate[FileEntry]:
    """Return whether a file may have rows that match a filter, by its statistics; `always` if all may.

    Args:
        schema: The schema whose names the filter uses.
    """
    return _compiled(schema, row_filter, _OfStatistics())


class _Projection(InclusiveProjection):
    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        try:
            return super().visit_bound_predicate(predicate)
        except (ArithmeticError, ValueError, TypeError):
            # pyiceberg computes years with Python's dates, and has no literals of nanoseconds in some transforms.
            return AlwaysTrue()


def _partition_schema(schema: Schema, spec: PartitionSpec) -> Schema:
    """Return the fields of partitions; each may be null, also that of a required column, in files older than it."""
    fields = spec.partition_type(schema).fields
    return Schema(*(field.model_copy(update={"required": False}) for field in fields))


def _compiled(schema: Schema, expression: BooleanExpression, compiler: _FilterCompiler[T]) -> Predicate[T]:
    return visit(bind(schema, rewrite_not(expression), case_sensitive=True), compiler)


class _Facts(NamedTuple):
    """What is known of the values of a column in a file, or in all files of a manifest.

    Args:
        lower: A lower bound of the other values; None = unknown.
    """

    nulls: bool
    nans: bool
    values: bool
    lower: Any = None
    upper: Any = None


class _FilterCompiler(BoundBooleanExpressionVisitor[Predicate[T]], Generic[T]):
    """Compiles a filter to a function."""

    def __init__(self) -> None:
        self._facts: dict[int, Callable[[T], _Facts]] = {}

    def facts(self, term: BoundTerm) -> Callable[[T], _Facts]:
        """Return what finds the facts of a column."""
        raise NotImplementedError

    def visit_true(self) -> Predicate[T]:
        return always

    def visit_false(self) -> Predicate[T]:
        return _never

    def visit_not(self, child_result: Predicate[T]) -> Predicate[T]:
        raise AssertionError("rewritten before")

    def visit_and(self, left_result: Predicate[T], right_result: Predicate[T]) -> Predicate[T]:
        if left_result is always or right_result is _never:
            return right_result
        if right_result is always or left_result is _never:
            return left_result
        return lambda item: left_result(item) and right_result(item)

    def visit_or(self, left_result: Predicate[T], right_result: Predicate[T]) -> Predicate[T]:
        if left_result is always or right_result is _never:
            return left_result
        if right_result is always or left_result is _never:
            return right_result
        return lambda item: left_result(item) or right_result(item)

    def visit_is_null(self, term: BoundTerm) -> Predicate[T]:
        return self._by(term, lambda facts: facts.nulls)

    def visit_not_null(self, term: BoundTerm) -> Predicate[T]:
        return self._by(term, lambda facts: facts.values or facts.nans)

    def visit_is_nan(self, term: BoundTerm) -> Predicate[T]:
        return self._by(term, lambda facts: facts.nans)

    def visit_not_nan(self, term: BoundTerm) -> Predicate[T]:
        return self._by(term, lambda facts: facts.values or facts.nulls)

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return self.visit_in(term, {literal.value})

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Predicate[T]:
        ranges = [_range(term, value) for value in literals]
        return self._by(term, lambda facts: facts.values and any(_meets(facts, low, high) for low, high in ranges))

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return always

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Predicate[T]:
        return always

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return self.below(term, literal.value, lt)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return self.below(term, literal.value, le)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return self.above(term, literal.value, gt)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        return self.above(term, literal.value, ge)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        prefix = literal.value

        def matches(facts: _Facts) -> bool:
            low, high = (None if bound is None else bound[: len(prefix)] for bound in facts[3:])
            return facts.values and (low is None or low <= prefix) and (high is None or high >= prefix)

        return self._by(term, matches)

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[T]:
        prefix = literal.value

        def matches(facts: _Facts) -> bool:
            return facts.nulls or any(bound is None or not bound.startswith(prefix) for bound in facts[3:])

        return self._by(term, matches)

    def below(self, term: BoundTerm, value: Any, compare: Callable[[Any, Any], bool]) -> Predicate[T]:
        """Return whether values below a literal, or equal to it, may be there."""
        _, high = _range(term, value)
        return self._by(term, lambda facts: facts.values and (facts.lower is None or compare(facts.lower, high)))

    def above(self, term: BoundTerm, value: Any, compare: Callable[[Any, Any], bool]) -> Predicate[T]:
        """Return whether values above a literal, or equal to it, may be there."""
        low, _ = _range(term, value)
        return self._by(
            term, lambda facts: facts.nans or (facts.values and (facts.upper is None or compare(facts.upper, low)))
        )

    def _by(self, term: BoundTerm, matches: Callable[[_Facts], bool]) -> Predicate[T]:
        if not isinstance(term, BoundReference):
            # A filter on a transform of the column.
            return always
        field_id = term.ref().field.field_id
        facts = self._facts[field_id] = self._facts.get(field_id) or _remembering(self.facts(term))
        return lambda item: matches(facts(item))


def _remembering(facts: Callable[[T], _Facts]) -> Callable[[T], _Facts]:
    """Return a function that finds the facts of an item once, however many comparisons in a row need them."""
    last: tuple[T | None, _Facts | None] = (None, None)

    def of(item: T) -> _Facts:
        nonlocal last
        # Threads share the function: they replace the pair as a whole.
        known, remembered = last
        if known is not item or remembered is None:
            remembered = facts(item)
            last = (item, remembered)
        return remembered

    return of


class _OfSummaries(_FilterCompiler[ManifestFile]):
    def facts(self, term: BoundTerm) -> Callable[[ManifestFile], _Facts]:
        position, data_type = term.ref().accessor.position, term.ref().field.field_type

        def of(manifest: ManifestFile) -> _Facts:
            assert manifest.partitions is not None
            summary = manifest.partitions[position]
            nans = _is_float(data_type) and summary.contains_nan is not False
            bounds = summary.lower_bound, summary.upper_bound
            # Without bounds there are no values, but then there must be something else.
            values = bounds != (None, None) or not (summary.contains_null or nans)
            return _Facts(summary.contains_null, nans, values, *decoded_bounds(data_type, *bounds))

        return of


class _OfStatistics(_FilterCompiler[FileEntry]):
    def facts(self, term: BoundTerm) -> Callable[[FileEntry], _Facts]:
        field: NestedField = term.ref().field
        field_id, data_type = field.field_id, field.field_type

        def of(file: FileEntry) -> _Facts:
            values, nulls, nans = file.values.get(field_id), file.nulls.get(field_id), file.nans.get(field_id)
            may_be_nan = _is_float(data_type) and nans != 0
            # A column that the file lacks may have no values, or 0; it is null, or has a default.
            has_values = not values or nulls is None or values > nulls + (nans or 0)
            bounds = decoded_bounds(data_type, file.lower.get(field_id), file.upper.get(field_id))
            return _Facts(nulls != 0, may_be_nan and not (values and values == nulls), has_values, *bounds)

        return of


class _OfPartition(_FilterCompiler[tuple[Any, ...]]):
    """Compiles to comparisons of the values themselves."""

    def facts(self, term: BoundTerm) -> Callable[[tuple[Any, ...]], _Facts]:
        position = term.ref().accessor.position

        def of(partition: tuple[Any, ...]) -> _Facts:
            value = partition[position]
            is_nan = value != value
            return _Facts(value is None, is_nan, value is not None and not is_nan, value, value)

        return of

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Predicate[tuple[Any, ...]]:
        if _is_float(term.ref().field.field_type):
            return super().visit_in(term, literals)
        position = term.ref().accessor.position
        if len(literals) == 1:
            (literal,) = literals
            return lambda partition: partition[position] == literal
        return lambda partition: partition[position] in literals

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Predicate[tuple[Any, ...]]:
        return self.visit_not_in(term, {literal.value})

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Predicate[tuple[Any, ...]]:
        if _is_float(term.ref().field.field_type):
            return always
        position = term.ref().accessor.position
        return lambda partition: partition[position] not in literals

    def below(self, term: BoundTerm, value: Any, compare: Callable[[Any, Any], bool]) -> Predicate[tuple[Any, ...]]:
        if _is_float(term.ref().field.field_type):
            return super().below(term, value, compare)
        return self._compared(term, value, compare)

    def above(self, term: BoundTerm, value: Any, compare: Callable[[Any, Any], bool]) -> Predicate[tuple[Any, ...]]:
        if _is_float(term.ref().field.field_type):
            return super().above(term, value, compare)
        return self._compared(term, value, compare)

    def _compared(self, term: BoundTerm, value: Any, compare: Callable[[Any, Any], bool]) -> Predicate[tuple[Any, ...]]:
        position = term.ref().accessor.position
        return lambda partition: partition[position] is not None and compare(partition[position], value)


def _is_float(data_type: IcebergType) -> bool:
    return isinstance(data_type, FloatType | DoubleType)


def _range(term: BoundTerm, value: Any) -> tuple[Any, Any]:
    """Return the values of a column that a literal may stand for: of a 4-byte float, itself and the nearest float."""
    if isinstance(term.ref().field.field_type, FloatType):
        (nearest,) = struct.unpack("<f", struct.pack("<f", value))
        return min(value, nearest), max(value, nearest)
    return value, value


def _meets(facts: _Facts, low: Any, high: Any) -> bool:
    """Return True if the bounds leave room for a value of a range."""
    return (facts.lower is None or facts.lower <= high) and (facts.upper is None or facts.upper >= low)


def decoded_bounds(data_type: IcebergType, lower: bytes | None, upper: bytes | None) -> tuple[Any, Any]:
    """Return the values of serialized bounds, those of UUIDs as bytes; None for one that is unknown."""
    assert isinstance(data_type, PrimitiveType)
    if isinstance(data_type, UUIDType):
        return _uuids(lower, upper)
    return _value(data_type, lower), _value(data_type, upper)


def _value(data_type: PrimitiveType, bound: bytes | None) -> Any:
    if bound is None or (isinstance(data_type, DecimalType) and not bound):
        return None
    try:
        value = from_bytes(data_type, bound)
    except (struct.error, ValueError, TypeError, ArithmeticError):
        # Of a type before its promotion, or not in Iceberg's form.
        return None
    return value if value == value else None


def _uuids(lower: bytes | None, upper: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return bounds of UUIDs that are valid in the order of their bytes; Java compares two signed numbers."""
    if lower == upper:
        return lower, upper
    if not lower or not upper or (lower[0] ^ upper[0]) & _SIGN:
        return None, None
    return lower[:8] + bytes(8), upper[:8] + b"\xff" * 8
