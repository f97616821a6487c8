"""A broker that is cut off from controllers and brokers, and not from clients: the controller replaces it 0.1 s after the connection of its
heartbeats has ended, long before its session ends. What others commit then it does not know, and must not answer from memory."""

from __future__ import annotations

import asyncio

from helpers.coordinator_story import Story
from helpers.cut_off import CutOff

from minikafka.broker.partitions.fetch import UNHEARD_WAIT_MS
from minikafka.broker.partitions.replica_manager import FOLLOWED_MS
from minikafka.wire.errors import ErrorCode

SESSION_MS = 9000


class HalfOpen(CutOff):
    """Only the controller is told that the connection has ended."""

    watch_s = 6.0

    def end_connections(self, own: str) -> None:
        for node in self.controllers:
            for connection in self.fabric.connections(node.host):
                if connection.peer_host == own:
                    connection._reset()


class NoController(Story):
    """The only controller is away for four seconds. `refused`: (seconds since then, error) of OffsetFetch."""

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        self.refused: list[tuple[float, ErrorCode]] = []

    async def play(self) -> None:
        await self.begin()
        # Nobody writes: followers wait for as long as they may.
        await asyncio.sleep(1.2)
        [controller] = self.controllers
        controller.kill()
        question, version = self.questions()["OffsetFetch"]
        began_s = self.now
        while (at_s := self.now - began_s) < 4.0:
            self.passed(at_s)
            code = ErrorCode((await self.ask(self.sleeper, question, version)).error_code)
            if code:
                self.refused.append((round(at_s, 4), code))
            await asyncio.sleep(0.005)
        self.fabric.heal()
        controller.boot()

    def passed(self, at_s: float) -> None:
        """So many seconds have passed."""


class CutOffLater(NoController):
    """The followers are cut off when the controller has been away for two seconds."""

    def passed(self, at_s: float) -> None:
        if at_s < 2.0:
            return
        own = self.nodes[self.sleeper].host
        for node in self.brokers:
            if node.host != own and not self.fabric.link(own, node.host).is_cut:
                self.fabric.cut(own, node.host)
                self.fabric.cut(node.host, own)


def test_a_coordinator_replaced_within_its_session_does_not_serve_old_offsets() -> None:
    story = CutOff(broker_session_timeout_ms=str(SESSION_MS))
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert story.committed_s < 1.0, "the session would have lasted much longer"
    assert not story.stale()
    assert story.answers[-1][1] is ErrorCode.NOT_COORDINATOR


def test_a_connection_that_ended_at_the_controllers_side_alone_is_noticed_by_the_late_answer() -> None:
    """What is left: until the next heartbeat, an eighth of the session for its answer, and half of the time to come back."""
    interval_ms = 2000
    story = HalfOpen(broker_session_timeout_ms=str(SESSION_MS), broker_heartbeat_interval_ms=str(interval_ms))
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert story.stale(), "nobody has told the broker"
    assert story.stale()[-1][0] <= (interval_ms + SESSION_MS / 8 + 50) / 1000 + 0.02
    assert story.answers[-1][1] is ErrorCode.NOT_COORDINATOR


def test_coordinators_go_on_while_controllers_are_away() -> None:
    """The followers are asked at once, and again and again."""
    story = NoController(broker_session_timeout_ms=str(SESSION_MS))
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert story.refused == []


def test_a_follower_that_turned_away_is_believed_for_a_second() -> None:
    story = CutOffLater(broker_session_timeout_ms=str(SESSION_MS))
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    first_s, code = story.refused[0]
    assert code is ErrorCode.NOT_COORDINATOR
    assert 2.0 + (FOLLOWED_MS - 2 * UNHEARD_WAIT_MS) / 1000 - 0.05 <= first_s <= 2.0 + FOLLOWED_MS / 1000 + 0.05
