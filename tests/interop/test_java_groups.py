"""Apache Kafka 4.4's own consumers, share consumers and Admin: what they see of groups, line by line, as of Apache Kafka 4.4's brokers.

`java/ShareStory.java` and `java/ConsumerStory.java` are the programs; `stories/` has what they printed of Apache Kafka 4.4.0.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.apache_kafka import NEXT, KafkaBroker
from helpers.java_programs import compiled

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]
HERE = Path(__file__).parent
SOURCES = sorted((HERE / "java").glob("*.java"))
PROPERTIES = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1", "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false", "broker.session.timeout.ms": "60000", "group.initial.rebalance.delay.ms": "0",
    "group.share.assignment.interval.ms": "0", "group.share.min.record.lock.duration.ms": "1000",
    "group.share.heartbeat.interval.ms": "500", "group.share.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "60000", "group.share.initialize.retry.interval.ms": "1000",
    "group.consumer.assignment.interval.ms": "0", "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "60000",
}  # fmt: skip
POLICY = "group.consumer.migration.policy"
#: Program, chapters, and a policy of migration. The first is part of every test run: its chapters wait for nothing.
STORIES = [
    ("ShareStory", "implicit|mistakes|portions|strict", "bidirectional"),
    *(
        pytest.param(program, chapters, policy, marks=pytest.mark.interop)
        for program, chapters, policy in (
            ("ShareStory", ".*", "bidirectional"), ("ConsumerStory", ".*", "bidirectional"), ("ConsumerStory", "to-.*", "upgrade"),
            ("ConsumerStory", "to-.*", "downgrade"), ("ConsumerStory", "to-.*", "disabled"),
        )
    ),
]  # fmt: skip
Story = tuple[str, str, str]


def told(story: Story, bootstrap: str) -> list[str]:
    """What the program prints."""
    program, chapters, _ = story
    output = compiled(program, SOURCES, version=NEXT)(bootstrap, chapters)
    return [line for line in output.splitlines() if re.match(r"[a-z-]+ \| ", line)]


def expected(story: Story) -> list[str]:
    program, chapters, policy = story
    lines = (HERE / "stories" / f"{program}-{policy}.txt").read_text().splitlines()
    return [line for line in lines if re.fullmatch(chapters, line.partition(" | ")[0])]


@pytest.mark.parametrize(("program", "chapters", "policy"), STORIES)
def test_java_sees_groups_as_those_of_apache_kafka(program: str, chapters: str, policy: str, tmp_path: Path) -> None:
    with ProcessCluster(1, directory=tmp_path, properties={**PROPERTIES, POLICY: policy}) as cluster:
        story = program, chapters, policy
        assert told(story, cluster.bootstrap) == expected(story)


@pytest.mark.interop
@pytest.mark.parametrize(("program", "chapters", "policy"), STORIES)
def test_what_java_sees_of_apache_kafka(program: str, chapters: str, policy: str, tmp_path: Path) -> None:
    kafka = KafkaBroker(tmp_path, {**PROPERTIES, POLICY: policy}, version=NEXT)
    kafka.format()
    with kafka.running():
        story = program, chapters, policy
        assert told(story, kafka.bootstrap) == expected(story)
