"""Runs, and what they read and write, as events of OpenLineage."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from volley.contracts.datasets import Dataset
from volley.lineage.columns import Columns, Origin
from volley.metrics.exposition import versions
from volley.metrics.status import ExpectationStatus
from volley.secrets import redact_uri

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

__all__ = ["Field", "LineageRun", "Part", "State", "run_event"]

State = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]
Field = tuple[str, str]
"""A column's name and type."""

_MOST_TEXT = 10_000


@dataclass(frozen=True)
class LineageRun:
    """A run of a job, of a view's refresh, or of maintenance.

    Args:
        job: The name of what runs.
        began: When it began, in UTC. With the name it makes the run's id, so that the id can be told again later.
        kind: What runs.
        is_streaming: True if it has no end of its own.
        plan: Its steps as text, without secrets; empty = it has none.
        parent: The run within which it runs; None = the one that the environment names, if any.
    """

    job: str
    began: datetime
    kind: Literal["JOB", "VIEW", "MAINTENANCE"] = "JOB"
    is_streaming: bool = False
    plan: str = ""
    parent: LineageRun | None = None

    @property
    def namespace(self) -> str:
        """The namespace of jobs."""
        return os.environ.get("OPENLINEAGE_NAMESPACE") or "default"

    @property
    def id(self) -> str:
        """Its id, the same whenever it is asked for."""
        from openlineage.client.uuid import generate_static_uuid

        return str(generate_static_uuid(self.began, f"{self.namespace}/{self.job}".encode()))


@dataclass(frozen=True)
class Part:
    """What a run reads or writes.

    Args:
        dataset: Its name.
        fields: Its columns; empty = not told.
        columns: From which columns of the inputs they come; None = not told, as for an input.
        rows, bytes, files: How much was read or written so far in the run; None = unknown.
        expectations: What was expected of its rows, as an input.
    """

    dataset: Dataset
    fields: Sequence[Field] = ()
    columns: Columns | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    expectations: Sequence[ExpectationStatus] = ()


def run_event(
    run: LineageRun,
    state: State,
    at: datetime,
    inputs: Iterable[Part] = (),
    outputs: Iterable[Part] = (),
    *,
    origins: Mapping[int, Sequence[Dataset]] | None = None,
    error: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> RunEvent:
    """Return an event.

    Args:
        at: When it happened, in UTC.
        origins: The datasets of each source that the columns of outputs name, see `Origin`.
        error: Why it failed or starts again; None = it did not.
        tags: What else is told of the run.
    """
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState

    return RunEvent(
        eventTime=at.isoformat(),
        producer=_producer(),
        run=Run(run.id, _run_facets(run, error, tags or {})),
        job=Job(run.namespace, run.job, _job_facets(run)),
        eventType=RunState(state),
        inputs=[_input(part) for part in inputs],
        outputs=[_output(part, origins or {}) for part in outputs],
    )


def _producer() -> str:
    return f"pkg:pypi/volley-stream@{versions()['version']}"


def _run_facets(run: LineageRun, error: str | None, tags: Mapping[str, str]) -> dict[str, Any]:
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run, tags_run

    version, producer = versions()["version"], _producer()
    facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version, "Volley", version, producer=producer
        )
    }
    if (parent := _parent(run)) is not None:
        facets["parent"] = parent
    if error is not None:
        text = redact_uri(error)[:_MOST_TEXT]
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(text, "PYTHON", producer=producer)
    if tags:
        listed = [tags_run.TagsRunFacetFields(name, value, "VOLLEY") for name, value in tags.items()]
        facets["tags"] = tags_run.TagsRunFacet(listed, producer=producer)
    return facets


def _parent(run: LineageRun) -> Any:
    """Return the facet of the run within which it runs: a job's, or one that a scheduler has put in the environment."""
    from openlineage.client.facet_v2 import parent_run

    parent = _named("OPENLINEAGE_PARENT_ID") if run.parent is None else _own(run.parent)
    if parent is None:
        return None
    root = _named("OPENLINEAGE_ROOT_PARENT_ID") or _named("OPENLINEAGE_PARENT_ID") or parent
    namespace, job, id = parent
    return parent_run.ParentRunFacet(
        parent_run.Run(id),
        parent_run.Job(namespace, job),
        parent_run.Root(parent_run.RootRun(root[2]), parent_run.RootJob(root[0], root[1])),
        producer=_producer(),
    )


def _own(run: LineageRun) -> tuple[str, str, str]:
    return run.namespace, run.job, run.id


def _named(variable: str) -> tuple[str, str, str] | None:
    """Return namespace, job and id of ``namespace/job/id``; None if there is none, or it is wrong."""
    namespace, _, rest = os.environ.get(variable, "").partition("/")
    job, _, id = rest.rpartition("/")
    try:
        return (namespace, job, str(uuid.UUID(id))) if namespace and job else None
    except ValueError:
        return None


