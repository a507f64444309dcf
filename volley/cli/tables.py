"""The commands for tables: snapshots, health, changes, compact, expire, orphans, erase."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from volley.cli.output import (
    DEFAULT,
    USAGE,
    AsJson,
    File,
    choose,
    error,
    loaded,
    named_in_file,
    print_json,
    print_rows,
    reported,
    say,
)
from volley.config.values import Config
from volley.documents.models import descriptions
from volley.errors import ConfigError, TableNotFoundError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.options import CompactionOptions, ExpiryOptions
from volley.iceberg.maintain.values import SnapshotInfo
from volley.iceberg.sink import IcebergSink

__all__ = ["changes", "compact", "erase", "expire", "health", "orphans", "snapshots"]

SinkName = Annotated[
    str | None,
    typer.Option(
        "--sink",
        metavar="NAME",
        help="The sink whose table it is; needed if there are several.",
        autocompletion=named_in_file("sinks"),
    ),
]


def _takes(options: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command: it takes the fields of a value of options, by their names and descriptions."""
    described, hints = descriptions(options), get_type_hints(options)
    settings = [setting for setting in fields(options) if setting.name != "run"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**arguments: Any) -> None:
            # An empty list is an option that is not given.
            command(**{name: value for name, value in arguments.items() if value not in (None, [])})

        own = inspect.signature(command, eval_str=True)
        parameters = [*list(own.parameters.values())[:-1]]
        parameters += [_parameter(setting, hints[setting.name], described[setting.name]) for setting in settings]
        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate


def _parameter(setting: Field[Any], hint: Any, description: str) -> inspect.Parameter:
    """Return a command's option for a field; one that may be a list is given again for each item."""
    types = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    items = [get_args(item_type)[0] for item_type in types if get_origin(item_type) in (Sequence, Collection)]
    single = items[0] if items else next(item_type for item_type in (str, float, int, bool) if item_type in types)
    sentence = description.replace("`", "").partition(". ")[0].rstrip(".").replace("None = ", "default: ")
    option = typer.Option(
        f"--{setting.name.replace('_', '-')}",
        metavar=None if single is bool else "TEXT" if single is str else "NUMBER",
        help=f"{sentence}{'; repeatable' if items else ''}.",
    )
    type_: Any = list[single] if items else single  # type: ignore[valid-type]
    default = setting.default if single in (bool, float) else None
    parameter_kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(setting.name, parameter_kind, default=default, annotation=Annotated[type_ | None, option])


def snapshots(file: File = DEFAULT, sink: SinkName = None, as_json: AsJson = False) -> None:
    """List the snapshots of a table, oldest first.

    Examples:

      volley snapshots

      volley snapshots -c orders.yaml --sink lake --json
    """
    from volley.iceberg.maintain.snapshots import SnapshotManager

    config = loaded(file)
    with reported(config):
        listed = SnapshotManager(_table(config, sink)).list_snapshots()
    if not as_json:
        columns = ["snapshot", "committed at (UTC)", "operation", "rows", "files", "rows in table", "refs"]
        print_rows(columns, [_cells(snapshot) for snapshot in listed], config)
        return
    rows = [
        {
            "id": snapshot.id,
            "parent_id": snapshot.parent_id,
            "committed_at": snapshot.committed_at.isoformat(),
            "operation": snapshot.operation,
            "refs": snapshot.refs,
            "summary": dict(snapshot.summary),
        }
        for snapshot in listed
    ]
    print_json(rows, config)


def _cells(snapshot: SnapshotInfo) -> tuple[object, ...]:
    return (
        *(snapshot.id, f"{snapshot.committed_at:%Y-%m-%d %H:%M:%S}", snapshot.operation),
        _difference(snapshot.rows_added, snapshot.rows_deleted),
        _difference(snapshot.files_added, snapshot.files_deleted),
        None if snapshot.total_rows is None else f"{snapshot.total_rows:,}",
        ", ".join(snapshot.refs),
    )


def _difference(added: int | None, deleted: int | None) -> str:
    return " ".join([*([f"+{added:,}"] if added else []), *([f"-{deleted:,}"] if deleted else [])])


