"""confluent-kafka against embedded brokers."""

import confluent_kafka
import pytest


def produce(kafka, topic, values, **config):
    """Write values and return the acknowledged offsets."""
    offsets, errors = [], []

    def delivered(error, message):
        (errors.append(error) if error else offsets.append(message.offset()))

    producer = confluent_kafka.Producer(kafka.client_config("confluent", **{"linger.ms": 0, **config}))
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(20) == 0
    assert not errors, errors
    return offsets


def consume(kafka, topic, group, count):
    """Read as a member of a group and return the values."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(kafka.client_config("confluent", **settings))
    consumer.subscribe([topic])
    values = []
    while len(values) < count:
        message = consumer.poll(10)
        assert message is not None and not message.error(), message and message.error()
        values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def test_what_is_written_is_read(kafka, kafka_topic):
    assert produce(kafka, kafka_topic, [b"one", b"two"]) == [0, 1]
    assert consume(kafka, kafka_topic, kafka.group(), 2) == [b"one", b"two"]


def test_every_test_has_topics_of_its_own(kafka, kafka_topic):
    assert produce(kafka, kafka_topic, [b"alone"]) == [0]


@pytest.mark.kafka_breaks
def test_a_killed_leader_loses_nothing(kafka_cluster):
    topic = kafka_cluster.topic("orders", replication_factor=3, configs={"min.insync.replicas": 2})
    cluster = kafka_cluster.cluster
    produce(kafka_cluster, topic, [b"before"], acks="all")

    cluster.broker(cluster.leader(topic, 0)).kill()
    cluster.wait_leader(topic, 0)

    produce(kafka_cluster, topic, [b"after"], acks="all")
    assert consume(kafka_cluster, topic, kafka_cluster.group(), 2) == [b"before", b"after"]
    cluster.repair()
    cluster.audit(topics=[topic])


@pytest.mark.kafka_breaks
def test_a_lost_acknowledgement_makes_no_duplicate(kafka_cluster):
    """The broker appends the batch and answers REQUEST_TIMED_OUT. An idempotent producer retries, and the broker detects the duplicate."""
    topic = kafka_cluster.topic("payments")
    with kafka_cluster.cluster.fault("Produce", topic=topic, error="REQUEST_TIMED_OUT", after_work=True) as fault:
        offsets = produce(kafka_cluster, topic, [b"once"], **{"enable.idempotence": True, "retry.backoff.ms": 10})
        assert fault.hits == 1
    assert offsets == [0]
    assert kafka_cluster.cluster.replicas(topic, 0)[kafka_cluster.cluster.leader(topic, 0)]["log_end_offset"] == 1
