"""An administrator's change whose answer was lost is asked for again; what the first try has done is no failure, what others did is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.live_node import broker_port, live_node

from minikafka.client.admin import Admin
from minikafka.client.errors import BrokerError, NoBrokers
from minikafka.net.channel import ConnectionLost
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest

pytestmark = pytest.mark.timeout(60)
CHANGES = (CreateTopicsRequest, DeleteTopicsRequest, CreatePartitionsRequest)


class Forgetful(Admin):
    """Loses the answer to every change that it is told to lose; `asked` are the changes, with how long each answer was waited for."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.losing: list[Exception | ErrorCode] = []
        #: What others do between the lost answer and the next try.
        self.meanwhile: Any = None
        self.asked: list[tuple[Any, int]] = []

    async def _ask(self, request: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(request, CHANGES):
            return await super()._ask(request, *arguments, **options)
        self.asked.append((request, options.get("timeout_ms", self._timeout_ms)))
        response = await super()._ask(request, *arguments, **options)
        if not self.losing:
            return response
        if self.meanwhile is not None:
            await self.meanwhile()
        lost = self.losing.pop(0)
        if isinstance(lost, Exception):
            raise lost
        for answer in getattr(response, "topics", None) or getattr(response, "responses", None) or response.results:
            answer.error_code = lost
        return response


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    async with live_node(tmp_path) as node:
        yield f"127.0.0.1:{broker_port(node)}"


@pytest.fixture
async def admin(address: str) -> AsyncIterator[Forgetful]:
    async with Forgetful(address) as admin:
        yield admin


LOST = pytest.mark.parametrize("lost", [TimeoutError(), ConnectionLost("cut"), ErrorCode.REQUEST_TIMED_OUT], ids=["late", "cut", "refused"])


@LOST
async def test_changes_made_by_the_first_try_count(admin: Forgetful, lost: Exception | ErrorCode) -> None:
    admin.losing = [lost]
    await admin.create_topic("t", partitions=3, replication_factor=1, configs={"retention.ms": "5000"})
    admin.losing = [lost]
    await admin.create_partitions("t", 5)
    assert len((await admin.describe_topics(["t"]))[0].partitions) == 5
    admin.losing = [lost]
    await admin.delete_topic("t")
    assert await admin.list_topics() == []
    admin.losing = [lost]
    await admin.create_topic("placed", assignments={0: [1], 1: [1]})
    assert [type(request) for request, _ in admin.asked] == [kind for kind in (*CHANGES[::2], *CHANGES[1::-1]) for _ in range(2)]


async def test_the_answer_is_waited_for_longer_than_the_broker_may_take(admin: Forgetful) -> None:
    admin.losing = [ConnectionLost("cut")]
    await admin.create_topic("t", partitions=1, replication_factor=1)
    await admin.create_partitions("t", 2)
    await admin.delete_topic("t")
    assert len(admin.asked) == 4
    for request, wait_ms in admin.asked:
        assert 0 < request.timeout_ms < wait_ms < 30_000


@pytest.mark.parametrize(
    ("partitions", "configs"), [(2, {}), (3, {"retention.ms": "6000"}), (3, {"cleanup.policy": "compact"})], ids=["size", "value", "config"]
)
async def test_a_topic_that_another_made_otherwise_is_in_the_way(
    admin: Forgetful, address: str, partitions: int, configs: dict[str, str]
) -> None:
    async with Admin(address) as other:

        async def replace() -> None:
            await other.delete_topic("t")
            await other.create_topic("t", partitions=partitions, replication_factor=1, configs=configs)

        admin.losing, admin.meanwhile = [TimeoutError()], replace
        with pytest.raises(BrokerError) as refused:
            await admin.create_topic("t", partitions=3, replication_factor=1, configs={"retention.ms": "5000"} if configs else {})
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_more_partitions_than_were_asked_for_are_not_ours(admin: Forgetful, address: str) -> None:
    await admin.create_topic("t", partitions=1, replication_factor=1)
    async with Admin(address) as other:
        admin.losing, admin.meanwhile = [TimeoutError()], lambda: other.create_partitions("t", 4)
        with pytest.raises(BrokerError) as refused:
            await admin.create_partitions("t", 3)
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


async def test_a_new_topic_of_the_name_is_not_deleted(admin: Forgetful, address: str) -> None:
    await admin.create_topic("t", partitions=1, replication_factor=1)
    async with Admin(address) as other:
        admin.losing, admin.meanwhile = [TimeoutError()], lambda: other.create_topic("t", partitions=4, replication_factor=1)
        await admin.delete_topic("t")
    assert len((await admin.describe_topics(["t"]))[0].partitions) == 4


async def test_a_new_topic_of_the_name_is_not_deleted_where_the_old_one_is_still_known(admin: Forgetful, address: str) -> None:
    await admin.create_topic("t", partitions=1, replication_factor=1)
    topic_id = await admin._topic_id_now("t")

    async def stale(name: str) -> bytes | None:
        return topic_id

    admin._topic_id_now = stale  # type: ignore[method-assign]
    async with Admin(address) as other:
        admin.losing, admin.meanwhile = [TimeoutError()], lambda: other.create_topic("t", partitions=4, replication_factor=1)
        await admin.delete_topic("t")
        assert len((await other.describe_topics(["t"]))[0].partitions) == 4
        with pytest.raises(BrokerError) as refused:
            await admin.delete_topic("t")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "that is what it is called for topics with names"


async def test_without_a_lost_answer_a_refusal_is_one(admin: Forgetful) -> None:
    await admin.create_topic("t", partitions=1, replication_factor=1)
    for change, code in (
        (admin.create_topic("t", partitions=1, replication_factor=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (admin.create_partitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (admin.delete_topic("u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        with pytest.raises(BrokerError) as refused:
            await change
        assert refused.value.code is code
    assert len(admin.asked) == 4
    admin.losing = [TimeoutError()]
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):  # nothing was to be created
        await admin.create_topic("t", partitions=1, replication_factor=1, validate_only=True)


async def test_it_ends_with_its_time() -> None:
    class Deaf(Admin):
        async def _ask(self, *arguments: Any, **options: Any) -> Any:
            raise ConnectionLost("cut")

    started = time.monotonic()
    with pytest.raises(ConnectionLost):
        await Deaf("127.0.0.1:1", timeout_ms=100).create_topic("t")
    assert time.monotonic() - started < 30
    with pytest.raises(NoBrokers):
        await Admin("127.0.0.1:1").create_topic("t")
