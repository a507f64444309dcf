"""The narrow steps of a job as a tree, from the batches of one input to the sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from volley.columns.batches import check_values, conform
from volley.columns.keys.order import sort_keys
from volley.columns.letters import blaming
from volley.columns.nodes import CompiledSteps, lower
from volley.columns.schemas import Schemas
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import ExpressionError, JobError, SchemaMismatchError, SourceError
from volley.plan import nodes
from volley.plan.expression_nodes import Column
from volley.plan.graph import Followers
from volley.task.counts import Counted, Passed
from volley.task.writers import Exchange, SortedRows

__all__ = ["DATA_ERRORS", "Chain", "Failure", "Root", "SinkStep", "Tree", "grouped", "grow"]

DATA_ERRORS = (ExpressionError, JobError, SchemaMismatchError, SourceError, pa.ArrowInvalid)
"""The errors that a row's values can cause; storage and catalog errors are not among them."""


@dataclass(frozen=True)
class SinkStep:
    """The last step before a sink: sorts a task's rows, and limits the size of its batches.

    Args:
        schema: The Arrow schema of the sink's rows.
        batch_size: The most rows of one batch; None = no limit.
        order: The columns to sort by, each with ``asc`` or ``desc``; none = rows as they come.
        exchange: How its rows are divided among other tasks first; None = the tasks that read them write them.
        label: The step as text.
        name: The sink's label; None = rows go to a keyed step.
        number: The number of its node in the job's graph; None = its rows are not counted.
    """

    schema: pa.Schema
    batch_size: int | None
    order: tuple[str, ...] = ()
    exchange: Exchange | None = None
    label: str = ""
    name: str | None = None
    number: int | None = None

    def open(self, writer: Writer, task: int, takes: bool) -> TaskWriter:
        """Return a task's writer, with the sort before it; or what divides the rows among other tasks.

        Args:
            takes: True for a task that writes rows which others have divided.
        """
        if self.exchange and not takes:
            return self.exchange.open(writer, task)
        opened = writer.open(task)
        return SortedRows(opened, sort_keys(self.order, self.schema), self.batch_size) if self.order else opened

    def write(self, batch: pa.RecordBatch, writer: TaskWriter) -> None:
        """Write rows in batches of the sink's size."""
        size = self.batch_size or batch.num_rows
        for start in range(0, batch.num_rows, size):
            writer.write(batch.slice(start, size))


@dataclass(frozen=True)
class Chain:
    """Consecutive steps without a fork between them.

    Args:
        parent: The index of the chain whose output it takes; None = the input.
        sinks: The indices of the sinks that get its output.
        checks_values: True if it must validate the values: they go to a sink, and no earlier chain has validated them.
        numbers: The numbers of the steps' nodes in the job's graph; none = their rows are not counted.
    """

    steps: CompiledSteps
    parent: int | None
    sinks: tuple[int, ...]
    checks_values: bool
    numbers: tuple[int, ...] = ()

    def run(self, batch: pa.RecordBatch, behind: list[int] | None = None) -> pa.RecordBatch:
        """Apply the steps to a batch, and validate the result if `checks_values`; for `behind` see `CompiledSteps`."""
        rows = self.steps(batch, behind)
        if self.checks_values:
            # After the steps: rows that they drop must not raise.
            check_values(rows)
        return rows


@dataclass(frozen=True)
class Failure:
    """Why rows can't be written to some of the sinks.

    Args:
        sinks: The indices of these sinks.
        cause: The error; one of DATA_ERRORS.
        number: The number of the node that fails, in the job's graph; None = the sinks themselves refuse the rows.
    """

    sinks: tuple[int, ...]
    cause: Exception
    number: int | None = None


@dataclass(frozen=True)
class Root:
    """The node whose rows come into a tree, as a dead letter tells it.

    Args:
        brief: The step as text.
        source: The identity of the source; None = the rows come out of a keyed step.
    """

    brief: str
    source: str | None

    @classmethod
    def of(cls, node: nodes.Node) -> Root:
        """Return what is told of a node."""
        return cls(node.brief, node.source.identity if isinstance(node, nodes.Read) else None)