def _job_facets(run: LineageRun) -> dict[str, Any]:
    from openlineage.client.facet_v2 import job_type_job, source_code_job

    processing = "STREAMING" if run.is_streaming else "BATCH"
    kind = job_type_job.JobTypeJobFacet(processing, "VOLLEY", run.kind, producer=_producer())
    if not run.plan:
        return {"jobType": kind}
    text = redact_uri(run.plan)[:_MOST_TEXT]
    return {"jobType": kind, "sourceCode": source_code_job.SourceCodeJobFacet("Volley", text, producer=_producer())}


def _input(part: Part) -> Any:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    counts: dict[str, Any] = {}
    if part.rows is not None:
        facet = statistics.InputStatisticsInputDatasetFacet(part.rows, part.bytes, part.files, producer=_producer())
        counts = {"inputStatistics": facet}
    if part.expectations:
        counts["dataQualityAssertions"] = _assertions(part)
    return InputDataset(part.dataset.namespace, part.dataset.name, counts, facets=_facets(part))


def _assertions(part: Part) -> Any:
    """Return what was expected of the rows of an input; it succeeds if no row has failed it."""
    from openlineage.client.facet_v2 import data_quality_assertions_dataset as assertions

    names = {name for name, _ in part.fields}
    listed = [
        assertions.Assertion(
            "expect",
            expected.failed == 0,
            expected.column if expected.column in names else None,
            # An error stops the job.
            "warn" if expected.max_failed is None else "error",
            expected.name,
            expected=None if expected.max_failed is None else f"at most {expected.max_failed:g} of an epoch fail",
            actual=f"{expected.failed} of {expected.rows} rows failed",
            content=redact_uri(expected.predicate)[:_MOST_TEXT],
            contentType="expression",
        )
        for expected in part.expectations
    ]
    return assertions.DataQualityAssertionsDatasetFacet(listed, producer=_producer())


def _output(part: Part, origins: Mapping[int, Sequence[Dataset]]) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    counts: dict[str, Any] = {}
    if part.rows is not None:
        facet = statistics.OutputStatisticsOutputDatasetFacet(part.rows, part.bytes, part.files, producer=_producer())
        counts = {"outputStatistics": facet}
    facets = _facets(part)
    if part.columns is not None:
        facets["columnLineage"] = _column_lineage(part.columns, origins)
    return OutputDataset(part.dataset.namespace, part.dataset.name, counts, facets=facets)


def _facets(part: Part) -> dict[str, Any]:
    """Return the facets of a dataset, whichever side it is on."""
    from openlineage.client.facet_v2 import dataset_type_dataset, schema_dataset, storage_dataset, symlinks_dataset

    dataset, producer = part.dataset, _producer()
    facets: dict[str, Any] = {}
    if dataset.type:
        facets["datasetType"] = dataset_type_dataset.DatasetTypeDatasetFacet(dataset.type, producer=producer)
    if part.fields:
        columns = [
            schema_dataset.SchemaDatasetFacetFields(name, type, ordinal_position=number)
            for number, (name, type) in enumerate(part.fields, start=1)
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(columns, producer=producer)
    if dataset.table is not None:
        namespace, name = dataset.table
        links = [symlinks_dataset.Identifier(namespace, name, "TABLE")]
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(links, producer=producer)
        facets["storage"] = storage_dataset.StorageDatasetFacet("iceberg", "parquet", producer=producer)
    return facets


def _column_lineage(columns: Columns, origins: Mapping[int, Sequence[Dataset]]) -> Any:
    from openlineage.client.facet_v2 import column_lineage_dataset

    fields = {
        name: column_lineage_dataset.Fields(_input_fields(values, origins)) for name, values in columns.values.items()
    }
    rows = _input_fields(columns.rows, origins)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields, rows, producer=_producer())


def _input_fields(values: Iterable[Origin], origins: Mapping[int, Sequence[Dataset]]) -> list[Any]:
    """Return the columns of datasets that others depend on, each once, with all the ways in which they do."""
    from openlineage.client.facet_v2 import column_lineage_dataset

    ways: dict[tuple[str, str, str], list[Origin]] = {}
    for origin in sorted(values, key=lambda origin: (origin.column, origin.how, origin.masking)):
        for dataset in origins.get(origin.source, ()):
            ways.setdefault((dataset.namespace, dataset.name, origin.column), []).append(origin)
    return [
        column_lineage_dataset.InputField(
            *column,
            [
                column_lineage_dataset.Transformation(
                    "DIRECT" if origin.is_direct else "INDIRECT", origin.how, masking=origin.masking
                )
                for origin in listed
            ],
        )
        for column, listed in sorted(ways.items())
    ]
