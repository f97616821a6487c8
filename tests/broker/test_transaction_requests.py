"""AddPartitionsToTxn as Apache Kafka 4.3 answers it: one unknown partition keeps all partitions out of the transaction.
TxnOffsetCommit that waits for its group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coordinator_world import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, CoordinatorWorld

from minikafka.broker.coordinators.transaction_requests import TransactionHandlers
from minikafka.core.group.config import Client
from minikafka.wire.control import ControlType, end_transaction_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

TOPIC = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
TRANSACTION = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


def request(version: int, verify_only: bool) -> AddPartitionsToTxnRequest:
    topics = [TOPIC(name=name, partitions=[0]) for name in (TRANSACTIONS_TOPIC, "unknown")]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0, v3_and_below_topics=topics
        )
    return AddPartitionsToTxnRequest(
        transactions=[TRANSACTION(transactional_id="x", producer_id=1, producer_epoch=0, verify_only=verify_only, topics=topics)]
    )


@pytest.mark.parametrize(("version", "verify_only"), [(3, False), (4, False), (5, False), (5, True)])
@pytest.mark.parametrize("is_coordinator", [False, True])
async def test_an_unknown_partition_keeps_the_others_out(version: int, verify_only: bool, is_coordinator: bool) -> None:
    """On every coordinator: otherwise a marker would wait for ever for a missing partition."""
    world = CoordinatorWorld()
    if is_coordinator:
        world.lead(TRANSACTIONS_TOPIC)
    nobody: Any = None
    environment: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1))
    metadata: Any = SimpleNamespace(image=world.image)
    handlers = TransactionHandlers(
        world.transactions, nobody, nobody, world.groups, nobody, metadata, nobody, environment, nobody, lambda *_: True
    )
    answers: list[AddPartitionsToTxnResponse] = []
    context: Any = SimpleNamespace(api_version=version, respond=answers.append)
    handlers.add_partitions(context, request(version, verify_only))
    results = answers[0].results_by_topic_v3_and_below if version < 4 else answers[0].results_by_transaction[0].topic_results
    assert {topic.name: topic.results_by_partition[0].partition_error_code for topic in results} == {
        TRANSACTIONS_TOPIC: ErrorCode.OPERATION_NOT_ATTEMPTED,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    await world.stop()


class Story:
    """A group of one member, and a producer of transactions that takes over its offsets. The test plays both coordinators' logs."""

    def __init__(self) -> None:
        self.world = CoordinatorWorld()
        self.world.image.topics_by_name["t"] = SimpleNamespace(name="t", topic_id=bytes(16), partitions={0: None})
        self.world.lead()
        nobody: Any = None
        environment: Any = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1, now_ms=lambda: self.world.now_ms))
        found = {(OFFSETS_TOPIC, 0): ErrorCode.NONE}
        verifier: Any = SimpleNamespace(is_enabled=lambda support: True, verify=lambda *asked: asked[-1](found))
        replicas: Any = SimpleNamespace(require=lambda *partition: self.world.offsets)
        self.handlers = TransactionHandlers(
            self.world.transactions, nobody, verifier, self.world.groups, replicas, nobody, nobody, environment, nobody, lambda *_: True
        )

    def beat(self, member: str) -> None:
        """A member joins."""
        index, shard = self.world.groups.shard("g")
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        nobody: Any = SimpleNamespace(respond=lambda response: None)
        shard.consumer_heartbeat(nobody, joining, Client("c", "/h", 1), self.world.now_ms)
        self.world.groups.run_effects(index, shard)

    def commit(self, version: int) -> list[ErrorCode]:
        """The list into which the answer falls."""
        codes: list[ErrorCode] = []
        kind, member = TxnOffsetCommitRequest, self.world.groups.shard("g")[1].consumers.groups["g"].members["m"]
        parts = [kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
        request = kind(
            transactional_id="x", group_id="g", producer_id=1, producer_epoch=0, member_id="m",
            generation_id_or_member_epoch=member.member_epoch, topics=[kind.TxnOffsetCommitRequestTopic(name="t", partitions=parts)],
        )  # fmt: skip
        respond = lambda response: codes.append(ErrorCode(response.topics[0].partitions[0].error_code))  # noqa: E731
        context: Any = SimpleNamespace(api_version=version, respond=respond)
        self.handlers.commit_offsets(context, request)
        return codes

    def end(self, *, commit: bool, epoch: int) -> None:
        """The marker comes."""
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        batch = end_transaction_batch(kind, producer_id=1, producer_epoch=epoch, coordinator_epoch=0, timestamp=1)
        self.world.offsets.log.append_as_leader(memoryview(batch), 1, 1, origin="coordinator")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(("version", "marker_epoch"), [(4, 0), (5, 1)])
async def test_offsets_that_wait_for_their_group_do_not_outlive_their_transaction(version: int, marker_epoch: int, is_first: bool) -> None:
    """They would be open for ever, or be committed with the next transaction of their producer."""
    story = Story()
    story.beat("m")
    if not is_first:
        assert story.commit(version) == [ErrorCode.NONE]
    story.world.offsets.is_stalled = True
    story.beat("n")
    answered = story.commit(version)
    assert not answered, "the group is changing"
    story.end(commit=False, epoch=marker_epoch)
    story.world.offsets.replicate()
    story.world.offsets.replicate()
    assert answered == [ErrorCode.INVALID_TXN_STATE]
    assert story.world.offsets.log.producer_state.first_unstable_offset is None
    assert not story.world.groups.shard("g")[1].offsets.is_open("g", "t", 0)
    await story.world.stop()
