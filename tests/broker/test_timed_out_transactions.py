"""What a producer is answered after the coordinator has aborted its transaction: Apache Kafka 4.3.0 and 4.4.0 gave the same answers."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.asked import Asked, retry

from minikafka.testing import EmbeddedCluster
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.end_txn import EndTxnRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.produce import ProduceRequest
from minikafka.wire.record import Record

PROPERTIES = {
    "transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}  # fmt: skip
#: The version of EndTxn with which partitions are added by Produce, and epochs rise with each transaction (KIP-890).
VERSION_2 = 5
WITH_TOPIC_IDS, WITH_NAMES = 13, 11
TIMEOUT_MS = 2000


class TimedOut:
    """A producer whose transaction has taken too long."""

    def __init__(self, asked: Asked, topic_id: bytes, version: int) -> None:
        self.asked, self.topic_id, self.version = asked, topic_id, version
        self.id = f"version-{version}"
        self.producer_id, self.epoch = -1, -1
        retry(lambda: not asked.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id]), 4).coordinators[0].error_code)
        retry(lambda: self.initialize() == "NONE")
        if version < VERSION_2:
            kind = AddPartitionsToTxnRequest
            topic = kind.AddPartitionsToTxnTopic(name="t", partitions=[0])
            request = kind(
                v3_and_below_transactional_id=self.id, v3_and_below_producer_id=self.producer_id, v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[topic],
            )  # fmt: skip
            asked.ask(request, 3)
        else:
            assert self.produce(0) == "NONE"
        retry(lambda: self.state().transaction_state == "CompleteAbort")
        assert self.state().producer_epoch == self.epoch + 1

    def initialize(self, *, is_again: bool = False) -> str:
        fields = {"producer_id": self.producer_id, "producer_epoch": self.epoch} if is_again else {}
        request = InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=TIMEOUT_MS, **fields)  # type: ignore[arg-type]
        answer = self.asked.ask(request, 5)
        if not is_again:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code).name

    def state(self) -> Any:
        return self.asked.ask(DescribeTransactionsRequest(transactional_ids=[self.id]), 0).transaction_states[0]

    def produce(self, sequence: int) -> str:
        records = [Record(offset=0, timestamp=1, key=None, value=b"x", headers=())]
        batch = bytes(build_batch(
            records, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence, is_transactional=True
        ))  # fmt: skip
        kind = ProduceRequest
        data = [kind.PartitionProduceData(index=0, records=batch)]
        topic = kind.TopicProduceData(name="t", topic_id=self.topic_id, partition_data=data)
        request = kind(transactional_id=self.id, acks=-1, timeout_ms=5000, topic_data=[topic])
        answer = self.asked.ask(request, WITH_TOPIC_IDS if self.version >= VERSION_2 else WITH_NAMES)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code).name

    def end(self, ahead: int, *, commit: bool) -> str:
        request = EndTxnRequest(
            transactional_id=self.id, producer_id=self.producer_id, producer_epoch=self.epoch + ahead, committed=commit
        )
        return ErrorCode(self.asked.ask(request, self.version).error_code).name


@pytest.mark.parametrize(
    ("version", "with_old_epoch", "again"),
    [
        # librdkafka takes INVALID_TXN_STATE of a commit for fatal, with Apache Kafka as well.
        (VERSION_2, {True: "INVALID_TXN_STATE", False: "NONE"}, "PRODUCER_FENCED"),
        (4, {True: "PRODUCER_FENCED", False: "PRODUCER_FENCED"}, "NONE"),
    ],
)
def test_the_end_of_a_transaction_that_was_aborted_for_its_time(version: int, with_old_epoch: dict[bool, str], again: str) -> None:
    with EmbeddedCluster(brokers=1, topics=["t"], config=PROPERTIES) as cluster:
        asked = Asked(cluster.bootstrap_servers)
        wanted = MetadataRequest.MetadataRequestTopic(topic_id=b"\0" * 16, name="t")
        topic_id = asked.ask(MetadataRequest(topics=[wanted]), 12).topics[0].topic_id
        producer = TimedOut(asked, topic_id, version)
        for commit in (True, True, False, False, True):
            assert producer.end(0, commit=commit) == with_old_epoch[commit]
        assert producer.end(1, commit=True) == "INVALID_TXN_STATE"
        assert producer.end(1, commit=False) == "NONE"
        assert producer.produce(1) == "INVALID_PRODUCER_EPOCH"
        retry(lambda: producer.state().transaction_state == "CompleteAbort")
        assert producer.initialize(is_again=True) == again
