"""Compiles the ends of a job's trees, its sinks and keyed steps, for tasks of Spark or of this process."""

from __future__ import annotations

from volley.columns.operators import Operator
from volley.columns.schemas import Schemas, operator_of
from volley.plan import nodes
from volley.plan.graph import JobGraph
from volley.task.merging import Merger
from volley.task.task import TaskPlan
from volley.task.tree import SinkStep, Tree, grow
from volley.task.writers import Exchange

__all__ = ["merging_plan", "sink_steps", "tree_of"]


def sink_steps(graph: JobGraph, schemas: Schemas, cores: int) -> tuple[SinkStep, ...]:
    """Return the last step before each sink, then before each input of a keyed step.

    Args:
        cores: How many tasks write the rows of a `repartition` that does not say it.
    """
    numbers = graph.numbers
    return tuple(_sink_step(end, schemas, cores, numbers.get(id(end))) for end in graph.ends.values())


def _sink_step(end: nodes.Node, schemas: Schemas, cores: int, number: int | None) -> SinkStep:
    if not isinstance(end, nodes.Write):
        return SinkStep(schemas.known(end.inputs[0]), None, label=end.brief, number=number)
    node = end.repartition
    exchange = Exchange(node.tasks or cores, node.keys) if node else None
    return SinkStep(schemas.known(end), end.sink.batch_size, end.order, exchange, end.brief, end.sink.label, number)


def merging_plan(
    graph: JobGraph, schemas: Schemas, sinks: tuple[SinkStep, ...]
) -> tuple[tuple[Operator, ...], TaskPlan | None]:
    """Return the compiled keyed steps of a job, and what the tasks of these do; None without any."""
    if not graph.keyed:
        return (), None
    inputs = ([schemas.known(intake.inputs[0]) for intake in step.intakes] for step in graph.keyed)
    operators = tuple(operator_of(step, *of_step) for step, of_step in zip(graph.keyed, inputs, strict=True))
    trees = tuple(tree_of(step, graph, schemas) for step in graph.keyed)
    mergers = tuple(map(Merger, operators))
    return operators, TaskPlan(mergers, trees, sinks, of_sources=False, nodes=len(graph.nodes))


def tree_of(root: nodes.Node, graph: JobGraph, schemas: Schemas, dictionaries: bool = False) -> Tree:
    """Return the steps from a read, or a keyed step, to the ends that its rows reach; arguments as of `grow`."""
    return grow(root, graph.ends, graph.followers, schemas, dictionaries, graph.numbers)
