"""Produces that meet a leadership on its way to another broker: held while it moves, then handed on to the new leader.

A client that asks the old leader is refused with NOT_LEADER_OR_FOLLOWER, and most wait for their `retry.backoff.ms`, 100 ms, before they
ask the new one. Here the old leader takes such a request, for a while, to the new leader over a connection of its own and gives the answer
back, with a hint (KIP-951) at who leads now. What the new leader sees is what the client's own retry would have been, in the client's
version of the API; what is checked there (sequence numbers, transactions) is checked there.

Order. Requests about one partition wait in one line and leave it in the order in which they came. Until the new leader has accepted the
first one of its epoch there is one under way at a time, because it may not know yet that it leads; from then on they follow each other on
one connection. An idempotent producer's batch stays here, refused, when one before it was written here and perhaps nowhere else
(minikafka/core/partition/refusals.py). A client that has learned of the new leader may ask it while requests of its own are under way here:
an idempotent one is protected by its sequence numbers (and librdkafka waits for what is under way before it asks another leader), one
without is promised no order with several requests in flight.

The hint. It is given with an answer beside which nothing else of its connection was in the line. With the last of several it would come
when the client has just sent what it had to keep back meanwhile; and an idempotent librdkafka that learns of a new leader with a request
under way, and has no connection to it, looks only once a second whether to open one. Under a load that never pauses the hint is given when
the line is empty after HINT_MS_MAX, and in any case after twice that.

Never twice. A request is taken on only when nothing of it was appended here. What was under way when the connection to the new leader broke
is answered REQUEST_TIMED_OUT, which says what is known. A request that was handed on is never handed on again (`is_handed_on`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.core.partition.handover import Turn, Verdict, Waiting, gives_hint, next_turn, verdict_of
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.partitions.partition import Partition
    from minikafka.broker.partitions.replica_manager import ReplicaManager
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.core.metadata.delta import MetadataDelta
    from minikafka.core.metadata.image import MetadataImage
    from minikafka.net.channel import ChannelSecurity

logger = logging.getLogger("minikafka.handover")

CLIENT_ID_PREFIX = "minikafka-handover-"
#: How long a broker that leaves lets its followers catch up before it asks for its leaderships to be moved.
CATCH_UP_MS_MAX = 50
#: Pause before a new leader that does not know of its office yet is asked again.
RETRY_MS = 3
#: A broker that leaves stays until no late request has come for so long; it hands on for at most so long, and refuses for at most so long.
QUIET_MS = 30
DRAIN_MS_MAX = 300
#: The least time for an answer of the new leader.
ANSWER_MS_MIN = 1_000
HELD_BYTES_MAX = 64 << 20

#: Topic id and partition.
Key = tuple[bytes, int]


class Held(Protocol):
    """The part of a Produce that is about one partition, which is waiting for its next leader."""

    #: About this partition only, with records of its own; acks 1 in the place of 0.
    request: ProduceRequest
    version: int
    size: int
    deadline_ms: int
    #: Whose request it is: requests of one source are answered in order.
    source: Any

    def finish(self, answer: ProduceResponse.PartitionProduceResponse, hint: bool) -> None:
        """The new leader's answer. `hint`: say who leads."""

    def fail(self, code: ErrorCode) -> None:
        """There is none."""

    def serve(self) -> None:
        """This broker leads the partition after all."""


class _Line:
    """What waits for one partition, and what is under way."""

    __slots__ = ("crowds", "sources", "timer", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Held] = deque()
        self.under_way = 0
        self.sources: dict[Any, int] = {}
        #: Sources that have had several requests here since they were last without one.
        self.crowds: set[Any] = set()
        self.timer: asyncio.TimerHandle | None = None


def is_handed_on(client_id: str | None) -> bool:
    """Whether a request was handed on by a broker: then it is answered here, whatever the answer."""
    return client_id is not None and client_id.startswith(CLIENT_ID_PREFIX)


