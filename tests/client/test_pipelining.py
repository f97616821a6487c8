"""Several batches of a partition on their way at once: whatever happens to one, order holds and nothing is there twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from helpers.batches import batch
from helpers.topic_server import TopicServer

from minikafka.client import producer as producers
from minikafka.client.blocking import BlockingLoop
from minikafka.client.errors import ClientError, DeliveryFailed
from minikafka.client.producer import Producer
from minikafka.client.resuming import ResumingProducer, last_sequences
from minikafka.wire.errors import ErrorCode

pytestmark = pytest.mark.timeout(30)


def prepared(*values: bytes) -> bytearray:
    made = batch(*values)
    made[17:21] = bytes(4)  # the checksum is the producer's
    return made


def stored(server: TopicServer, partition: int = 0) -> list[bytes]:
    return [bytes(record.value) for record in server.records(partition)]


async def send_all(producer: Producer, count: int, partition: int = 0) -> list[asyncio.Future[Any]]:
    return [await producer.send_batch("t", partition, prepared(b"%d" % n, b"%d+" % n), 2) for n in range(count)]


EVERYTHING = [text for n in range(40) for text in (b"%d" % n, b"%d+" % n)]


def at(fault: Any, *numbers: int) -> Callable[[int, int], Any]:
    return lambda _, number: fault if number in numbers else None


@pytest.mark.parametrize("fault", [
    at("drop", 1), at("drop", 3), at("drop", 3, 4, 9), at(ErrorCode.NOT_LEADER_OR_FOLLOWER, 1),
    at(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2, 3, 11), at(ErrorCode.NOT_ENOUGH_REPLICAS, 5, 6, 7, 8), None,
])  # fmt: skip
async def test_retried_batches_keep_their_order(fault: Any) -> None:
    with TopicServer("t", 2, fault) as server:
        async with Producer(server.bootstrap) as producer:
            futures = await send_all(producer, 40)
            await producer.flush()
            assert [future.result().offset in {2 * n, -1} for n, future in enumerate(futures)] == [True] * 40
        assert stored(server) == EVERYTHING
        assert (producer.retries > 0) == (fault is not None)


async def test_records_and_whole_batches_share_a_partition(caplog: pytest.LogCaptureFixture) -> None:
    with TopicServer("t", 1, at("drop", 2)) as server:
        async with Producer(server.bootstrap, linger_ms=1000) as producer:
            await producer.send("t", b"first", partition=0)
            await producer.send_batch("t", 0, prepared(b"second", b"third"), 2)
            await producer.send("t", b"fourth", partition=0)
            await producer.flush()
        assert stored(server) == [b"first", b"second", b"third", b"fourth"]


class Counting(Producer):
    most = 0

    def _group(self, queue: Any) -> Any:
        group = super()._group(queue)
        self.most = max(self.most, len(group))
        return group


@pytest.mark.parametrize(("options", "most"), [
    ({}, producers.IN_FLIGHT_MAX), ({"enable_idempotence": False}, 1), ({"acks": 1}, 1), ({"acks": 0}, 1),
])  # fmt: skip
async def test_so_many_are_on_their_way_at_once(options: Any, most: int) -> None:
    with TopicServer("t", 1) as server:
        async with Counting(server.bootstrap, **options) as producer:
            await send_all(producer, 4 * producers.IN_FLIGHT_MAX)
            await producer.flush()
    assert producer.most == most


@pytest.mark.parametrize("number", [1, 2, 3, 5])
async def test_batches_behind_a_refused_one_get_new_sequences(number: int) -> None:
    """Refused for good in the midst of those on their way: the others are stored, in order, under the next producer id."""
    with TopicServer("t", 1, at(ErrorCode.INVALID_TIMESTAMP, number)) as server:
        async with Producer(server.bootstrap) as producer:
            futures = await send_all(producer, 12)
            await producer.flush()
            failed = [n for n, future in enumerate(futures) if future.exception() is not None]
        assert len(failed) == 1
        assert stored(server) == [text for n in range(12) if n not in failed for text in (b"%d" % n, b"%d+" % n)]
        assert len({producer_id for _, producer_id in server.sequences}) == (1 if failed == [0] else 2)


async def test_a_producer_goes_on_for_another() -> None:
    with TopicServer("t", 1) as server:
        async with Producer(server.bootstrap) as first:
            await send_all(first, 3)
            await first.flush()
            last_seen = await last_sequences(first.cluster, "t", [1, 99], 5000)
        assert last_seen == {1: {0: 5}}
        second = ResumingProducer(server.bootstrap)
        await second.cluster.refresh(["t"])
        second.resume(1, 0)
        again = [await second.send_batch("t", 0, prepared(b"%d" % n, b"%d+" % n), 2, 2 * n) for n in range(5)]
        await second.flush()
        assert [future.result().offset for future in again] == [-1, -1, -1, 6, 8]
        assert stored(server) == [text for n in range(5) for text in (b"%d" % n, b"%d+" % n)]
        lacking = await second.send_batch("t", 0, prepared(b"x"), 1, 20)
        behind = await second.send_batch("t", 0, prepared(b"y"), 1, 21)
        await second.flush()
        with pytest.raises(DeliveryFailed, match="a new leader lacks records that were there before; run the job again"):
            lacking.result()
        with pytest.raises(DeliveryFailed):
            behind.result()
        late = await second.send_batch("t", 0, prepared(b"z"), 1, 10)
        await second.flush()
        with pytest.raises(DeliveryFailed, match="a batch before this one was not written"):
            late.result()
        await second.close()


async def test_a_run_that_is_behind_another_leaves_out_what_is_there() -> None:
    """Speculation: both run at once, and this one's batches are out of order for a leader that has forgotten all but the newest."""
    with TopicServer("t", 1) as server:
        server.sequences[0, 7] = 8
        answered = server._append
        server._append = lambda partition, data: (  # type: ignore[method-assign]
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1) if int.from_bytes(data[53:57], "big") < 6 else answered(partition, data)
        )
        producer = ResumingProducer(server.bootstrap)
        producer.resume(7, 0)
        futures = [await producer.send_batch("t", 0, prepared(b"%d" % n, b"%d+" % n), 2, 2 * n) for n in range(6)]
        await producer.flush()
        assert [future.result().offset for future in futures] == [-1, -1, -1, -1, 0, 2] and producer.repeated == {0: 6}
        await producer.close()


