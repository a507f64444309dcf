"""MariaDB 10.11 from Debian's packages, unpacked; or as the machine has it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.downloads import downloaded
from tests.servers.process import ServerProcess, needed
from tests.servers.sql import ACCOUNTS, SqlServer

_PACKAGES = ("mariadb-server-core", "libaio1", "liburing2")
USER = "nobody" if os.getuid() == 0 else None
"""Who runs the server: MariaDB refuses to run as root unless it is told to."""

# No test has the machine crash: what the kernel has is durable. Accounts are made before the server listens to anybody.
_NO_AIO = "--innodb-use-native-aio=OFF"
_SETTINGS = (
    *("--bind-address=127.0.0.1", "--skip-name-resolve", "--character-set-server=utf8mb4"),
    *("--log-bin=binlog", "--server-id=1", "--binlog-format=ROW", "--binlog-row-image=FULL"),
    *("--binlog-row-metadata=FULL", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"),
    *("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--max-connections=500"),
    *(_NO_AIO, "--max-allowed-packet=64M", "--log-warnings=1"),
)


class MariaDb(SqlServer):
    """A MariaDB server with a binary log of rows with full metadata, and one user, who has a password.

    Args:
        folder: Where its log is.
        settings: Further options of the server, such as ``--gtid-domain-id=7``.
    """

    product = "MariaDB"
    status = "show master status"
    begin_anew = "reset master"

    def __init__(self, folder: Path, settings: tuple[str, ...] = ()) -> None:
        super().__init__()
        home = self._home
        packages, libraries = _programs(home)
        server = packages / "usr/sbin/mariadbd"
        (home / "accounts.sql").write_text(ACCOUNTS)
        data = home / "data"
        data.mkdir()
        if USER:
            for path in (home, data, home / "accounts.sql"):
                shutil.chown(path, USER)
        basics = ["--no-defaults", f"--datadir={data}", f"--lc-messages-dir={packages}/usr/share/mysql"]
        self._fill(home, packages, [str(server), *basics], libraries)
        self._command = [
            *(str(server), *basics, f"--character-sets-dir={packages}/usr/share/mysql/charsets"),
            *(f"--port={self.port}", f"--socket={home}/socket", f"--init-file={home}/accounts.sql"),
            *(f"--pid-file={home}/pid", f"--tmpdir={home}", *_SETTINGS, *settings),
        ]
        self._process = ServerProcess("MariaDB", self._command, folder / "log", libraries, USER)

    def _fill(self, home: Path, packages: Path, command: list[str], libraries: dict[str, str]) -> None:
        """Make the server's own tables, as mariadb-install-db does."""
        scripts = packages / "usr/share/mysql"
        names = ("mysql_system_tables", "mysql_performance_tables", "mysql_system_tables_data")
        lines = ["create database mysql;", "use mysql;", "set @auth_root_socket = null;"]
        lines += [line for name in names for line in (scripts / f"{name}.sql").read_text().split("\n")]
        text = "\n".join(line for line in lines if "@current_hostname" not in line)
        done = subprocess.run(
            [*command, f"--tmpdir={home}", "--bootstrap", "--skip-grant-tables", "--log-bin=0", _NO_AIO],
            input=text,
            env={**os.environ, **libraries},
            cwd="/",
            user=USER,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.fail(f"MariaDB's tables can't be made: {done.stderr[-2000:]}")


def _programs(home: Path) -> tuple[Path, dict[str, str]]:
    """The folder that has ``usr`` with MariaDB's programs, and the variables by which they find their libraries."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/"), {}
    packages = downloaded("mariadb-server-core", _fetch)
    if USER:
        # The server's user may not enter the cache.
        packages = shutil.copytree(packages, home / "packages", symlinks=True)
    folders = {str(found.parent) for name in ("libaio.so.1", "liburing.so.2") for found in packages.rglob(name)}
    return packages, {"LD_LIBRARY_PATH": ":".join(sorted(folders))}


def _fetch(folder: Path) -> None:
    get, unpack = needed("apt-get", "MariaDB comes from Debian"), needed("dpkg-deb", "MariaDB comes from Debian")
    subprocess.run([get, "download", *_PACKAGES], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run([unpack, "--extract", package, folder], check=True)
        package.unlink()
    shutil.rmtree(folder / "usr/share/doc")
