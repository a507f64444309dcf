"""The narrow steps of a job as a tree: what each batch of one input goes through on its way to the sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from volley.arrow.batches import conform
from volley.arrow.nodes import CompiledSteps, lower
from volley.arrow.schemas import Schemas
from volley.arrow.validation import check_values
from volley.errors import ExpressionError, JobError, SchemaMismatchError, SourceError
from volley.plan import nodes
from volley.plan.expressions import Column
from volley.sink import TaskWriter

__all__ = ["DATA_ERRORS", "Branch", "Failure", "SinkStep", "Tree", "grouped", "grow"]

DATA_ERRORS = (ExpressionError, JobError, SchemaMismatchError, SourceError, pa.ArrowInvalid)
"""What a row's values can be the cause of; a storage or a catalog that fails is no row's fault."""


@dataclass(frozen=True)
class SinkStep:
    """What one sink of a job is handed.

    Args:
        schema: The Arrow schema of its rows.
        batch_size: The most rows it is handed at once; None = as they come.
    """

    schema: pa.Schema
    batch_size: int | None

    def write(self, batch: pa.RecordBatch, writer: TaskWriter) -> None:
        """Hand rows to the sink's writer, in batches of the sink's size."""
        size = self.batch_size or batch.num_rows
        for start in range(0, batch.num_rows, size):
            writer.write(batch.slice(start, size))


@dataclass(frozen=True)
class Branch:
    """Steps that follow each other without a fork.

    Args:
        stage: The steps.
        parent: The number of the branch whose rows it takes; None = the rows of the input.
        sinks: The numbers of the sinks that take its rows.
        checks_values: True if its values must be checked: they go to a sink, and no branch before has checked them.
    """

    stage: CompiledSteps
    parent: int | None
    sinks: tuple[int, ...]
    checks_values: bool

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The branch's rows of these rows."""
        rows = self.stage(batch)
        if self.checks_values:
            # After the steps, so that rows they leave out cause no error, on either path.
            check_values(rows)
        return rows


@dataclass(frozen=True)
class Failure:
    """Why rows can't get to some of the sinks.

    Args:
        sinks: The numbers of these sinks.
        cause: What was raised; one of DATA_ERRORS.
    """

    sinks: tuple[int, ...]
    cause: Exception


