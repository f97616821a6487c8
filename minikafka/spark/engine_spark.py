"""The engine on PySpark: an RDD over our own list of splits, one Python task each, summaries only to the driver.

A Python task costs about 50 ms whatever it does, so items are split lists of hundreds of MiB. Files are opened by the tasks.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def what_spark_says(error: Exception) -> str:
    """One line out of an exception of Spark: the Java exception's own message, not the name of the call that it came through."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    chosen = lines[1].removeprefix(": ") if len(lines) > 1 and lines[0].startswith("An error occurred while calling") else lines[0]
    name, found, message = chosen.partition(": ")
    return message if found and "." in name and " " not in name else chosen


def what_a_task_says(error: Exception) -> str | None:
    """One line out of the failure of a task: the Python exception's own, from the end of two stack traces. None if it is not Spark's."""
    if type(error).__name__ != "Py4JJavaError" and not type(error).__module__.startswith("pyspark."):
        return None
    found = re.search(r"No module named '([^']+)'", str(error))
    if found is not None:
        return f"a worker has no module {found[1]} (pip install 'minikafka[spark]' where the executors run)"
    lines = [line.strip() for line in str(error).splitlines() if "Error: " in line or "Exception: " in line]
    return f"a Spark task failed: {lines[-1] if lines else what_spark_says(error)}"


class SparkUnavailable(Exception):
    """Spark cannot run here; the text is one line that says what is missing."""


def start_session(master: str | None = None, application: str = "minikafka") -> Any:
    """A SparkSession with the settings that Python jobs need. Raises SparkUnavailable.

    PYSPARK_PYTHON must be this interpreter (workers otherwise start any `python3` of the PATH, without our packages).
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable(f"PySpark is not installed ({error}): pip install 'minikafka[spark]'") from error
    _check_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.appName(application)
    if master or not os.environ.get("SPARK_ENV_LOADED"):
        builder = builder.master(master or "local[*]")
    settings = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1", "spark.python.worker.reuse": "true", "spark.speculation": "false",
        "spark.python.unix.domain.socket.enabled": "true",  # Spark 4.1 and later: half the fixed cost of a task over TCP
    }  # fmt: skip
    if (master or "local").startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
    else:
        del settings["spark.driver.bindAddress"]
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _quiet_stderr():
            session = builder.getOrCreate()
    except Exception as error:
        raise SparkUnavailable(f"Spark does not start: {what_spark_says(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


JAVA_MIN = 17


def _check_java() -> None:
    """Raises SparkUnavailable without a Java that this Spark can run on."""
    import re
    import subprocess

    home = os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java")
    java = home if os.environ.get("JAVA_HOME") and os.path.exists(home) else shutil.which("java")
    if java is None:
        raise SparkUnavailable(f"no Java on this machine (Spark needs Java {JAVA_MIN} or later; set JAVA_HOME or PATH)")
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(f"{java} does not run: {error}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_MIN:
        version = f"Java {found[1]}" if found else "no Java that tells its version"
        raise SparkUnavailable(f"{java} is {version}, Spark needs Java {JAVA_MIN} or later (set JAVA_HOME)")


class _quiet_stderr:
    """The JVM's first lines (log set-up, native library) go nowhere; descriptor 2 is what the JVM inherits."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self.saved = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        os.dup2(self.saved, 2)
        os.close(self.saved)


class SparkEngine:
    name = "spark"

    def __init__(self, session: Any = None, master: str | None = None) -> None:
        self.session = session if session is not None else start_session(master)
        self._own = session is None
        self.parallelism: int = self.session.sparkContext.defaultParallelism

    def open(self) -> None:
        """The session is there already."""

    def map(self, function: Callable[[Item], Result], items: list[Item]) -> Iterator[Result]:
        if not items:
            return
        rdd = self.session.sparkContext.parallelize(items, len(items))
        yield from rdd.mapPartitions(_Apply(function)).collect()

    def close(self) -> None:
        if self._own:
            self.session.stop()


class _Apply:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, items: Iterator[Any]) -> Iterator[Any]:
        # A Python worker collects garbage after every task; what was imported when the task began need not be looked at again.
        if gc.get_freeze_count() == 0:
            gc.freeze()
        return map(self.function, items)
