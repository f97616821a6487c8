"""Produce requests with partitions that wait for their next leader (see minikafka/broker/partitions/handover.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minikafka.broker.partitions.handover import CLIENT_ID_PREFIX
from minikafka.broker.partitions.produce_answer import fail
from minikafka.wire.errors import ErrorCode
from minikafka.wire.message import received
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from minikafka.broker.front.dispatch import RequestContext
    from minikafka.broker.partitions.handover import HandoverHost, Held
    from minikafka.core.partition.handover_lines import Key

PartitionAnswer = ProduceResponse.PartitionProduceResponse
#: Names the leader in an answer.
Hint = Callable[[PartitionAnswer], None]


class HeldPart:
    """One partition's part of a request, with its own copy of the records. Its answer goes into the request's response (see `Held`)."""

    __slots__ = ("_answer", "_done", "_hint", "_serve", "request", "size", "source", "version")

    def __init__(
        self,
        request: ProduceRequest,
        version: int,
        source: Any,
        answer: PartitionAnswer,
        hint: Hint,
        serve: Callable[[HeldPart], None],
        done: Callable[[], None],
    ) -> None:
        self.request = request
        self.version = version
        self.source = source
        self.size = sum(len(received(data.records or b"")) for topic in request.topic_data for data in topic.partition_data)
        self._answer = answer
        self._hint = hint
        self._serve = serve
        self._done = done

    def finish(self, answer: PartitionAnswer, hint: bool) -> None:
        """Take over the new leader's answer, except for its hints, which name addresses for brokers."""
        given = self._answer
        if answer.error_code:
            fail(given, ErrorCode(answer.error_code), answer.error_message)
            given.record_errors, given.log_start_offset = answer.record_errors, answer.log_start_offset
        else:
            given.base_offset = answer.base_offset
            given.log_append_time_ms = answer.log_append_time_ms
            given.log_start_offset = answer.log_start_offset
        if hint if not answer.error_code else answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._hint(given)
        self._done()

    def serve(self) -> None:
        """Append the records here."""
        self._serve(self)

    def fail(self, code: ErrorCode) -> None:
        """Fail with `code`: no leader has served the part, or its outcome is unknown."""
        fail(self._answer, code)
        self._hint(self._answer)
        self._done()


class HeldRequest:
    """A request with held parts. It is answered when every part is, and when the records appended here are replicated."""

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        handover: HandoverHost,
        serve: Callable[[HeldPart], None],
        answered: Callable[[], None],
    ) -> None:
        """`serve(part)`: append a part here after all. `answered` is called once when the response is complete, perhaps within `start`."""
        self._context = context
        self._request = request
        self._handover = handover
        self._serve = serve
        self._answered = answered
        self._parts: list[tuple[Key, HeldPart]] = []
        self._left = 1

    def add(self, key: Key, topic: Any, data: Any, answer: PartitionAnswer, hint: Hint) -> None:
        """Hold a partition's records. They are copied, because the receive buffer will be reused."""
        request, context = self._request, self._context
        records = None if data.records is None else memoryview(bytearray(data.records))
        part = ProduceRequest(
            transactional_id=request.transactional_id,
            # Ask for an answer even with acks=0: this broker must learn when the request is done.
            acks=request.acks or 1,
            timeout_ms=request.timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_data=[ProduceRequest.PartitionProduceData(index=data.index, records=records)],
                )
            ],
        )
        self._left += 1
        self._parts.append((key, HeldPart(part, context.api_version, context.connection, answer, hint, self._serve, self._done)))

    def respond(self, _response: ProduceResponse) -> None:
        """The records appended here are replicated. Called in place of the request context's `respond`."""
        self._done()

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self._context.close(reason)

    def start(self, delayed: bool) -> None:
        """All parts have been added. `delayed`: `respond` will be called, too."""
        self._left += delayed
        for key, part in self._parts:
            self._handover.take(key, part)
        self._done()

    def _done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._answered()


class ServedHere:
    """Takes the place of a request's context when this broker serves a held part after all."""

    def __init__(self, part: Held) -> None:
        self._part = part
        self.api_version = part.version
        #: The leader hints for this listener are not used.
        self.listener = ""
        self.connection = part.source
        #: Marks the part as handed on already, so that it is not held again.
        self.client_id = CLIENT_ID_PREFIX

    def keep(self, size: int) -> None:
        """Does nothing: what is held is counted with the handover."""

    def close(self, reason: str) -> None:
        """Close the client's connection, because the request failed unexpectedly."""
        self.connection.close(reason)

    def respond(self, response: ProduceResponse) -> None:
        """Answer the part."""
        self._part.finish(response.responses[0].partition_responses[0], False)
