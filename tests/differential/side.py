"""One of the two brokers: sends the requests of a sequence, and gives its answers in words that are the same for both."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator
from typing import Any

from differential.drawing import Known, Step

from minikafka.testing.probe import ask
from minikafka.testing.wait import LoadAdjustedDeadline
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Struct
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.record import Record

#: What no two brokers have in common: times, addresses, texts of errors.
LEFT_OUT = frozenset(
    {
        "throttle_time_ms", "host", "port", "cluster_id", "rack", "error_message", "message", "documentation", "log_append_time_ms",
        "timestamp", "last_timestamp", "transaction_start_time_ms", "client_host", "client_id", "session_lifetime_ms",
        "heartbeat_interval_ms", "session_id",
    }
)  # fmt: skip
#: A broker answers so for a moment, until it has read what it is asked for.
FOR_A_MOMENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS,
        # What a producer of before transaction version 2 is told while the markers of its last transaction are written.
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)  # fmt: skip
CHANGES = frozenset({"CreateTopicsRequest", "DeleteTopicsRequest", "CreatePartitionsRequest", "IncrementalAlterConfigsRequest"})
ANSWER_S, SETTLED_S, HEARD_S = 15.0, 5.0, 15.0
NO_ANSWER = "no answer"


class Side:
    """A broker, and what it has drawn: ids of topics, members and producers."""

    def __init__(self, bootstrap: str, lane: int = 0) -> None:
        """Several lanes may play on one broker at once."""
        self._fence = f"fence-{lane}"
        host, _, port = bootstrap.split(",", maxsplit=1)[0].partition(":")
        self._address = host, int(port)
        self._connection: socket.socket | None = None
        self._fences = 0
        self._prefix = ""
        self._ids: dict[str, bytes] = {}
        self._members: list[str] = []
        self._producers: list[int] = []

    def prepare(self) -> None:
        """Create what the first sequence would wait for."""
        kind = CreateTopicsRequest.CreatableTopic
        self._ask(CreateTopicsRequest(topics=[kind(name=self._fence, num_partitions=1, replication_factor=1)], timeout_ms=10_000), 7)
        for key_type in (0, 1):
            self._settled(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["first"]), 4)

    def play(self, steps: list[Step], prefix: str) -> Generator[Any]:
        """The answers, in words, each when it is asked for."""
        self._prefix, self._ids, self._members, self._producers = prefix, {}, [], []
        try:
            for step in steps:
                yield self._step(step)
        finally:
            self._clear()

    def _clear(self) -> None:
        """Delete this run's topics: thousands of them would slow a broker down."""
        kind = DeleteTopicsRequest
        topics = [kind.DeleteTopicState(name=name) for name in self._ids if name.startswith(self._prefix)]
        self._ask(kind(topics=topics, timeout_ms=10_000), 6)

    def _step(self, step: Step) -> Any:
        request = self._own(step.request)
        answer = self._settled(request, step.version)
        if answer is NO_ANSWER:
            return answer
        self._learn(answer)
        if type(request).__name__ in CHANGES:
            self._wait_for_changes()
        return self._words(answer)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _ask(self, request: Any, version: int) -> Any:
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, ANSWER_S)
            return ask(self._connection, request, version)
        except (OSError, EOFError):
            self.close()
            return NO_ANSWER

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _settled(self, request: Any, version: int) -> Any:
        """The answer when it is no more one of a moment."""
        end = LoadAdjustedDeadline(SETTLED_S)
        while True:
            answer = self._ask(request, version)
            if answer is NO_ANSWER or end.is_over or FOR_A_MOMENT.isdisjoint(codes(answer)):
                return answer
            pause()

    def _wait_for_changes(self) -> None:
        """Metadata are read in their order: what was changed before the fence is known when the fence is."""
        self._fences += 1
        value = str(1_000_000 + self._fences)
        kind = IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name="retention.ms", config_operation=0, value=value)
        self._ask(kind(resources=[kind.AlterConfigsResource(resource_type=2, resource_name=self._fence, configs=[change])]), 1)
        described = DescribeConfigsRequest.DescribeConfigsResource
        resource = described(resource_type=2, resource_name=self._fence, configuration_keys=["retention.ms"])
        end = LoadAdjustedDeadline(HEARD_S)
        while not end.is_over:
            found = self._ask(DescribeConfigsRequest(resources=[resource]), 4)
            if found is not NO_ANSWER and found.results[0].configs and found.results[0].configs[0].value == value:
                return
            pause()
        raise TimeoutError("the broker does not hear of changes")

    # -- what a broker has drawn ---------------------------------------------------------------------------------------

    def _own(self, value: Any) -> Any:
        """A part of a request with this broker's values and this run's names."""
        if isinstance(value, Known):
            return self._known(value)
        if isinstance(value, str):
            return self._prefix + value[1:] if value.startswith("~") else value
        if isinstance(value, list):
            return [self._own(one) for one in value]
        if isinstance(value, Struct):
            return type(value)(**{name: self._own(getattr(value, name)) for name in _fields(value)})
        return value

    def _known(self, value: Known) -> Any:
        if value.kind == "topic":
            return self._ids.get(self._own(value.which), b"\7" * 16)
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
            build_batch(
                records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional
            )
        )

    def _learn(self, answer: Any) -> None:
        for part in _parts(answer):
            name, topic_id = getattr(part, "name", None), getattr(part, "topic_id", bytes(16))
            if isinstance(name, str) and name and topic_id != bytes(16) and not getattr(part, "error_code", 0):
                self._ids[name] = topic_id
        if type(answer).__name__ == "JoinGroupResponse" and answer.member_id and answer.member_id not in self._members:
            self._members.append(answer.member_id)
        if type(answer).__name__ == "InitProducerIdResponse" and answer.producer_id >= 0 and answer.producer_id not in self._producers:
            self._producers.append(answer.producer_id)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _words(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Struct):
            return {field: self._words(getattr(value, field), field) for field in _fields(value) if field not in LEFT_OUT}
        if isinstance(value, list):
            return sorted((self._words(one, name) for one in value if self._is_of_this_run(one)), key=str)
        if isinstance(value, str):
            if value in self._members:
                return f"member {self._members.index(value)}"
            return value.replace(self._prefix, "~")
        if isinstance(value, bytes):
            return next((f"topic {topic.replace(self._prefix, '~')}" for topic, topic_id in self._ids.items() if topic_id == value), value)
        if name.startswith("producer_id") and value in self._producers:
            return f"producer {self._producers.index(value)}"
        return value if isinstance(value, (int, float, bool)) or value is None else str(value)

    def _is_of_this_run(self, value: Any) -> bool:
        """Lists of groups and transactions also have those of other runs."""
        kind = type(value).__name__.lstrip("_")
        if kind == "ListedGroup":
            return bool(value.group_id.startswith(self._prefix))
        return kind != "TransactionState" or bool(value.transactional_id.startswith(self._prefix))


def _fields(value: Struct) -> list[str]:
    return [name for name in type(value).__annotations__ if name[0].islower()]


def _parts(value: Any) -> Iterator[Struct]:
    """A message and all that is in it."""
    if isinstance(value, Struct):
        yield value
        for name in _fields(value):
            yield from _parts(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from _parts(one)


def codes(answer: Any) -> set[int]:
    """Every error code in a message."""
    names = ("error_code", "partition_error_code")
    return {getattr(part, name) for part in _parts(answer) for name in names if hasattr(part, name)}


def pause() -> None:
    """A moment, in which the broker reads."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.settimeout(0.02)
        try:
            reader.recv(1)
        except TimeoutError:
            return
