"""Administration while coordinators move or read their logs: it looks for them again, as Apache Kafka's Admin does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from minikafka.client.errors import BrokerError
from minikafka.client.maintenance import Maintenance
from minikafka.client.share_groups import ShareGroupAdmin
from minikafka.client.streams_groups import describe_streams_group
from minikafka.client.transactions import describe_transaction, force_terminate, list_transactions
from minikafka.testing import EmbeddedCluster
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(120)
Work = Callable[[Maintenance], Awaitable[Any]]
#: API and what is asked of it: of a group g with a committed offset, a share group s and a transactional id x.
ASKED: list[tuple[str, Work]] = [
    ("DescribeGroups", lambda admin: admin.describe_group("g")),
    ("OffsetFetch", lambda admin: admin.group_offsets("g")),
    ("ListGroups", lambda admin: admin.list_groups_with_types()),
    ("OffsetCommit", lambda admin: admin.commit_offsets("g", {("t", 0): 0})),
    ("OffsetDelete", lambda admin: admin.delete_offsets("g", [("t", 0)])),
    ("DeleteGroups", lambda admin: admin.delete_group("g")),
    ("AlterShareGroupOffsets", lambda admin: ShareGroupAdmin(admin).alter_offsets("s", {("t", 0): 0})),
    ("DescribeShareGroupOffsets", lambda admin: ShareGroupAdmin(admin).offsets("s")),
    ("ShareGroupDescribe", lambda admin: ShareGroupAdmin(admin).describe("s")),
    ("DeleteShareGroupOffsets", lambda admin: ShareGroupAdmin(admin).delete_offsets("s", ["t"])),
    ("DescribeTransactions", lambda admin: describe_transaction(admin, "x")),
    ("ListTransactions", list_transactions),
    ("InitProducerId", lambda admin: force_terminate(admin, "x")),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, topics=["t"]) as made:
        producer = confluent_kafka.Producer(made.client_config(**{"transactional.id": "x"}))
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("t", b"v")
        producer.commit_transaction(30)
        consumer = confluent_kafka.Consumer(made.client_config(**{"group.id": "g"}))
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 0)], asynchronous=False)
        consumer.close()
        yield made


@pytest.mark.parametrize("error", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_coordinator_that_is_not_ready_is_asked_again(cluster: EmbeddedCluster, error: str) -> None:
    async def work() -> None:
        async with Maintenance(cluster.bootstrap_servers) as admin:
            for api, asked in ASKED:
                await admin.commit_offsets("g", {("t", 0): 0})
                with cluster.fault(api, error=error, count=2) as fault:
                    await asked(admin)
                assert fault.hits == 2, api

    asyncio.run(work())


def test_what_a_group_is_refused_for_is_said_at_once(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        async with Maintenance(cluster.bootstrap_servers) as admin:
            for asked in (admin.delete_group("nobody"), describe_streams_group(admin, "nobody"), ShareGroupAdmin(admin).describe("nobody")):
                with pytest.raises(BrokerError) as refused:
                    await asked
                assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    asyncio.run(work())


def test_a_coordinator_that_never_is_ready_is_named_in_the_end(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        async with Maintenance(cluster.bootstrap_servers, timeout_ms=300) as admin:
            with cluster.fault("DeleteGroups", error="NOT_COORDINATOR", count=0), pytest.raises(BrokerError) as refused:
                await admin.delete_group("g")
            assert refused.value.code is ErrorCode.NOT_COORDINATOR

    asyncio.run(work())
