"""The bundled consumer with group.protocol=consumer (KIP-848) against a broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from minikafka.client import Admin, Consumer, Producer
from minikafka.client.errors import ClientError
from minikafka.testing import EmbeddedCluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.leave_group import LeaveGroupRequest

QUICK = {
    "group.consumer.heartbeat.interval.ms": "50", "group.consumer.min.heartbeat.interval.ms": "50", "offsets.topic.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0", "group.consumer.session.timeout.ms": "1500",
    "group.consumer.min.session.timeout.ms": "1000",
}  # fmt: skip
PARTITIONS = 4
ALL = [("t", index) for index in range(PARTITIONS)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, config=QUICK) as made:
        yield made


def consumer(cluster: EmbeddedCluster, group: str, **settings: object) -> Consumer:
    given = {"auto_offset_reset": "earliest", "group_protocol": "consumer", **settings}
    return Consumer(cluster.bootstrap_servers, group_id=group, **given)  # type: ignore[arg-type]


async def until(condition: Callable[[], object], what: str, *polled: Consumer) -> list[tuple[str, int, int]]:
    """What the consumers read until then."""
    read: list[tuple[str, int, int]] = []
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        for each in polled:
            read += [(record.topic, record.partition, record.offset) for record in await each.poll(20)]
    return read


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())  # type: ignore[arg-type]


async def written(cluster: EmbeddedCluster, topic: str, count: int = 1) -> None:
    async with Admin(cluster.bootstrap_servers) as admin, Producer(cluster.bootstrap_servers) as producer:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        for index in range(PARTITIONS):
            for number in range(count):
                await (await producer.send(topic, b"%d" % number, partition=index))


def test_members_share_and_what_was_read_is_not_read_again(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        await written(cluster, "t", 3)
        async with consumer(cluster, "g") as one:
            await one.subscribe(["t"])
            read = await until(lambda: sorted(one.assignment) == ALL, "one has everything", one)
            read += await until(lambda: all((one.position(key) or 0) == 3 for key in ALL), "one has read everything", one)
            async with consumer(cluster, "g") as two:
                await two.subscribe(["t"])
                read += await until(lambda: len(two.assignment) == len(one.assignment) == 2, "two share", one, two)
                assert sorted(one.assignment + two.assignment) == ALL
                await one.commit()
                assert one.group_metadata.generation > 1 and two.group_metadata.member_id
                read += await until(lambda: all(two.position(key) is not None for key in two.assignment), "two has positions", two)
            read += await until(lambda: sorted(one.assignment) == ALL, "one has everything again", one)
            read += await until(lambda: all(one.position(key) == 3 for key in ALL), "one is where it was", one)
        assert sorted(read) == [("t", index, offset) for index in range(PARTITIONS) for offset in range(3)]

    run(work)


def test_a_pattern_is_the_brokers_to_resolve(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        await written(cluster, "p-one")
        async with consumer(cluster, "patterns", group_remote_assignor="range") as one:
            await one.subscribe(pattern="p-.*")
            await until(lambda: len(one.assignment) == PARTITIONS, "the topic that there is", one)
        async with consumer(cluster, "bad") as one:
            await one.subscribe(pattern="p(")
            with pytest.raises(ClientError, match="not a valid regular expression: missing closing"):
                await until(lambda: False, "a refusal", one)
        async with consumer(cluster, "worse", group_remote_assignor="best") as one:
            await one.subscribe(["t"])
            with pytest.raises(ClientError, match="ServerAssignor best is not supported"):
                await until(lambda: False, "a refusal", one)

    run(work)


def test_a_static_member_comes_back_to_what_it_had(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        await written(cluster, "s")
        async with consumer(cluster, "static", group_instance_id="i") as one, consumer(cluster, "static") as other:
            for each in (one, other):
                await each.subscribe(["s"])
            await until(lambda: len(one.assignment) == len(other.assignment) == 2, "they share", one, other)
            had, epoch = one.assignment, one.group_metadata.generation
            await one.close()
            async with consumer(cluster, "static", group_instance_id="i") as again:
                await again.subscribe(["s"])
                await until(lambda: len(again.assignment) == 2, "it has its own", again, other)
                assert (sorted(again.assignment), again.group_metadata.generation) == (sorted(had), epoch), "nobody noticed"
                async with consumer(cluster, "static", group_instance_id="i") as third:
                    await third.subscribe(["s"])
                    with pytest.raises(ClientError, match="instance id is owned by"):
                        await until(lambda: False, "a refusal", third)

    run(work)


def test_a_fenced_member_loses_everything_and_joins_again(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        await written(cluster, "f")
        async with consumer(cluster, "fenced") as one:
            await one.subscribe(["f"])
            await until(lambda: len(one.assignment) == PARTITIONS, "it has everything", one)
            epoch = one.group_metadata.generation
            # An administrator sends it away.
            leave = LeaveGroupRequest(group_id="fenced", members=[LeaveGroupRequest.MemberIdentity(member_id=one.group_metadata.member_id)])
            answer = await one._ask_coordinator(leave, 5)
            assert [member.error_code for member in answer.members] == [ErrorCode.NONE]
            await until(lambda: not one.assignment, "it is fenced", one)
            await until(lambda: len(one.assignment) == PARTITIONS, "it has everything again", one)
            assert one.group_metadata.generation > epoch

    run(work)


def test_settings_that_do_not_go_together_are_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ClientError, match="group_protocol=newest: must be classic or consumer"):
        consumer(cluster, "g", group_protocol="newest")
    with pytest.raises(ClientError, match="needs group_protocol=consumer"):
        consumer(cluster, "g", group_protocol="classic", group_remote_assignor="range")

    async def work() -> None:
        async with consumer(cluster, "g", group_protocol="classic") as one:
            with pytest.raises(ClientError, match="needs group_protocol=consumer"):
                await one.subscribe(pattern="t.*")

    run(work)
