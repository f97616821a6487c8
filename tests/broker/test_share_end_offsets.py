"""The ends of partitions that other brokers lead (broker/share/end_offsets.py)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from minikafka.broker.share.end_offsets import EndOffsets
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.list_offsets import ListOffsetsResponse

TOPIC = bytes(range(16))


class Peers:
    """Answers at once with the partitions that it is given, whatever is asked."""

    def __init__(self, offsets: dict[int, int]) -> None:
        self.offsets = offsets

    def send(self, host: str, port: int, request: Any, on_answer: Any) -> None:
        kind = ListOffsetsResponse
        partitions = [kind.ListOffsetsPartitionResponse(partition_index=index, offset=offset) for index, offset in self.offsets.items()]
        on_answer(kind(topics=[kind.ListOffsetsTopicResponse(name="t", partitions=partitions)]), None)


async def test_an_answer_with_other_partitions_is_an_answer() -> None:
    """Unrequested partitions of the answer are ignored, and missing ones are errors, so that no caller waits for ever."""
    topic = SimpleNamespace(name="t", topic_id=TOPIC, partitions={0: SimpleNamespace(leader=2), 1: SimpleNamespace(leader=2)})
    broker = SimpleNamespace(listeners={"PLAINTEXT": ("localhost", 9092)})
    metadata: Any = SimpleNamespace(image=SimpleNamespace(topics_by_id={TOPIC: topic}, brokers={2: broker}))
    config: Any = SimpleNamespace(node_id=1, inter_broker_listener="PLAINTEXT")
    replicas: Any = None
    peers: Any = Peers({0: 7, 99: 3})
    ends = await EndOffsets(config, replicas, metadata, peers).of([(TOPIC, 0), (TOPIC, 1)])
    assert ends == {(TOPIC, 0): (ErrorCode.NONE, 7), (TOPIC, 1): (ErrorCode.UNKNOWN_SERVER_ERROR, -1)}
