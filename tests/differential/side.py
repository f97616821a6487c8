"""One sequence on one of the two brokers: sends its requests, and gives the answers in words that are the same for both."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache
from typing import Any

from differential.drawing import Step
from differential.known import Known
from differential.leftovers import undoing
from differential.target import NO_ANSWER, Patience, Target

from minikafka.wire.batch import build_batch, iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Struct
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.describe_transactions import DescribeTransactionsRequest
from minikafka.wire.messages.fetch import FetchResponse
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.record import Record

#: What no two brokers have in common: times, addresses, texts of errors.
LEFT_OUT = frozenset(
    {
        "throttle_time_ms", "host", "port", "cluster_id", "rack", "error_message", "message", "documentation", "log_append_time_ms",
        "timestamp", "last_timestamp", "transaction_start_time_ms", "client_host", "client_id", "session_lifetime_ms",
        "heartbeat_interval_ms", "session_id", "finalized_features_epoch", "log_dir", "status_detail",
        "subscription_id", "client_instance_id", "total_bytes", "usable_bytes", "replica_directory_id",
    }
)  # fmt: skip
#: As above, in single answers.
LEFT_OUT_OF: Mapping[str, frozenset[str]] = {
    "DescribeQuorumResponse": frozenset(
        {"leader_epoch", "high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp", "listeners"}
    )
}
#: A broker answers so for a moment, until it has read what it is asked for.
FOR_A_MOMENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS,
        # What a producer of before transaction version 2 is told while the markers of its last transaction are written.
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)  # fmt: skip
CHANGES = frozenset(
    {
        "CreateTopicsRequest", "DeleteTopicsRequest", "CreatePartitionsRequest", "IncrementalAlterConfigsRequest", "AlterConfigsRequest",
        "CreateAclsRequest", "DeleteAclsRequest", "AlterClientQuotasRequest", "AlterUserScramCredentialsRequest",
        "AlterPartitionReassignmentsRequest", "ElectLeadersRequest",
    }
)  # fmt: skip
#: A commit or batch that comes before the marker of the transaction that they end is answered by chance: as part of it, as too late, or
#: as one of no transaction.
ENDS = frozenset({"EndTxnRequest", "InitProducerIdRequest"})
GROUPS = ("g", "h", "s", "t", "w", "none")
#: What lists of everything name: others' names, and topics of the broker's own.
OF_OTHERS = re.compile(r"(User:|Group:)?(l\d+r\d+-|fence$|__consumer_offsets$|__transaction_state$|__share_group_state$)")
NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "user", "entity_name", "principal")
JOINED = frozenset({"JoinGroupResponse", "ConsumerGroupHeartbeatResponse", "ShareGroupHeartbeatResponse", "StreamsGroupHeartbeatResponse"})
SETTLED_S = 5.0


class Side:
    """Plays one sequence after the other, and knows what the broker has drawn: ids of topics, members and producers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = target.connection()
        self._prefix = ""
        self._ids: dict[str, bytes] = {}
        #: What to call the ids, of topics that were deleted, too.
        self._named: dict[bytes, str] = {}
        self._members: list[str] = []
        self._producers: list[int] = []
        self._left_out = LEFT_OUT

    async def prepare(self) -> None:
        """Create what the first sequence would wait for."""
        for key_type, key in ((0, "first"), (1, "first"), (2, "first:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            await self._settled(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)

    async def play(self, steps: list[Step], prefix: str) -> AsyncGenerator[Any]:
        """The answers, in words, each when it is asked for."""
        self._prefix, self._ids, self._named, self._members, self._producers = prefix, {}, {}, [], []
        try:
            for step in steps:
                yield await self._step(step)
        finally:
            topics = [name for name in self._ids if name.startswith(self._prefix)]
            self._target.leave(topics, [self._prefix + name for name in GROUPS])
            self._target.undo(undoing([self._own(step.request) for step in steps], self._prefix))
            # What a broker keeps for a connection: sessions of share groups' members.
            self._connection.close()

    async def _step(self, step: Step) -> Any:
        request = self._own(step.request)
        answer = await self._settled(request, step.version)
        if answer is NO_ANSWER:
            return answer
        self._learn(answer)
        if ErrorCode.OFFSET_METADATA_TOO_LARGE in codes(answer):
            await self._target.write_an_offset()
        if type(request).__name__ in CHANGES and 0 in codes(answer):
            await self._target.changes()
        if type(request).__name__ in ENDS and getattr(answer, "error_code", 1) == 0 and request.transactional_id:
            await self._settled(DescribeTransactionsRequest(transactional_ids=[request.transactional_id]), 0)
        if isinstance(request, ShareGroupHeartbeatRequest) and answer.error_code == 0:
            await self._initialized(request)
        self._left_out = LEFT_OUT | LEFT_OUT_OF.get(type(answer).__name__, frozenset())
        return self._words(answer)

    async def _settled(self, request: Any, version: int) -> Any:
        """The answer when it is no more one of a moment."""
        patience = None
        while True:
            answer = await self._connection.ask(request, version)
            if answer is NO_ANSWER or not self._is_of_a_moment(answer):
                return answer
            patience = patience or Patience(SETTLED_S)
            if patience.is_over:
                return answer
            await patience.pause()

    async def _initialized(self, request: ShareGroupHeartbeatRequest) -> None:
        """Until the share group has states of the topics that the member subscribes to: what it is assigned depends on them."""
        wanted = {name for name in request.subscribed_topic_names or () if name in self._ids}
        group = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup(group_id=request.group_id, topics=None)
        patience = Patience(SETTLED_S)
        while wanted and not patience.is_over:
            answer = await self._connection.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 0)
            if answer is NO_ANSWER or wanted <= {topic.topic_name for topic in answer.groups[0].topics}:
                return
            await patience.pause()

    def _is_of_a_moment(self, answer: Any) -> bool:
        """Whether the broker has not read or written yet what it is asked about."""
        if not FOR_A_MOMENT.isdisjoint(codes(answer)):
            return True
        stated = [part for part in _parts(answer) if hasattr(part, "transaction_state") and self._is_of_this_run(part)]
        return any(part.transaction_state in ("PrepareCommit", "PrepareAbort") for part in stated)

    def close(self) -> None:
        """Close the connection; the next sequence opens another."""
        self._connection.close()

    # -- what a broker has drawn ---------------------------------------------------------------------------------------

    def _own(self, value: Any) -> Any:
        """A part of a request with this broker's values and this run's names."""
        if isinstance(value, Known):
            return self._known(value)
        if isinstance(value, str):
            return value.replace("~", self._prefix)
        if isinstance(value, list):
            return [self._own(one) for one in value]
        if isinstance(value, Struct):
            if value.STRUCT is not type(value):
                return value  # the one that all messages without this part share
            return type(value)(**{name: self._own(getattr(value, name)) for name in _fields(type(value))})
        return value

    def _known(self, value: Known) -> Any:
        if value.kind == "topic":
            return self._ids.get(self._own(value.which)) or hashlib.md5(value.which.encode()).digest()
        if value.kind == "member":
            return self._members[value.which % len(self._members)] if self._members else ""
        if value.kind == "producer":
            return self._producers[value.which % len(self._producers)] if self._producers else 424242
        producer, epoch, sequence, count, is_transactional = value.which
        records = [Record(offset=number, timestamp=1000, key=b"k", value=b"v", headers=()) for number in range(count)]
        if producer < 0 or not self._producers:
            return bytes(build_batch(records))
        producer_id = self._producers[producer % len(self._producers)]
        return bytes(
            build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional)
        )

    def _learn(self, answer: Any) -> None:
        for part in _parts(answer):
            name, topic_id = getattr(part, "name", getattr(part, "topic_name", None)), getattr(part, "topic_id", bytes(16))
            if isinstance(name, str) and name and topic_id != bytes(16) and not getattr(part, "error_code", 0):
                self._ids[name] = topic_id
                if topic_id not in self._named:
                    word = f"topic {name.replace(self._prefix, '~')}"
                    self._named[topic_id] = f"{word} {sum(known.startswith(word) for known in self._named.values())}"
        if type(answer).__name__ in JOINED and answer.member_id and answer.member_id not in self._members:
            self._members.append(answer.member_id)
        if type(answer).__name__ == "InitProducerIdResponse" and answer.producer_id >= 0 and answer.producer_id not in self._producers:
            self._producers.append(answer.producer_id)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _words(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {field: self._words(getattr(value, field), field) for field in _fields(type(value)) if field not in self._left_out}
        if name == "records" and value is not None:
            return [self._batch(batch) for batch in iterate_batches(value)]
        if isinstance(value, list) and value and isinstance(value[0], FetchResponse.FetchableTopicResponse):
            value = _of_each_topic(value)
        if isinstance(value, list):
            return sorted((self._words(one, name) for one in value if self._is_of_this_run(one)), key=str)
        if isinstance(value, str):
            if value in self._members:
                return f"member {self._members.index(value)}"
            return value.replace(self._prefix, "~")
        if isinstance(value, bytes):
            return self._named.get(value, value)
        if name.startswith("producer_id") and value in self._producers:
            return f"producer {self._producers.index(value)}"
        return value if isinstance(value, (int, float, bool)) or value is None else str(value)

    def _batch(self, batch: Any) -> Any:
        """A batch without times; checksums and leader epochs depend on them or are compared elsewhere."""
        producer = self._words(batch.producer_id, "producer_id")
        own = (batch.base_offset, batch.last_offset_delta, batch.attributes, batch.producer_epoch, batch.base_sequence)
        return [*own, batch.partition_leader_epoch, producer, [] if batch.is_control else [(one.key, one.value) for one in batch.records()]]

    def _is_of_this_run(self, value: Any) -> bool:
        """Lists of everything also have what other runs and the broker itself have made."""
        names = [getattr(value, name, None) for name in NAMES] + [one.entity_name for one in getattr(value, "entity", ())]
        return not any(isinstance(name, str) and OF_OTHERS.match(name) and self._prefix not in name for name in names)


def _of_each_topic(parts: list[Any]) -> list[Any]:
    """The topics of a Fetch, each once: a broker names a topic as often as it likes, with different partitions."""
    found: dict[tuple[str, bytes], Any] = {}
    for part in parts:
        key = part.topic, part.topic_id
        kept = found.get(key)
        partitions = [*part.partitions] if kept is None else [*kept.partitions, *part.partitions]
        found[key] = FetchResponse.FetchableTopicResponse(topic=part.topic, topic_id=part.topic_id, partitions=partitions)
    return list(found.values())


@cache
def _fields(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.STRUCT.__annotations__ if name[0].islower())


def _parts(value: Any) -> Iterator[Struct]:
    """A message and all that is in it."""
    if isinstance(value, Struct):
        yield value
        for name in _fields(type(value)):
            yield from _parts(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from _parts(one)


def codes(answer: Any) -> set[int]:
    """Every error code in a message."""
    names = ("error_code", "partition_error_code")
    return {getattr(part, name) for part in _parts(answer) for name in names if hasattr(part, name)}
