"""Contracts of JSON: what becomes of fields that a schema lacks, and of values that don't fit their column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from volley.checks import keep, mapping, one_of
from volley.html_table import settings_html

__all__ = ["DROPPED", "INFER", "RESCUED", "RESCUED_VALUES", "Contract", "Fate", "contract_of"]

Fate = Literal["evolve", "rescue", "drop", "fail"]
"""What becomes of a field that the schema lacks, or of a value that does not fit its column."""

INFER = "infer"
"""The schema of a source none of whose columns are declared."""

RESCUED = "rescued"
"""The column of what is rescued."""

DROPPED, RESCUED_VALUES = "values dropped", "values rescued"
"""What tasks count of values that are in no column."""


@dataclass(frozen=True)
class Contract:
    """What becomes of JSON that the schema does not foresee, as a source's ``on_unknown``.

    Args:
        new_columns: The fate of fields that the schema lacks. ``"evolve"`` (the default): the field becomes a column,
            of the type of its first value; ``"rescue"``: it is kept as JSON in the column ``rescued``; ``"drop"``: it
            is left out, and counted (``values_dropped``); ``"fail"``: its row is a bad row.
        types: The fate of values that don't fit their column. ``"rescue"`` (the default), ``"drop"`` and ``"fail"`` as
            above, and the column is null; ``"evolve"``: the column becomes wider where Iceberg can widen it, ``int`` to
            ``long`` and a decimal to more digits, and the value is rescued if that is not enough.
        columns: The fate of both by the name of a column or field, instead.

    Raises:
        ConfigError: If a fate is unknown.

    Example:
        >>> contract = Contract(types="fail", columns={"note": "drop"})
        >>> contract.of_field("price"), contract.of_value("price"), contract.of_value("note")
        ('evolve', 'fail', 'drop')
    """

    new_columns: Fate = "evolve"
    types: Fate = "rescue"
    columns: Mapping[str, Fate] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, new_columns=one_of(get_args(Fate)), types=one_of(get_args(Fate)), columns=_fates)

    _repr_html_ = settings_html

    def of_field(self, name: str) -> Fate:
        """Return the fate of a field that the schema lacks, by the name of the outermost one that it is in."""
        return self.columns.get(name, self.new_columns)

    def of_value(self, name: str) -> Fate:
        """Return the fate of values that don't fit a column."""
        return self.columns.get(name, self.types)

    @property
    def fails(self) -> bool:
        """True if a row may be bad by it."""
        return "fail" in (self.new_columns, self.types, *self.columns.values())

    @property
    def evolves(self) -> bool:
        """True if rows may change the schema."""
        return "evolve" in (self.new_columns, self.types, *self.columns.values())

    @property
    def rescues(self) -> bool:
        """True if it names a value to be rescued."""
        return "rescue" in (self.new_columns, self.types, *self.columns.values())

    @property
    def fixed(self) -> Contract:
        """The same contract for columns that don't change: what would change them is rescued."""
        fates = {name: _fixed(fate) for name, fate in self.columns.items()}
        return Contract(_fixed(self.new_columns), _fixed(self.types), fates)

    def __str__(self) -> str:
        """Return what becomes of fields and values, as a clause."""
        named = "".join(f"; {name!r}: {fate}" for name, fate in self.columns.items())
        return f"fields that the schema lacks: {self.new_columns}; values that don't fit it: {self.types}{named}"


def contract_of(policy: str | Contract) -> Contract | None:
    """Return the contract that a source's ``on_unknown`` is; None if it only says what unknown fields become."""
    if isinstance(policy, Contract):
        return policy
    return Contract() if policy == "evolve" else None


def _fixed(fate: Fate) -> Fate:
    return "rescue" if fate == "evolve" else fate


def _fates(name: str, value: Any) -> Mapping[str, Fate]:
    fates: Mapping[str, Any] = mapping(name, value)
    return {column: one_of(get_args(Fate))(f"{name}[{column!r}]", fate) for column, fate in fates.items()}
