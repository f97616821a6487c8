"""One sequence on one of the two brokers: sends its requests, and gives the answers in words that are the same for both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from functools import cache
from typing import Any

from differential.drawing import Known, Step
from differential.target import NO_ANSWER, Patience, Target

from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import Struct
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
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
GROUPS = ("g", "h", "none")
SETTLED_S = 5.0


class Side:
    """Plays one sequence after the other, and knows what the broker has drawn: ids of topics, members and producers."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connection = target.connection()
        self._prefix = ""
        self._ids: dict[str, bytes] = {}
        self._members: list[str] = []
        self._producers: list[int] = []

    async def prepare(self) -> None:
        """Create what the first sequence would wait for."""
        for key_type in (0, 1):
            await self._settled(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["first"]), 4)

    async def play(self, steps: list[Step], prefix: str) -> AsyncGenerator[Any]:
        """The answers, in words, each when it is asked for."""
        self._prefix, self._ids, self._members, self._producers = prefix, {}, [], []
        try:
            for step in steps:
                yield await self._step(step)
        finally:
            topics = [name for name in self._ids if name.startswith(self._prefix)]
            self._target.leave(topics, [self._prefix + name for name in GROUPS])

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
            return self._prefix + value[1:] if value.startswith("~") else value
        if isinstance(value, list):
            return [self._own(one) for one in value]
        if isinstance(value, Struct):
            return type(value)(**{name: self._own(getattr(value, name)) for name in _fields(type(value))})
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
            build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=is_transactional)
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
            return {field: self._words(getattr(value, field), field) for field in _fields(type(value)) if field not in LEFT_OUT}
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
        name = {"ListedGroup": "group_id", "TransactionState": "transactional_id"}.get(kind)
        return name is None or bool(getattr(value, name).startswith(self._prefix))


@cache
def _fields(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__annotations__ if name[0].islower())


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
