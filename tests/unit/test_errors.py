"""Errors: their tree, their places, and how they cross from executors to the driver."""

from __future__ import annotations

import inspect
import subprocess
import sys
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import volley
import volley.iceberg
from volley import Environment, MemorySource, errors
from volley.errors import JobError, SourceError, VolleyError
from volley.task.worker import CarriedError, carried, find_carried

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, VolleyError)]


def in_spark(error: VolleyError) -> str:
    """The text in which Spark wraps what a worker raises."""
    with pytest.raises(CarriedError) as caught, carried():
        raise error
    lines = traceback.format_exception(caught.value)
    return (
        f"org.apache.spark.SparkException: Job aborted: {''.join(lines)}\n\tat org.apache.spark.api.Python\n\nDriver:"
    )


@given(kind=st.sampled_from(KINDS), message=st.text(), hint=st.none() | st.text())
def test_an_error_is_the_same_on_the_driver(kind: type[VolleyError], message: str, hint: str | None) -> None:
    error = find_carried(in_spark(kind(message, hint)))
    assert error is not None
    assert (type(error), error.message, error.hint) == (kind, message, hint)


class MineError(SourceError):
    """A user's own kind."""


def test_an_error_of_another_package_arrives_as_the_nearest_of_ours() -> None:
    error = find_carried(in_spark(MineError("gone")))
    assert type(error) is SourceError
    assert error.message == "gone"


def test_the_last_of_several_errors_is_the_one_that_stopped_the_job() -> None:
    error = find_carried(in_spark(JobError("first")) + in_spark(SourceError("second")))
    assert error is not None
    assert error.message == "second"


def test_another_text_has_no_error_of_ours() -> None:
    assert find_carried("volley.errors.SourceError: a text that only looks like one") is None


def test_a_place_stands_in_front_and_the_kind_and_hint_stay() -> None:
    error = SourceError("not a number", hint="mend it").within("in.csv, line 3")
    assert (type(error), error.message, error.hint) == (SourceError, "in.csv, line 3: not a number", "mend it")


def test_files_of_pipelines_need_a_package_that_is_named() -> None:
    script = "import sys; sys.modules['yaml'] = None; from volley import load_config"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "MissingDependencyError: volley.load_config needs the package yaml" in done.stderr
    assert 'pip install "volley-stream[cli]"' in done.stderr


@pytest.mark.parametrize("step", ["rename", "deduplicate", "join"])
def test_a_wrong_argument_of_a_step_is_told_with_the_class_that_users_know(step: str) -> None:
    stream: Any = Environment().from_source(MemorySource([{"id": 1}]))
    with pytest.raises(TypeError, match=rf"^DataStream\.{step}\(\) "):
        getattr(stream, step)(no_such_argument=1)


@pytest.mark.parametrize("module", [volley, volley.iceberg])
def test_errors_of_every_public_function_have_the_program_s_own_lines(module: Any) -> None:
    functions = {name: member for name in module.__all__ if inspect.isfunction(member := getattr(module, name))}
    assert functions
    assert [name for name, function in functions.items() if not hasattr(function, "__wrapped__")] == []
