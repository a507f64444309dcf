"""Translates Spark's exceptions into VolleyErrors with the cause; the rest of Spark's text goes to the log."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from volley.errors import ConfigError, JobError, SessionLostError, VolleyError
from volley.spark.gateway import loss_behind, may_replace
from volley.spark.log import full_disk
from volley.spark.output import log_file
from volley.spark.session import log_trace
from volley.spark.workers import workers_python
from volley.task.worker import find_carried

__all__ = ["translate", "translating", "unpicklable"]

_SLOW_START = "Python worker failed to connect back"
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+)")
_UNPICKLABLE = re.compile(r"Could not serialize object: (.*)")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_CAUSED_BY = re.compile(r"^Caused by: (.+)$", re.M)
_LAST_LINE = re.compile(r"^(?:: )?(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)\b.*)$", re.M)


def translate(error: BaseException, job: str) -> VolleyError:
    """Return Spark's exception as a VolleyError.

    Extracts an error that a worker raised from Spark's text, which then goes to the log. Any other error has Spark's
    exception as its ``__cause__``; Java's stack trace goes to the log.

    Args:
        error: What py4j or Spark raised.
    """
    if isinstance(error, VolleyError):
        return error
    text = str(error)
    if carried := find_carried(text):
        log = log_trace(text)
        if type(carried) is JobError:
            return JobError(carried.message, f"{carried.hint}; the whole trace is in {log}")
        return carried
    if ended := loss_behind(error):
        return _jvm_lost(ended, job, error)
    if _SLOW_START in text:
        return JobError(
            f"job {job!r} failed: Python did not start within the 10 seconds that Spark waits for it",
            hint="the CPU is probably starved: run less beside the job or give it more cores, then start it again",
        )
    if versions := _OTHER_PYTHON.search(text):
        return ConfigError(
            f"the workers of job {job!r} run Python {versions[1]}, its driver runs {versions[2]}",
            hint="PYSPARK_PYTHON names the workers' Python: unset it, or let it name one of the driver's version",
        )
    if module := _NO_MODULE.search(text):
        return _not_importable(module[1], job, error)
    if reason := _UNPICKLABLE.search(text):
        return unpicklable(f"job {job!r}", reason[1])
    if full := full_disk(text):
        return _no_space(full, job, error)
    lines = _LAST_LINE.findall(text.partition("JVM stacktrace")[0])
    cause = lines[-1] if lines else _told(error, text.partition("\n")[0])
    hint = "the whole trace is in this error's cause"
    # PySpark keeps Java's stack trace to itself, and Spark's text has the message of Java's exception, not its class.
    if trace := getattr(error, "_stackTrace", None):
        hint = f"{hint}, and Java's in {log_trace(trace)}"
        if not lines and (causes := _CAUSED_BY.findall(trace)):
            name, _, message = causes[-1].partition(": ")
            cause = f"{cause} ({name if message in cause else causes[-1]})"
    translated = JobError(f"job {job!r} failed: {cause}", hint)
    translated.__cause__ = error
    return translated


def _told(error: BaseException, line: str) -> str:
    """Return the message of an error with its class, unless it is one of Spark's, whose class says nothing."""
    of_spark = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
    return line if of_spark else f"{type(error).__name__}: {line}"


def _no_space(line: str, job: str, cause: BaseException) -> JobError:
    """Return the error of a disk that has no room for what Spark keeps beside a job: errors of other files are ours."""
    full = JobError(
        f"job {job!r} failed: a disk is full, most likely the one with Spark's local files: {line}",
        hint=f"make room in {os.environ.get('SPARK_LOCAL_DIRS') or '/tmp'} here and on the executors, or let "
        "SPARK_LOCAL_DIRS name another folder; then start the job again: nothing is lost or doubled",
    )
    full.__cause__ = cause
    return full


@contextmanager
def translating(job: str) -> Iterator[None]:
    """Raise what the block raises as a VolleyError, see `translate`."""
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        translated = translate(error, job)
        raise translated from translated.__cause__


def _not_importable(module: str, job: str, cause: BaseException) -> ConfigError:
    """Return the error of workers that can't load a task, whose modules their Python lacks."""
    message = f"the workers of job {job!r} have no module {module!r}: they run {workers_python()}"
    if module.partition(".")[0] == "volley":
        hint = f"PYSPARK_PYTHON={sys.executable}, set before Spark starts, or install volley-stream there"
    else:
        hint = f"install it there, send it with addPyFile or --py-files, or set PYSPARK_PYTHON={sys.executable}"
    missing = ConfigError(message, hint)
    missing.__cause__ = cause
    return missing


def _jvm_lost(ended: str, job: str, cause: BaseException) -> JobError:
    """Return the error of a job whose JVM has ended: one that a restart heals, if Volley may start another JVM."""
    message, log = f"job {job!r} failed: its JVM {ended}", f"too little memory? its log is {log_file()}"
    lost: JobError
    if may_replace():
        lost = JobError(message, f"start the job again, which starts another JVM; {log}")
    else:
        lost = SessionLostError(message, "start the program again: the session was its own; too little memory?")
    lost.__cause__ = cause
    return lost


def unpicklable(user: str, reason: object) -> JobError:
    """Return the error of a function that can't be sent to the executors.

    Args:
        user: Whose function it is: a job or a step.
        reason: What can't be pickled.
    """
    return JobError(
        f"{user} uses a value in a function that can't be sent to the executors: {reason}",
        hint="make locks, connections, clients and open files inside of the function, not around it",
    )