class Handover:
    """Lines of produces by partition.

    Invariants: a partition of clients is appended to here or has a line, never both; every Held is finished or failed once.
    """

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        security: ChannelSecurity | None = None,
    ) -> None:
        self._environment = environment
        self._now_ms = environment.clock.now_ms
        self._replicas = replicas
        self._metadata = metadata
        self._listener = config.inter_broker_listener
        #: `minikafka.handover.ms`; 0 = nothing is held or handed on.
        self.window_ms: int = config.minikafka_handover_ms
        answer_ms = max(self.window_ms, ANSWER_MS_MIN)
        self._peers = RaftPeers(environment, f"{CLIENT_ID_PREFIX}{config.node_id}", answer_ms, security)
        self._lines: dict[Key, _Line] = {}
        #: Partition -> (when this broker stopped leading it, until when late produces are handed on).
        self._left: dict[Key, tuple[int, int]] = {}
        #: Partition -> the leader epoch in which its new leader has answered as one.
        self._proven: dict[Key, int] = {}
        self._held: list[Partition] = []
        self._held_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._refusing = False
        #: When the last late request came.
        self._late_ms = -QUIET_MS
        self._sweep: asyncio.TimerHandle | None = None
        self.bytes = 0
        #: Requests by what became of them: handed_on, served (the leadership stayed), refused (NOT_LEADER_OR_FOLLOWER), unknown.
        self.outcomes = dict.fromkeys(("handed_on", "served", "refused", "unknown"), 0)
        replicas.subscribe_losses(self._lost)
        metadata.subscribe(self._on_metadata)

    @property
    def waiting(self) -> int:
        """Requests that wait or are under way."""
        return sum(len(line.waiting) + line.under_way for line in self._lines.values())

    # -- a broker that leaves --------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Take no more records of clients for what others can lead, and let them have all that was taken: what a new leader does not have
        would be cut off here, acknowledged with acks=1 or not. Ends when they have it, or after CATCH_UP_MS_MAX."""
        if self.window_ms == 0 or self._closed:
            return
        for partition in self._replicas.partitions.values():
            leader = partition.leader
            if leader is not None and not partition.is_internal and len(leader.isr.committed) > 1:
                partition.hold()
                self._held.append(partition)
        if not self._held:
            return
        self._held_timer = self._environment.supervisor.call_later(self.window_ms / 1000, "releasing of held produces", self.release)
        self._connect({broker_id for p in self._held if p.leader is not None for broker_id in p.leader.isr.committed})
        behind = [p for p in self._held if p.leader is not None and p.leader.high_watermark < p.log.log_end_offset]
        left = len(behind)
        caught_up: asyncio.Future[None] = self._environment.loop.create_future()

        def one_less(_code: ErrorCode, _offset: int) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not caught_up.done():
                caught_up.set_result(None)

        for partition in behind:
            self._replicas.when_replicated(partition, partition.log.log_end_offset, CATCH_UP_MS_MAX, one_less)
        begun_ms = self._now_ms()
        if behind:
            await caught_up
        logger.info(
            "%d partitions take no records until they have another leader; followers had them all after %d ms",
            len(self._held), self._now_ms() - begun_ms,
        )  # fmt: skip

    def _connect(self, broker_ids: set[int]) -> None:
        for broker_id in sorted(broker_ids - {self._replicas.broker_id}):
            broker = self._metadata.image.brokers.get(broker_id)
            endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
            if endpoint is not None:
                self._peers.connect(endpoint[0], endpoint[1])

    def release(self) -> None:
        """Whatever is held and still led takes records again, those that waited first."""
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
        held, self._held = self._held, []
        for partition in held:
            if partition.is_held:
                partition.release()
                self._pump((partition.topic_id, partition.index))

    async def drain(self) -> None:
        """The leaderships have moved: stay while clients find their way. Those that read the hint of an answer leave at once; the others
        are refused, after DRAIN_MS_MAX, while this broker can still tell them who leads."""
        if self.window_ms == 0:
            return
        await self._quiet(min(self.window_ms, DRAIN_MS_MAX))
        self._refusing = True
        await self._quiet(DRAIN_MS_MAX)
        self.release()
        if any(self.outcomes.values()):
            counts = [f"{count} {name.replace('_', ' ')}" for name, count in self.outcomes.items() if count]
            logger.info("late produces: %s", ", ".join(counts))

    async def _quiet(self, most_ms: int) -> None:
        end_ms = self._now_ms() + most_ms
        while (now_ms := self._now_ms()) < end_ms and (self.waiting or now_ms < self._late_ms + QUIET_MS):
            pause_ms = min(end_ms, max(self._late_ms + QUIET_MS, now_ms + 1)) - now_ms
            await asyncio.sleep(pause_ms / 1000)

    async def close(self) -> None:
        """Nothing is handed on any more; who waits is refused."""
        self._closed = True
        for timer in (self._held_timer, self._sweep):
            if timer is not None:
                timer.cancel()
        lines, self._lines = self._lines, {}
        for line in lines.values():
            if line.timer is not None:
                line.timer.cancel()
            while line.waiting:
                self._fail(line, line.waiting.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._peers.close()

    # -- produces --------------------------------------------------------------------------------------------------

    def key_of(self, topic: str, topic_id: bytes | None, index: int) -> Key | None:
        """The partition, if a produce that was refused because this broker does not lead it should be given to `take`."""
        if self._closed or self.window_ms == 0 or self.bytes >= HELD_BYTES_MAX:
            return None
        image = self._metadata.image
        topic_image = image.topics_by_name.get(topic) if topic_id is None else image.topics_by_id.get(topic_id)
        if topic_image is None:
            return None
        key = (topic_image.topic_id, index)
        if key in self._lines:
            self._late_ms = self._now_ms()
            return key
        partition = self._replicas.partition_by_id(*key)
        if partition is not None and partition.is_internal:
            return None
        if partition is not None and partition.is_held:
            self._late_ms = self._now_ms()
            return key
        left, now_ms = self._left.get(key), self._now_ms()
        if left is None or now_ms >= left[1]:
            return None
        self._late_ms = now_ms
        return None if self._refusing else key

    def take(self, key: Key, held: Held) -> None:
        """Keep a produce until it can be served, here or there; `held.finish` or `held.fail` follows, perhaps at once."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        held.deadline_ms = self._now_ms() + self.window_ms
        self.bytes += held.size
        before = line.sources.get(held.source, 0)
        line.sources[held.source] = before + 1
        if before:
            line.crowds.add(held.source)
        line.waiting.append(held)
        self._pump(key)

    # -- what happens ----------------------------------------------------------------------------------------------

    def _lost(self, partition: Partition) -> None:
        if self.window_ms and not partition.is_internal and not self._closed:
            now_ms = self._now_ms()
            self._left[partition.topic_id, partition.index] = (now_ms, now_ms + self.window_ms)
            if self._sweep is None:
                self._sweep = self._environment.supervisor.call_later(self.window_ms / 1000, "forgetting of leaderships", self._forget)

    def _forget(self) -> None:
        """Forget leaderships that were lost long ago."""
        now_ms, self._sweep = self._now_ms(), None
        for key in [key for key, (_, until_ms) in self._left.items() if until_ms <= now_ms]:
            del self._left[key]
            self._proven.pop(key, None)
        if self._left and not self._closed:
            next_ms = min(until_ms for _, until_ms in self._left.values()) - now_ms
            self._sweep = self._environment.supervisor.call_later(next_ms / 1000, "forgetting of leaderships", self._forget)

    def _on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        self._peers.renew_brokers(self._listener, delta)
        for key in list(self._lines):
            self._pump(key)

    def _target(self, key: Key) -> tuple[str, int, int] | None:
        """Address and epoch of the leader, if it is another broker that serves."""
        image = self._metadata.image
        topic = image.topics_by_id.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if registration is None or registration.leader in (-1, self._replicas.broker_id):
            return None
        broker = image.brokers.get(registration.leader)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        return None if endpoint is None else (endpoint[0], endpoint[1], registration.leader_epoch)

    def _pump(self, key: Key) -> None:
        line = self._lines.get(key)
        if line is None:
            return
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        now_ms = self._now_ms()
        while line.waiting:
            held, target = line.waiting[0], self._target(key)
            partition = self._replicas.partition_by_id(*key)
            waiting = Waiting(
                is_appending=partition is not None and partition.appending is not None,
                is_held=partition is not None and partition.is_held,
                leader_epoch=None if target is None else target[2],
                proven_epoch=self._proven.get(key),
                under_way=line.under_way,
            )
            turn = next_turn(waiting, held.deadline_ms, now_ms)
            if turn is Turn.WAIT_FOR_ANSWER:
                return
            if turn is Turn.WAIT_FOR_LEADER:
                self._wake_in(key, line, held.deadline_ms - now_ms)
                return
            line.waiting.popleft()
            if turn is Turn.SERVE:
                self.outcomes["served"] += 1
                self._gone(line, held)
                held.serve()
            elif turn is Turn.REFUSE or target is None:
                self._fail(line, held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                self._hand_on(key, line, held, target)
        if not line.under_way and not line.waiting:
            self._lines.pop(key, None)

    def _wake_in(self, key: Key, line: _Line, delay_ms: int) -> None:
        line.timer = self._environment.supervisor.call_later(max(delay_ms, 0) / 1000, "handing on of produces", self._pump, key)

    def _hand_on(self, key: Key, line: _Line, held: Held, target: tuple[str, int, int]) -> None:
        host, port, epoch = target
        line.under_way += 1

        def answered(response: Any, error: Exception | None) -> None:
            line.under_way -= 1
            answer = None if error is not None else response.responses[0].partition_responses[0]
            verdict = verdict_of(
                None if answer is None else answer.error_code,
                is_proven=self._proven.get(key) == epoch,
                has_time=self._now_ms() < held.deadline_ms and not self._closed,
            )
            if verdict is Verdict.ASK_AGAIN:
                line.waiting.appendleft(held)
                self._wake_in(key, line, RETRY_MS)
                return
            if verdict is Verdict.UNKNOWN:
                logger.info("a produce that was handed on to %s:%d has no answer: %s", host, port, error)
                self._refuse_all(key, line, held, ErrorCode.REQUEST_TIMED_OUT)
            elif verdict in (Verdict.NOT_ALLOWED, Verdict.OUT_OF_ORDER):
                if verdict is Verdict.NOT_ALLOWED:
                    logger.warning("%s:%d does not let this broker hand produces on: give its principal Write, or super.users", host, port)
                self._refuse_all(key, line, held, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                assert answer is not None
                if verdict is Verdict.ACCEPTED and key in self._left:
                    self._proven[key] = epoch
                self.outcomes["handed_on" if verdict is Verdict.ACCEPTED else "refused"] += 1
                held.finish(answer, self._leave_with_hint(key, line, held))
            self._pump(key)

        self._peers.send(host, port, held.request, answered, held.version)

    def _refuse_all(self, key: Key, line: _Line, held: Held, code: ErrorCode) -> None:
        """Answer `held` with `code`: what came after it must not overtake it, and whoever asks again had better ask the new leader."""
        self._fail(line, held, code)
        self._left.pop(key, None)
        while line.waiting:
            self._fail(line, line.waiting.popleft(), ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _leave_with_hint(self, key: Key, line: _Line, held: Held) -> bool:
        """`held` is answered; whether to say who leads."""
        was_alone = held.source not in line.crowds
        self._gone(line, held)
        left = self._left.get(key)
        since_lost_ms = None if left is None else self._now_ms() - left[0]
        return gives_hint(since_lost_ms, is_last=held.source not in line.sources, was_alone=was_alone)

    def _gone(self, line: _Line, held: Held) -> None:
        self.bytes -= held.size
        left = line.sources[held.source] - 1
        if left:
            line.sources[held.source] = left
        else:
            del line.sources[held.source]
            line.crowds.discard(held.source)

    def _fail(self, line: _Line, held: Held, code: ErrorCode) -> None:
        self.outcomes["unknown" if code is ErrorCode.REQUEST_TIMED_OUT else "refused"] += 1
        self._gone(line, held)
        held.fail(code)
