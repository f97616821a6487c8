"""A program of test_spark_connector_faults.py: the same queries with Spark's own `kafka` and with `minikafka`, results as JSON.

    python spark_connector_faults.py batch|streams BOOTSTRAP JARS DIRECTORY

It runs in a process of its own, because the JARs must be there when the JVM starts. A result is a number of rows, or the words of an error.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from minikafka.testing.wait import LoadAdjustedDeadline

FORMATS = ("kafka", "minikafka")
#: name -> options of a batch query; t is the fault's topic.
BATCH = {
    "sound": {"subscribe": "sound"},
    "rotten": {"subscribe": "rotten"},
    "segment missing": {"subscribe": "missing"},
    "segment cut": {"subscribe": "cut"},
    "begins below the log's start": {"subscribe": "retained", "startingOffsets": '{"retained": {"0": 10}}'},
    "ends behind the log's end": {"subscribe": "sound", "endingOffsets": '{"sound": {"0": 310}}'},
    "begins behind the log's end": {"subscribe": "sound", "startingOffsets": '{"sound": {"0": 310}}'},
    "no such topic": {"subscribe": "none"},
    "no such partition": {"assign": '{"sound": [0, 7]}'},
}


def outcome(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "Loss" in line or "Exception" in line or "Error" in line or "corrupt" in line.lower()]
    return " | ".join((causes or lines)[:12])[:3000]


class Session:
    def __init__(self, bootstrap: str, jars: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
        self.spark = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def options(self, fails: bool) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "failOnDataLoss": str(fails).lower(), "kafkaConsumer.pollTimeoutMs": "10000",
                "kafka.default.api.timeout.ms": "10000", "kafka.request.timeout.ms": "5000"}  # fmt: skip

    def batch(self, form: str, fails: bool, query: dict[str, str]) -> Any:
        try:
            return self.spark.read.format(form).options(**self.options(fails), **query).load().select("value").rdd.count()
        except Exception as error:
            return outcome(error)

    def stream(self, form: str, fails: bool, name: str, query: dict[str, str]) -> Any:
        """What a run until the end of what there is adds to the rows of the runs before."""
        rows, checkpoint = (str(self.directory / f"{form}-{fails}-{name}-{part}") for part in ("rows", "checkpoint"))
        frame = self.spark.readStream.format(form).options(**self.options(fails), startingOffsets="earliest", **query).load()
        try:
            running = (
                frame.select("topic", "offset").writeStream.format("parquet").option("path", rows).option("checkpointLocation", checkpoint)
                .trigger(processingTime="100 milliseconds").start()
            )  # fmt: skip
            running.processAllAvailable()
            running.stop()
            found = self.spark.read.schema("topic string, offset long").parquet(rows).count()
            return found
        except Exception as error:
            return outcome(error)

    def make(self, topic: str, records: int) -> None:
        deadline = LoadAdjustedDeadline(30)
        while True:
            try:
                self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
                break
            except KafkaException:  # being deleted still
                if deadline.is_over:
                    raise
                time.sleep(0.2)
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(records):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(30) == 0

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(20)


def streams(session: Session) -> dict[str, Any]:
    changes = {"made again with fewer records": 30, "made again with more records": 150, "vanished": 0}
    found: dict[str, Any] = {}
    for number, (name, records) in enumerate(changes.items()):
        gone, stays = f"s{number}-gone", f"s{number}-stays"
        session.make(gone, 100)
        session.make(stays, 10)
        query = {"subscribePattern": f"s{number}-.*"}
        ways = [(form, fails) for form in FORMATS for fails in (True, False)]
        for form, fails in ways:
            assert session.stream(form, fails, str(number), query) == 110
        session.delete(gone)
        if records:
            session.make(gone, records)
        for form, fails in ways:
            found[f"{name} {form} {fails}"] = session.stream(form, fails, str(number), query)
    return found


def batches(session: Session) -> dict[str, Any]:
    return {f"{name} {form} {fails}": session.batch(form, fails, query)
            for name, query in BATCH.items() for form in FORMATS for fails in (True, False)}  # fmt: skip


def main() -> None:
    session = Session(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    print("RESULT " + json.dumps(batches(session) if sys.argv[1] == "batch" else streams(session)))


if __name__ == "__main__":
    main()