def test_a_blocking_face_works_with_and_without_a_loop() -> None:
    async def work() -> int:
        return len(asyncio.all_tasks())

    async def in_a_notebook() -> int:
        with BlockingLoop() as loop:
            return loop.run(work())

    with BlockingLoop() as loop:
        assert loop.run(work()) == 1
        with pytest.raises(ClientError):
            loop.run(_fails())
        loop.run(_leaves_a_task())
    loop.close()
    assert loop.is_closed
    assert asyncio.run(in_a_notebook()) == 1


async def _fails() -> None:
    raise ClientError("no")


async def _leaves_a_task() -> None:
    _left.append(asyncio.ensure_future(asyncio.sleep(1000)))


_left: list[asyncio.Future[None]] = []


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_RECORD])
async def test_a_batch_that_may_be_stored_is_not_sent_under_another_producer_id(code: ErrorCode) -> None:
    """The first of those on their way is stored, but its answer is lost, and so is what the leader says about the others. The retry of the
    first is refused for good, and the others with `code`: they are stored all the same."""

    def fault(partition: int, number: int) -> Any:
        return {2: ErrorCode.REQUEST_TIMED_OUT, 7: ErrorCode.INVALID_TIMESTAMP, 8: code, 9: code, 10: code, 11: code}.get(number)

    with TopicServer("t", 1, fault) as server:
        append, produce = server._append, server._ProduceRequest

        def produced(request: Any) -> Any:
            """An error that comes after the append."""
            answer = produce(request)
            for part in answer.responses[0].partition_responses:
                if part.error_code == ErrorCode.REQUEST_TIMED_OUT:
                    append(part.index, bytes(request.topic_data[0].partition_data[0].records))
            return answer

        server._ProduceRequest = produced  # type: ignore[method-assign]
        async with Producer(server.bootstrap) as producer:
            futures = await send_all(producer, 8)
            await producer.flush()
        kept = stored(server)
        assert len(kept) == len(set(kept)), "a batch is stored twice"
        acknowledged = [text for n, future in enumerate(futures) if not future.exception() for text in (b"%d" % n, b"%d+" % n)]
        assert [text for text in kept if text in acknowledged] == acknowledged


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"key": "text"}, {"timestamp_ms": 1 << 70}, {"headers": [("name", 3)]}], ids=str)
async def test_a_record_that_cannot_be_encoded_fails_alone(wrong: dict[str, Any]) -> None:
    with TopicServer("t", 1) as server:
        async with Producer(server.bootstrap, linger_ms=0) as producer:
            for before in (b"first", b"second"):
                await (await producer.send("t", before, partition=0))
            with pytest.raises(DeliveryFailed, match="cannot be encoded"):
                await (await producer.send("t", **{"value": b"", "partition": 0, **wrong}))
            await (await producer.send("t", b"third", partition=0))
        assert stored(server) == [b"first", b"second", b"third"]
        assert len(server.sequences) == 1, "its sequence numbers are free for the next batch"


async def test_an_unexpected_error_fails_what_is_queued_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with TopicServer("t", 1) as server:
        async with Producer(server.bootstrap, linger_ms=0) as producer:
            with monkeypatch.context() as patched:
                patched.setattr(producer, "_group", lambda queue: 1 // 0)
                futures = [await producer.send_batch("t", 0, prepared(b"x"), 1) for _ in range(3)]
                await producer.flush()
            for future in futures:
                with pytest.raises(DeliveryFailed, match="ZeroDivisionError"):
                    future.result()
            await (await producer.send("t", b"later", partition=0))
        assert stored(server) == [b"later"] and [type(context["exception"]) for context in reported] == [ZeroDivisionError]


async def test_a_response_without_the_partition_counts_as_none() -> None:
    with TopicServer("t", 1) as server:
        produce = server._ProduceRequest

        def produced(request: Any) -> Any:
            answer = produce(request)
            if server.requests == 1:
                answer.responses = []
            return answer

        server._ProduceRequest = produced  # type: ignore[method-assign]
        async with Producer(server.bootstrap) as producer:
            await send_all(producer, 3)
            await producer.flush()
        assert stored(server) == EVERYTHING[:6] and producer.retries == 1


async def test_batches_whose_time_is_up_fail_together() -> None:
    """One attempt for each would take as long as the attempts do, one after the other."""
    with TopicServer("t", 1, lambda *_: ErrorCode.NOT_ENOUGH_REPLICAS) as server:
        async with Producer(server.bootstrap, delivery_timeout_ms=300) as producer:
            futures = await send_all(producer, 50)
            await producer.flush()
            attempts = producer.retries
        assert all(isinstance(future.exception(), DeliveryFailed) for future in futures)
        assert server.requests <= attempts * producers.IN_FLIGHT_MAX and attempts < 25
