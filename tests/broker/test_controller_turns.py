"""The active controller decides on very many partitions in several turns of the loop, one event after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.control_plane import ControlPlane, join, registration

from minikafka.broker.front.forwarding import address_bytes, principal_bytes
from minikafka.broker.measures.durations import Durations
from minikafka.broker.observe.metrics import control
from minikafka.broker.observe.metrics.exposition import Page
from minikafka.broker.quorum import controller_host, metadata_batch
from minikafka.broker.quorum.controller_events import ControllerEvents
from minikafka.broker.quorum.controller_host import STEP_LINES, STEP_RECORDS
from minikafka.core.controller import state, topics
from minikafka.core.controller.change import PartitionChange
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.net.turn_share import TurnShares
from minikafka.steps import STEP_ITEMS
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.records.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord

MANY = 1_200


class Work:
    """Counts pieces of the controller's work between two turns of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counts: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._monkeypatch = monkeypatch
        self._count("decided", PartitionChange, "build")
        self._count("placed", PartitionRegistration, "to_record")
        self._count("encoded", controller_host, "encode_metadata_record")
        self._count("added", metadata_batch, "encode_record")
        self._count("indexed", state.ControllerState, "_index")
        self._count("logged", controller_host.log, "log")

    def _count(self, what: str, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: Any) -> Any:
            self._counts[what] = self._counts.get(what, 0) + 1
            return real(*arguments)

        self._monkeypatch.setattr(owner, name, counted)

    def forget(self) -> None:
        self._counts.clear()
        self.most.clear()

    async def watch(self) -> None:
        while True:
            for what, count in self._counts.items():
                self.most[what] = max(count, self.most.get(what, 0))
            self._counts.clear()
            await asyncio.sleep(0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Each step has a turn of its own."""
    monkeypatch.setattr(TurnShares, "begin", lambda shares: lambda: True)
    return Work(monkeypatch)


async def world(replicas: int = 2) -> ControlPlane:
    """A topic of very many partitions on two brokers."""
    plane = ControlPlane()
    for broker_id in (1, 2):
        await join(plane, broker_id)
    topic = CreateTopicsRequest.CreatableTopic(name="many", num_partitions=MANY, replication_factor=replicas)
    answer: Any = await plane.to_controller(CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == ErrorCode.NONE
    return plane


def epoch(plane: ControlPlane, broker_id: int) -> int:
    return plane.controller.newest_image().brokers[broker_id].epoch


def shutdown(plane: ControlPlane, broker_id: int) -> BrokerHeartbeatRequest:
    offset = len(plane.raft.records) - 1
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch(plane, broker_id), current_metadata_offset=offset, want_shut_down=True
    )


async def test_a_topic_of_very_many_partitions_is_one_batch_and_takes_many_turns(work: Work) -> None:
    watching = asyncio.ensure_future(work.watch())
    plane = await world()
    watching.cancel()
    assert work.most["placed"] <= topics.STEP_PARTITIONS and work.most["encoded"] <= STEP_RECORDS
    assert work.most["added"] <= STEP_RECORDS
    assert work.most["indexed"] <= state.STEP_RECORDS
    assert len(plane.metadata.image.topics_by_name["many"].partitions) == MANY


async def test_many_topics_of_one_request_take_many_turns(work: Work) -> None:
    """128, each with the answer of all its configurations, took 45 ms in one."""
    plane = ControlPlane()
    await join(plane, 1)
    work._count("answered", topics.TopicControl, "_success")
    work.forget()
    watching = asyncio.ensure_future(work.watch())
    asked = [CreateTopicsRequest.CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(128)]
    answer: Any = await plane.to_controller(CreateTopicsRequest(topics=asked))
    watching.cancel()
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * 128 == [0] * len(plane.metadata.image.topics_by_name)
    assert 0 < work.most["answered"] <= topics.STEP_TOPICS


async def test_every_batch_of_a_fencing_says_that_the_broker_is_fenced(work: Work, caplog: pytest.LogCaptureFixture) -> None:
    plane = await world()
    with caplog.at_level("INFO", logger="minikafka.controller"):
        await fence(plane)
        while plane.controller._events._scheduled is not None:
            await asyncio.sleep(0)
    lines = [record.message for record in caplog.records]
    changes = [line for line in lines if line.startswith("many-")]
    assert len(changes) == MANY and all(line.endswith(", because broker 2 is fenced") for line in changes)
    why = "nothing was heard of it for 9000 ms (broker.session.timeout.ms)"
    assert f"broker 2 is fenced, because {why}; {MANY:,} partitions change" in lines


async def fence(plane: ControlPlane) -> None:
    core = plane.controller.core
    assert core is not None
    plane.clock.now += 4_000
    await plane.to_controller(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch(plane, 1), current_metadata_offset=1 << 40))
    plane.clock.now += 5_200
    plane.controller._on_timer()
    while not plane.metadata.image.brokers[2].fenced:
        await asyncio.sleep(0)


async def shut_down(plane: ControlPlane) -> None:
    answer = await plane.to_controller(shutdown(plane, 2))
    assert answer.error_code == ErrorCode.NONE
    assert core_state(plane).image.brokers[2].in_controlled_shutdown


async def restart(plane: ControlPlane) -> None:
    core = plane.controller.core
    assert core is not None
    core.broker_disconnected(2, epoch(plane, 2), plane.clock.now)
    assert (await plane.to_controller(registration(2, incarnation=9))).error_code == ErrorCode.NONE


async def unregister(plane: ControlPlane) -> None:
    assert (await plane.to_controller(UnregisterBrokerRequest(broker_id=2))).error_code == ErrorCode.NONE


def core_state(plane: ControlPlane) -> state.ControllerState:
    assert plane.controller.core is not None
    return plane.controller.core.state


@pytest.mark.parametrize("event", [fence, shut_down, restart, unregister])
async def test_a_broker_of_very_many_partitions_leaves_in_many_turns(work: Work, event: Callable[[ControlPlane], Any]) -> None:
    plane = await world()
    written = len(plane.raft.records)
    work.forget()
    watching = asyncio.ensure_future(work.watch())
    await event(plane)
    watching.cancel()
    assert work.most["decided"] <= STEP_ITEMS and work.most["encoded"] <= STEP_RECORDS
    assert work.most["logged"] <= STEP_LINES and work.most["indexed"] <= max(state.RECORDS_PER_BATCH, state.STEP_RECORDS)
    partitions = plane.metadata.image.topics_by_name["many"].partitions.values()
    assert all(partition.leader == 1 and 2 not in partition.isr for partition in partitions)
    changes = [record for record in plane.raft.records[written:] if isinstance(record, PartitionChangeRecord)]
    assert len(changes) == MANY, "each partition changes once"
    assert not core_state(plane).leads_any(2) and core_state(plane).leads_any(1)


async def test_what_comes_meanwhile_finds_the_whole_decision(work: Work) -> None:
    """A heartbeat that arrives while its broker is fenced is answered with the fencing, and is no reason against it."""
    plane = await world()
    plane.clock.now += 4_000
    beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch(plane, 1), current_metadata_offset=1 << 40)
    await plane.to_controller(beat)
    plane.clock.now += 5_200
    plane.controller._on_timer()
    assert plane.controller._events.pauses and not plane.controller.newest_image().brokers[2].fenced, "it is under way"
    late = BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch(plane, 2), current_metadata_offset=0)
    every = ElectLeadersRequest(election_type=0, topic_partitions=None)
    answers = await asyncio.gather(plane.to_controller(late), plane.to_controller(every))
    assert answers[0].is_fenced
    assert {one.error_code for one in answers[1].replica_election_results[0].partition_result} == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    fences = [one for one in plane.raft.records if isinstance(one, BrokerRegistrationChangeRecord) and one.fenced > 0]
    assert len(fences) == 1


async def test_a_broker_is_not_silent_while_its_heartbeat_waits_behind_what_clients_asked(work: Work) -> None:
    """Clients that only checked the creation of thousands of partitions fenced all brokers: their heartbeats had arrived in time."""
    plane = await world()
    topic = CreateTopicsRequest.CreatableTopic(name="more", num_partitions=MANY, replication_factor=2)
    request = CreateTopicsRequest(topics=[topic], validate_only=True)
    asked = [asyncio.ensure_future(plane.controller.ask(request, 7)) for _ in range(3)]
    await asyncio.sleep(0)
    assert plane.controller._events.pauses
    plane.clock.now += 8_900
    beats = [BrokerHeartbeatRequest(broker_id=one, broker_epoch=epoch(plane, one), current_metadata_offset=1 << 40) for one in (1, 2)]
    heard = [asyncio.ensure_future(plane.controller.ask(beat, 1)) for beat in beats]
    await asyncio.sleep(0)
    plane.clock.now += 200
    plane.controller._on_timer()
    assert [(await answer).is_fenced for answer in heard] == [False, False]
    assert not all(answer.done() for answer in asked), "heartbeats come before clients' events"
    await asyncio.gather(*asked)
    assert not any(broker.fenced for broker in plane.controller.newest_image().brokers.values())


async def test_clients_take_turns(work: Work) -> None:
    """However much one client asks, another waits behind one of its requests. A client is a principal at an address."""
    plane = await world()
    order = list[str]()

    async def ask(client: str, host: str, partitions: int) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name="checked", num_partitions=partitions, replication_factor=2)
        data = b"".join(encode_request(CreateTopicsRequest(topics=[topic], validate_only=True), 7, 1, "x"))[4:]
        of_client = {"request_principal": principal_bytes(f"User:{client}"), "client_host_address": address_bytes(host)}
        answer = await plane.to_controller(EnvelopeRequest(request_data=data, **of_client))
        assert answer.error_code == ErrorCode.NONE
        order.append(f"{client} {host[-1]}")

    asked = [asyncio.ensure_future(ask("greedy", "10.0.0.1", MANY)) for _ in range(6)]
    await asyncio.sleep(0)
    assert plane.controller._events.pauses
    asked += [asyncio.ensure_future(ask(client, host, 1)) for client, host in (("modest", "10.0.0.1"),) * 2 + (("greedy", "10.0.0.2"),)]
    await asyncio.gather(*asked)
    assert order[2:6] == ["modest 1", "greedy 2", "greedy 1", "modest 1"] and order[:2] + order[6:] == ["greedy 1"] * 5, order


async def test_how_long_events_wait_is_measured_and_shown(work: Work) -> None:
    """The metric said 0 for ever: it was from the time before events took turns."""
    plane = ControlPlane()
    now_s = [100.0]
    events = plane.controller._events = ControllerEvents(plane.environment)
    events.waits = Durations(lambda: now_s[0])

    class Long:
        def steps(self) -> Iterator[None]:
            for _ in range(3):
                now_s[0] += 0.25
                yield

        def dropped(self) -> None:
            raise AssertionError("nothing was cleared")

    events.add(Long())
    events.add(Long(), client="somebody")
    while events._scheduled is not None:
        await asyncio.sleep(0)
    page = Page()
    timeline = SimpleNamespace(unclean_elections=0)
    node = SimpleNamespace(
        controller=plane.controller, metadata=plane.metadata, raft=plane.raft, environment=plane.environment, timeline=timeline
    )
    control.controller(page, node)  # type: ignore[arg-type]
    name = "kafka_controller_controllereventmanager_eventqueuetimems"
    assert f"{name}_count 2\n" in page.text() and f'{name}{{quantile="0.999"}} 500\n' in page.text(), page.text()


async def test_a_controller_that_is_replaced_in_the_middle_leaves_the_rest_undecided(work: Work) -> None:
    plane = await world()
    asked = [asyncio.ensure_future(plane.controller.ask(request, 4)) for request in (shutdown(plane, 2), shutdown(plane, 1))]
    for _ in range(4):
        await asyncio.sleep(0)
    written = len(plane.raft.records)
    assert not any(answer.done() for answer in asked) and plane.controller._events.pauses
    plane.raft.resign(leader_id=2)
    refused = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(one, ApiError) and one.code for one in refused] == [ErrorCode.NOT_CONTROLLER] * 2
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(plane.raft.records) == written and not plane.controller.is_active
    # Its successor, here itself, starts from what is committed, in steps.
    work.forget()
    watching = asyncio.ensure_future(work.watch())
    plane.raft.lead()
    answer = await plane.to_controller(shutdown(plane, 2))
    watching.cancel()
    assert answer.error_code == ErrorCode.NONE and work.most["indexed"] <= state.STEP_RECORDS
