"""Spark clusters on this machine, from PySpark's own files: a standalone master with a worker, and a YARN with one node.

As a program it is that YARN: `spark_clusters.py DIRECTORY JARS` writes DIRECTORY/conf/yarn-site.xml and ends with its standard input.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from minikafka.testing.wait import LoadAdjustedDeadline

START_SECONDS = 240.0


class SparkCluster:
    """A context manager. `master`, `environment` for those who speak to it, `confs` of small executors that find this tree."""

    master = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        roots = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots)), "SPARK_HOME": str(spark_home()),
                            "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}  # fmt: skip
        self.confs = {"spark.executorEnv.PYTHONPATH": self.environment["PYTHONPATH"], "spark.executor.memory": "512m"}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def minikafka(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, on this cluster."""
        confs = [part for name, value in self.confs.items() for part in ("--conf", f"{name}={value}")]
        command = [sys.executable, "-m", "minikafka", *arguments, "--master", self.master, *confs]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def submit(self, *arguments: str, **confs: str) -> subprocess.CompletedProcess[str]:
        """The same by spark-submit."""
        given = [part for name, value in {**self.confs, **confs}.items() for part in ("--conf", f"{name}={value}")]
        file = Path(__file__).parents[2] / "pyspark_minikafka" / "submit.py"
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master, *given, str(file), *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)

    def _start(self) -> None:
        raise NotImplementedError

    def _run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.environment, cwd=self.directory)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _wait_for(self, name: str, text: str, process: subprocess.Popen[bytes]) -> str:
        """The line of the log with `text`."""
        until = LoadAdjustedDeadline(START_SECONDS)
        while True:
            said = (self.directory / f"{name}.log").read_text(errors="replace")
            for line in said.splitlines():
                if text in line:
                    return line
            assert process.poll() is None and not until.is_over, f"{name} did not come up:\n{said[-4000:]}"
            time.sleep(0.2)


class Standalone(SparkCluster):
    """A master and a worker with two cores."""

    def _start(self) -> None:
        run = [str(spark_home() / "bin" / "spark-class")]
        place = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = self._run("master", [*run, "org.apache.spark.deploy.master.Master", *place])
        self.master = "spark://127.0.0.1:" + self._wait_for("master", "Starting Spark master at", master).rsplit(":", 1)[1].strip()
        options = [*place, "--cores", "2", "--memory", "1g", "--work-dir", str(self.directory / "work")]
        worker = self._run("worker", [*run, "org.apache.spark.deploy.worker.Worker", self.master, *options])
        self._wait_for("worker", "Successfully registered with master", worker)


class Yarn(SparkCluster):
    """Hadoop's own MiniYARNCluster: a resource manager and one node manager that starts containers as processes."""

    master = "yarn"

    def __init__(self, directory: Path, jars: list[Path]) -> None:
        super().__init__(directory)
        self._jars = os.pathsep.join(map(str, jars))
        self.environment |= {"YARN_CONF_DIR": str(directory / "conf"), "HADOOP_CONF_DIR": str(directory / "conf")}
        self.confs |= {"spark.executor.instances": "1", "spark.yarn.am.memory": "512m",
                       "spark.yarn.jars": f"local:{spark_home()}/jars/*",  # else each job carries 400 MB
                       "spark.yarn.stagingDir": (directory / "staging").as_uri()}  # fmt: skip

    def _start(self) -> None:
        process = self._run("yarn", [sys.executable, __file__, str(self.directory), self._jars])
        self._stack.callback(process.wait, 60)
        self._stack.callback(process.stdin.close)  # type: ignore[union-attr]
        self._wait_for("yarn", "YARN IS UP", process)


def spark_home() -> Path:
    """PySpark's own."""
    import pyspark

    return Path(pyspark.__file__).parent


class _Launch:
    """What py4j's launcher asks a SparkConf for."""

    def __init__(self, jars: str) -> None:
        self.jars = jars

    def getAll(self) -> list[tuple[str, str]]:
        return [("spark.driver.extraClassPath", self.jars)]


def run_yarn(directory: str, jars: str) -> None:
    """Start it in a JVM, write its configuration, stop it at the end of standard input."""
    from pyspark.java_gateway import launch_gateway

    os.chdir(directory)
    java: Any = launch_gateway(_Launch(jars)).jvm
    configuration = java.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in {
        "yarn.nodemanager.disk-health-checker.enable": "false", "yarn.nodemanager.resource.memory-mb": "4096",
        "yarn.nodemanager.resource.cpu-vcores": "4", "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.pmem-check-enabled": "false", "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
    }.items():  # fmt: skip
        configuration.set(name, value)
    cluster = java.org.apache.hadoop.yarn.server.MiniYARNCluster("minikafka", 1, 1, 1)
    cluster.init(configuration)
    cluster.start()
    Path("conf").mkdir()
    file = java.java.io.FileOutputStream("conf/yarn-site.xml")
    cluster.getConfig().writeXml(file)
    file.close()
    print("YARN IS UP", flush=True)
    sys.stdin.read()
    cluster.stop()


if __name__ == "__main__":
    run_yarn(*sys.argv[1:])
