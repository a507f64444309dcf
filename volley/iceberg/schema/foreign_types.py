"""Types of Iceberg that pyiceberg lacks: ``variant``, and those of the future, which can't be read."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa
from pydantic import ModelWrapValidatorHandler, PrivateAttr, model_serializer, model_validator
from pyiceberg.types import PrimitiveType, StringType

__all__ = ["ShreddedType", "UnreadableType", "VariantText", "VariantType"]


class _ForeignType(PrimitiveType):
    """A type by the name that it has in the metadata."""

    root: str

    def __init__(self, name: str) -> None:
        super().__init__(root=name)

    @model_validator(mode="wrap")
    @classmethod
    def handle_primitive_type(cls, v: Any, handler: ModelWrapValidatorHandler[_ForeignType]) -> _ForeignType:
        # pyiceberg's own validator takes the name for one of its types.
        return handler(v)

    @model_serializer
    def ser_model(self) -> str:
        return self.root

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.root,)

    def __hash__(self) -> int:
        return hash(self.root)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.root == other.root


class UnreadableType(_ForeignType):
    """A type that can't be read, by the name that it has in the metadata."""


class VariantType(_ForeignType):
    """A value of any type, with its own type, of format version 3: https://iceberg.apache.org/spec/#semi-structured-types."""

    def __init__(self) -> None:
        super().__init__("variant")

    def __getnewargs__(self) -> tuple[Any, ...]:
        return ()

    def minimum_format_version(self) -> Literal[3]:
        return 3


class ShreddedType(VariantType):
    """A variant in files that have values, or fields of objects, in columns of their own.

    Args:
        stored: The Arrow type of such variants.
    """

    _stored: pa.DataType = PrivateAttr()

    def __init__(self, stored: pa.DataType) -> None:
        super().__init__()
        self._stored = stored

    @property
    def stored(self) -> pa.DataType:
        """The Arrow type of such variants."""
        return self._stored

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self._stored,)

    def __hash__(self) -> int:
        return hash(self._stored)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShreddedType) and bool(self._stored == other._stored)


class VariantText(StringType):
    """A variant as it is read: JSON text."""