@dataclass(frozen=True)
class Tree:
    """All that happens to the batches of one input: a source, or the rows that Spark hands over.

    Args:
        schema: The schema of the input.
        dictionaries: True if columns may stay dictionaries, as every sink takes them.
        branches: The branches, parents first.
    """

    schema: pa.Schema
    dictionaries: bool
    branches: tuple[Branch, ...]

    @property
    def sinks(self) -> tuple[int, ...]:
        """The numbers of all sinks that rows of this input can get to."""
        return tuple(sorted({sink for branch in self.branches for sink in branch.sinks}))

    def outputs(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows for each sink that gets some of these, each with the sink's number.

        Raises:
            VolleyError: If a row's values don't go through a step.
        """
        rows: list[pa.RecordBatch] = []
        given = conform(batch, self.schema, self.dictionaries)
        for branch in self.branches:
            rows.append(branch.run(given if branch.parent is None else rows[branch.parent]))
            if rows[-1].num_rows:
                for sink in branch.sinks:
                    yield sink, rows[-1]

    def sorted_outputs(
        self, batch: pa.RecordBatch, writers: Sequence[TaskWriter | None]
    ) -> tuple[list[tuple[int, pa.RecordBatch]], list[Failure]]:
        """The rows that get to a sink and would be taken by its writer, and why the others do not; writes nothing.

        Args:
            batch: The rows.
            writers: The writers of all sinks, which only check.
        """
        outputs: list[tuple[int, pa.RecordBatch]] = []
        failures: list[Failure] = []
        try:
            given = conform(batch, self.schema, self.dictionaries)
        except DATA_ERRORS as error:
            return [], [Failure(self.sinks, error)]
        # Branches behind one that failed get no rows: the failure counts for their sinks too.
        rows: dict[int, pa.RecordBatch] = {}
        for number, branch in enumerate(self.branches):
            if branch.parent is not None and branch.parent not in rows:
                continue
            try:
                rows[number] = branch.run(given if branch.parent is None else rows[branch.parent])
            except DATA_ERRORS as error:
                failures.append(Failure(self._sinks_from(number), error))
                continue
            for sink in branch.sinks if rows[number].num_rows else ():
                writer = writers[sink]
                try:
                    if writer:
                        writer.check(rows[number])
                except DATA_ERRORS as error:
                    failures.append(Failure((sink,), error))
                else:
                    outputs.append((sink, rows[number]))
        return outputs, failures

    def _sinks_from(self, number: int) -> tuple[int, ...]:
        """The numbers of the sinks that take rows of a branch or of one behind it."""
        below = {number}
        for later, branch in enumerate(self.branches):
            if branch.parent in below:
                below.add(later)
        return tuple(sorted({sink for each in below for sink in self.branches[each].sinks}))


def grow(root: nodes.Node, writes: Mapping[int, nodes.Write], schemas: Schemas, dictionaries: bool) -> Tree:
    """The tree of all narrow steps from a node to writes that its rows get to.

    A union lets the rows of each of its streams pass: steps behind it stand in the tree of each of them.

    Args:
        root: The node that gives the input's rows; only narrow steps lead from it to the writes.
        writes: The writes, each under the number of its sink.
        schemas: The schemas of the graph's nodes.
        dictionaries: True if columns may stay dictionaries, as every sink takes them.
    """
    followers: dict[int, list[nodes.Node]] = {}
    for node in nodes.walk(writes.values()):
        for each in node.inputs:
            followers.setdefault(id(each), []).append(node)
    growth = _Growth(followers, {id(write): number for number, write in writes.items()}, schemas)
    growth.grow(root, [], schemas.known(root), None, checked=False)
    return Tree(schemas.known(root), dictionaries, tuple(growth.branches))


def grouped(trees: Sequence[Tree], sinks: int) -> list[int]:
    """For each sink the number of its group: sinks of one group get the same rows, or rows made of these.

    Args:
        trees: The trees of a job.
        sinks: How many sinks it has.

    Example:
        >>> schema = pa.schema([])
        >>> stage = lower([], schema)
        >>> first, behind = Branch(stage, None, (0,), True), Branch(stage, 0, (1,), False)
        >>> grouped([Tree(schema, False, (first, behind, Branch(stage, None, (2,), True)))], 3)
        [0, 0, 2]
    """
    groups = list(range(sinks))
    for tree in trees:
        first: dict[int | None, int] = {}
        for number, branch in enumerate(tree.branches):
            if branch.parent in first:
                first[number] = first[branch.parent]
            elif branch.sinks:
                first[number] = branch.sinks[0]
            for sink in branch.sinks:
                merged, group = groups[sink], groups[first[number]]
                groups = [group if each == merged else each for each in groups]
    return groups


@dataclass(frozen=True)
class _Growth:
    followers: Mapping[int, Sequence[nodes.Node]]
    sinks: Mapping[int, int]
    schemas: Schemas
    branches: list[Branch] = field(default_factory=list)

    def grow(
        self, node: nodes.Node, steps: list[nodes.Node], schema: pa.Schema, parent: int | None, checked: bool
    ) -> None:
        """Add the branch that goes on from a node, and all behind it.

        Args:
            node: Where it goes on.
            steps: The steps that lead from the parent to the node.
            schema: The schema of the parent's rows.
            parent: The number of the branch before it; None = the rows of the input.
            checked: True if a branch before it has checked the values.
        """
        followers = self.followers[id(node)]
        while len(followers) == 1 and id(followers[0]) not in self.sinks:
            (node,) = followers
            steps = [*steps, node]
            followers = self.followers[id(node)]
        sinks = tuple(self.sinks[id(each)] for each in followers if id(each) in self.sinks)
        stage = self._stage(steps, schema)
        if steps or sinks:
            self.branches.append(Branch(stage, parent, sinks, checks_values=bool(sinks) and not checked))
            parent, checked = len(self.branches) - 1, checked or bool(sinks)
        for each in followers:
            if id(each) not in self.sinks:
                self.grow(each, [each], stage.schema, parent, checked)

    def _stage(self, steps: Sequence[nodes.Node], schema: pa.Schema) -> CompiledSteps:
        """The steps as functions on batches; a union brings columns into the order of its first stream."""
        return lower([self._in_order(step) if isinstance(step, nodes.Union) else step for step in steps], schema)

    def _in_order(self, union: nodes.Union) -> nodes.Select:
        return nodes.Select(union, tuple(Column(name) for name in self.schemas.known(union).names))
