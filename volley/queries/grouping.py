"""The sets of keys that ROLLUP, CUBE and GROUPING SETS group by."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations, product

from sqlglot import exp

from volley.plan.sql_nodes import Mistake

__all__ = ["grouping_sets"]

_MOST = 64

Keys = tuple[exp.Expression, ...]


def grouping_sets(group: exp.Group) -> list[Keys]:
    """Return the sets of keys of GROUP BY: of plain keys it is one; of several parts, all combinations of theirs.

    Raises:
        Mistake: If there are more than 64.
    """
    sets = [tuple(chain(*parts)) for parts in product(*map(_sets, group.expressions))]
    if len(sets) > _MOST:
        raise Mistake(f"{len(sets)} sets of keys", group, f"at most {_MOST}; name the needed ones by GROUPING SETS")
    return sets


def _sets(part: exp.Expression) -> Sequence[Keys]:
    match part:
        case exp.Rollup():
            keys = [_keys(key) for key in part.expressions]
            return [tuple(chain(*keys[:size])) for size in range(len(keys), -1, -1)]
        case exp.Cube():
            keys = [_keys(key) for key in part.expressions]
            sizes = range(len(keys), -1, -1)
            return [tuple(chain(*some)) for size in sizes for some in combinations(keys, size)]
        case exp.GroupingSets():
            return [keys for inner in part.expressions for keys in _sets(inner)]
    return [_keys(part)]


def _keys(part: exp.Expression) -> Keys:
    if isinstance(part, exp.Tuple):
        return tuple(part.expressions)
    return (part.this,) if isinstance(part, exp.Paren) else (part,)
