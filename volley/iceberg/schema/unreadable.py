"""Types that pyiceberg does not know: their columns stay in a table's schema, but can't be read."""

from __future__ import annotations

from typing import Any

from pydantic import ModelWrapValidatorHandler, model_serializer, model_validator
from pyiceberg.types import PrimitiveType

__all__ = ["UnreadableType"]


class UnreadableType(PrimitiveType):
    """A type that can't be read, such as ``variant``, by the name that it has in the metadata."""

    root: str

    def __init__(self, name: str) -> None:
        super().__init__(root=name)

    @model_validator(mode="wrap")
    @classmethod
    def handle_primitive_type(cls, v: Any, handler: ModelWrapValidatorHandler[UnreadableType]) -> UnreadableType:
        # pyiceberg's own validator takes the name for one of its types.
        return handler(v)

    @model_serializer
    def ser_model(self) -> str:
        return self.root

    def __getnewargs__(self) -> tuple[str]:
        return (self.root,)

    def __hash__(self) -> int:
        return hash(self.root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadableType) and self.root == other.root
