"""kafka-python against embedded brokers."""

import kafka as kafka_python


def test_produce_and_consume(kafka, kafka_topic):
    producer = kafka_python.KafkaProducer(**kafka.client_config("kafka-python"))
    producer.send(kafka_topic, b"hello", key=b"k").get(10)
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        kafka_topic, **kafka.client_config("kafka-python", group_id=kafka.group(), auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    )
    record = next(consumer)
    assert (record.key, record.value, record.offset) == (b"k", b"hello", 0)
    consumer.close()


def test_administration(kafka):
    topic = kafka.topic("wide", partitions=4)
    admin = kafka_python.KafkaAdminClient(**kafka.client_config("kafka-python"))
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 4
    admin.close()
