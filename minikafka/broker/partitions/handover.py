"""The host of leadership handovers (minikafka/core/partition/handover_lines.py): carries out their effects and runs their timer."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.core.partition import handover_lines as lines
from minikafka.core.partition.handover_lines import Effect, HandOn, HandoverLines, Key, Leadership, PartitionStatus, Target
from minikafka.counted import counted
from minikafka.steps import Steps, paced
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
    from minikafka.net.memory_budget import MemoryBudget

logger = logging.getLogger("minikafka.handover")

CLIENT_ID_PREFIX = "minikafka-handover-"
#: The shortest time that the new leader gets to answer.
ANSWER_MS_MIN = 1_000


class Held(Protocol):
    """One partition's part of a Produce request that waits for its next leader."""

    #: A request for this partition only, with its own copy of the records; acks=1 instead of 0.
    request: ProduceRequest
    version: int
    size: int
    #: The connection the request came on. Requests of one source are answered in order.
    source: Any

    def finish(self, answer: ProduceResponse.PartitionProduceResponse, hint: bool) -> None:
        """The new leader has answered. `hint`: name the leader to the client."""

    def fail(self, code: ErrorCode) -> None:
        """No answer came; fail with `code`."""

    def serve(self) -> None:
        """Serve the request here, because this broker leads the partition after all."""


def is_handed_on(client_id: str | None) -> bool:
    """Whether a broker sent the request during a handover. Such a request is not passed on again, whatever its result."""
    return client_id is not None and client_id.startswith(CLIENT_ID_PREFIX)


