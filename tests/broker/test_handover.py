"""Produces that come while a leadership moves: who gets them, in which order, and what their clients are told."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from minikafka.broker.partitions.handover import HandoverHost, is_handed_on
from minikafka.broker.supervise import Supervisor
from minikafka.core.partition.handover import HINT_MS_MAX
from minikafka.core.partition.handover_lines import HELD_BYTES_MAX, RETRY_MS
from minikafka.net.memory_budget import MemoryBudget
from minikafka.net.turn_share import SHARE_S, TurnShares
from minikafka.steps import STEP_ITEMS
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.produce import ProduceRequest, ProduceResponse

TOPIC, TOPIC_ID = "t", bytes([7]) * 16
KEY = (TOPIC_ID, 0)
WINDOW_MS = 1000


class Timers:
    """The loop and the clock: time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 5_000
        self.due: list[tuple[float, Any]] = []

    def now_ms(self) -> int:
        return self.now

    def call_later(self, delay_s: float, function: Callable[..., Any], *arguments: Any) -> Any:
        entry = SimpleNamespace(is_cancelled=False, run=lambda: function(*arguments))
        entry.cancel = lambda: setattr(entry, "is_cancelled", True)
        self.due.append((self.now + delay_s * 1000, entry))
        return entry

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def pass_ms(self, milliseconds: int) -> None:
        end = self.now + milliseconds
        while ready := sorted((at, n) for n, (at, entry) in enumerate(self.due) if at <= end):
            at, entry = self.due.pop(ready[0][1])
            self.now = max(self.now, int(at))
            if not entry.is_cancelled:
                entry.run()
        self.now = end


