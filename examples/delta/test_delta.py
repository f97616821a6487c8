"""Spark structured streaming from a topic into a Delta table: each record once, although the query is stopped and started again.

Delta has to be made for the Spark that runs: Delta 4.4 needs PySpark 4.2 (requirements.txt), Java 17 and Maven, which downloads it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import confluent_kafka
import pytest

pyspark = pytest.importorskip("pyspark")
HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(not (shutil.which("java") and shutil.which("mvn")), reason="Delta needs Java and Maven"),
    pytest.mark.skipif(not pyspark.__version__.startswith("4.2."), reason="Delta 4.4 is made for Spark 4.2"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def spark():
    """A session with Delta's tables."""
    from pyspark.sql import SparkSession

    subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies"], cwd=HERE, check=True)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    session = builder.config("spark.jars", ",".join(map(str, (HERE / "target" / "dependency").glob("*.jar")))).getOrCreate()
    yield session
    session.stop()


def test_a_stream_fills_a_table(spark, kafka, tmp_path):
    orders, table = kafka.topic("orders", partitions=2), str(tmp_path / "orders")
    producer = confluent_kafka.Producer(kafka.client_config("confluent"))

    def run():
        """One life of the query: until it has read everything. The checkpoint says where the next one goes on."""
        source = spark.readStream.format("minikafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        rows = source.option("subscribe", orders).option("startingOffsets", "earliest").load()
        sink = rows.selectExpr("cast(key as string) customer", "cast(cast(value as string) as int) cents").writeStream.format("delta")
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start(table).awaitTermination()

    for customer, cents in (("alice", 100), ("bob", 30)):
        producer.produce(orders, key=customer, value=str(cents))
    assert producer.flush(10) == 0
    run()
    producer.produce(orders, key="alice", value="25")
    assert producer.flush(10) == 0
    run()

    totals = spark.read.format("delta").load(table).groupBy("customer").sum("cents").collect()
    assert {row[0]: row[1] for row in totals} == {"alice": 125, "bob": 30}
