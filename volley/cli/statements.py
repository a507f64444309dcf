"""The command that runs statements in SQL: shows queries, keeps views up to date, writes tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from volley.cli.output import DEFAULT, FAILED, USAGE, File, error, loaded, reported, say
from volley.config.values import Config
from volley.errors import ConfigError, TableNotFoundError, VolleyError, near
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.sink import IcebergSink
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.table import TableRef
from volley.iceberg.views.states import OWN_PREFIX

if TYPE_CHECKING:
    from volley.queries.statements import Statement

__all__ = ["sql"]


def sql(
    statements: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="The file with the statements; - = standard input; none = as they come in."
        ),
    ] = None,
    file: File = DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a row.")] = False,
) -> None:
    """Run statements in SQL: show queries, keep views up to date, write tables.

    A statement can name the sources and sinks of the file with the pipelines, and tables of its first sink's catalog as
    namespace.table. SELECT is shown, and CREATE MATERIALIZED VIEW name AS SELECT makes a view or brings it up to date,
    both in this process, without Spark. CREATE TABLE name AS SELECT and INSERT INTO name SELECT write by a job. SHOW
    TABLES lists what can be named.

    Without FILE each statement runs when its line ends with a semicolon, and one that fails does not end the others.

    Examples:

      volley sql

      volley sql report.sql

      echo 'select * from shop.orders order by at desc limit 3' | volley sql - --json
    """
    from volley.queries.statements import statements_of

    config = loaded(file)
    if statements is None:
        _Session(config, as_json).run()
        return
    try:
        text = sys.stdin.read() if str(statements) == "-" else statements.read_text(encoding="utf-8")
    except OSError as problem:
        error(f"{statements} can't be read: {problem.strerror}\n  hint: name a file with statements, or - for input")
        raise typer.Exit(USAGE) from None
    with reported(config):
        for statement in statements_of(text):
            _run(statement, config, as_json)


@dataclass
class _Session:
    """Runs statements as they are typed, or come in.

    Args:
        text: What has come of the next statement.
    """

    config: Config
    as_json: bool
    text: str = ""
    has_failed: bool = False

    def run(self) -> None:
        """Run statements until the input ends; of an input that is not typed, exit with 1 if one has failed."""
        is_typed = sys.stdin.isatty()
        if is_typed:
            with suppress(ImportError):
                import readline  # noqa: F401  lines can be edited, and called again
        while (line := self._line(is_typed)) is not None:
            self._take(line)
        self._done()
        if self.has_failed and not is_typed:
            raise typer.Exit(FAILED)

    def _line(self, is_typed: bool) -> str | None:
        """Return the next line; None at the end."""
        prompt = ("     -> " if self.text.strip() else "volley> ") if is_typed else ""
        try:
            return input(prompt)
        except EOFError:
            return None
        except KeyboardInterrupt:
            # As in a shell: what is typed is given up.
            self.text = ""
            print()
            return ""

    def _take(self, line: str) -> None:
        from volley.queries.statements import is_complete

        self.text += f"{line}\n"
        if is_complete(self.text):
            self._done()

    def _done(self) -> None:
        """Run what has come."""
        from volley.queries.statements import statements_of

        text, self.text = self.text, ""
        try:
            for statement in statements_of(text):
                _run(statement, self.config, self.as_json)
        except VolleyError as problem:
            self.has_failed = True
            error(self.config.redact(str(problem)))
        except KeyboardInterrupt:
            error("stopped")


def _run(statement: Statement, config: Config, as_json: bool) -> None:
    tables = {name: _table(name, config) for name in statement.tables}
    match statement.kind:
        case "tables":
            _show(_known(config), as_json)
        case "select":
            _show(config.environment.sql(statement.query, **tables).to_arrow(), as_json)
        case "view":
            _refresh(statement, tables, config)
        case "table" | "insert":
            _write(statement, tables, config)


def _known(config: Config) -> Any:
    """Return the names of sources, of sinks that are tables, and of the tables of the first one's catalog, as rows."""
    refs = {name: sink.config.ref for name, sink in config.sinks.items() if isinstance(sink, IcebergSink)}
    names = [*config.sources, *refs]
    for ref in list(refs.values())[:1]:
        catalog = ref.load_catalog()
        names += sorted(".".join(table) for space in catalog.list_namespaces() for table in catalog.list_tables(space))
    return config.environment.sql("select name from known", known=[{"name": name} for name in names]).to_arrow()


