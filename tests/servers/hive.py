"""Hive Metastore 3.1.3 over thrift, with its database in memory."""

from __future__ import annotations

from pathlib import Path

from tests.servers.downloads import class_path, jars, java
from tests.servers.process import ServerProcess, free_ports, listens

_ARTIFACTS = (
    "org.apache.hive:hive-standalone-metastore:3.1.3",
    "org.apache.hadoop:hadoop-common:3.3.6",
    "org.apache.hadoop:hadoop-mapreduce-client-core:3.3.6",
)
_OPENED = ("java.lang", "java.net", "java.util", "java.util.concurrent")


class HiveMetastore:
    """A Hive Metastore with files on this machine.

    Args:
        folder: Where its configuration and its log are; tables are below its ``lake``.
    """

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self.uri = f"thrift://127.0.0.1:{self._port}"
        self.lake = folder / "lake"
        home = jars("hive-metastore-3.1.3", *_ARTIFACTS, source=Path(__file__).with_name("HiveMetastore.java"))
        (folder / "metastore-site.xml").write_text(self._settings())
        options = ["-Xmx512m", "-XX:+UseSerialGC", *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED)]
        command = [java(), *options, "-cp", f"{folder}:{class_path(home)}", "HiveMetastore", str(self._port)]
        self._process = ServerProcess("Hive Metastore", command, folder / "log")

    def _settings(self) -> str:
        metastore = "org.apache.hadoop.hive.metastore"
        settings = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "metastore.warehouse.dir": f"file://{self.lake}",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "metastore.task.threads.always": f"{metastore}.events.EventCleanerTask",
            "metastore.expression.proxy": f"{metastore}.DefaultPartitionExpressionProxy",
        }
        entries = "".join(
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()
        )
        return f'<?xml version="1.0"?><configuration>{entries}</configuration>'

    def start(self) -> HiveMetastore:
        self._process.start(listens(self._port))
        return self

    def stop(self) -> None:
        self._process.stop()
