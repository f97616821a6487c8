"""Spark's own `format("kafka")` connector, its JAR from Maven, against our brokers: batch and streaming, both ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.spark_connector import spark_kafka_connector

from minikafka.testing.cluster import ProcessCluster

pytest.importorskip("pyspark")
#: Runs in a process of its own: the JARs must be there when the JVM starts.
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
bootstrap, jars, checkpoint = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate())
kafka = {"kafka.bootstrap.servers": bootstrap}
table = spark.range(3000).selectExpr("cast(id % 17 as string) key", "cast(id as string) value",
                                     "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers")
table.write.format("kafka").options(**kafka, topic="batch", includeHeaders="true", **{"kafka.compression.type": "lz4"}).save()
read = spark.read.format("kafka").options(**kafka, subscribe="batch", includeHeaders="true").load()
rows = read.selectExpr("cast(value as string) value", "headers[0].key header").collect()
limits = {"subscribe": "batch", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
stream = spark.readStream.format("kafka").options(**kafka, **limits).load()
query = (stream.select("key", "value").writeStream.format("kafka").options(**kafka, topic="streamed", checkpointLocation=checkpoint)
         .trigger(availableNow=True).start())
query.awaitTermination()
copied = spark.read.format("kafka").options(**kafka, subscribe="streamed").load()
found = {"rows": len(rows), "values": len({row.value for row in rows}), "headers": sorted({row.header for row in rows}),
         "streamed": copied.count(), "distinct": copied.select("value").distinct().count(),
         "triggers": len([one for one in query.recentProgress if one["numInputRows"]])}
print("RESULT " + json.dumps(found))
"""


@pytest.mark.java
@pytest.mark.interop
@pytest.mark.timeout(235)
def test_sparks_kafka_connector_writes_reads_and_streams(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    found = spark_kafka_connector()
    assert len(found) == 4
    with ProcessCluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(name, 3, 3) for name in ("batch", "streamed")]).values():
            future.result(30)
        arguments = [cluster.bootstrap, ",".join(map(str, found)), str(tmp_path / "checkpoint")]
        done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYSPARK_PYTHON": sys.executable})  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.split("RESULT ", 1)[1].splitlines()[0])
    assert (result["rows"], result["values"], result["headers"]) == (3000, 3000, ["h"])
    assert (result["streamed"], result["distinct"]) == (3000, 3000) and result["triggers"] >= 3
