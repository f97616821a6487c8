"""Requests to brokers of both kinds, and their answers and records as text that is the same for both kinds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.apache_kafka import wait_until

from minikafka.testing.inspection import exchange
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Struct
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.records.frame import decode_group_key, decode_group_value

#: As Apache Kafka's defaults are, but for the pause between assignments.
QUICK = {
    "group.consumer.assignment.interval.ms": "0", "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "5000", "offsets.topic.num.partitions": "1",
}  # fmt: skip
BEAT = ConsumerGroupHeartbeatRequest


class Asked:
    """A broker, and its answers as text that is the same for both kinds of broker."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].partition(":")
        self.address = host, int(port)
        self.ids: dict[str, bytes] = {}
        self.heard: list[str] = []
        #: Words for member ids that brokers draw.
        self.drawn: dict[str, str] = {}

    def ask(self, request: Any, version: int) -> Any:
        return exchange(*self.address, request, version, 20, None)

    def tell(self, what: str, request: Any, version: int) -> Any:
        answer = self.ask(request, version)
        self.heard.append(f"{what}: {self.words(answer)}")
        return answer

    def words(self, value: Any) -> Any:
        """A message with names for topic ids, without what is a matter of time."""
        names = {topic_id: name for name, topic_id in self.ids.items()}
        if isinstance(value, str) and value in self.drawn:
            return self.drawn[value]
        if isinstance(value, bytes):
            return names.get(value, value.hex())
        if isinstance(value, list):
            return sorted((self.words(one) for one in value), key=str)
        if isinstance(value, Struct):
            found = {name: getattr(value, name) for name in type(value).__annotations__ if name[0].islower()}
            return {name: self.words(one) for name, one in found.items() if name not in OF_THE_MOMENT}
        return re.sub(r"/127\.0\.0\.1(:\d+)?", "HOST", value) if isinstance(value, str) else value

    def beat(self, what: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        owned = fields.pop("owned", None)
        if owned is not None:
            topic = BEAT.TopicPartitions
            fields["topic_partitions"] = [topic(topic_id=self.ids[name], partitions=found) for name, found in owned.items()]
        return self.tell(what, BEAT(**{"group_id": "g", "member_id": member_id, "member_epoch": epoch, **fields}), version)

    def join(self, what: str, member_id: str, *names: str, **fields: Any) -> Any:
        given = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(names), "owned": {}, **fields}
        return self.beat(what, member_id, int(given.pop("epoch", 0)), **given)


OF_THE_MOMENT = {
    "throttle_time_ms", "timestamp", "assignment_timestamp", "commit_timestamp", "current_state_timestamp", "version", "metadata_hash",
}  # fmt: skip


def prepare(asked: Asked) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    made = asked.ask(
        CreateTopicsRequest(
            topics=[topic(name=name, num_partitions=count, replication_factor=1) for name, count in (("a", 4), ("b", 2), ("xa", 1))],
            timeout_ms=10_000,
        ),
        7,
    )
    assert [one.error_code for one in made.topics] == [0, 0, 0]
    asked.ids = {one.name: one.topic_id for one in made.topics}
    retry(lambda: asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0)
    retry(lambda: asked.ask(ListGroupsRequest(), 5).error_code == 0)
    retry(lambda: asked.ask(BEAT(group_id="g", member_id="m", member_epoch=3), 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND)
    retry(lambda: all(len(one.partitions) for one in asked.ask(MetadataRequest(topics=None), 12).topics))


def retry(condition: Callable[[], bool]) -> None:
    wait_until(condition, 30, "what was asked for")


def written(asked: Asked, directory: Path) -> list[str]:
    """The records of the coordinator's log, batch by batch; offsets are not of interest here."""
    found = []
    data = (directory / "00000000000000000000.log").read_bytes()
    for batch in iterate_batches(memoryview(data)):
        records = []
        for record in batch.records():
            key = decode_group_key(bytes(record.key or b""))
            value = None if record.value is None else decode_group_value(key, bytes(record.value))
            assert value is None or value.encode(int.from_bytes(bytes(record.value or b"")[:2], "big")) == bytes(record.value or b"")[2:]
            records.append(f"{type(key).__name__} {asked.words(key)} {asked.words(value)}")
        found.append(" | ".join(sorted(records)))
    return found
