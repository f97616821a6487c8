"""A broker that was stopped for longer than its session wakes up, and does not know that others have its leaderships: whoever asks it
then is to ask again elsewhere. By what it has in memory Apache Kafka answers such a client with errors that end a producer, or,
worse, that a transaction is committed which is open, and with offsets of long ago."""

from __future__ import annotations

import asyncio

from helpers.coordinator_story import GROUP, TRANSACTION, Story, code_of

from minikafka.wire.errors import ErrorCode

SLEEP_S = 4.0


class Sleep(Story):
    """The broker is stopped, and asked when it goes on."""

    async def play(self) -> None:
        await self.begin()
        channel = await self.cluster.channel_to(self.sleeper)
        self.nodes[self.sleeper].pause(SLEEP_S)
        while (await self.leader_now()) == self.sleeper:
            await asyncio.sleep(0.05)
        # What comes next happens elsewhere: the transaction goes on, the group commits, the producer writes.
        for kind, key in ((GROUP, self.group), (TRANSACTION, self.transactional_id)):
            while (await self.coordinator(kind, key)) in (self.sleeper, -1):
                await asyncio.sleep(0.05)
        await self.repeat(
            lambda: self.at_coordinator(TRANSACTION, self.transactional_id, self.add_partitions(), 3), "results_by_topic_v3_and_below"
        )
        await self.commit_offset(await self.coordinator(GROUP, self.group), 2)
        await self.produce(await self.leader_now(), 1)
        asked = {name: channel.request(*question, 30_000) for name, question in self.questions().items()}
        found = await asyncio.gather(*asked.values())
        self.answers = {name: code_of(name, response) for name, response in zip(asked, found, strict=True)}


class LostQuorum(Story):
    """The controllers are gone for a while."""

    async def play(self) -> None:
        await self.begin()
        for node in self.controllers:
            node.kill()
        await asyncio.sleep(SLEEP_S)
        await self.ask_all()
        for node in self.controllers:
            node.boot()


def test_a_broker_that_wakes_up_after_its_session_says_so() -> None:
    story = Sleep()
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    coordinator = dict.fromkeys(
        ["EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "OffsetFetch"], ErrorCode.NOT_COORDINATOR
    )
    finding = dict.fromkeys(["FindCoordinator", "FindCoordinator of a transaction"], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = dict.fromkeys(["Produce", "Fetch"], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert story.answers == {**coordinator, **finding, **leader}


def test_a_broker_whose_controllers_are_gone_goes_on() -> None:
    """Its in-sync set follows it: nobody else has been elected, and nothing is in doubt."""
    story = LostQuorum()
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert story.answers == {
        "EndTxn": ErrorCode.NONE,
        "AddPartitionsToTxn": ErrorCode.NONE,
        "AddOffsetsToTxn": ErrorCode.PRODUCER_FENCED,
        "TxnOffsetCommit": ErrorCode.INVALID_TXN_STATE,
        "OffsetFetch": ErrorCode.NONE,
        "FindCoordinator": ErrorCode.NONE,
        "FindCoordinator of a transaction": ErrorCode.NONE,
        "Produce": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "Fetch": ErrorCode.OFFSET_OUT_OF_RANGE,
    }