def _table(name: str, config: Config) -> Any:
    """Return a source, or a table, by its name."""
    sink = config.sinks.get(name)
    if name in config.sources:
        return config.sources[name]
    if isinstance(sink, IcebergSink):
        return _source(sink.config.ref)
    if "." not in name:
        raise ConfigError(f"there is no table {name}", hint=near(name, {*config.sources, *config.sinks}))
    return _source(_ref(name, config))


def _source(ref: TableRef) -> IcebergSource:
    """Return the rows of a table; those of a view without the columns that its refreshes need."""
    visible = [name for name in _columns(ref) or () if not name.startswith(OWN_PREFIX)]
    return IcebergSource(IcebergSourceConfig(ref).with_columns(visible or None))


def _ref(name: str, config: Config) -> TableRef:
    """Return a table of the first sink's catalog."""
    for sink in config.sinks.values():
        if isinstance(sink, IcebergSink):
            return sink.config.ref.beside(name)
    raise ConfigError(f"it is not known where table {name} is", hint="the file needs a sink that is an Iceberg table")


def _show(rows: Any, as_json: bool) -> None:
    from volley.columns.readable import json_of, readable_rows
    from volley.columns.show import show

    if not as_json:
        show(rows)
        return
    for row in readable_rows(rows):
        print(json_of(row))


def _refresh(statement: Statement, tables: Mapping[str, Any], config: Config) -> None:
    from volley.views.view import MaterializedView

    into = IcebergSinkConfig.from_table(_ref(statement.target, config))
    view = MaterializedView(statement.target, sql=statement.query, sources=dict(tables), into=into)
    say(str(view.refresh()), config)


def _write(statement: Statement, tables: Mapping[str, Any], config: Config) -> None:
    """Write the rows of a query to a table, in one commit."""
    from volley.connectors.memory.source import MemorySource

    ref, environment = _ref(statement.target, config), config.environment
    names = _columns(ref)
    if statement.kind == "table" and names is not None:
        raise ConfigError(f"table {ref.name} is there already", hint=f"insert into {ref.name} select …")
    rows = environment.sql(statement.query, **tables).to_arrow()
    if statement.kind == "insert":
        rows = rows.rename_columns(_by_place(rows.column_names, names, ref))
    sink = IcebergSink(IcebergSinkConfig.from_table(ref))
    job = f"sql-{ref.name}"
    environment.from_source(MemorySource(rows)).to_sink(sink).execute(job, fresh=True, into="append", progress=False)
    environment.forget(job)
    say(f"{ref.name}: {rows.num_rows:,} rows written", config)


def _columns(ref: TableRef) -> list[str] | None:
    """Return the names of a table's columns; None if there is no table."""
    try:
        return [field.name for field in ref.load().schema().fields]
    except TableNotFoundError:
        return None


def _by_place(listed: list[str], names: list[str] | None, ref: TableRef) -> list[str]:
    """Return the columns of a table for those of a query, which fit by their places."""
    if names is None:
        raise ConfigError(f"there is no table {ref.name}", hint=f"create table {ref.name} as select …")
    if len(names) != len(listed):
        raise ConfigError(
            f"the query has {len(listed)} columns ({', '.join(listed)}), table {ref.name} has {len(names)} "
            f"({', '.join(names)})",
            hint="select a value for each column of the table, in their order",
        )
    return names
