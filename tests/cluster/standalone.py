"""A Spark standalone cluster of plain processes, from the pip-installed pyspark: a master and its workers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.processes import ROOT
from tests.servers.process import free_ports, wait_for
from volley.spark.java import find_java

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"

# Spark runs the second copy of a slow task on another host only. All of 127.0.0.0/8 is this machine.
HOSTS = ("127.0.0.1", "127.0.0.2")


@dataclass
class Cluster:
    """A master and its workers, each with one core.

    Args:
        folder: Where logs, the workers' folders and the drivers' settings go.
        hosts: The address of each worker, and first of all the master's.
        watched: Whether executors write down what their Python connects to.
    """

    folder: Path
    hosts: Sequence[str] = HOSTS
    watched: bool = True
    master: str = field(init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start it, and wait until the workers are known to the master."""
        began = time.monotonic()
        port = free_ports(1)[0]
        self.master = f"spark://{self.hosts[0]}:{port}"
        self._settings("daemons", {"spark.master.rest.enabled": "false", "spark.worker.cleanup.enabled": "false"})
        watch = {
            "spark.executorEnv.PYTHONPATH": f"{Path(__file__).parent / 'watched'}:{ROOT}",
            "spark.executorEnv.VOLLEY_TEST_SEEN": str(self.seen),
        }
        self._settings("spark-defaults.conf", {"spark.executor.memory": "512m", **(watch if self.watched else {})})
        self._start("master", self.hosts[0], "master.Master", "--port", str(port))
        wait_for(self._log("master"), "New state: ALIVE", self._processes["master"])
        self.heal()
        print(f"started a Spark cluster in {time.monotonic() - began:.1f} s: {self.master}, workers on {self.hosts}")

    def heal(self) -> None:
        """Start the workers that are not there."""
        dead = [host for host in self.hosts if host not in self._processes or self._processes[host].poll() is not None]
        for host in dead:
            folder = str(self.folder / f"work-{host}")
            self._start(
                host, host, "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", folder, self.master
            )
        for host in dead:
            wait_for(self._log(host), "Successfully registered with master", self._processes[host])

    def stop(self) -> None:
        """End all of it, by process id; executors end with their workers."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait(30)

    def environment(self) -> dict[str, str]:
        """What a driver on this machine is told by its environment; none of it is for Volley."""
        return {"SPARK_CONF_DIR": str(self.folder), "SPARK_LOCAL_IP": self.hosts[0]}

    @property
    def seen(self) -> Path:
        """What the executors' Python has connected to."""
        return self.folder / "seen"

    def alive(self) -> list[str]:
        """The workers that run."""
        return [host for host in self.hosts if self._processes[host].poll() is None]

    def _start(self, name: str, host: str, kind: str, *options: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"{DEPLOY}.{kind}", "--host", host, "--webui-port", "0"]
        command += ["--properties-file", str(self.folder / "daemons"), *options]
        # Executors inherit their worker's environment: neither this checkout nor anyone's keys are to be found there.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE", "AWS"))}
        mine = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(find_java()), "SPARK_DAEMON_MEMORY": "256m"}
        mine |= {"SPARK_LOCAL_IP": host}
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(command, env=kept | mine, stdout=log, stderr=log)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _settings(self, name: str, settings: dict[str, str]) -> None:
        (self.folder / name).write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
