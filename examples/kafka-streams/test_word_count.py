"""A Kafka Streams application in Java against embedded brokers, killed and started again: every word is counted once.

Needs Java 17 or newer and Maven, which downloads Kafka Streams on the first run.
"""

import contextlib
import shutil
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.skipif(not (shutil.which("java") and shutil.which("mvn")), reason="Kafka Streams needs Java and Maven"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="session")
def libraries():
    """The class path of the application."""
    subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies"], cwd=HERE, check=True)
    return f"{HERE / 'target' / 'dependency'}/*"


@contextlib.contextmanager
def running(libraries, *arguments):
    """The application in a process of its own, which gets SIGKILL at the end."""
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", libraries, str(HERE / "WordCount.java")]
    with subprocess.Popen([*command, *map(str, arguments)]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_every_word_is_counted_once(kafka, libraries, tmp_path):
    sentences, counts, application = kafka.topic("sentences", partitions=2), kafka.topic("counts"), kafka.group("word-count")
    producer = confluent_kafka.Producer(kafka.client_config("confluent"))
    settings = {"group.id": kafka.group("test"), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer(kafka.client_config("confluent", **settings))
    consumer.subscribe([counts])
    found = {}

    def read_until(expected):
        while found != expected:
            message = consumer.poll(60)
            assert message is not None, f"{found} after a minute without a record, instead of {expected}"
            if message.error() is None:
                found[message.key().decode()] = int(message.value())

    for life, (sentence, expected) in enumerate(
        [("the cat the dog", {"the": 2, "cat": 1, "dog": 1}), ("the end", {"the": 3, "cat": 1, "dog": 1, "end": 1})]
    ):
        producer.produce(sentences, key="a", value=sentence)
        assert producer.flush(10) == 0
        # Another state directory: the counts come back from the changelog.
        with running(libraries, kafka.bootstrap_servers, application, sentences, counts, tmp_path / str(life)):
            read_until(expected)
    consumer.close()
