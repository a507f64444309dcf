"""Tells whether this process' JVM has ended, and how; lets go of one that has, so that another one can start."""

from __future__ import annotations

import logging
import signal
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from py4j.protocol import Py4JError, Py4JNetworkError

from volley.spark.jvm import submitted

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["fault", "hold", "is_held", "let_go", "loss", "loss_behind", "may_replace", "quiet", "serve_callbacks"]

_log = logging.getLogger(__name__)
_EXIT_SECONDS = 10
_SILENT = "does not answer any more"

_held: WeakSet[SparkContext] = WeakSet()
_last_loss: str | None = None


def hold(context: SparkContext) -> None:
    """Remember that Volley has made a context, and its JVM: it may start others in their place."""
    _held.add(context)
    # PySpark prints a trace when the JVM ends; the job's error says it.
    server: Any = context._accumulatorServer
    server.handle_error = lambda *_: _log.debug("the JVM has left Spark's accumulators", exc_info=True)


def quiet() -> None:
    """Keep py4j and PySpark from logging errors, which reach the caller as VolleyErrors, a second time."""
    for name in ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # py4j tells the root logger of a JVM that ends while it is asked.
    logging.getLogger().addFilter(_is_not_of_py4j)


def serve_callbacks(gateway: Any) -> None:
    """Let the JVM call this process: when this returns, it can connect.

    py4j tells the JVM the port, but leaves it to a thread to listen there: on a busy machine the first call is refused.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(gateway)
    # The JVM connects once for each of its threads that calls; py4j's thread sets its own backlog again.
    gateway._callback_server.server_socket.listen()


def is_held(context: SparkContext) -> bool:
    """Return True if Volley has made a context, and not the program or spark-submit."""
    return context in _held


def may_replace() -> bool:
    """Return True if Volley may make another context, and start another JVM, in the place of this process' own."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    return not submitted() if context is None else is_held(context)


def loss() -> str | None:
    """Return how this process' JVM has ended, such as ``"was killed by SIGKILL"``; None if it runs or there is none."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return None if gateway is None or _answers(gateway) else _end(gateway.proc)


def loss_behind(error: BaseException) -> str | None:
    """Return how the JVM has ended that py4j could not reach; None if the error is another one."""
    return (loss() or _last_loss or _SILENT) if _is_cut(error) else None


def fault(context: SparkContext) -> str | None:
    """Return why a context can run no job any more; None if it can."""
    if (ended := loss()) is not None:
        return f"is gone: its JVM {ended}"
    java: Any = context._jsc
    if java is None:
        return "was stopped"
    return "was stopped by Spark" if java.sc().isStopped() else None


def let_go() -> None:
    """Forget a context that can run no job any more, and its JVM if that has ended: PySpark would go on asking it."""
    global _last_loss
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    ended, context, gateway = loss(), SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        if ended is not None:
            # PySpark warns where it can't ask the JVM to stop it.
            context._jsc = None
        context.stop()
    SparkSession._instantiatedSession = None
    if ended is not None and gateway is not None:
        _last_loss = ended
        with suppress(Exception):
            gateway.shutdown_callback_server()
        SparkContext._gateway = SparkContext._jvm = None


def _is_cut(error: BaseException | None) -> bool:
    """Return True if py4j raised an error, or one that it comes from, because the JVM did not answer."""
    while error is not None:
        if isinstance(error, Py4JNetworkError) or (isinstance(error, OSError) and _is_of_py4j(error.__traceback__)):
            return True
        # py4j says of a class that it does not exist, if the JVM can't be asked for it.
        if type(error) is Py4JError and loss() is not None:
            return True
        error = error.__cause__ or error.__context__
    return False


def _answers(gateway: Any) -> bool:
    # To ask a JVM that has ended lets py4j log a traceback.
    if gateway.proc is not None and gateway.proc.poll() is not None:
        return False
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, ConnectionError):
        return False
    except OSError:
        # This process has no descriptor left, say; the JVM may run.
        return True
    return True


def _end(process: subprocess.Popen[bytes] | None) -> str:
    if process is None:
        return _SILENT
    try:
        code = process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return _SILENT
    if code >= 0:
        return f"has ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.module != "java_gateway"


def _is_of_py4j(trace: TracebackType | None) -> bool:
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("py4j."):
            return True
        trace = trace.tb_next
    return False
