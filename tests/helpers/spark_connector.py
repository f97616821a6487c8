"""Downloads beyond PySpark: Spark's Kafka connector, Delta Lake and a small YARN from Maven, another PySpark from PyPI."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from helpers.apache_kafka import CACHE

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
#: The connector and what it needs beside the jars that PySpark brings; one by one, for its POM names repositories of its own.
WANTED = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1", "org.apache.commons:commons-pool2:2.12.0",
)  # fmt: skip


#: Delta Lake and what it needs beside them; DELTA_SPARK is the newest Spark that it has been made for.
DELTA_SPARK = "4.2.0"
DELTA = (
    "io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0", "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0", "io.delta:delta-kernel-unitycatalog:4.4.0", "io.unitycatalog:unitycatalog-client:0.6.0",
)  # fmt: skip
#: A cluster of YARN in one JVM, beside the Hadoop that PySpark brings; its classes want parts of JUnit and Bouncy Castle.
MINI_YARN = (
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0", "org.junit.jupiter:junit-jupiter-api:5.12.2",
    "org.junit.platform:junit-platform-commons:1.12.2", "org.opentest4j:opentest4j:1.3.0", "org.apiguardian:apiguardian-api:1.1.2",
    "org.bouncycastle:bcprov-jdk18on:1.81", "org.bouncycastle:bcpkix-jdk18on:1.81", "org.bouncycastle:bcutil-jdk18on:1.81",
)  # fmt: skip


def spark_kafka_connector() -> list[Path]:
    """Downloads the connector on first use; one process at a time."""
    return from_maven("spark-kafka-connector", WANTED)


def from_maven(folder: str, artifacts: tuple[str, ...]) -> list[Path]:
    """JARs, kept in `folder` of the tests' cache; downloaded on first use."""
    target = CACHE / folder
    with _once(target) as is_new:
        for artifact in artifacts if is_new else ():
            _run(["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={target}"])
    return sorted(target.glob("*.jar"))


def pyspark_of(version: str) -> Path:
    """A folder for PYTHONPATH with PySpark of that version; downloaded on first use (half a gigabyte)."""
    target = CACHE / f"pyspark-{version}"
    with _once(target) as is_new:
        if is_new:
            _run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target), f"pyspark=={version}"])
    return target


@contextlib.contextmanager
def _once(target: Path) -> Iterator[bool]:
    CACHE.mkdir(parents=True, exist_ok=True)
    if (target / "complete").exists():
        yield False
        return
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_new = not (target / "complete").exists()
        yield is_new
        (target / "complete").touch()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=CACHE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
