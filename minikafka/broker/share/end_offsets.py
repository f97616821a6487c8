"""Finds end offsets of partitions, local or remote, for the lag of share groups (PartitionMetadataClient of Apache Kafka 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.broker.quorum.raft_peers import RaftPeers

#: Topic id and partition.
Partition = tuple[bytes, int]
Ends = dict[Partition, tuple[ErrorCode, int]]
LATEST = -1
CONSUMER = -1


class EndOffsets:
    """Gets end offsets from the partitions' leaders."""

    def __init__(self, config: BrokerConfig, replicas: ReplicaManager, metadata: MetadataHost, peers: RaftPeers) -> None:
        self._node_id = config.node_id
        self._listener = config.inter_broker_listener
        self._replicas = replicas
        self._metadata = metadata
        self._peers = peers

    async def of(self, partitions: Iterable[Partition]) -> Ends:
        """The high watermark of each partition, or the error that says why it is unavailable."""
        image = self._metadata.image
        ends: Ends = {}
        remote: dict[int, dict[str, list[Partition]]] = {}
        for key in partitions:
            topic = image.topics_by_id.get(key[0])
            registration = None if topic is None else topic.partitions.get(key[1])
            if topic is None or registration is None:
                ends[key] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            elif registration.leader == self._node_id:
                local = self._replicas.partition(topic.name, key[1])
                is_leader = local is not None and local.leader is not None
                ends[key] = (ErrorCode.NONE, local.high_watermark) if local and is_leader else (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            else:
                remote.setdefault(registration.leader, {}).setdefault(topic.name, []).append(key)
        for answered_ends in await asyncio.gather(*(self._ask(leader, topics) for leader, topics in remote.items())):
            ends.update(answered_ends)
        return ends

    def _ask(self, leader: int, topics: Mapping[str, list[Partition]]) -> asyncio.Future[Ends]:
        answer: asyncio.Future[Ends] = asyncio.get_running_loop().create_future()

        def answered(response: Any, error: Exception | None) -> None:
            if answer.done():
                return
            code = ErrorCode.NETWORK_EXCEPTION if error is not None else ErrorCode.UNKNOWN_SERVER_ERROR
            ends = {key: (code, -1) for keys in topics.values() for key in keys}
            for topic in () if error is not None else response.topics:
                ids = {key[1]: key for key in topics.get(topic.name, ())}
                answered_partitions = (p for p in topic.partitions if p.partition_index in ids)
                ends.update({ids[p.partition_index]: (ErrorCode(p.error_code), p.offset) for p in answered_partitions})
            answer.set_result(ends)

        broker = self._metadata.image.brokers.get(leader)
        endpoint = None if broker is None else broker.listeners.get(self._listener)
        if endpoint is None:
            answer.set_result({key: (ErrorCode.LEADER_NOT_AVAILABLE, -1) for keys in topics.values() for key in keys})
            return answer
        kind, partition = ListOffsetsRequest, ListOffsetsRequest.ListOffsetsPartition
        requested = [
            kind.ListOffsetsTopic(
                name=name,
                partitions=[partition(partition_index=key[1], current_leader_epoch=-1, timestamp=LATEST) for key in keys],
            )
            for name, keys in topics.items()
        ]
        request = kind(replica_id=CONSUMER, topics=requested)
        self._peers.send(endpoint[0], endpoint[1], request, answered)
        return answer
