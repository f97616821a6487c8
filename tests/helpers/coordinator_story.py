"""A cluster of whole brokers in virtual time, one of which coordinates a group and a transaction, and loses touch with the others."""

from __future__ import annotations

import asyncio
from typing import Any

from minikafka.client.cluster import Cluster
from minikafka.client.group import find_coordinator
from minikafka.core.java_hash import partition_for_key
from minikafka.sim.node import WALL_MS
from minikafka.sim.swarm import Options
from minikafka.sim.world import World
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.end_txn import EndTxnRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

#: A topic of its own: the simulator's load checks every record of its own topic.
TOPIC = "story"
GROUP, TRANSACTION = 0, 1
SESSION_S = 1.5
PARTITIONS = 6
PROPERTIES = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)), "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": str(PARTITIONS), "transaction.state.log.num.partitions": str(PARTITIONS),
    "leader.imbalance.check.interval.seconds": "300", "minikafka.handover.ms": "0",
}  # fmt: skip


class Story(World):
    """Plays `play` instead of a load. `sleeper`: the broker that leads and coordinates everything after `begin`; `answers`: what it said
    in the end."""

    shape = "separate"

    def __init__(self, **properties: str) -> None:
        """`properties`, with underscores for points, beside PROPERTIES."""
        named = PROPERTIES | {name.replace("_", "."): value for name, value in properties.items()}
        options = Options(seed=7, shape=self.shape, duration_s=0.1, producers=0, readers=0, group_members=0, properties=named)
        super().__init__(options, [])
        self.answers: dict[str, ErrorCode] = {}

    def _heal(self) -> None:
        self._await(self._story(), 60.0, "the story does not come to its end")
        super()._heal()

    async def _story(self) -> None:
        async with self.workload.admin() as admin:
            await admin.create_topic(TOPIC, assignments={0: self.replicas()})
        network = self.fabric.network("client", self.loop)
        self.cluster = Cluster(self.bootstrap, network=network, request_timeout_ms=30_000)
        await self.cluster.refresh([TOPIC])
        for kind in (GROUP, TRANSACTION):
            await find_coordinator(self.cluster, "any", kind=kind)
        await self.play()
        await self.cluster.close()

    def replicas(self) -> list[int]:
        """Of the topic; the first one leads it, and is the sleeper."""
        return [node.config.node_id for node in self.brokers]

    async def play(self) -> None:
        """The events, defined by a subclass."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Everything goes to one broker: a transaction is committed there, an offset and a record of an idempotent producer."""
        partition = (await self.cluster.topic(TOPIC)).partitions[0]
        self.sleeper = partition.leader
        self.group = await self._key(GROUP)
        self.transactional_id = await self._key(TRANSACTION)
        initializing = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        self.producer_id = (await self.ask(self.sleeper, initializing, 4)).producer_id
        await self.repeat(lambda: self.ask(self.sleeper, self.add_partitions(), 3), "results_by_topic_v3_and_below")
        await self.repeat(lambda: self.ask(self.sleeper, self._ending(), 4))
        await self.commit_offset(self.sleeper, 1)
        await self.produce(self.sleeper, 0)

    async def _key(self, kind: int) -> str:
        """A group or transactional id that this broker coordinates."""
        for number in range(100):
            if (await find_coordinator(self.cluster, f"key-{number}", kind=kind)).node_id == self.sleeper:
                return f"key-{number}"
        raise AssertionError("the broker coordinates nothing")

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        return await (await self.cluster.channel_to(node_id)).request(request, version, 30_000)

    async def repeat(self, ask: Any, field: str = "error_code") -> None:
        """Ask until there is no error."""
        while True:
            found = getattr(await ask(), field)
            if field != "error_code":
                found = found[0].results_by_partition[0].partition_error_code
            if found == ErrorCode.NONE:
                return
            await asyncio.sleep(0.05)

    def add_partitions(self) -> AddPartitionsToTxnRequest:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id, v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=0, v3_and_below_topics=[topic],
        )  # fmt: skip

    def _ending(self) -> EndTxnRequest:
        return EndTxnRequest(transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=0, committed=True)

    async def commit_offset(self, node_id: int, offset: int) -> None:
        part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        request = OffsetCommitRequest(group_id=self.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        while (await self.ask(node_id, request, 8)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.05)

    def _batch(self, sequence: int) -> ProduceRequest:
        now_ms = WALL_MS + int(self.now * 1000)
        batch = build_batch([(0, now_ms, None, b"v", ())], producer_id=900_000, producer_epoch=0, base_sequence=sequence)
        data = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])

    async def produce(self, node_id: int, sequence: int) -> None:
        while (await self.ask(node_id, self._batch(sequence), 11)).responses[0].partition_responses[0].error_code:
            await asyncio.sleep(0.05)

    def questions(self) -> dict[str, tuple[Any, int]]:
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        offset = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        committing = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id, group_id=self.group, producer_id=self.producer_id, producer_epoch=0,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])],
        )  # fmt: skip
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=5, group_id=self.group
        )
        beyond = FetchRequest.FetchPartition(partition=0, current_leader_epoch=-1, fetch_offset=1000, partition_max_bytes=1000)
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[beyond])])
        return {
            "EndTxn": (self._ending(), 4),
            "AddPartitionsToTxn": (self.add_partitions(), 3),
            "AddOffsetsToTxn": (adding, 3),
            "TxnOffsetCommit": (committing, 3),
            "OffsetFetch": (OffsetFetchRequest(group_id=self.group, topics=topics), 7),
            "FindCoordinator": (FindCoordinatorRequest(key=self.group, key_type=GROUP), 3),
            "FindCoordinator of a transaction": (FindCoordinatorRequest(key=self.transactional_id, key_type=TRANSACTION), 3),
            "Produce": (self._batch(2), 11),
            "Fetch": (fetch, 11),
        }

    async def ask_all(self) -> None:
        found = {name: await self.ask(self.sleeper, *question) for name, question in self.questions().items()}
        self.answers = {name: code_of(name, response) for name, response in found.items()}

    async def leader_now(self) -> int:
        image = self.invariants.image
        return -1 if image is None else image.topics_by_name[TOPIC].partitions[0].leader

    async def coordinator(self, kind: int, key: str) -> int:
        name = "__consumer_offsets" if kind == GROUP else "__transaction_state"
        image = self.invariants.image
        assert image is not None
        return int(image.topics_by_name[name].partitions[partition_for_key(key, PARTITIONS)].leader)

    async def at_coordinator(self, kind: int, key: str, request: Any, version: int) -> Any:
        return await self.ask(await self.coordinator(kind, key), request, version)


def code_of(name: str, response: Any) -> ErrorCode:
    if name == "AddPartitionsToTxn":
        return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if name in ("TxnOffsetCommit",):
        return ErrorCode(response.topics[0].partitions[0].error_code)
    if name == "Produce":
        return ErrorCode(response.responses[0].partition_responses[0].error_code)
    if name == "Fetch":
        return ErrorCode(response.responses[0].partitions[0].error_code)
    return ErrorCode(response.error_code)