class Peers:
    """Connections to the other brokers; answers come when a test gives them."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, bytes, Callable[..., None]]] = []
        self.connected: list[int] = []

    def send(self, host: str, port: int, request: ProduceRequest, answered: Callable[..., None], version: int) -> None:
        assert version == 11
        self.sent.append((port, bytes(request.topic_data[0].partition_data[0].records or b""), answered))

    def connect(self, host: str, port: int) -> None:
        self.connected.append(port)

    def renew_brokers(self, listener: str, delta: Any) -> None:
        assert listener == "INTERNAL" and delta is not None

    def close(self) -> None:
        self.sent.clear()

    def take(self) -> list[tuple[int, bytes]]:
        """Where what went, since the last time."""
        return [(port, records) for port, records, _ in self.sent]

    def answer(self, code: ErrorCode = ErrorCode.NONE, offset: int = 40) -> None:
        """To the first request that is under way."""
        _, _, answered = self.sent.pop(0)
        partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=-1 if code else offset)
        answered(ProduceResponse(responses=[ProduceResponse.TopicProduceResponse(partition_responses=[partition])]), None)

    def lose(self) -> None:
        """The connection breaks: nobody knows."""
        sent, self.sent = self.sent, []
        for _, _, answered in sent:
            answered(None, ConnectionError("gone"))


class Part:
    """A Held that notes what it is told."""

    def __init__(self, world: World, name: bytes, source: str) -> None:
        data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(bytearray(name)))
        self.request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])])
        self.world, self.name, self.source = world, name, source
        self.version, self.size = 11, len(name)

    def finish(self, answer: Any, hint: bool) -> None:
        self.world.answers.append((self.name, ErrorCode(answer.error_code), hint))

    def fail(self, code: ErrorCode) -> None:
        self.world.answers.append((self.name, code, True))

    def serve(self) -> None:
        self.world.served.append(self.name)


class World:
    """Broker 1 with one partition of which it is, or was, the leader; brokers 2 and 3 listen on ports 2 and 3."""

    def __init__(self, *, window_ms: int = WINDOW_MS, internal: bool = False, shares: TurnShares | None = None) -> None:
        self.timers = Timers()
        self.answers: list[tuple[bytes, ErrorCode, bool]] = []
        self.served: list[bytes] = []
        leader = SimpleNamespace(isr=SimpleNamespace(committed=(1, 2, 3)), high_watermark=10)
        self.partition: Any = SimpleNamespace(
            topic=TOPIC, topic_id=TOPIC_ID, index=0, is_internal=internal, leader=leader, log=SimpleNamespace(log_end_offset=10)
        )
        partition = self.partition
        partition.appending = leader
        partition.is_held = False

        def hold() -> None:
            partition.appending, partition.is_held = None, partition.leader is not None

        def release() -> None:
            partition.appending, partition.is_held = partition.leader, False

        partition.hold, partition.release = hold, release
        self.waited: list[tuple[int, Callable[..., None]]] = []
        self.replicas = SimpleNamespace(
            broker_id=1, partitions={(TOPIC, 0): partition}, partition_by_id=lambda *key: partition if key == KEY else None,
            when_replicated=lambda p, end, timeout_ms, done: self.waited.append((end, done)),
            subscribe_losses=lambda callback: setattr(self, "lost", callback),
        )  # fmt: skip
        registration = SimpleNamespace(leader=1, leader_epoch=4)
        self.registration = registration
        topic = SimpleNamespace(name=TOPIC, topic_id=TOPIC_ID, partitions={0: registration})
        brokers = {n: SimpleNamespace(fenced=False, listeners={"INTERNAL": (f"host{n}", n)}) for n in (1, 2, 3)}
        self.image = SimpleNamespace(topics_by_name={TOPIC: topic}, topics_by_id={TOPIC_ID: topic}, brokers=brokers)
        self.metadata = SimpleNamespace(image=self.image, subscribe=lambda callback: setattr(self, "publish", callback))
        self.publish: Callable[..., None]
        self.lost: Callable[..., None]
        supervisor = Supervisor(self.timers)  # type: ignore[arg-type]
        shares = TurnShares(lambda: 0.0) if shares is None else shares
        environment: Any = SimpleNamespace(clock=self.timers, loop=self.timers, network=None, supervisor=supervisor, shares=shares)
        config: Any = SimpleNamespace(node_id=1, inter_broker_listener="INTERNAL", minikafka_handover_ms=window_ms)
        self.handover = HandoverHost(config, environment, self.replicas, self.metadata)  # type: ignore[arg-type]
        self.peers = Peers()
        self.handover._peers = self.peers  # type: ignore[assignment]

    def move(self, leader: int, epoch: int) -> None:
        """The metadata says who leads."""
        self.registration.leader, self.registration.leader_epoch = leader, epoch
        partition = self.partition
        if leader == 1:
            partition.leader = SimpleNamespace(isr=SimpleNamespace(committed=(1, 2, 3)), high_watermark=10)
            partition.release()
        elif partition.leader is not None:
            partition.leader = partition.appending = None
            partition.is_held = False
            self.lost(partition)
        self.publish(SimpleNamespace(changed_brokers={}), self.image)

    def produce(self, *names: bytes, source: str = "client") -> bool:
        """Produces that this broker refused to append; whether the last one was taken."""
        for name in names:
            key = self.handover.key_of(TOPIC, None, 0)
            if key is not None:
                self.handover.take(key, Part(self, name, source))
        return key is not None


async def test_batches_that_arrive_during_a_move_go_to_the_new_leader_in_order() -> None:
    world = World()
    await world.handover.prepare()
    assert world.partition.is_held and sorted(world.peers.connected) == [2, 3]
    assert world.produce(b"a", b"b", b"c")
    assert not world.peers.sent and not world.answers
    world.move(2, 5)
    assert world.peers.take() == [(2, b"a")], "one at a time until the new leader has answered as one"
    world.peers.answer()
    assert world.peers.take() == [(2, b"b"), (2, b"c")]
    assert world.produce(b"d") and world.peers.take()[-1] == (2, b"d")
    for _ in range(3):
        world.peers.answer()
    names = [name for name, code, _ in world.answers if code is ErrorCode.NONE]
    assert names == [b"a", b"b", b"c", b"d"]
    assert world.produce(b"e")
    world.peers.answer()
    assert [hint for *_, hint in world.answers] == [False] * 4 + [True], "who leads is told when the client has nothing else under way"
    assert world.produce(b"f", source="another client") and world.produce(b"g")
    world.peers.answer()
    world.peers.answer()
    assert [hint for *_, hint in world.answers[5:]] == [True, True], "each client for itself"
    assert world.handover.outcomes["handed_on"] == 7 and not world.handover._core.bytes and not world.handover.waiting


async def test_a_new_leader_that_does_not_know_yet_is_asked_again() -> None:
    world = World()
    world.move(2, 5)
    assert world.produce(b"a", b"b")
    world.peers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not world.peers.sent and not world.answers
    world.timers.pass_ms(RETRY_MS)
    assert world.peers.take() == [(2, b"a")]
    world.peers.answer()
    world.peers.answer()
    assert [(name, code) for name, code, _ in world.answers] == [(b"a", ErrorCode.NONE), (b"b", ErrorCode.NONE)]


async def test_a_leader_that_has_answered_as_one_and_refuses_is_believed() -> None:
    """It has handed over in its turn: nothing goes round in a circle."""
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    world.peers.answer()
    world.peers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [(name, code) for name, code, _ in world.answers] == [(b"a", ErrorCode.NONE), (b"b", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert is_handed_on("minikafka-handover-1") and not is_handed_on("producer-1") and not is_handed_on(None)


async def test_errors_of_the_new_leader_are_the_clients() -> None:
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    world.peers.answer(ErrorCode.MESSAGE_TOO_LARGE)
    world.peers.answer()
    assert [(name, code) for name, code, _ in world.answers] == [(b"a", ErrorCode.MESSAGE_TOO_LARGE), (b"b", ErrorCode.NONE)]


async def test_a_batch_whose_predecessor_the_new_leader_does_not_have_is_sent_back() -> None:
    """librdkafka would write all that it has under way in a new producer epoch, twice; asked to try again it goes back into order."""
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    world.peers.answer(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.answers == [(b"a", refused, True), (b"b", refused, True)] and not world.peers.sent
    assert not world.produce(b"c")


async def test_a_broker_without_write_permission_names_the_leader_to_clients_that_have_it() -> None:
    """The principal of this broker has no Write at the new leader: that is no news about the client's own rights."""
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    world.peers.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.answers == [(b"a", refused, True), (b"b", refused, True)]
    assert not world.peers.sent and not world.produce(b"c") and not world.handover.waiting


