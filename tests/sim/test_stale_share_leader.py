"""A leader that is cut off from controllers and brokers, and not from the members of a share group: its successor may confirm
acknowledgements that it does not know of, so it must not deliver records once it may have been replaced."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers.coordinator_story import TOPIC
from helpers.cut_off import CutOff

from minikafka.client.group import find_coordinator
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.uuid import uuid_to_text

SHARERS = "sharers"
MEMBER = uuid_to_text(bytes(15) + b"\x01")
RELEASE = 2
GROUP_RESOURCE = 32


class StaleShareLeader(CutOff):
    """`acquired`: the records that the replaced leader delivers; `code`: its error for the partition."""

    acquired: list[Any]
    code: ErrorCode

    async def play(self) -> None:
        await self.begin()
        async with self.workload.admin() as admin:
            await admin.alter_configs(GROUP_RESOURCE, SHARERS, [("set", "share.auto.offset.reset", "earliest")])
        self.topic_id = (await self.cluster.topic(TOPIC)).topic_id
        self.epoch = 0
        await self.join()
        while not (delivered := await self.fetch()).acquired_records:
            await asyncio.sleep(0.02)
        await self.release(delivered.acquired_records[0])
        self.began_s = self.now
        self.isolate()
        while (await self.leader_now()) in (self.sleeper, -1):
            await asyncio.sleep(0.005)
        delivered = await self.fetch()
        self.acquired, self.code = delivered.acquired_records, ErrorCode(delivered.error_code)
        self.fabric.heal()

    async def join(self) -> None:
        epoch, assigned = 0, False
        while not assigned:
            coordinator = await find_coordinator(self.cluster, SHARERS)
            names = [TOPIC] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(group_id=SHARERS, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=names)
            answer = await self.ask(coordinator.node_id, request, 1)
            epoch = answer.member_epoch or epoch
            assigned = answer.assignment is not None and bool(answer.assignment.topic_partitions)
            await asyncio.sleep(0.05)

    async def fetch(self) -> Any:
        kind = ShareFetchRequest
        topics = [kind.FetchTopic(topic_id=self.topic_id, partitions=[kind.FetchPartition(partition_index=0)])]
        request = kind(
            group_id=SHARERS, member_id=MEMBER, share_session_epoch=self.epoch, max_wait_ms=200, min_bytes=1, max_bytes=1000,
            max_records=10, batch_size=10, topics=topics if self.epoch == 0 else [],
        )  # fmt: skip
        answer = await self.ask(self.sleeper, request, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch += 1
        found = [data for topic in answer.responses for data in topic.partitions]
        return found[0] if found else ShareFetchResponse.PartitionData()

    async def release(self, run: Any) -> None:
        kind = ShareAcknowledgeRequest
        batch = kind.AcknowledgementBatch(first_offset=run.first_offset, last_offset=run.last_offset, acknowledge_types=[RELEASE])
        partition = kind.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = kind(
            group_id=SHARERS, member_id=MEMBER, share_session_epoch=self.epoch,
            topics=[kind.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])],
        )  # fmt: skip
        answer = await self.ask(self.sleeper, request, 1)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer
        self.epoch += 1


def test_a_share_leader_that_may_have_been_replaced_delivers_nothing() -> None:
    story = StaleShareLeader(broker_session_timeout_ms="9000")
    outcome = story.run()
    assert outcome.violation is None, outcome.story
    assert (story.acquired, story.code) == ([], ErrorCode.NOT_LEADER_OR_FOLLOWER)
