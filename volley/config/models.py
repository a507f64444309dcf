"""Models of what stands around the connectors: the document, its pipelines, and how they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, create_model

from volley.config.steps import Step
from volley.documents.models import Model, Names, Span, Whole, model_of
from volley.environment import Environment

__all__ = [
    "BranchModel",
    "DocumentModel",
    "EndpointModel",
    "PartModel",
    "PipelineModel",
    "RestartModel",
    "RowsModel",
    "RuntimeModel",
]

_Count = Annotated[Whole, Field(ge=0)]


class PartModel(Model):
    """A source or a sink."""

    connector: str = Field(description="The connector's name.")
    config: dict[str, Any] | None = Field(None, description="The connector's settings.")
    streams: list[Any] | None = Field(None, description="The tables of a database.")


class RestartModel(Model):
    """What happens when a pipeline fails."""

    restart: Literal["on_failure", "always", "never"] | None = Field(
        None,
        description="Start a pipeline again that has failed: on_failure (the default) where the failure may pass, "
        "always to wait for a folder, topic or table that is not there yet, too, or never.",
    )
    max_restarts: _Count | None = Field(
        None, description="How often in a row, without an epoch in between, a pipeline is started again; 5 by default."
    )
    backoff: Span | None = Field(
        None, description="The wait before the first restart; it doubles each time, up to five minutes. 5s by default."
    )


class EndpointModel(Model):
    """The HTTP endpoint of a pipeline, and how long it waits for a catalog."""

    metrics_port: Annotated[Whole, Field(ge=0, lt=1 << 16)] | None = Field(
        None, description="Serve /metrics, /healthz and /readyz at this port while the pipeline runs; 0 = a free one."
    )
    metrics_host: str | None = Field(None, description="The address to listen at; 127.0.0.1 by default.")
    metrics_allowed_hosts: Names | None = Field(
        None, description="Names under which the endpoint may be asked, besides addresses, localhost and metrics_host."
    )
    metrics_token: str | None = Field(
        None, description="What requests for the metrics and the page must bring, as a bearer token or in ?token=."
    )
    ui_port: Annotated[Whole, Field(ge=0, lt=1 << 16)] | None = Field(
        None, description="Serve the pipeline's page at this port while it runs; 0 = a free one."
    )
    healthy_within: Span | None = Field(
        None, description="/healthz answers 503 once nothing was committed for this long."
    )
    outage: Span | None = Field(
        None, description="How long a catalog may be out of reach while the pipeline runs, before it fails."
    )


class _Query(Model):
    """A query in SQL over sources, by their names."""

    text: str = Field(description="The query.")


Query = model_of(Environment.sql, frozenset({"text", "tables"}), _Query)


class RowsModel(Model):
    """Where rows come from, and what is done with them."""

    source: str | None = Field(None, description="The name of a source.")
    if TYPE_CHECKING:
        query: str | Model | None
    else:
        query: str | Query | None = Field(
            None,
            description="In place of source: a query in SQL over sources, by their names; or {text, lateness, ttl}.",
        )
    filter: str | None = Field(None, description="SQL: keep the rows for which it is true, before all steps.")
    if TYPE_CHECKING:
        steps: list[Any] | None
    else:
        steps: list[Step] | None = Field(None, description="The steps, in order.")


class BranchModel(Model):
    """Where rows go."""

    if TYPE_CHECKING:
        steps: list[Any] | None
        split: Model | None
    else:
        steps: list[Step] | None = Field(None, description="The steps, in order.")
    sink: str | None = Field(None, description="The name of a sink.")
    sinks: Names | None = Field(None, description="The names of several sinks; each gets all rows.")
    dead_letter: str | None = Field(
        None,
        description="Where rows go that can't be used: a sink's name, a table's beside the sink's, or a folder.",
    )
    if not TYPE_CHECKING:
        split: Split | None = Field(None, description="In place of sinks: two branches, and which rows go where.")


_branches: dict[str, Any] = {
    "if": (str, Field(description="SQL.")),
    "then": (BranchModel, Field(description="The rows for which it is true: steps, and sinks or a further split.")),
    "else": (BranchModel, Field(description="All other rows, also those for which it is null.")),
}
Split: type[Model] = create_model("Split", __base__=Model, __doc__="Two branches of a stream.", **_branches)
BranchModel.model_rebuild()


class _Snapshots(Model):
    """How full extracts become changes; see `Environment.changes_from_snapshots`."""

    version: str | None = Field(
        None,
        description="Of files, what tells the version of each: a column that folders have in their names, as "
        "`day=2026-01-01`, or that the rows have; or a pattern of the path with a group, as `-(\\d+)\\.csv`. Without "
        "it, the version is the time of the look, or of a table's snapshot.",
    )


Snapshots = model_of(Environment.changes_from_snapshots, frozenset({"source", "version"}), _Snapshots)


class PipelineModel(RestartModel, EndpointModel, BranchModel, RowsModel):
    """A pipeline: a source, steps, and one or more sinks. Its name is that of its checkpoint."""

    if TYPE_CHECKING:
        changes_from_snapshots: Model | None
    else:
        changes_from_snapshots: Snapshots | None = Field(
            None, description="Take the source for full extracts, and its rows for what changes from one to the next."
        )
    enabled: bool = Field(True, description="False: volley run leaves it out.")


class _Runtime(RestartModel):
    """How pipelines run: Spark, checkpoints, restarts."""


RuntimeModel = model_of(Environment, frozenset({"spark"}), _Runtime)


class DocumentModel(Model):
    """A file of pipelines. Its parts are looked at one by one, so that the mistakes of all are found."""

    version: str | float | int | None = Field(None, description='The version of the format: "1.0".')
    sources: dict[str, Any] | None = Field(None, description="The sources, by name.")
    sinks: dict[str, Any] | None = Field(None, description="The sinks, by name.")
    pipelines: dict[str, Any] | None = Field(None, description="The pipelines, by name.")
    views: dict[str, Any] | None = Field(None, description="The materialised views, by name.")
    runtime: dict[str, Any] | None = Field(None, description="How pipelines run.")
