"""The APIs of the share coordinator, which only brokers call: Initialize-, Read-, Write-, DeleteShareGroupState and
ReadShareGroupStateSummary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from minikafka.core.share.coordinator import Outcome, Reply, ShareStateShard, StateWrite
from minikafka.core.share.partition import Write
from minikafka.core.share.state import SharePartitionKey
from minikafka.core.share.state_batches import BATCHES_AT_ONCE, StateBatch, is_sound
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from minikafka.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest, InitializeShareGroupStateResponse
from minikafka.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from minikafka.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from minikafka.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse

if TYPE_CHECKING:
    from minikafka.broker.environment import Environment
    from minikafka.broker.front.dispatch import Dispatcher, RequestContext
    from minikafka.broker.share.state_host import ShareStateHost

Respond = Callable[[Any], None]
#: (shard, key, partition of the request, reply, now in ms).
_Ask = Callable[[ShareStateShard, SharePartitionKey, Any, Reply, int], None]


def _initialize(shard: ShareStateShard, key: SharePartitionKey, requested: Any, reply: Reply, now_ms: int) -> None:
    shard.initialize(reply, key, requested.state_epoch, requested.start_offset, now_ms)


def _read(shard: ShareStateShard, key: SharePartitionKey, requested: Any, reply: Reply, now_ms: int) -> None:
    shard.read(reply, key, requested.leader_epoch, now_ms)


def _state_batches(batches: Iterable[Any]) -> list[StateBatch]:
    return [StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in batches]


def _write(shard: ShareStateShard, key: SharePartitionKey, requested: Any, reply: Reply, now_ms: int) -> None:
    batches = _state_batches(requested.state_batches)
    write = StateWrite(requested.state_epoch, requested.leader_epoch, requested.start_offset, requested.delivery_complete_count, batches)
    shard.write(reply, key, write, now_ms)


def _parts(requested: Any) -> list[Any]:
    """A write of the state of a share partition, in parts that take a turn of the loop each."""
    if not isinstance(requested, WriteShareGroupStateRequest.PartitionData):
        return [requested]
    if len(requested.state_batches) <= BATCHES_AT_ONCE:
        return [requested]
    complete, batches = requested.delivery_complete_count, _state_batches(requested.state_batches)
    if not all(map(is_sound, batches)):
        return [requested]
    return [
        SimpleNamespace(
            state_epoch=requested.state_epoch, leader_epoch=requested.leader_epoch, start_offset=part.start_offset,
            delivery_complete_count=min(part.delivery_complete_count, complete), state_batches=part.batches,
        )
        for part in Write(0, requested.start_offset, complete, batches).parts(BATCHES_AT_ONCE)
    ]  # fmt: skip


def _delete(shard: ShareStateShard, key: SharePartitionKey, requested: Any, reply: Reply, now_ms: int) -> None:
    shard.delete(reply, key, now_ms)


def _summary(shard: ShareStateShard, key: SharePartitionKey, requested: Any, reply: Reply, now_ms: int) -> None:
    reply(shard.read_summary(key))


#: Request -> (function that sends it to a shard, response class, class of a topic's result, name of the action in error messages).
_KINDS: dict[type, tuple[_Ask, Any, Any, str]] = {
    InitializeShareGroupStateRequest: (
        _initialize, InitializeShareGroupStateResponse, InitializeShareGroupStateResponse.InitializeStateResult,
        "initialize share group state",
    ),
    ReadShareGroupStateRequest: (_read, ReadShareGroupStateResponse, ReadShareGroupStateResponse.ReadStateResult, "read share group state"),
    WriteShareGroupStateRequest: (
        _write, WriteShareGroupStateResponse, WriteShareGroupStateResponse.WriteStateResult, "write share group state",
    ),
    DeleteShareGroupStateRequest: (
        _delete, DeleteShareGroupStateResponse, DeleteShareGroupStateResponse.DeleteStateResult, "delete share group state",
    ),
    ReadShareGroupStateSummaryRequest: (
        _summary, ReadShareGroupStateSummaryResponse, ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
        "read share group state summary",
    ),
}  # fmt: skip


class ShareStateHandlers:
    """Translates between the wire and the shards."""

    def __init__(self, host: ShareStateHost, environment: Environment) -> None:
        self._host = host
        self._environment = environment
        self._clock = environment.clock

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve these APIs on a broker listener."""
        for request in _KINDS:
            dispatcher.register(request, self._handle)

    def _handle(self, context: RequestContext, request: Any) -> None:
        self.serve(request, context.respond)

    def serve(self, request: Any, respond: Respond) -> None:
        """Answer one of the five requests when all its partitions are answered, possibly before this returns."""
        ask, response_class, result_class, what = _KINDS[type(request)]
        response = response_class(results=[])
        empty = [topic for topic in request.topics if not topic.partitions]
        if not request.group_id or not request.topics or empty:
            respond(response)
            return
        waiting = sum(len(topic.partitions) for topic in request.topics)

        def reply_to(result: Any) -> Reply:
            def reply(outcome: Outcome) -> None:
                nonlocal waiting
                _fill(result, outcome)
                waiting -= 1
                if waiting == 0:
                    respond(response)

            return reply

        pairs = []
        for topic in request.topics:
            answer = result_class(topic_id=topic.topic_id, partitions=[])
            response.results.append(answer)
            for requested in topic.partitions:
                result = response_class.PartitionResult(partition=requested.partition)
                answer.partitions.append(result)
                pairs.append((SharePartitionKey(request.group_id, topic.topic_id, requested.partition), requested, result))
        for key, requested, result in pairs:
            parts, reply = _parts(requested), reply_to(result)
            if len(parts) == 1:
                self._ask(key, parts, ask, reply, what)
            else:  # to divide them was a long turn already
                self._environment.supervisor.call_soon("the first part of a write", self._ask, key, parts, ask, reply, what)

    def _ask(self, key: SharePartitionKey, parts: list[Any], ask: _Ask, reply: Reply, what: str) -> None:
        """Ask for one part after the other, until one fails: those that are stored then do no harm, like a write whose answer is lost."""

        def asked(shard: ShareStateShard, reply: Reply) -> None:
            ask(shard, key, parts[0], reply, self._clock.now_ms())

        def go_on(outcome: Outcome) -> None:
            if outcome.code is not ErrorCode.NONE:
                reply(outcome)
            else:
                self._environment.supervisor.call_soon("the next part of a write", self._ask, key, parts[1:], ask, reply, what)

        self._host.ask(key, asked, reply if len(parts) == 1 else go_on, what)


def _fill(result: Any, outcome: Outcome) -> None:
    """Fill in the result of one share partition."""
    result.error_code, result.error_message = outcome.code, outcome.message
    state = outcome.state
    if state is None:
        return
    result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
    if isinstance(result, ReadShareGroupStateResponse.PartitionResult):
        kind = ReadShareGroupStateResponse.StateBatch
        result.state_batches = [kind(first_offset=b[0], last_offset=b[1], delivery_state=b[2], delivery_count=b[3]) for b in state.batches]
    elif isinstance(result, ReadShareGroupStateSummaryResponse.PartitionResult):
        result.leader_epoch, result.delivery_complete_count = state.leader_epoch, state.delivery_complete_count
