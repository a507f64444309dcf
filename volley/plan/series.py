"""Series functions as plan values: what a row gets from the rows of its key before it, in the order of event time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from volley.checks import Duration, duration, keep, optional, text
from volley.errors import ExpressionError, brief
from volley.html_table import text_html
from volley.plan.aggregates import Aggregation, Value, value_node
from volley.plan.expression_nodes import ExprNode, column_names
from volley.plan.windows import Timing, seconds_text

__all__ = [
    *("SERIES", "SeriesTiming", "SeriesFunction", "ewm_mean", "increase", "previous", "rate", "rolling"),
    "session_start",
]

SERIES = ("rolling", "ewm_mean", "rate", "increase", "previous", "session_start")
"""Every series function."""


@dataclass(frozen=True, repr=False)
class SeriesFunction:
    """A function of a row and the rows of its key before it: frozen, value-equal; its repr is the code that builds it.

    Args:
        function: One of SERIES.
        value: The expression; None for a rolling aggregate and for the start of a session.
        span: The length of a rolling aggregate, the half-life of a mean, the unit of a rate, or the pause of a session.
        aggregation: The aggregate of a rolling one.

    Example:
        >>> from volley import avg, rolling
        >>> rolling("5m", avg("price"))
        rolling('300s', avg(col('price')))
    """

    function: str
    value: ExprNode | None = None
    span: timedelta | None = None
    aggregation: Aggregation | None = None

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses."""
        if self.aggregation is not None:
            return self.aggregation.used_columns
        return set() if self.value is None else column_names(self.value)

    def __repr__(self) -> str:
        span = None if self.span is None else seconds_text(self.span)
        before = [span] if self.function == "rolling" else [self.value, span]
        arguments = [repr(argument) for argument in (*before, self.aggregation) if argument is not None]
        return f"{self.function}({', '.join(arguments)})"

    _repr_html_ = text_html


@dataclass(frozen=True)
class SeriesTiming(Timing):
    """How a stream's rows become series; the arguments of `KeyedStream.series`, checked.

    Args:
        on: The timestamp column.
        pause: A row so long after the one before it begins its key's series anew; None = no row does.
    """

    on: str
    pause: timedelta | None = None

    def __post_init__(self) -> None:
        keep(self, on=text, pause=optional(duration))
        super().__post_init__()


@brief
def rolling(span: Duration, aggregation: Aggregation) -> SeriesFunction:
    """Aggregate the rows of the last `span` of time, up to each row and with it.

    A row that is exactly `span` older is out; rows of the same time are in.

    Args:
        span: A timedelta, seconds or a text such as ``"5m"``.
        aggregation: Any aggregate function.

    Raises:
        ConfigError: If `span` is not a duration above 0.
        ExpressionError: If `aggregation` is not an aggregate, or fills gaps.
    """
    if not isinstance(aggregation, Aggregation):
        raise ExpressionError(
            f"rolling takes an aggregate, not {type(aggregation).__name__}", hint='for example rolling("5m", avg("x"))'
        )
    if aggregation.gap:
        raise ExpressionError(
            f"rolling has no gaps to fill: {aggregation!r}",
            hint=f"{replace(aggregation, gap=None)!r}; windows can fill gaps: window(…, fill_gaps=…)",
        )
    return SeriesFunction("rolling", None, duration("span", span), aggregation)


@brief
def ewm_mean(value: Value, half_life: Duration) -> SeriesFunction:
    """Return the exponentially weighted mean of the values up to each row, a double.

    The weight of the mean before halves every `half_life` of time: ``mean = mean + (1 - 0.5 ** (elapsed / half_life)) *
    (value - mean)``, as polars' ``ewm_mean_by``. Null where the value is null.

    Args:
        value: A number: an expression, or the name of a column.
        half_life: A timedelta, seconds or a text such as ``"5m"``.

    Raises:
        ConfigError: If `half_life` is not a duration above 0.
    """
    return SeriesFunction("ewm_mean", value_node("ewm_mean", value), duration("half_life", half_life))


@brief
def rate(value: Value, per: Duration = timedelta(seconds=1)) -> SeriesFunction:
    """Return how fast a counter rose since the value before, a double. See `increase`.

    Null where `increase` is, and for two rows of the same time.

    Args:
        value: A number that only rises until it starts again at 0: an expression, or the name of a column.
        per: The unit of time: a timedelta, seconds or a text such as ``"1m"``.

    Raises:
        ConfigError: If `per` is not a duration above 0.

    Example:
        >>> from volley import rate
        >>> rate("bytes_sent", per="1m")
        rate(col('bytes_sent'), '60s')
    """
    return SeriesFunction("rate", value_node("rate", value), duration("per", per))


@brief
def increase(value: Value) -> SeriesFunction:
    """Return by how much a counter rose since the value before, in the counter's type.

    A smaller value than before means that the counter started again at 0: it rose by the whole value, as Prometheus
    counts it. Null for the first value of a key, and where the value is null.

    Args:
        value: A number that only rises until it starts again at 0: an expression, or the name of a column.
    """
    return SeriesFunction("increase", value_node("increase", value))


@brief
def previous(value: Value) -> SeriesFunction:
    """Return the value of the row before; null for the first row of a key.

    Args:
        value: An expression, or the name of a column.
    """
    return SeriesFunction("previous", value_node("previous", value))


@brief
def session_start(gap: Duration) -> SeriesFunction:
    """Return the time of the first row of each row's session: a pause of `gap` or more begins a new one.

    Args:
        gap: A timedelta, seconds or a text such as ``"30m"``.

    Raises:
        ConfigError: If it is not a duration above 0.

    Example:
        >>> from volley import session_start
        >>> session_start("30m")
        session_start('1800s')
    """
    return SeriesFunction("session_start", None, duration("gap", gap))
