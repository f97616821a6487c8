"""One transaction for one task of a micro-batch, so that readers of committed records see each micro-batch's rows once.

The transactional id is that of the query and the task's partition. With the rows it commits an offset of a group of the same name:
the number of the micro-batch. A task that runs again, in the same query or after a restart from the checkpoint, finds it and writes
nothing; one that died before left an open transaction, which InitProducerId aborts. Spoken as producers do that know the first version of
transactions (KIP-98, with KIP-360 and KIP-447), which every broker since 2.5 takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from minikafka.spark.produce_client import Link, ProduceFailed, parse_bootstrap
from minikafka.spark.security import PLAIN_TEXT, Security
from wire.errors import ErrorCode, WireError
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.offset_fetch import OffsetFetchRequest
from wire.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from wire.message import Request, Response

GROUP, TRANSACTION = 0, 1
#: transaction.max.timeout.ms of Kafka: longer ones are refused. A task that takes longer is aborted, and fails.
TIMEOUT_MS = 900_000
PAUSE_S = 0.05
#: The coordinator has moved, or still ends the transaction before.
AGAIN = {
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}  # fmt: skip


class SinkTransaction:
    """`name`: transactional id and group; `epoch`: number of the micro-batch. Raises ProduceFailed."""

    def __init__(
        self, bootstrap: str, topic: str, name: str, epoch: int, *, timeout_ms: int = 120_000, security: Security = PLAIN_TEXT
    ) -> None:
        self.bootstrap, self.topic, self.name, self.epoch, self.security = parse_bootstrap(bootstrap), topic, name, epoch, security
        self.timeout_s = timeout_ms / 1000
        self.producer_id, self.producer_epoch = -1, -1
        self._links: dict[int, Link] = {}
        self._partitions: set[int] = set()

    def begin(self) -> bool:
        """Fence earlier attempts, end what they left; False when the micro-batch is committed already."""
        answer = self._ask(TRANSACTION, InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS))
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        found = self._ask(GROUP, OffsetFetchRequest(group_id=self.name, topics=topics, require_stable=True))
        return bool(found.topics[0].partitions[0].committed_offset <= self.epoch)

    def add(self, partitions: Iterable[int]) -> None:
        """Tell the coordinator of partitions before their first batch is sent."""
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=self.topic, partitions=new)
        self._ask(TRANSACTION, AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch, v3_and_below_topics=[topic],
        ))  # fmt: skip
        self._partitions.update(new)

    def commit(self) -> None:
        """Commit rows and the micro-batch's number together. What was sent must be acknowledged."""
        whose: dict[str, Any] = {
            "transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.producer_epoch,
        }  # fmt: skip
        self._ask(TRANSACTION, AddOffsetsToTxnRequest(**whose, group_id=self.name))
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.epoch + 1, committed_metadata=None
        )
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])
        self._ask(GROUP, TxnOffsetCommitRequest(**whose, group_id=self.name, topics=[topic]))
        self._ask(TRANSACTION, EndTxnRequest(**whose, committed=True))

    def abort(self) -> None:
        """Give the transaction up, as far as the cluster answers; else the next attempt or its timeout does."""
        if self._partitions:
            request = EndTxnRequest(
                transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.producer_epoch, committed=False
            )
            with contextlib.suppress(ProduceFailed):
                self.timeout_s = min(self.timeout_s, 5.0)
                self._ask(TRANSACTION, request)

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _ask(self, kind: int, request: Request) -> Any:
        """The coordinator's answer, asked again while it moves or ends what was before."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                answer = self._coordinator(kind).exchange(request)
                code = next(filter(None, _codes(answer)), ErrorCode.NONE)
                if code == ErrorCode.NONE:
                    return answer
                failure = code.name
                if code not in AGAIN:
                    raise ProduceFailed(f"transaction {self.name}: {request.NAME}: {code.name} ({code.text})")
                if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
                    self._forget(kind)
            except (OSError, WireError) as error:
                failure = str(error)
                self._forget(kind)
            if time.monotonic() > deadline:
                raise ProduceFailed(f"transaction {self.name}: {request.NAME} failed for {self.timeout_s:.0f} s, last with {failure}")
            time.sleep(PAUSE_S)

    def _forget(self, kind: int) -> None:
        link = self._links.pop(kind, None)
        if link is not None:
            link.close()

    def _coordinator(self, kind: int) -> Link:
        found = self._links.get(kind)
        if found is not None:
            return found
        failure: Exception = ConnectionError("no broker answers")
        for host, port in self.bootstrap:
            try:
                link = Link(host, port, self.timeout_s, self.security)
                try:
                    answer = cast(FindCoordinatorResponse, link.exchange(FindCoordinatorRequest(key=self.name, key_type=kind)))
                finally:
                    link.close()
                if answer.error_code:
                    raise ConnectionError(ErrorCode(answer.error_code).name)
                self._links[kind] = Link(answer.host, answer.port, self.timeout_s, self.security)
                return self._links[kind]
            except (OSError, WireError) as error:
                failure = error
        raise failure


def _codes(answer: Response) -> Iterable[ErrorCode]:
    """Every error code of an answer, wherever it stands."""
    one: Any = answer
    yield ErrorCode(getattr(one, "error_code", 0))
    for topic in getattr(one, "topics", ()):
        yield from (ErrorCode(partition.error_code) for partition in topic.partitions)
    for result in getattr(one, "results_by_topic_v3_and_below", ()):
        yield from (ErrorCode(partition.partition_error_code) for partition in result.results_by_partition)