@dataclass(frozen=True)
class Tree:
    """All narrow steps from one input (a source, or a keyed step) to the sinks.

    Args:
        dictionaries: True if columns may stay dictionary-encoded, as every sink accepts that.
        chains: The chains, parents first.
        root: The node whose rows come in; None = not known.
        number: The number of the input's node in the job's graph; None = rows are not counted.
    """

    schema: pa.Schema
    dictionaries: bool
    chains: tuple[Chain, ...]
    root: Root | None = None
    number: int | None = None

    @property
    def sinks(self) -> tuple[int, ...]:
        """The indices of all sinks that rows of this input can reach."""
        return tuple(sorted({sink for chain in self.chains for sink in chain.sinks}))

    @property
    def is_plain(self) -> bool:
        """True if no step calls a function of the user's."""
        steps = (node for chain in self.chains for node in chain.steps.nodes)
        return not any(isinstance(node, nodes.Map | nodes.FlatMap | nodes.MapBatches) for node in steps)

    def outputs(self, batch: pa.RecordBatch, counted: Counted | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the output for each sink that gets rows of this batch, with the sink's index.

        Args:
            counted: Counts the rows behind each step.

        Raises:
            VolleyError: If a step fails on a row's values.
        """
        rows: list[pa.RecordBatch] = []
        conformed = conform(batch, self.schema, self.dictionaries)
        for chain in self.chains:
            behind: list[int] = []
            rows.append(chain.run(conformed if chain.parent is None else rows[chain.parent], behind))
            if counted:
                counted.pass_on([(chain.numbers, behind)])
            if rows[-1].num_rows:
                for sink in chain.sinks:
                    yield sink, rows[-1]

    def checked_outputs(
        self, batch: pa.RecordBatch, writers: Sequence[TaskWriter | None], passed: list[Passed] | None = None
    ) -> tuple[list[tuple[int, pa.RecordBatch]], list[Failure]]:
        """Return the outputs that the sinks' writers would accept, and why the others fail; write nothing.

        Args:
            writers: The writers of all sinks, used for `TaskWriter.check` only.
            passed: Gets the rows behind steps, also behind those before one that fails.
        """
        outputs: list[tuple[int, pa.RecordBatch]] = []
        failures: list[Failure] = []
        try:
            with blaming(self.root):
                conformed = conform(batch, self.schema, self.dictionaries)
        except DATA_ERRORS as error:
            return [], [Failure(self.sinks, error, self.number)]
        # A failed chain fails the sinks of all chains after it, too; these get no rows.
        rows: dict[int, pa.RecordBatch] = {}
        for number, chain in enumerate(self.chains):
            if chain.parent is not None and chain.parent not in rows:
                continue
            behind: list[int] = []
            try:
                rows[number] = chain.run(conformed if chain.parent is None else rows[chain.parent], behind)
            except DATA_ERRORS as error:
                # Behind the last step, the values are none that the sinks can take.
                failed = next(iter(chain.numbers[len(behind) :]), None)
                failures.append(Failure(self._sinks_from(number), error, failed))
                continue
            finally:
                if passed is not None:
                    passed.append((chain.numbers, behind))
            for sink in chain.sinks if rows[number].num_rows else ():
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
        """Return the indices of the sinks of a chain and of all chains that descend from it."""
        descendants = {number}
        for later, chain in enumerate(self.chains):
            if chain.parent in descendants:
                descendants.add(later)
        return tuple(sorted({sink for index in descendants for sink in self.chains[index].sinks}))


def grow(
    root: nodes.Node,
    ends: Mapping[int, nodes.Node],
    followers: Followers,
    schemas: Schemas,
    dictionaries: bool,
    numbers: Mapping[int, int] | None = None,
) -> Tree:
    """Return the tree of all narrow steps from a node to the writes, or other ends, that its rows reach.

    The steps after a union are in the tree of each of its streams.

    Args:
        root: The node whose output is the input; only narrow steps lead from it to the writes.
        ends: The writes by the index of their sink; or other nodes that take rows, by an index of theirs.
        followers: The steps that take each node's output.
        schemas: The schemas of the graph's nodes.
        dictionaries: True if columns may stay dictionary-encoded, as every sink accepts that.
        numbers: The numbers of the job's nodes, by their ids; None = their rows are not counted.
    """
    growth = _Growth(followers, {id(end): number for number, end in ends.items()}, schemas, numbers)
    growth.grow(root, [], schemas.known(root), None, checked=False)
    number = None if numbers is None else numbers[id(root)]
    return Tree(schemas.known(root), dictionaries, tuple(growth.chains), Root.of(root), number)


def grouped(trees: Sequence[Tree], sinks: int) -> list[int]:
    """Return the group of each sink: sinks of one group get the same rows, or rows derived from these.

    A group has the index of its first sink.

    Example:
        >>> schema = pa.schema([])
        >>> steps = lower([], schema)
        >>> first, derived = Chain(steps, None, (0,), True), Chain(steps, 0, (1,), False)
        >>> grouped([Tree(schema, False, (first, derived, Chain(steps, None, (2,), True)))], 3)
        [0, 0, 2]
    """
    groups = list(range(sinks))
    for tree in trees:
        first: dict[int | None, int] = {}
        for number, chain in enumerate(tree.chains):
            if chain.parent in first:
                first[number] = first[chain.parent]
            elif chain.sinks:
                first[number] = chain.sinks[0]
            for sink in chain.sinks:
                merged, group = groups[sink], groups[first[number]]
                groups = [group if other == merged else other for other in groups]
    return groups


@dataclass(frozen=True)
class _Growth:
    followers: Followers
    sinks: Mapping[int, int]
    schemas: Schemas
    numbers: Mapping[int, int] | None
    chains: list[Chain] = field(default_factory=list)

    def grow(
        self, node: nodes.Node, steps: list[nodes.Node], schema: pa.Schema, parent: int | None, checked: bool
    ) -> None:
        """Add the chain that continues at a node, and all its descendants.

        Args:
            parent: The index of the parent chain; None = the input.
            checked: True if an ancestor has validated the values.
        """
        followers = self.followers[id(node)]
        while len(followers) == 1 and id(followers[0]) not in self.sinks:
            (node,) = followers
            steps = [*steps, node]
            followers = self.followers[id(node)]
        sinks = tuple(self.sinks[id(follower)] for follower in followers if id(follower) in self.sinks)
        compiled = self._compile(steps, schema)
        if steps or sinks:
            numbers = tuple(self.numbers[id(step)] for step in steps) if self.numbers else ()
            self.chains.append(Chain(compiled, parent, sinks, bool(sinks) and not checked, numbers))
            parent, checked = len(self.chains) - 1, checked or bool(sinks)
        for follower in followers:
            if id(follower) not in self.sinks:
                self.grow(follower, [follower], compiled.schema, parent, checked)

    def _compile(self, steps: Sequence[nodes.Node], schema: pa.Schema) -> CompiledSteps:
        """Compile steps; a union becomes a select of its first stream's column order."""
        return lower([self._in_order(step) if isinstance(step, nodes.Union) else step for step in steps], schema)

    def _in_order(self, union: nodes.Union) -> nodes.Select:
        return nodes.Select(union, tuple(Column(name) for name in self.schemas.known(union).names))
