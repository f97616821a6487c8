"""Structured streaming against embedded brokers, with this project's data source (no JAR) and with Spark's own Kafka connector.

Spark's connector is a JAR that `pip install pyspark` does not bring. It comes from Maven Central, or, where that is out of reach, from the
files that SPARK_KAFKA_JARS names (separated by commas).
"""

import os
import shutil
import sys

import pytest

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17 or newer"), pytest.mark.timeout(240)]
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:" + pyspark.__version__


@pytest.fixture(scope="module")
def spark():
    """A session whose workers run this Python interpreter."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = os.environ.get("SPARK_KAFKA_JARS")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    session = builder.config(*(("spark.jars", jars) if jars else ("spark.jars.packages", CONNECTOR))).getOrCreate()
    yield session
    session.stop()


@pytest.mark.parametrize("source", ["minikafka", "kafka"])
def test_words_are_counted(source, spark, kafka, tmp_path):
    servers = kafka.bootstrap_servers
    sentences, copies = kafka.topic("sentences", partitions=2), kafka.topic("copies")
    rows = [(None, "the cat"), (None, "the dog"), (None, "a cat")]
    table = spark.createDataFrame(rows, "key string, value string")
    table.write.format(source).option("kafka.bootstrap.servers", servers).option("topic", sentences).mode("append").save()

    # The checkpoint keeps the offsets: a second run reads only new records, each once.
    stream = spark.readStream.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", sentences)
    words = stream.option("startingOffsets", "earliest").load().selectExpr("explode(split(cast(value as string), ' ')) value")
    sink = words.writeStream.format(source).option("kafka.bootstrap.servers", servers).option("topic", copies)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)

    read = spark.read.format(source).option("kafka.bootstrap.servers", servers).option("subscribe", copies).load()
    counted = read.selectExpr("cast(value as string) word").groupBy("word").count().collect()
    assert {row.word: row["count"] for row in counted} == {"the": 2, "cat": 2, "dog": 1, "a": 1}
