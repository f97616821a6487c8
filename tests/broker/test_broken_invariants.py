"""Errors of ours, one in each place where one used to end something in silence: nothing is lost, and nothing looks alive that is not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.control_plane import ControlPlane
from helpers.live_node import broker_port, live_node

from minikafka.broker.node import StartError
from minikafka.broker.partitions import produce_transactional
from minikafka.broker.partitions.produce_transactional import TransactionalProduce
from minikafka.broker.quorum.raft_delivery import Delivery, Piece
from minikafka.broker.supervise import BrokenInvariant, Supervisor
from minikafka.client.admin import Admin
from minikafka.client.errors import ClientError
from minikafka.core.controller.controller import Controller
from minikafka.net.turn_share import TurnShares
from minikafka.storage.checkpoint import CLEAN_SHUTDOWN
from minikafka.storage.errors import ResourceShortage
from minikafka.wire.errors import ApiError, ErrorCode, WireError
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


class Listener:
    """Takes committed batches, and raises at one of them."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at = fails_at
        self.taken: list[int] = []

    def on_commit(self, base_offset: int, epoch: int, records: list[tuple[int, Any]]) -> None:
        if base_offset == self.fails_at:
            raise KeyError("an error of ours")
        self.taken.append(base_offset)

    def on_high_watermark(self, offset: int) -> None:
        """Nothing depends on it."""


async def test_a_listener_of_the_metadata_that_raises_is_given_nothing_more() -> None:
    """The batch was left out and the next ones were delivered: this node's metadata, and those of the controller made of it, were wrong."""
    failures: list[BaseException] = []
    delivery = Delivery(asyncio.get_running_loop(), TurnShares(lambda: 0.0), SimpleNamespace(), lambda: None, failures.append)  # type: ignore[arg-type]

    def pieces(start: int, end: int) -> Any:
        yield from ()
        return [Piece(n, n + 1, 1, [(n, f"record {n}")]) for n in range(start, end)]

    delivery._pieces = pieces  # type: ignore[method-assign]
    listener = Listener(fails_at=2)
    entry = delivery.add(listener)  # type: ignore[arg-type]
    entry.next_offset = 0
    delivery.advance(4)
    await asyncio.sleep(0)
    delivery.advance(6)
    for _ in range(3):
        await asyncio.sleep(0)
    assert listener.taken == [0, 1] and entry.next_offset == 2
    assert [repr(failure) for failure in failures] == ["KeyError('an error of ours')"]


