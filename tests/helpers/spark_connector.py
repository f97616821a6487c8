"""Spark's own Kafka connector, from Maven."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

from helpers.apache_kafka import CACHE

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
#: The connector and what it needs beside the jars that PySpark brings; one by one, for its POM names repositories of its own.
WANTED = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1", "org.apache.commons:commons-pool2:2.12.0",
)  # fmt: skip


def spark_kafka_connector() -> list[Path]:
    """Downloads the connector on first use; one process at a time."""
    target = CACHE / "spark-kafka-connector"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "complete").exists():
            for artifact in WANTED:
                command = ["mvn", "-q", "-B", COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={target}"]
                done = subprocess.run(command, capture_output=True, text=True, cwd=CACHE, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
            (target / "complete").touch()
    return sorted(target.glob("*.jar"))
