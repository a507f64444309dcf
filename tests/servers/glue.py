"""AWS Glue, and S3, by moto: an emulator that checks no credentials."""

from __future__ import annotations

from pathlib import Path

from tests.servers.downloads import python_package
from tests.servers.process import ServerProcess, answers, free_ports


class MotoServer:
    """moto's server, and an AWS configuration with a profile for it.

    Args:
        folder: Where the configuration and the log are; tables are below its ``lake``.
    """

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{port}"
        self.lake = folder / "lake"
        self.profiles = folder / "config"
        self.profiles.write_text("[profile analytics]\naws_access_key_id = id\naws_secret_access_key = secret\n")
        python = python_package("moto", 'pip install "moto[server]"')
        command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = ServerProcess("moto", command, folder / "log")

    def start(self) -> MotoServer:
        self._process.start(answers(f"{self.uri}/moto-api/"))
        return self

    def stop(self) -> None:
        self._process.stop()