class HandoverHost:
    """Runs the handover of produces for one broker, with its connections and its clock."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        replicas: ReplicaManager,
        metadata: MetadataHost,
        security: ChannelSecurity | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        """`budget`: limits the memory of clients' requests."""
        self._budget = budget
        self._charged = 0
        self._environment = environment
        self._now_ms = environment.clock.now_ms
        self._replicas = replicas
        self._metadata = metadata
        self._listener = config.inter_broker_listener
        self._core = HandoverLines(config.minikafka_handover_ms)
        answer_ms = max(config.minikafka_handover_ms, ANSWER_MS_MIN)
        self._peers = RaftPeers(environment, f"{CLIENT_ID_PREFIX}{config.node_id}", answer_ms, security)
        #: Effects still to be carried out, in order. Carrying one out may add others.
        self._effects: deque[Effect] = deque()
        self._is_busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._prepared: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        replicas.subscribe_losses(self._lost)
        metadata.subscribe(self._on_metadata)

    @property
    def waiting(self) -> int:
        """The number of requests that wait or have been sent to a new leader."""
        return self._core.waiting

    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome -> number of requests."""
        return self._core.outcomes

    # -- a broker that stops ---------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Hold produces for partitions that others can lead, until the followers have caught up or their time is up."""
        self._prepared = self._environment.loop.create_future()
        await self._environment.shares.take(self._preparing())
        await self._prepared

    def _preparing(self) -> Steps[None]:
        found: list[Leadership] = []
        for p, is_step in paced(list(self._replicas.partitions.values())):
            if p.leader is not None:
                is_behind = p.leader.high_watermark < p.log.log_end_offset
                found.append(Leadership((p.topic_id, p.index), p.is_internal, len(p.leader.isr.committed), is_behind))
            if is_step:
                self._carry_out(self._core.prepare(found, self._now_ms(), is_last=False))
                found = []
                yield
        self._carry_out(self._core.prepare(found, self._now_ms()))

    async def drain(self) -> None:
        """The leaderships have moved. Keep passing requests on while clients find the new leaders."""
        self._drained = self._environment.loop.create_future()
        self._carry_out(self._core.drain(self._now_ms()))
        await self._drained

    async def close(self) -> None:
        """Stop passing requests on, and refuse those that wait."""
        self._carry_out(self._core.close())
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()

    # -- produces --------------------------------------------------------------------------------------------------

    def key_of(self, topic: str, topic_id: bytes | None, index: int) -> Key | None:
        """The partition's key if `take` may hold a produce that was refused because this broker does not lead it; else None."""
        image = self._metadata.image
        topic_image = image.topics_by_name.get(topic) if topic_id is None else image.topics_by_id.get(topic_id)
        if topic_image is None:
            return None
        key = (topic_image.topic_id, index)
        return key if self._core.accepts(key, self._status(key), self._now_ms()) else None

    def take(self, key: Key, held: Held) -> None:
        """Hold a produce until it can be served, here or at the new leader. Then calls `held.finish`, `fail` or `serve`, perhaps at
        once."""
        self._carry_out(self._core.take(key, held, self._status(key), self._now_ms()))

    # -- events ----------------------------------------------------------------------------------------------------

    def _lost(self, partition: Partition) -> None:
        self._core.leadership_lost((partition.topic_id, partition.index), partition.is_internal, self._now_ms())
        self._arm()

    def _on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        self._peers.renew_brokers(self._listener, delta)
        for key in self._core.waiting_keys():
            self._look_again(key)

    def _look_again(self, key: Key) -> None:
        self._carry_out(self._core.status_changed(key, self._status(key), self._now_ms()))

    def _status(self, key: Key) -> PartitionStatus:
        partition = self._replicas.partition_by_id(*key)
        if partition is None:
            return PartitionStatus(target=self._target(key))
        return PartitionStatus(partition.appending is not None, partition.is_held, partition.is_internal, self._target(key))

    def _target(self, key: Key) -> Target | None:
        """The leader, if it is another broker that is alive."""
        image = self._metadata.image
        topic = image.topics_by_id.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if registration is None or registration.leader in (-1, self._replicas.broker_id):
            return None
        endpoint = self._endpoint(registration.leader)
        return None if endpoint is None else Target(*endpoint, registration.leader_epoch)

    def _endpoint(self, broker_id: int) -> tuple[str, int] | None:
        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None or broker.fenced else broker.listeners.get(self._listener)
        return None if endpoint is None else (endpoint[0], endpoint[1])

    # -- effects ---------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        self._effects += effects
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._effects:
                self._carry_out_one(self._effects.popleft())
        finally:
            self._is_busy = False
            self._account()
        self._arm()

    def _account(self) -> None:
        """Charge the held requests to the memory budget: their records are copies."""
        if self._budget is not None and self._core.bytes != self._charged:
            before, self._charged = self._charged, self._core.bytes
            self._budget.charge(self._charged - before)

    def _carry_out_one(self, effect: Effect) -> None:
        match effect:
            case lines.Serve(held):
                held.serve()
            case HandOn():
                self._hand_on(effect)
            case lines.Finish(held, answer, hint):
                held.finish(answer, hint)
            case lines.Fail(held, code):
                held.fail(code)
            case lines.Hold(key):
                self._hold(key)
            case lines.WaitForFollowers(key, timeout_ms):
                self._wait_for_followers(key, timeout_ms)
            case lines.Release(key):
                self._release(key)
            case lines.Prepared(held_count, took_ms):
                if took_ms is not None:
                    waiting = counted(held_count, "partition accepts", "partitions accept")
                    logger.info("%s no records until there is a new leader; the followers caught up within %d ms", waiting, took_ms)
                _done(self._prepared)
            case lines.Drained():
                _done(self._drained)
            case lines.Notice(text, is_warning):
                logger.log(logging.WARNING if is_warning else logging.INFO, "%s", text)

    def _hand_on(self, effect: HandOn) -> None:
        entry, target = effect.entry, effect.target
        held: Held = entry.held

        def answered(response: Any, error: Exception | None) -> None:
            answer: Any = error if error is not None else response.responses[0].partition_responses[0]
            code = None if error is not None else answer.error_code
            self._carry_out(self._core.answered(entry, target, code, answer, self._status(entry.key), self._now_ms()))

        self._peers.send(target.host, target.port, held.request, answered, held.version)

    def _hold(self, key: Key) -> None:
        partition = self._replicas.partition_by_id(*key)
        if partition is None or partition.leader is None:
            return
        partition.hold()
        for broker_id in sorted(partition.leader.isr.committed):
            endpoint = None if broker_id == self._replicas.broker_id else self._endpoint(broker_id)
            if endpoint is not None:
                self._peers.connect(*endpoint)

    def _wait_for_followers(self, key: Key, timeout_ms: int) -> None:
        def caught_up(_code: ErrorCode = ErrorCode.NONE, _offset: int = -1) -> None:
            self._carry_out(self._core.caught_up(key, self._now_ms()))

        partition = self._replicas.partition_by_id(*key)
        if partition is None:
            caught_up()
        else:
            self._replicas.when_replicated(partition, partition.log.log_end_offset, timeout_ms, caught_up)

    def _release(self, key: Key) -> None:
        partition = self._replicas.partition_by_id(*key)
        if partition is not None and partition.is_held:
            partition.release()
            self._look_again(key)

    # -- time ------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Set the timer to the core's next deadline, unless it is due earlier anyway."""
        deadline_ms = self._core.next_deadline()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_s = max(deadline_ms - self._now_ms(), 0) / 1000
        self._timer = self._environment.supervisor.call_later(delay_s, "handing on of produces", self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._carry_out(self._core.on_deadline(self._now_ms()))


def _done(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