async def test_a_node_whose_metadata_cannot_be_followed_ends(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node:

        def fails(*arguments: Any) -> None:
            raise KeyError("an error of ours")

        for entry in node.raft._delivery.subscriptions:
            if entry.listener is node.metadata:
                entry.listener = SimpleNamespace(on_commit=fails, on_high_watermark=fails, on_leader_change=fails)
        asking = asyncio.ensure_future(create(node, "t"))
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        reason = await asyncio.shield(node.failed)
        assert isinstance(reason, BrokenInvariant) and "the metadata quorum failed unexpectedly: KeyError" in str(reason)
        assert node.raft.failure is not None and node.supervisor.unexpected["node"] == 1
        asking.cancel()


async def create(node: Any, topic: str) -> None:
    admin = Admin(f"127.0.0.1:{broker_port(node)}", timeout_ms=5_000)
    try:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
    finally:
        await admin.close()


@pytest.mark.parametrize("place", ["handle", "replay"])
async def test_a_controller_that_fails_between_append_and_replay_gives_up_its_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Its core lacked records of its log, but continued to decide. Now it resigns and restarts from the committed records."""
    async with live_node(tmp_path) as node:
        assert node.controller is not None
        epoch, activations = node.raft.leader_epoch, node.controller.activations
        real, failures = getattr(Controller, place), [KeyError("an error of ours")]

        def fails_once(self: Controller, *arguments: Any) -> Any:
            if failures and (place == "replay" or isinstance(arguments[0], CreateTopicsRequest)):
                raise failures.pop()
            return real(self, *arguments)

        monkeypatch.setattr(Controller, place, fails_once)
        with contextlib.suppress(ClientError):
            await create(node, "first")
        while node.controller.activations == activations or not node.controller.is_active:
            await asyncio.sleep(0.01)
        assert node.raft.leader_epoch > epoch and node.controller.activations == activations + 1
        assert node.supervisor.unexpected == {"term": 1} and not node.failed.done()
        await create(node, "second")
        assert node.controller.core is not None
        assert set(node.controller.core.image.topics_by_name) == set(node.metadata.image.topics_by_name) >= {"second"}


class Context:
    """Of a request that may be closed."""

    api_version = 11

    def __init__(self) -> None:
        self.closed: list[str] = []

    def close(self, reason: str = "") -> None:
        self.closed.append(reason)

    def keep(self, size: int) -> None:
        """Nothing is counted here."""


class Coordinator:
    """Of transactions; answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def is_enabled(self, support: object) -> bool:
        return True

    def verify(self, *request: Any) -> None:
        self.asked.append(request[-1])


async def test_a_transactional_produce_that_fails_inside_frees_those_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, coordinator = Supervisor(asyncio.get_running_loop()), Coordinator()
    state = SimpleNamespace(begin_verification=lambda *_, **__: object())
    partition = SimpleNamespace(key=("t", 0), leader=object(), log=SimpleNamespace(producer_state=state))
    replicas: Any = SimpleNamespace(require=lambda topic, topic_id, index: partition)
    produce = TransactionalProduce(replicas, coordinator, lambda: 0, supervisor)  # type: ignore[arg-type]
    monkeypatch.setattr(produce_transactional, "_batches", lambda context, request: iter([("t", ("t", None), 0, (0,) * 13)]))
    request: Any = SimpleNamespace(transactional_id="id", topic_data=[])
    first, served = Context(), []

    def fails(verdicts: object, appended: object) -> None:
        raise KeyError("an error of ours")

    assert produce.hold(first, request, fails) is None  # type: ignore[arg-type]
    second: Any = Context()
    assert produce.hold(second, request, lambda verdicts, appended: served.append("second") or appended()) is None
    assert len(coordinator.asked) == 1
    coordinator.asked.pop()({})
    coordinator.asked.pop()({})
    assert first.closed == ["a transactional produce failed unexpectedly: KeyError: 'an error of ours'"] and served == ["second"]
    assert supervisor.unexpected == {"connection": 1} and not supervisor.failed.done()


async def test_a_controller_whose_timer_fails_gives_up_its_term(caplog: pytest.LogCaptureFixture) -> None:
    plane = ControlPlane()
    core, resigned = plane.controller.core, asyncio.get_running_loop().create_future()
    assert core is not None
    plane.raft.resign = resigned.set_result  # type: ignore[method-assign]

    def fails(now_ms: int) -> None:
        raise WireError("a record that cannot be encoded")

    core.on_deadline = fails  # type: ignore[method-assign, assignment]
    plane.controller._on_timer()
    assert await resigned == plane.raft.leader_epoch
    assert not plane.controller.is_active and plane.environment.supervisor.unexpected == {"term": 1}
    assert "the controller's timer failed unexpectedly, which ends the term" in caplog.text


async def test_a_controller_that_fails_before_an_event_has_its_turn_gives_up_its_term() -> None:
    plane = ControlPlane()
    core, resigned = plane.controller.core, asyncio.get_running_loop().create_future()
    assert core is not None
    plane.raft.resign = resigned.set_result  # type: ignore[method-assign]

    def fails(*arguments: Any) -> None:
        raise KeyError("an error of ours")

    core.broker_heard = fails  # type: ignore[method-assign]
    answered: list[ErrorCode] = []
    plane.controller.handle(BrokerHeartbeatRequest(broker_id=1), 1, lambda response, error: answered.append(error.code))  # type: ignore[union-attr]
    assert await resigned == plane.raft.leader_epoch and answered == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not plane.controller.is_active and plane.environment.supervisor.unexpected == {"term": 1}


async def test_a_controller_that_lacks_descriptors_hands_over_its_term(caplog: pytest.LogCaptureFixture) -> None:
    """It was an unexpected failure, with a stack trace, and clients got UNKNOWN_SERVER_ERROR; at the begin of a term it ended the node."""
    plane = ControlPlane()
    resigned = asyncio.get_running_loop().create_future()
    plane.raft.resign = resigned.set_result  # type: ignore[method-assign]

    def fails(*arguments: Any, **options: Any) -> int:
        raise ResourceShortage("cannot append", cause=OSError(errno.EMFILE, "Too many open files"))

    plane.raft.append = fails  # type: ignore[method-assign]
    entry = IncrementalAlterConfigsRequest.AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="", configs=[entry])
    with pytest.raises(ApiError) as refused:
        await plane.controller.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER, "the client asks again, and another controller may have what this one lacks"
    assert await resigned == plane.raft.leader_epoch
    assert not plane.controller.is_active and not plane.environment.supervisor.unexpected
    assert not plane.environment.supervisor.failed.done()
    assert "gives up the leadership of the quorum: cannot append: [Errno 24] Too many open files" in caplog.text


@pytest.mark.parametrize("is_broken", [False, True])
async def test_a_node_that_cannot_trust_its_memory_stops_like_a_killed_one(tmp_path: Path, is_broken: bool) -> None:
    async with live_node(tmp_path) as node:
        await create(node, "t")
        if is_broken:
            node.supervisor.break_down("a part failed unexpectedly", KeyError("an error of ours"))
        await node.stop()
        assert bool(list(tmp_path.rglob(CLEAN_SHUTDOWN))) is not is_broken


@pytest.mark.parametrize("part", ["handover.drain", "groups.stop", "lifecycle.stop", "dispatcher.close"])
async def test_a_node_with_an_unexpected_exception_while_it_stops_ends_at_once(tmp_path: Path, part: str) -> None:
    """It waited for the part that had failed, for ever, while its heartbeats went on; or it wrote what nobody could trust."""

    async def fails() -> None:
        raise KeyError("an error of ours")

    async with live_node(tmp_path) as node:
        await create(node, "t")

        async def waits_for_what_has_failed() -> None:
            node.supervisor.start(fails(), f"a part of {part}")
            await asyncio.get_running_loop().create_future()

        owner, name = part.split(".")
        setattr(getattr(node.broker, owner), name, waits_for_what_has_failed)
        await node.stop()
        assert node.supervisor.is_broken and isinstance(node.failed.result(), BrokenInvariant)
        is_closed_before = part in ("lifecycle.stop", "dispatcher.close")
        assert bool(list(tmp_path.rglob(CLEAN_SHUTDOWN))) is is_closed_before
    async with live_node(tmp_path) as node:
        assert "t" in node.metadata.image.topics_by_name


async def test_a_controller_that_cannot_take_office_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*arguments: Any) -> Any:
        raise KeyError("an error of ours")

    monkeypatch.setattr(Controller, "bootstrap", fails)
    with pytest.raises((StartError, KeyError), match="an error of ours"):
        async with live_node(tmp_path):
            pass
    assert "the metadata quorum failed unexpectedly, which ends the node: KeyError" in caplog.text
    # The node says it in a turn of the loop of its own.
    while "node 1 cannot continue" not in caplog.text:
        await asyncio.sleep(0)
