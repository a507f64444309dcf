"""Follows changes through a plan: where rows replace earlier ones, the earlier ones are deleted first.

A group's row, or that of a window that is not closed, changes with each epoch. A step behind that adds up such rows has
to take back those of before, and a sink has to delete a row that a filter lets through no more. Where a plan needs it,
the rows have the column CHANGE on their way; elsewhere they cost nothing more. Apache Flink's changelogs work so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from volley.errors import PlanError
from volley.plan import nodes
from volley.plan.expression_nodes import Call, Column, Literal
from volley.plan.keyed_nodes import CHANGE, Aggregate, Changing, CompareExtracts, Keyed, Over
from volley.plan.nodes import Node, Write
from volley.plan.windows import Session

__all__ = ["changes_rows", "starts_of", "with_changes"]

# The aggregates that can take a row back.
_TAKE_BACK = ("count", "sum", "avg", "min", "max", "count_distinct", "variance")
# These can let one row of a group through, and not the next one.
_LEAVE_OUT = (nodes.Filter, nodes.Rest, nodes.Explode)
# These take a row as it is, whether it is valid any more or not.
_TAKE_ANY = (nodes.Apply, nodes.Expect)


def changes_rows(step: Node) -> bool:
    """Return True if a row that comes out of a step can replace one that came out before."""
    return (isinstance(step, Changing) and step.replaces_rows) or isinstance(step, CompareExtracts)


def starts_of(node: Node) -> Iterator[Node]:
    """Yield the reads and keyed steps whose rows get to a node without another keyed step between."""
    for source in node.inputs:
        if isinstance(source, nodes.Read | Keyed):
            yield source
        else:
            yield from starts_of(source)


def with_changes(writes: Sequence[Write]) -> list[Write]:
    """Return the graph of a job whose keyed steps emit and take changes where that is needed: its writes.

    Raises:
        PlanError: If a function or an expectation stands where deleted rows have to pass, an aggregate can't take rows
            back, or a sink can't replace rows.
    """
    if not any(isinstance(node, Changing) and node.replaces_rows for node in nodes.walk(writes)):
        return list(writes)
    return _Changes(writes).writes


class _Changes:
    def __init__(self, writes: Sequence[Write]) -> None:
        self._emitting: set[int] = set()
        self._taking: set[int] = set()
        self._plain: dict[int, Node] = {}
        self._carrying: dict[int, Node] = {}
        changed: list[Write] = []
        for node in nodes.walk(writes):
            if isinstance(node, Changing) and (replacing := self._replacing(node)):
                _check(node, replacing[0])
                self._taking.add(id(node))
                self._emitting.update(map(id, replacing))
        to_sinks = {id(write) for write in writes if self._has_to_delete(write)}
        for write in writes:
            rows = self._carried(write.input) if id(write) in to_sinks else self._of(write.input)
            changed.append(write if rows is write.input else replace(write, input=rows))
        self.writes = changed

    def _replacing(self, node: Node) -> list[Changing]:
        return [start for start in starts_of(node) if isinstance(start, Changing) and start.replaces_rows]

    def _has_to_delete(self, write: Write) -> bool:
        """Return True if a row that a sink has can be left out later; note the step that has to tell it then."""
        if not (replacing := self._replacing(write)):
            return False
        (start, *_) = replacing
        between = list(_between(write))
        if any(isinstance(step, nodes.Drop) and CHANGE in step.columns for step in between):
            return False
        leaving = next(filter(_leaves_out, between), None)
        if leaving is None and id(start) not in self._taking and not isinstance(start, Over):
            _check_sink(write, start)
            return False
        taker = next((step for step in between if isinstance(step, _TAKE_ANY)), None)
        if _has_windows(start) and id(start) not in self._taking and (taker or not write.sink.replaces_rows):
            # Jobs of earlier versions have such steps and sinks.
            return False
        if taker is not None:
            raise _refused(taker, start)
        self._emitting.add(id(start))
        return True

    def _of(self, node: Node) -> Node:
        """Return a node whose rows tell no changes, unless they did before."""
        if id(node) not in self._plain:
            self._plain[id(node)] = self._without_changes(node)
        return self._plain[id(node)]

    def _without_changes(self, node: Node) -> Node:
        if not isinstance(node, Changing):
            return _after(node, [self._of(source) for source in node.inputs])
        step = self._changing(node)
        if not step.emits_changes or node.has_changes:
            return step
        stays = Call("ne", (Column(CHANGE), Literal("delete")))
        return nodes.Drop(nodes.Filter(step, stays), (CHANGE,))

    def _changing(self, node: Changing) -> Changing:
        if id(node) in self._carrying:
            step = self._carrying[id(node)]
            assert isinstance(step, Changing)
            return step
        takes, emits = id(node) in self._taking, id(node) in self._emitting
        rows = self._carried(node.input) if takes else self._of(node.input)
        step = node
        if takes or emits or rows is not node.input:
            step = replace(node, input=rows, takes_changes=takes, emits_changes=emits)
        if emits and isinstance(node, Aggregate) and CHANGE in node.names and not node.has_changes:
            raise PlanError(f"{node.label()} has a column {CHANGE!r}, which changes have", hint="rename it")
        self._carrying[id(node)] = step
        return step

    def _carried(self, node: Node) -> Node:
        """Return a node whose rows have the column CHANGE."""
        if isinstance(node, Changing) and node.replaces_rows:
            return self._changing(node)
        if id(node) not in self._carrying:
            self._carrying[id(node)] = self._with_changes(node)
        return self._carrying[id(node)]

    def _with_changes(self, node: Node) -> Node:
        if isinstance(node, nodes.Read | Keyed) or not self._replacing(node):
            return nodes.WithColumns(self._of(node), ((CHANGE, Literal("insert")),))
        if isinstance(node, _TAKE_ANY):
            raise _refused(node, self._replacing(node)[0])
        step = _after(node, [self._carried(source) for source in node.inputs])
        match step:
            case nodes.Select() if Column(CHANGE) not in step.columns:
                return replace(step, columns=(*step.columns, Column(CHANGE)))
            case nodes.Drop() if CHANGE in step.columns:
                return replace(step, columns=tuple(name for name in step.columns if name != CHANGE))
        return step


def _between(node: Node) -> Iterator[Node]:
    """Yield the steps between a node and the keyed steps and reads before it."""
    for step in node.inputs:
        if not isinstance(step, nodes.Read | Keyed):
            yield step
            yield from _between(step)


def _leaves_out(step: Node) -> bool:
    return isinstance(step, _LEAVE_OUT) or (isinstance(step, nodes.Join) and step.join.how == "inner")


def _after(node: Node, before: Sequence[Node]) -> Node:
    moved = any(new is not old for new, old in zip(before, node.inputs, strict=True))
    return node.after(before) if moved else node


def _check(step: Changing, start: Changing) -> None:
    """Raise PlanError if a step can't take rows back."""
    if not isinstance(step, Aggregate):
        return
    other = next((value for _, value in step.aggregates if value.function not in _TAKE_BACK), None)
    if other is not None:
        raise PlanError(
            f"{other!r} can't take back rows that {start.label()} replaces",
            hint=f'{", ".join(_TAKE_BACK)} can; or let final rows come out of the earlier step: emit="final"',
        )
    if step.windowing is not None and isinstance(step.windowing.window, Session):
        raise PlanError(
            f"{step.label()} can't take back rows that {start.label()} replaces: a session would fall apart",
            hint='let final rows come out of the earlier step: emit="final"',
        )


def _check_sink(write: Write, start: Changing) -> None:
    if not _has_windows(start) and write.sink.replaces_rows is False:
        raise PlanError(
            f"{write.sink!r} would get a row for each change of {start.label()}",
            hint="let it keep the last one of each key: with_commit_mode(Upsert())",
        )


def _has_windows(step: Changing) -> bool:
    return isinstance(step, Aggregate) and step.windowing is not None


def _refused(step: Node, start: Changing) -> PlanError:
    return PlanError(
        f"{step.label()} can't take rows that replace earlier ones, as those of {start.label()} do",
        hint="put it before the aggregate; or write the aggregate's rows to a table, and read that in another job",
    )