async def test_batches_in_flight_when_the_connection_broke_are_unknown_and_never_resent() -> None:
    world = World()
    world.move(2, 5)
    world.produce(b"a")
    world.peers.answer()
    world.produce(b"b", b"c")
    world.peers.lose()
    assert [(name, code) for name, code, _ in world.answers[1:]] == [
        (b"b", ErrorCode.REQUEST_TIMED_OUT), (b"c", ErrorCode.REQUEST_TIMED_OUT)
    ]  # fmt: skip
    assert not world.peers.sent and not world.produce(b"d"), "the client had better ask the new leader itself"
    assert world.handover.outcomes["unknown"] == 2


async def test_a_leadership_that_stays_serves_what_waited() -> None:
    """No controller answers, or it finds nobody else."""
    world = World()
    await world.handover.prepare()
    world.produce(b"a", b"b")
    world.timers.pass_ms(WINDOW_MS - 1)
    assert world.partition.is_held and not world.served
    world.timers.pass_ms(1)
    assert world.served == [b"a", b"b"] and not world.partition.is_held and not world.handover.waiting


async def test_a_leadership_that_comes_back_serves_after_what_is_under_way() -> None:
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    assert world.peers.take() == [(2, b"a")]
    world.move(1, 6)
    assert not world.served
    world.peers.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.timers.pass_ms(RETRY_MS)
    assert world.served == [b"a", b"b"]


async def test_a_second_move_waits_for_what_is_under_way_with_the_first() -> None:
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b", b"c")
    world.peers.answer()
    world.move(3, 6)
    world.produce(b"d")
    assert world.peers.take() == [(2, b"b"), (2, b"c")]
    world.peers.answer()
    world.peers.answer()
    assert world.peers.take() == [(3, b"d")]


async def test_no_request_waits_longer_than_the_window() -> None:
    world = World()
    world.move(-1, 5)
    assert world.produce(b"a")
    world.timers.pass_ms(WINDOW_MS - 1)
    assert not world.answers
    world.timers.pass_ms(1)
    assert world.answers == [(b"a", ErrorCode.NOT_LEADER_OR_FOLLOWER, True)]
    assert not world.produce(b"b"), "and late is late"
    assert not world.handover._core._left


async def test_a_fenced_leader_is_not_asked() -> None:
    world = World()
    world.image.brokers[2].fenced = True
    world.move(2, 5)
    assert world.produce(b"a") and not world.peers.sent
    world.move(3, 6)
    assert world.peers.take() == [(3, b"a")]


