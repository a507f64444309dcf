"""MySQL 9.7 from Debian's unstable packages, or 8.4 from Ubuntu's, unpacked with all libraries, its C library too."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.servers.downloads import downloaded
from tests.servers.process import ServerProcess, needed
from tests.servers.sql import ACCOUNTS, SqlServer

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# No test has the machine crash: what the kernel has is durable. Accounts are made before the server listens to anybody.
_SETTINGS = (
    *("--bind-address=127.0.0.1", "--skip-name-resolve", "--mysqlx=OFF", "--secure-file-priv="),
    *("--log-bin=binlog", "--server-id=1", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"),
    *("--binlog-row-metadata=FULL", "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"),
    *("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=32M", "--max-connections=500"),
    "--cte-max-recursion-depth=1000000",
    *("--innodb-use-native-aio=OFF", "--max-allowed-packet=64M", "--log-error-verbosity=2"),
    *("--innodb-doublewrite=OFF", "--performance-schema=OFF"),
)


class MySql(SqlServer):
    """A MySQL server with a binary log of rows with full metadata and global ids.

    Without Debian's packages the test is skipped, in CI too: no other server of MySQL is at hand.

    Args:
        folder: Where its log is.
        settings: Further options of the server, such as ``--gtid-mode=OFF``.
    """

    product = "MySQL"
    status = "show binary log status"
    begin_anew = "reset binary logs and gtids"

    def __init__(self, folder: Path, settings: tuple[str, ...] = ()) -> None:
        super().__init__()
        home, packages = self._home, downloaded(f"mysql-{RELEASE}", _fetch)
        data, shared = home / "data", packages / "usr/share/mysql"
        (home / "accounts.sql").write_text(ACCOUNTS)
        libraries = packages / "usr/lib/x86_64-linux-gnu"
        # By its own loader: it needs a newer C library than this machine may have.
        program = [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)]
        program += [str(packages / "usr/sbin/mysqld"), "--no-defaults", f"--datadir={data}", f"--tmpdir={home}"]
        program += [f"--lc-messages-dir={shared}", f"--character-sets-dir={shared}/charsets", *_SETTINGS]
        if os.getuid() == 0:
            program.append("--user=root")
        self._fill(program)
        command = [
            *(*program, f"--port={self.port}", f"--socket={home}/socket", f"--init-file={home}/accounts.sql"),
            *(f"--pid-file={home}/pid", *settings),
        ]
        self._process = ServerProcess("MySQL", command, folder / "log")

    def _fill(self, command: list[str]) -> None:
        """Make the server's own tables."""
        fill = [*command, "--initialize-insecure", "--skip-log-bin"]
        done = subprocess.run(fill, cwd="/", capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"MySQL's tables can't be made: {done.stderr[-2000:]}")


@dataclass(frozen=True)
class _Release:
    """Where a release comes from.

    Args:
        package: The package and its version.
        source: The mirror and release of the distribution; None = Debian's unstable one at the machine's mirror.
    """

    package: str
    source: str | None = None


_RELEASES = {
    "9.7": _Release("mysql-server-core=9.7.*"),
    "8.4": _Release("mysql-server-core=8.4.*", "http://archive.ubuntu.com/ubuntu questing main"),
}
RELEASE = os.environ.get("VOLLEY_MYSQL", "9.7")
"""The release that tests run on."""


def _fetch(folder: Path) -> None:
    """Unpack the packages by apt, with lists of its own."""
    get = needed("apt-get", "MySQL comes from Debian")
    sites = subprocess.run([get, "indextargets", "--format", "$(SITE)"], check=True, capture_output=True, text=True)
    mirror = next((site for site in sites.stdout.split() if site.endswith("/debian")), None)
    if mirror is None or not Path(_KEYS).exists():
        pytest.skip("MySQL comes from Debian's packages, and this machine's come from elsewhere")
    release, debian = _RELEASES[RELEASE], f"deb [signed-by={_KEYS}] {mirror} sid main\n"
    if release.source is None:
        _unpack(folder, debian, release.package)
    else:
        # Debian vouches for the keys of Ubuntu.
        _unpack(folder, debian, "ubuntu-keyring")
        keys = folder / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
        _unpack(folder, f"deb [signed-by={keys}] {release.source}\n", release.package)
    for part in (folder / "usr/share/doc", folder / "usr/share/perl"):
        shutil.rmtree(part, ignore_errors=True)


def _unpack(folder: Path, source: str, package: str) -> None:
    """Unpack a package of a source of apt, and all that it needs."""
    get, unpack = needed("apt-get", "MySQL comes from Debian"), needed("dpkg-deb", "MySQL comes from Debian")
    apt = folder / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "sources.list").write_text(source)
    # As far as this apt knows, no package is installed: it fetches all that the server needs.
    (apt / "status").touch()
    places = {
        **{"Dir::Etc::SourceList": apt / "sources.list", "Dir::Etc::SourceParts": "/dev/null"},
        **{"Dir::State": apt, "Dir::State::status": apt / "status", "Dir::Cache": apt},
    }
    options = [option for name, place in places.items() for option in ("-o", f"{name}={place}")]
    options += ["-o", "APT::Sandbox::User=root"] if os.getuid() == 0 else []
    for arguments in (["update"], ["install", "--download-only", "--no-install-recommends", "--yes", package]):
        done = subprocess.run([get, *options, *arguments], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{package} can't be had: {done.stderr[-500:]}")
    for archive in apt.glob("archives/*.deb"):
        subprocess.run([unpack, "--extract", archive, folder], check=True)
    shutil.rmtree(apt)
