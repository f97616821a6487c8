"""Administration of partitions whose leader moves or has died: it looks for the new one, as Apache Kafka's Admin does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from minikafka.client.errors import BrokerError
from minikafka.client.maintenance import Maintenance
from minikafka.client.producer import Producer
from minikafka.client.transactions import describe_producers
from minikafka.testing import EmbeddedCluster
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(120)
ASKED: list[tuple[str, Callable[[Maintenance], Awaitable[Any]]]] = [
    ("DeleteRecords", lambda admin: admin.delete_records({("t", 0): 0})),
    ("DeleteRecords", lambda admin: admin.delete_records_of({("t", 0): 0})),
    ("DescribeProducers", lambda admin: describe_producers(admin, "t", 0)),
    ("ListOffsets", lambda admin: admin.list_offsets({("t", 0): "latest"})),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={"t": 1, "moves": 1}) as made:
        yield made


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE"])
@pytest.mark.parametrize("number", range(len(ASKED)))
def test_a_leader_that_is_none_any_more_is_asked_again(cluster: EmbeddedCluster, number: int, error: str) -> None:
    api, asked = ASKED[number]

    async def work() -> None:
        async with Maintenance(cluster.bootstrap_servers) as admin:
            with cluster.fault(api, error=error, count=2) as fault:
                await asked(admin)
            assert fault.hits == 2

    asyncio.run(work())


def test_records_are_deleted_though_the_leader_has_just_died(cluster: EmbeddedCluster) -> None:
    """The client's metadata name the dead broker."""

    async def work() -> None:
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(3):
                await (await producer.send("moves", b"v"))
        async with Maintenance(cluster.bootstrap_servers) as admin:
            assert (await admin.list_offsets({("moves", 0): "latest"}))[("moves", 0)].offset == 3
            for offset, ask in ((1, admin.delete_records), (2, admin.delete_records_of)):
                leader = cluster.broker(cluster.leader("moves", 0))
                await asyncio.to_thread(leader.kill)
                assert await ask({("moves", 0): offset}) == {("moves", 0): offset}
                await asyncio.to_thread(leader.start)

    asyncio.run(work())


def test_what_asking_again_cannot_change_is_said_at_once(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        async with Maintenance(cluster.bootstrap_servers) as admin:
            with pytest.raises(BrokerError) as error:
                await admin.delete_records({("t", 0): 99})
            assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            found = await admin.delete_records_of({("t", 0): 99})
            assert found[("t", 0)].code is ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[union-attr]

    asyncio.run(work())