async def test_the_hint_comes_in_time_under_a_load_that_never_pauses() -> None:
    world = World()
    world.move(2, 5)
    world.produce(b"a", b"b")
    world.peers.answer()
    world.peers.answer()
    world.timers.pass_ms(HINT_MS_MAX)
    world.produce(b"c", b"d")
    world.peers.answer()
    world.peers.answer()
    assert [hint for *_, hint in world.answers] == [False, False, False, True], "first when it pauses"
    world.timers.pass_ms(HINT_MS_MAX)
    world.produce(b"e", b"f", b"g")
    world.peers.answer()
    assert world.answers[-1] == (b"e", ErrorCode.NONE, True), "then in any case"
    world.produce(b"h", source="another client")
    world.peers.answer()
    assert world.answers[-1] == (b"f", ErrorCode.NONE, True)


async def test_followers_have_everything_before_the_controller_is_asked() -> None:
    """A record that only the old leader has would be cut off, acknowledged with acks=1 or not."""
    world = World()
    world.partition.log.log_end_offset = 12
    preparing = asyncio.ensure_future(world.handover.prepare())
    await asyncio.sleep(0)
    assert not preparing.done() and [end for end, _ in world.waited] == [12] and world.partition.is_held
    world.waited[0][1](ErrorCode.NONE, -1)
    await preparing


async def test_very_many_leaderships_are_held_some_in_a_turn_each_with_what_its_followers_lack_then() -> None:
    """9,000 took more than 20 ms. Here a step is a share; what is appended between two is waited for, too."""
    passed = itertools.count()
    world = World(shares=TurnShares(lambda: next(passed) * SHARE_S))
    partitions = [
        SimpleNamespace(
            topic_id=TOPIC_ID, index=number, is_internal=False, appending=world, log=SimpleNamespace(log_end_offset=10),
            leader=SimpleNamespace(isr=SimpleNamespace(committed=(1, 2)), high_watermark=10),
        )
        for number in range(5 * STEP_ITEMS + 1)
    ]  # fmt: skip
    held: list[int] = []
    for one in partitions:
        one.hold = functools.partial(held.append, one.index)
    world.replicas.partitions = {(TOPIC, one.index): one for one in partitions}
    world.replicas.partition_by_id = lambda topic_id, index: partitions[index]
    preparing = asyncio.ensure_future(world.handover.prepare())
    counts = [0]
    while len(held) < len(partitions):
        await asyncio.sleep(0)
        counts.append(len(held))
        partitions[-1].log.log_end_offset += 1
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 2 * STEP_ITEMS and held == list(range(len(partitions)))
    await asyncio.sleep(0)
    assert len(world.waited) == 1 and not preparing.done()
    world.waited[0][1](ErrorCode.NONE, -1)
    await preparing


async def test_partitions_without_another_possible_leader_and_internal_topics_are_not_held() -> None:
    alone, internal, off = World(), World(internal=True), World(window_ms=0)
    alone.partition.leader.isr.committed = (1,)
    for world in (alone, internal, off):
        await world.handover.prepare()
        assert not world.partition.is_held
    internal.move(2, 5)
    off.move(2, 5)
    assert not internal.produce(b"a") and not off.produce(b"a")


async def test_a_full_broker_refuses() -> None:
    world = World()
    await world.handover.prepare()
    world.handover._core.bytes = HELD_BYTES_MAX
    assert not world.produce(b"a")


async def test_requests_that_wait_when_the_broker_stops_are_refused() -> None:
    world = World()
    await world.handover.prepare()
    world.produce(b"a")
    await world.handover.close()
    assert world.answers == [(b"a", ErrorCode.NOT_LEADER_OR_FOLLOWER, True)]
    assert not world.produce(b"b") and not world.handover._core.bytes


async def test_records_that_wait_count_in_the_memory_of_requests() -> None:
    world = World()
    budget = world.handover._budget = MemoryBudget(10_000_000)
    await world.handover.prepare()
    world.produce(b"a", b"b")
    assert budget.used == world.handover._core.bytes > 0
    world.move(2, 5)
    world.peers.answer()
    world.peers.answer()
    assert budget.used == 0 and len(world.answers) == 2
