"""A suite that was moved from testcontainers: only one fixture has changed, not the tests.

    # before
    from testcontainers.kafka import KafkaContainer

    @pytest.fixture(scope="session")
    def bootstrap_servers():
        with KafkaContainer() as container:
            yield container.get_bootstrap_server()
"""

import confluent_kafka
import confluent_kafka.admin
import pytest

from minikafka.testing import EmbeddedBroker


@pytest.fixture(scope="session")
def bootstrap_servers():
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def test_a_record_comes_back(bootstrap_servers):
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([confluent_kafka.admin.NewTopic("payments", 3, 1)]).values():
        future.result(20)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("payments", b"12.50")
    assert producer.flush(20) == 0
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": "ledger", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["payments"])
    assert consumer.poll(20).value() == b"12.50"
    consumer.close()
