"""The clauses of a query that can be translated."""

from __future__ import annotations

from sqlglot import exp

from volley.plan.sql_nodes import Mistake

__all__ = ["check_clauses"]

_SET = {"this", "expression", "distinct", "with_", "order", "limit"}
_CLAUSES = {
    exp.Select: {
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "distinct",
        "limit",
        "order",
        "with_",
        "qualify",
    },
    exp.Union: _SET,
    exp.Intersect: _SET,
    exp.Except: _SET,
    exp.Table: {"this", "db", "catalog", "alias"},
    exp.Subquery: {"this", "alias"},
    exp.Join: {"this", "side", "kind", "on", "using"},
    exp.Group: {"expressions"},
    exp.Star: {"except_"},
    exp.With: {"expressions"},
    exp.Distinct: {"expressions"},
    exp.Order: {"expressions"},
    exp.Ordered: {"this", "desc", "nulls_first"},
    exp.Window: {"this", "partition_by", "order", "spec", "over"},
}
_INSTEAD = {
    "recursive": "a query can't name itself",
    "laterals": "make rows of a list by stream.explode(column), and query the result",
}


def check_clauses(node: exp.Expression) -> None:
    """Refuse the clauses of a node that can't be translated."""
    for name, value in node.args.items():
        if value and name not in _CLAUSES[type(node)]:
            shown = name.strip("_").upper()
            raise Mistake(f"{shown} can't be translated", node, _INSTEAD.get(name, f"leave {shown} out"))
