"""PgBouncer 1.18, from Debian's package, unpacked: a pooler of connections before a PostgreSQL server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.servers.downloads import downloaded
from tests.servers.postgres import USER
from tests.servers.process import ServerProcess, free_ports, needed

_PACKAGES = ("pgbouncer", "libevent-2.1-7", "libc-ares2")


@contextmanager
def pgbouncer(server_port: int, **settings: str) -> Iterator[int]:
    """The port of a pooler of a server."""
    (port,) = free_ports(1)
    with TemporaryDirectory(prefix="volley-pgbouncer-") as folder:
        # Not below the home of another user, which the server's may not enter.
        home = shutil.copytree(downloaded("pgbouncer", _fetch) / "usr", Path(folder, "usr"))
        users, configuration, log = (Path(folder, name) for name in ("users", "configuration", "log"))
        users.write_text('"volley" "secret"\n')
        own = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "md5"}
        lines = [f"{name} = {value}" for name, value in {**own, "auth_file": users, **settings}.items()]
        target = f"* = host=127.0.0.1 port={server_port}"
        configuration.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines]))
        for path in (Path(folder), users, configuration):
            path.chmod(0o755)
        program = home / "sbin/pgbouncer"
        libraries = {"LD_LIBRARY_PATH": str(next(home.rglob("libcares.so.2")).parent)}
        process = ServerProcess("PgBouncer", [str(program), str(configuration)], log, libraries, USER)
        process.start(process.says("process up"))
        try:
            yield port
        finally:
            process.stop()


def _fetch(folder: Path) -> None:
    get, unpack = needed("apt-get", "PgBouncer comes from Debian"), needed("dpkg-deb", "PgBouncer comes from Debian")
    subprocess.run([get, "download", *_PACKAGES], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run([unpack, "--extract", package, folder], check=True)
        package.unlink()
