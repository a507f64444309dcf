"""Where a job's changes begin: recorded in the source's state, checked at each start."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from volley.connectors.mariadb.connection import Connection, query
from volley.connectors.mariadb.positions import log_file, position_of
from volley.connectors.mariadb.requirements import end_of_log, purged
from volley.connectors.mariadb.settings import ANEW, Dialect
from volley.errors import SourceError
from volley.storage.remembered import Record
from volley.storage.state_formats import LOG_ORIGIN

__all__ = ["Origin", "check_log", "ensure_origin", "origin_record", "write_origin"]


@dataclass(frozen=True)
class Origin:
    """Where a job's changes begin."""

    file: str  # a file of the server's log
    position: int
    gtids: str  # the global ids of the transactions before; of MariaDB's, the last one of each domain
    server: str = ""  # the server's own id, which files and offsets belong to; "" = ids of transactions prove them


def ensure_origin(connection: Connection, dialect: Dialect, state: str) -> Origin:
    """Return where the job's changes begin: in its first run, where the log ends now."""
    record = origin_record(state)
    origin = record.read()
    if origin is None:
        end = end_of_log(connection, dialect)
        gtids = dialect.gtids_before(connection, end)
        origin = Origin(end.file, position_of(end.file, end.offset), gtids, dialect.server_of(connection))
        write_origin(state, origin)
    return origin


def origin_record(state: str) -> Record[Origin]:
    """Return the record of where a source's changes begin."""
    return Record(f"{state}/origin.json", LOG_ORIGIN, lambda values: Origin(**values))


def write_origin(state: str, origin: Origin) -> None:
    """Record where a source's changes begin; without a server if there is none, as earlier versions did."""
    origin_record(state).write({name: value for name, value in asdict(origin).items() if value or name != "server"})


def check_log(connection: Connection, dialect: Dialect, origin: Origin, position: int, gtids: str) -> None:
    """Check that the server has the log from a position on, and that it is the log that was read before.

    Args:
        gtids: The global ids of the last transactions before the position.

    Raises:
        SourceError: If changes are gone.
    """
    file, offset = log_file(position, origin.file)
    if (server := dialect.server_of(connection)) != origin.server:
        raise SourceError(
            f"the server's server_uuid is {server}, and changes were read from {origin.server}, whose log is another",
            hint=f"connect to the server that was read; or {ANEW}",
        )
    sizes = {str(name): int(size) for name, size, *_ in query(connection, "show binary logs")}
    if file not in sizes:
        if any(name.rpartition(".")[0] == file.rpartition(".")[0] for name in sizes) and min(sizes) > file:
            raise purged(file)
        raise SourceError(
            f"the server has no binary log {file}: it is another server, or its log began anew", hint=ANEW
        )
    if offset > sizes[file] or (gtids and not dialect.has_gtids(connection, file, offset, gtids)):
        raise SourceError(
            f"the binary log {file} at {offset} is not the one that was read: expected transactions up to {gtids!r}: "
            "the server was restored from a backup, or its log began anew",
            hint=ANEW,
        )
