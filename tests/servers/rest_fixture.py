"""Iceberg's REST fixture: the protocol's reference, with files on this machine; it checks no credentials."""

from __future__ import annotations

from pathlib import Path

from tests.servers.downloads import class_path, jars, java
from tests.servers.process import ServerProcess, answers, free_ports

# The library comes first: of two versions of what it needs, Maven takes that of the first.
_LIBRARY = ("org.apache.iceberg:iceberg-core:{}", "org.apache.iceberg:iceberg-bundled-guava:{}")
# The server's own classes are published up to 1.11.0, and run on 1.12.0 too.
_SERVER = (
    "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
    "org.apache.iceberg:iceberg-core:1.11.0:tests",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.2",
    "org.eclipse.jetty.compression:jetty-compression-server:12.1.2",
    "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.2",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.slf4j:slf4j-simple:2.0.17",
)


class RestFixture:
    """A REST catalog that keeps what it knows in a file, and so can be stopped and started again.

    Args:
        folder: Where that file is, and the log; tables are below its ``lake``.
        version: The version of Iceberg's library that it runs on.
    """

    def __init__(self, folder: Path, version: str = "1.11.0") -> None:
        (port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{port}"
        self.lake = folder / "lake"
        artifacts = (*(each.format(version) for each in _LIBRARY), *_SERVER)
        home = jars(f"rest-fixture-{version}", *artifacts, source=Path(__file__).with_name("RestFixture.java"))
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path(home)]
        command = [java(), *options, "RestFixture", str(port), f"file://{self.lake}", f"{folder}/catalog.db"]
        self._process = ServerProcess("Iceberg's REST fixture", command, folder / "log")

    def start(self) -> RestFixture:
        self._process.start(answers(f"{self.uri}/v1/config"))
        return self

    def stop(self) -> None:
        self._process.stop()