def health(
    file: File = DEFAULT,
    sink: SinkName = None,
    orphans: Annotated[bool, typer.Option("--orphans", help="Look for files of no snapshot, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a table costs its readers: sizes of files, deletes, manifests, snapshots; and what would mend it.

    Examples:

      volley health

      volley health -c orders.yaml --sink lake --orphans --json
    """
    from volley.iceberg.time_travel import IcebergTable

    config = loaded(file)
    with reported(config):
        found = IcebergTable(_table(config, sink)).health(orphans)
    if as_json:
        print_json(found.to_dict(), config)
    else:
        say(str(found), config)


def changes(
    file: File = DEFAULT,
    sink: SinkName = None,
    start: Annotated[
        int | None, typer.Option("--from", metavar="ID", help="The snapshot before; default: the one before the last.")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", metavar="ID", help="The last snapshot; default: the current.")
    ] = None,
    key: Annotated[list[str] | None, typer.Option(help="A column that identifies a row; repeatable.")] = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="The most changes to print.")] = 20,
) -> None:
    """Print what changed in a table between two snapshots: inserts, updates and deletes.

    Examples:

      volley changes --key id

      volley changes --from 6301935263872612342 --to 8823719461930124567
    """
    from volley.columns.show import show
    from volley.iceberg.changes import changes_between
    from volley.iceberg.maintain.snapshots import SnapshotManager

    config = loaded(file)
    table = _table(config, sink)
    with reported(config, options=start is not None or end is not None or bool(key)):
        if start is None:
            manager = SnapshotManager(table)
            last = manager.current_snapshot() if end is None else manager.snapshot_by_id(end)
            start = last.parent_id
        table_changes = changes_between(table.ref, start, end, key or ()).to_arrow()
        show(table_changes.slice(0, rows))
        if table_changes.num_rows > rows:
            say(f"… and {table_changes.num_rows - rows:,} more", config)


@_takes(CompactionOptions)
def compact(file: File = DEFAULT, sink: SinkName = None, **options: Any) -> None:
    """Compact a table: small data files, and those with deleted rows, become few large ones. Jobs may write meanwhile.

    Examples:

      volley compact --dry-run

      volley compact --sink lake --where "day >= date '2026-11-01'"
    """
    from volley.iceberg.time_travel import IcebergTable

    config = loaded(file)
    with reported(config, options=bool(options)):
        say(str(IcebergTable(_table(config, sink)).compact(**options)), config)


@_takes(ExpiryOptions)
def expire(file: File = DEFAULT, sink: SinkName = None, **options: Any) -> None:
    """Remove old snapshots of a table, and the files that no other snapshot needs.

    Examples:

      volley expire --older-than 7d --dry-run

      volley expire --sink lake --older-than 2026-11-01 --retain-last 10
    """
    from volley.iceberg.maintain.snapshots import SnapshotManager

    config = loaded(file)
    with reported(config, options=bool(options)):
        say(str(SnapshotManager(_table(config, sink)).expire_snapshots(**options)), config)


def orphans(
    file: File = DEFAULT,
    sink: SinkName = None,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="The least age of a file.")] = "3d",
    remove: Annotated[bool, typer.Option("--remove", help="Delete them.")] = False,
) -> None:
    """List the files in a table's folders that belong to no snapshot, such as those of killed tasks.

    Examples:

      volley orphans

      volley orphans --sink lake --older-than 7d --remove
    """
    from volley.iceberg.maintain.orphans import orphan_files, remove_orphan_files

    config = loaded(file)
    table = _table(config, sink)
    with reported(config, options=True):
        files = remove_orphan_files(table, older_than) if remove else orphan_files(table, older_than)
        say("\n".join([*files, str(files)]), config)


def erase(
    keys: Annotated[Path, typer.Argument(metavar="KEYS", help="A file of JSON lines, each of which has one key.")],
    file: File = DEFAULT,
    sink: SinkName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
    drop_tags: Annotated[bool, typer.Option("--drop-tags", help="Drop tags of snapshots with the rows.")] = False,
    orphans_older_than: Annotated[
        str, typer.Option(metavar="AGE", help="The least age of deleted files that belong to no snapshot.")
    ] = "3d",
    checkpoints: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="FOLDER", help="A checkpoint in which the proof looks too; repeatable."),
    ] = None,
) -> None:
    """Erase the rows with some keys from a table, its history and its dead letters, and prove that none is left.

    Examples:

      volley erase keys.jsonl --dry-run

      volley erase keys.jsonl --sink lake --drop-tags
    """
    from volley.iceberg.time_travel import IcebergTable

    config = loaded(file)
    table = _table(config, sink)
    with reported(config, options=True):
        done = IcebergTable(table).erase(
            _keys(keys),
            dry_run=dry_run,
            letters=[*_letters(table)],
            checkpoints=checkpoints or (),
            drop_tags=drop_tags,
            orphans_older_than=orphans_older_than,
        )
        say(str(done), config)


def _keys(file: Path) -> list[Any]:
    """Return the keys that a file has."""
    try:
        return [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    except (OSError, ValueError) as failure:
        raise ConfigError(
            f"keys can't be read from {file}: {failure}", hint='a key in each line: {"id": 7}'
        ) from failure


def _letters(table: IcebergSinkConfig) -> Iterator[IcebergSinkConfig]:
    """Yield the table of the sink's dead letters, which is made with the first one."""
    if (letters := table.dead_letter_table) is not None:
        with suppress(TableNotFoundError):
            letters.ref.load()
            yield letters


def _table(config: Config, name: str | None) -> IcebergSinkConfig:
    """Return the table of a sink; exit with 2 if the sink is none of Iceberg, or it is not clear which one."""
    tables = {name: sink.config for name, sink in config.sinks.items() if isinstance(sink, IcebergSink)}
    if name is None and len(tables) != 1:
        known = ", ".join(tables) or "none"
        error(f"{config.file} has {len(tables)} Iceberg sinks\n  hint: name one by --sink: {known}")
        raise typer.Exit(USAGE)
    return tables[next(iter(tables)) if name is None else choose("Iceberg sink", name, list(tables))]
