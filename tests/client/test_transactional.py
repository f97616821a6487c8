"""Our transactional producer against a broker process; librdkafka reads what it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from minikafka.client import consumer as ours
from minikafka.client.admin import Admin
from minikafka.client.errors import BrokerError, ClientError, DeliveryFailed, ProducerFenced, TransactionFailed
from minikafka.client.maintenance import Maintenance
from minikafka.client.produce_queue import PartitionQueue
from minikafka.client.producer import Producer
from minikafka.client.transactional import TransactionalProducer
from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import LoadAdjustedDeadline
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(60)
WAIT_S = 20


CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1, mode="process", config=CONFIG) as started:
        yield started


@pytest.fixture
async def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(name, partitions=2, replication_factor=1)
    return name


async def producer(cluster: EmbeddedCluster, transactional_id: str, **options: Any) -> TransactionalProducer:
    made = TransactionalProducer(cluster.bootstrap_servers, transactional_id, linger_ms=0, **options)
    await made.start()
    await made.init_transactions()
    return made


def read(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    """Every value that librdkafka shows to a reader with read_committed; sorted."""
    consumer = Consumer(
        {
            **cluster.client_config("confluent"), "group.id": "reads", "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline = LoadAdjustedDeadline(WAIT_S)
    while len(ended) < 2:
        assert not deadline.is_over, f"only {values} came"
        message = consumer.poll(0.1)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            values.append(message.value())
    consumer.close()
    return sorted(values)


async def test_committed_records_are_read_and_aborted_ones_are_not(cluster: EmbeddedCluster, topic: str) -> None:
    async with await producer(cluster, "orders") as orders:
        for number, is_committed in enumerate((True, False, True)):
            orders.begin()
            futures = [await orders.send(topic, b"%d-%d" % (number, index), partition=index) for index in (0, 1)]
            if is_committed:
                await orders.commit()
                assert [future.result().partition for future in futures] == [0, 1]
            else:
                await asyncio.gather(*futures)
                await orders.abort()
        orders.begin()
        unsent = await orders.send(topic, b"never")
        await orders.abort()
        with pytest.raises(DeliveryFailed):
            await unsent
        async with orders.transaction():
            pass
        with pytest.raises(ZeroDivisionError):
            async with orders.transaction():
                await orders.send(topic, b"%d" % (1 // 0))
        async with orders.transaction():
            await orders.send(topic, b"last", partition=0)
    assert read(cluster, topic) == [b"0-0", b"0-1", b"2-0", b"2-1", b"last"]


async def test_a_newer_producer_fences_an_older_one(cluster: EmbeddedCluster, topic: str) -> None:
    old = await producer(cluster, "one")
    old.begin()
    await (await old.send(topic, b"old", partition=0))
    new = await producer(cluster, "one")
    with pytest.raises(TransactionFailed):
        await old.commit()
    with pytest.raises(ProducerFenced):
        await old.abort()
    with pytest.raises(ProducerFenced):
        old.begin()
    async with new.transaction():
        await new.send(topic, b"new", partition=0)
    await old.close()
    await new.close()
    assert read(cluster, topic) == [b"new"]


async def test_a_producer_goes_on_after_its_transaction_took_too_long(cluster: EmbeddedCluster, topic: str) -> None:
    async with await producer(cluster, "slow", transaction_timeout_ms=1) as slow, Producer(cluster.bootstrap_servers) as other:
        slow.begin()
        await (await slow.send(topic, b"late", partition=0))
        # Readers get no further than the open transaction; so this is read when the coordinator has aborted it.
        await (await other.send(topic, b"behind", partition=0))
        while read(cluster, topic) != [b"behind"]:
            await asyncio.sleep(0.05)
        with pytest.raises(TransactionFailed):
            await slow.commit()
        with pytest.raises(TransactionFailed):
            await slow.send(topic, b"not without abort")
        await slow.abort()
        async with slow.transaction():
            await slow.send(topic, b"next", partition=0)
    assert read(cluster, topic) == [b"behind", b"next"]


async def test_offsets_count_with_the_transaction_and_only_for_members_of_now(cluster: EmbeddedCluster, topic: str) -> None:
    member = ours.Consumer(cluster.bootstrap_servers, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False)
    await member.start()
    await member.subscribe([topic])
    while not member.assignment:
        await member.poll(100)
    async with await producer(cluster, "copies") as copies:
        copies.begin()
        await copies.send_offsets_to_transaction({(topic, 0): 7}, member.group_metadata)
        await copies.abort()
        assert await member.committed([(topic, 0)]) == {(topic, 0): None}
        async with copies.transaction():
            await copies.send(topic, b"made of 0 to 8", partition=1)
            await copies.send_offsets_to_transaction({(topic, 0): 9}, member.group_metadata)
        while (await member.committed([(topic, 0)]))[(topic, 0)] != 9:
            await asyncio.sleep(0.02)  # the marker follows the answer
        gone = member.group_metadata
        await member.close()
        copies.begin()
        with pytest.raises(TransactionFailed, match="UNKNOWN_MEMBER_ID"):
            await copies.send_offsets_to_transaction({(topic, 0): 11}, gone)
        with pytest.raises(TransactionFailed):
            await copies.commit()
        await copies.abort()
        async with copies.transaction():
            await copies.send_offsets_to_transaction({(topic, 1): 1}, topic)


async def test_a_commit_without_an_answer_is_repeated_or_known_by_abort(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await producer(cluster, "deaf", request_timeout_ms=500) as deaf:
        original = deaf._request

        async def unanswered(*arguments: Any) -> Any:
            await original(*arguments)
            raise TimeoutError

        for is_asked_by_abort in (False, True):
            deaf.begin()
            await deaf.send(topic, b"%d" % is_asked_by_abort, partition=0)
            with monkeypatch.context() as patch:
                patch.setattr(deaf, "_request", unanswered)
                with pytest.raises(TimeoutError):
                    await deaf.commit()
            if is_asked_by_abort:
                with pytest.raises(BrokerError) as refused:
                    await deaf.abort()
                assert refused.value.code is ErrorCode.INVALID_TXN_STATE
            await deaf.commit()
        async with deaf.transaction():
            await deaf.send(topic, b"next", partition=0)
    assert read(cluster, topic) == [b"0", b"1", b"next"]


async def test_what_cannot_work_is_said(cluster: EmbeddedCluster, topic: str) -> None:
    with pytest.raises(ClientError, match="empty"):
        TransactionalProducer(cluster.bootstrap_servers, "")
    with pytest.raises(ClientError, match="acks=all"):
        TransactionalProducer(cluster.bootstrap_servers, "x", acks=1)
    async with TransactionalProducer(cluster.bootstrap_servers, "x") as early:
        with pytest.raises(ClientError, match="init_transactions"):
            early.begin()
        await early.init_transactions()
        with pytest.raises(ClientError, match="no transaction"):
            await early.send(topic, b"x")
        with pytest.raises(ClientError, match="no transaction"):
            await early.commit()
        with pytest.raises(ClientError, match="once"):
            await early.init_transactions()
        early.begin()
        with pytest.raises(ClientError, match="open"):
            early.begin()


async def test_a_cluster_of_before_transaction_version_2() -> None:
    """Partitions and groups are told to the coordinator first; an epoch, and its numbers, go on from one transaction to the next."""
    with EmbeddedCluster(brokers=1, mode="process", config=CONFIG, topics={"t": 2}) as cluster:
        async with Maintenance(cluster.bootstrap_servers) as maintenance:
            outcome = await maintenance.update_features({"transaction.version": 1}, upgrade_type=2)
            assert outcome["transaction.version"].is_good, outcome
        async with await producer(cluster, "orders") as orders:
            expected = []
            for number, is_committed in enumerate((True, True, False, True, True)):
                orders.begin()
                futures = [await orders.send("t", b"%d-%d" % (number, index), partition=index) for index in (0, 1)]
                if is_committed:
                    await orders.send_offsets_to_transaction({("t", 0): number + 1}, "group")
                    await orders.commit()
                    expected += [b"%d-0" % number, b"%d-1" % number]
                else:
                    await asyncio.gather(*futures)
                    await orders.abort()
            orders.begin()
            await orders.send("t", b"never")
            await orders.abort()
            async with orders.transaction():
                pass
            newer = await producer(cluster, "orders")
            with pytest.raises(TransactionFailed):
                async with orders.transaction():
                    await orders.send("t", b"fenced", partition=0)
            async with newer.transaction():
                await newer.send_offsets_to_transaction({("t", 1): 9}, "group")
            await newer.close()
        assert read(cluster, "t") == expected
        async with ours.Consumer(cluster.bootstrap_servers, group_id="group") as consumer:
            assert await consumer.committed([("t", 0), ("t", 1)]) == {("t", 0): 5, ("t", 1): 9}


async def test_every_transaction_after_a_refused_epoch_has_a_new_one(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is behind may refuse an epoch that the coordinator has given: the next transaction has the next, again and again."""
    refusals = 3
    used: list[tuple[int, int]] = []
    async with await producer(cluster, topic) as going:
        attempt = going._attempt

        async def refused(queue: PartitionQueue) -> Any:
            sent = await attempt(queue)
            used.append(sent[0][0].producer)
            if len(used) <= refusals:
                for _, answer in sent:
                    answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
            return sent

        monkeypatch.setattr(going, "_attempt", refused)
        for number in range(refusals + 2):
            going.begin()
            future = await going.send(topic, b"%d" % number, partition=0)
            if number < refusals:
                with pytest.raises(TransactionFailed, match="INVALID_PRODUCER_EPOCH"):
                    await going.commit()
                await going.abort()
            else:
                await going.commit()
                await future
    assert used == [(used[0][0], used[0][1] + number) for number in range(refusals + 2)]
    assert read(cluster, topic) == [b"3", b"4"]
