"""A schema as a registry has it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Registered"]


@dataclass(frozen=True)
class Registered:
    """A schema as a registry has it.

    Args:
        kind: ``"AVRO"``, ``"JSON"`` or ``"PROTOBUF"``.
        text: Its text; of Protobuf also a file's descriptor in base64.
        references: The schemas that it refers to, by the names under which it does.
    """

    kind: str
    text: str
    references: tuple[tuple[str, Registered], ...] = ()
