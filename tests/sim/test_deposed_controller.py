"""A combined node that leads the metadata quorum and is cut off from the others, not from clients. They elect another controller, which
gives the broker of its predecessor's node 0.2 s; that one's heartbeats go to the controller in its own process, which does not know that it
has a successor."""

from __future__ import annotations

import errno

import pytest
from helpers.coordinator_story import TOPIC
from helpers.cut_off import CutOff

from minikafka.sim.network import _Attempt
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest

SESSION_MS = 9000


class DeposedController(CutOff):
    """The sleeper is also the active controller.

    `ends_connections`: whether its connections end or fall silent. `verified`: (seconds, the answer to a leader that asks whether a
    partition belongs to a transaction).
    """

    shape = "combined"
    watch_s = 5.0
    ends_connections = True
    patch: pytest.MonkeyPatch

    def __init__(self, **properties: str) -> None:
        super().__init__(**properties)
        self.verified: list[tuple[float, ErrorCode]] = []

    async def ask_offset(self) -> tuple[ErrorCode, int]:
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
        asked = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=0, verify_only=True, topics=topics
        )
        found = await self.ask(self.sleeper, AddPartitionsToTxnRequest(transactions=[asked]), 4)
        [topic] = found.results_by_transaction[0].topic_results
        self.verified.append((self.now, ErrorCode(topic.results_by_partition[0].partition_error_code)))
        return await super().ask_offset()

    def replicas(self) -> list[int]:
        first = [node.node_id for node in self.nodes.values() if node.node is not None and node.node.controller.is_active]
        return first + [node_id for node_id in self.nodes if node_id not in first]

    def end_connections(self, own: str) -> None:
        if self.ends_connections:
            super().end_connections(own)


class DeposedInSilence(DeposedController):
    ends_connections = False


class DeposedAndRefused(DeposedController):
    """Its connections end, and whom it asks refuses another one, as a firewall that rejects does."""

    refused = 0

    def end_connections(self, own: str) -> None:
        super().end_connections(own)
        ordinary = _Attempt.ask

        def ask(attempt: _Attempt) -> None:
            if attempt.there.is_cut and not attempt.future.done():
                self.refused += 1
                attempt.future.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
            else:
                ordinary(attempt)

        self.patch.setattr(_Attempt, "ask", ask)


@pytest.mark.parametrize("story_of", [DeposedController, DeposedInSilence, DeposedAndRefused])
def test_the_broker_of_a_deposed_controller_does_not_tell_old_offsets(
    story_of: type[DeposedController], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = story_of(broker_session_timeout_ms=str(SESSION_MS), broker_heartbeat_interval_ms="2000")
    story.patch = monkeypatch
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert not isinstance(story, DeposedAndRefused) or story.refused > 1
    assert 0.2 < story.committed_s < 4.0
    assert not story.stale()
    assert story.answers[-1][1] is ErrorCode.NOT_COORDINATOR
    # Of a transaction that has been begun at the successor it would say that there is none, which ends its producer (INVALID_TXN_STATE).
    late = {code for at_s, code in story.verified if at_s - story.began_s >= story.committed_s}
    assert late == {ErrorCode.NOT_COORDINATOR} != {code for _, code in story.verified}
