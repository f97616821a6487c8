"""A Flink SQL job against embedded brokers: it joins orders with prices and writes bills, exactly once.

Needs Java 17 and Maven, which downloads Flink's Kafka connector on the first run. Flink asks for older versions of many packages,
so give it a virtual environment of its own (requirements.txt).
"""

import json
import shutil
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

pyflink = pytest.importorskip("pyflink.table")
HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(not (shutil.which("java") and shutil.which("mvn")), reason="Flink needs Java and Maven"),
    pytest.mark.timeout(600),
]

TABLE = """
CREATE TABLE {name} ({columns}) WITH (
  'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{topic}', 'format' = 'json',
  'properties.group.id' = '{group}', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'{more}
)
"""
#: Flink's own time-out for transactions is an hour. Brokers allow a quarter of one (transaction.max.timeout.ms), like Apache Kafka's.
EXACTLY_ONCE = """,
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{topic}', 'properties.transaction.timeout.ms' = '600000'
"""


@pytest.fixture(scope="session")
def connector():
    """The URLs of the JARs of Flink's Kafka connector."""
    subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies"], cwd=HERE, check=True)
    return ";".join(path.as_uri() for path in (HERE / "target" / "dependency").glob("*.jar"))


def test_orders_become_bills(kafka, connector):
    orders, prices, bills = kafka.topic("orders", partitions=2), kafka.topic("prices"), kafka.topic("bills")
    producer = confluent_kafka.Producer(kafka.client_config("confluent"))
    for topic, rows in (
        (prices, [{"item": "apples", "cents": 25}, {"item": "pears", "cents": 40}]),
        (orders, [{"customer": "alice", "item": "apples", "amount": 4}, {"customer": "bob", "item": "pears", "amount": 1}]),
    ):
        for row in rows:
            producer.produce(topic, value=json.dumps(row))
    assert producer.flush(10) == 0

    job = pyflink.TableEnvironment.create(pyflink.EnvironmentSettings.in_streaming_mode())
    job.get_config().set("pipeline.jars", connector)
    job.get_config().set("parallelism.default", "1")
    job.get_config().set("execution.checkpointing.interval", "500ms")
    job.get_config().set("restart-strategy.type", "none")
    for name, topic, columns, more in (
        ("orders", orders, "customer STRING, item STRING, amount INT", ""),
        ("prices", prices, "item STRING, cents INT", ""),
        ("bills", bills, "customer STRING, cents INT", EXACTLY_ONCE.format(topic=bills)),
    ):
        described = {"servers": kafka.bootstrap_servers, "topic": topic, "group": kafka.group("flink"), "more": more}
        job.execute_sql(TABLE.format(name=name, columns=columns, **described))
    job.execute_sql("INSERT INTO bills SELECT customer, amount * cents FROM orders JOIN prices ON orders.item = prices.item").wait()

    settings = {"group.id": kafka.group("test"), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer(kafka.client_config("confluent", **settings))
    consumer.subscribe([bills])
    found = [json.loads(consumer.poll(30).value()) for _ in range(2)]
    consumer.close()
    assert sorted((row["customer"], row["cents"]) for row in found) == [("alice", 100), ("bob", 40)]
