"""A broker has few requests of each client at the controller at a time, which answers those of a connection in order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.live_node import controller_port, live_node
from helpers.peer import Peer

from minikafka.broker.front.client_turns import FORWARDED_AT_ONCE, ClientTurns, WholeRequest
from minikafka.broker.front.forwarding import Forwarder, address_bytes, host_of, principal_bytes, principal_of
from minikafka.broker.supervise import Supervisor
from minikafka.core.metadata.image import MetadataImage
from minikafka.net.connection import RECEIVE_BYTES_GROWN
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

#: Requests of all clients that may be at the controller.
OF_ALL = 16


class HeldChannel:
    """Answers nothing before it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, asyncio.Future[Any]]] = []

    async def request(self, envelope: EnvelopeRequest, timeout_ms: int, *, resends_max: int, again: Callable[[int], Any]) -> Any:
        future = asyncio.get_running_loop().create_future()
        client = f"{principal_of(envelope.request_principal)} {host_of(envelope.client_host_address)}"
        self.asked.append((client, future))
        return await future

    def clients(self) -> list[str]:
        return [client for client, _ in self.asked]

    def refuse(self, number: int) -> None:
        self.asked[number][1].set_result(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))


class Connection:
    def __init__(self, peer_host: str = "10.0.0.1") -> None:
        self.peer_host = peer_host


class Broker:
    def __init__(self) -> None:
        self.channel = HeldChannel()
        supervisor, metadata = Supervisor(asyncio.get_running_loop()), SimpleNamespace(image=MetadataImage())
        self.long_channel = HeldChannel()
        channels: Any = self.channel, self.long_channel
        self.forwarder = Forwarder(channels[0], metadata, random.Random(1), supervisor, channels[1])  # type: ignore[arg-type]
        self.running: list[asyncio.Task[Any]] = []

    async def forward(
        self, principal: str, host: str, timeout_ms: int = 30_000, topics: int = 1, partitions: int = 1, whole: WholeRequest | None = None,
        connection: Connection | None = None, name: str = "t",
    ) -> asyncio.Task[Any]:  # fmt: skip
        """`connection`: a new one by default."""
        came_on = connection or Connection(host)
        context = SimpleNamespace(
            api_version=7, correlation_id=1, client_id="c", principal=principal, connection=came_on, whole=whole
        )
        named = [CreateTopicsRequest.CreatableTopic(name=f"{name}{number}", num_partitions=partitions) for number in range(topics)]
        request = CreateTopicsRequest(topics=named, timeout_ms=timeout_ms)
        task = asyncio.ensure_future(self.forwarder.forward(context, request))
        self.running.append(task)
        await turns()
        return task

    def unanswered(self) -> int:
        return sum(not task.done() for task in self.running)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_asks_much_does_not_hold_up_others() -> None:
    broker = Broker()
    for _ in range(5):
        await broker.forward("User:a", "10.0.0.1")
    assert broker.channel.clients() == ["User:a 10.0.0.1"] * FORWARDED_AT_ONCE
    await broker.forward("User:b", "10.0.0.1")
    await broker.forward("User:a", "10.0.0.2")
    assert broker.channel.clients()[FORWARDED_AT_ONCE:] == ["User:b 10.0.0.1", "User:a 10.0.0.2"]
    for number in range(7):
        broker.channel.refuse(number)
        await turns()
    assert broker.channel.clients()[-3:] == ["User:a 10.0.0.1"] * 3
    answers = await asyncio.gather(*broker.running)
    assert {answer.topics[0].error_code for answer in answers} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert not broker.forwarder._turns._clients, "nothing is kept of who has asked"


async def test_a_request_waits_for_its_turn_as_long_as_for_its_answer() -> None:
    broker = Broker()
    for _ in range(FORWARDED_AT_ONCE):
        await broker.forward("User:a", "10.0.0.1")
    late = await broker.forward("User:a", "10.0.0.1", timeout_ms=1)
    assert (await late).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    next_one = await broker.forward("User:a", "10.0.0.1")
    broker.channel.refuse(0)
    await turns()
    assert len(broker.channel.asked) == FORWARDED_AT_ONCE + 1, "the late one has no place"
    next_one.cancel()
    await turns()
    await broker.forward("User:a", "10.0.0.1")
    assert len(broker.channel.asked) == FORWARDED_AT_ONCE + 2, "nor one that has ended"
    for task in broker.running:
        task.cancel()
    await asyncio.gather(*broker.running, return_exceptions=True)
    assert not broker.forwarder._turns._clients


@pytest.mark.parametrize(("topics", "partitions", "name"), [(60, 1, "t"), (1, 100, "t"), (3, 1, "t" * 240)])
async def test_a_short_request_does_not_wait_behind_long_ones_even_of_its_client(topics: int, partitions: int, name: str) -> None:
    broker = Broker()
    for _ in range(40):
        await broker.forward("User:a", "10.0.0.1", topics=topics, partitions=partitions, name=name)
    assert len(broker.long_channel.asked) == FORWARDED_AT_ONCE and not broker.channel.asked
    short = await broker.forward("User:a", "10.0.0.1")
    broker.channel.refuse(0)
    assert (await short).topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    for task in broker.running:
        task.cancel()
    await asyncio.gather(*broker.running, return_exceptions=True)


async def test_the_requests_of_one_connection_keep_their_order_whichever_are_long() -> None:
    """A topic of many partitions was made, and deleted on the same connection: the deletion came first."""
    broker, connection = Broker(), Connection()
    short, long = broker.channel, broker.long_channel
    await broker.forward("User:a", "10.0.0.1", connection=connection)
    await broker.forward("User:a", "10.0.0.1", partitions=100, connection=connection)
    await broker.forward("User:a", "10.0.0.1", partitions=100, connection=connection)
    await broker.forward("User:a", "10.0.0.1", connection=connection)
    await broker.forward("User:a", "10.0.0.1")
    assert (len(short.asked), len(long.asked)) == (2, 0), "another connection's request need not wait"
    short.refuse(0)
    await turns()
    assert (len(short.asked), len(long.asked)) == (2, 2)
    long.refuse(0)
    await turns()
    assert len(short.asked) == 2
    long.refuse(1)
    await turns()
    assert len(short.asked) == 3
    for number in (1, 2):
        short.refuse(number)
    await asyncio.gather(*broker.running)
    assert not broker.forwarder._order._last, "nothing is kept of a connection"


async def test_requests_whose_time_is_up_do_not_let_those_behind_them_overtake() -> None:
    broker, connection = Broker(), Connection()
    await broker.forward("User:a", "10.0.0.1", partitions=100, connection=connection)
    late = await broker.forward("User:a", "10.0.0.1", timeout_ms=1, connection=connection)
    last = await broker.forward("User:a", "10.0.0.1", partitions=100, connection=connection)
    assert (await late).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    await turns()
    assert len(broker.long_channel.asked) == 1
    broker.long_channel.refuse(0)
    await turns()
    assert len(broker.long_channel.asked) == 2 and not broker.channel.asked
    last.cancel()
    await asyncio.gather(*broker.running, return_exceptions=True)
    assert not broker.forwarder._order._last


async def test_a_request_in_parts_keeps_its_place_among_those_of_its_client() -> None:
    """The parts of 40 requests mixed: the first was answered hardly before the last."""
    broker, answered, parts = Broker(), list[int](), 4

    async def serve(number: int) -> None:
        whole = WholeRequest()
        for _ in range(parts):
            await (await broker.forward("User:a", "10.0.0.1", topics=400, whole=whole))
        answered.append(number)

    serving = [asyncio.ensure_future(serve(number)) for number in range(40)]
    await turns()
    most = 0
    for number in range(40 * parts):
        broker.long_channel.refuse(number)
        await turns()
        most = max(most, number + 1 - parts * len(answered))
    assert answered == list(range(40)) and most <= 2 * parts * FORWARDED_AT_ONCE
    await asyncio.gather(*serving)


async def test_very_many_clients_have_few_requests_at_the_controller_and_take_turns() -> None:
    broker = Broker()
    for _ in range(2):
        for number in range(3 * OF_ALL // 2):
            await broker.forward(f"User:{number}", "10.0.0.1")
    of_each = [client for client in broker.channel.clients() if client == "User:0 10.0.0.1"]
    assert len(broker.channel.asked) == OF_ALL and len(of_each) == 1
    for number in range(len(broker.running)):
        broker.channel.refuse(number)
        await turns()
        assert sum(not future.done() for _, future in broker.channel.asked) <= OF_ALL
    await asyncio.gather(*broker.running)
    later = broker.channel.clients()[OF_ALL:]
    assert later.index("User:0 10.0.0.1") < OF_ALL and not broker.forwarder._turns._clients


class Counted(int):
    """A place among the requests of a client, which counts how often any of them is compared."""

    looks = 0

    def __lt__(self, other: int) -> bool:
        Counted.looks += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return int(self) == other

    __hash__ = int.__hash__


async def test_a_turn_costs_the_same_however_many_requests_of_a_client_wait() -> None:
    """The first of them was looked for among all."""
    looks = []
    for waiting in (100, 1000):
        turns_of, served = ClientTurns(Supervisor(asyncio.get_running_loop())), list[int]()

        async def serve(number: int, turns_of: ClientTurns = turns_of, served: list[int] = served) -> None:
            whole = WholeRequest()
            whole.arrival = Counted(number)
            async with turns_of.turn("a", 30_000, whole):
                served.append(number)
                await asyncio.sleep(0)

        order = list(range(1, waiting + 1))
        random.Random(waiting).shuffle(order)
        tasks = [asyncio.ensure_future(serve(number)) for number in order]
        await asyncio.sleep(0)
        for task in tasks[5::2]:
            task.cancel()
        Counted.looks = 0
        await asyncio.gather(*tasks, return_exceptions=True)
        assert served[FORWARDED_AT_ONCE:] == sorted(served[FORWARDED_AT_ONCE:]) and not turns_of._clients
        looks.append(Counted.looks)
    assert looks[1] < 20 * looks[0]


async def test_requests_that_wait_no_longer_are_forgotten() -> None:
    turns_of = ClientTurns(Supervisor(asyncio.get_running_loop()))
    async with turns_of.turn("a", 30_000), turns_of.turn("a", 30_000):
        for _ in range(1000):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), turns_of.turn("a", 30_000):
                    pass
        # A number, because a mutant changes FORGOTTEN_MAX.
        assert len(turns_of._clients["a"]._order) <= 64 + 1


MANY = 300


@pytest.mark.parametrize("clients", [1, MANY])
async def test_requests_whose_time_is_up_together_end_in_many_turns(clients: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred milliseconds in one turn of the loop were seen: the answer to each may name hundreds of topics."""
    broker, loop, now_s = Broker(), asyncio.get_running_loop(), 1000.0
    monkeypatch.setattr(loop, "time", lambda: now_s)
    for number in range(MANY):
        await broker.forward(f"User:{number % clients}", "10.0.0.1", timeout_ms=1000)
    assert len(broker.channel.asked) == min(FORWARDED_AT_ONCE * clients, OF_ALL)
    now_s += 2
    held = len(broker.channel.asked)
    assert await most_in_a_turn(lambda: len(broker.forwarder._turns._waiting), 0) <= 4
    assert await most_in_a_turn(broker.unanswered, held) <= 1
    answers = [task.result().topics[0].error_code for task in broker.running if task.done()]
    assert set(answers) == {ErrorCode.REQUEST_TIMED_OUT} and len(broker.channel.asked) == held
    for number in range(held):
        broker.channel.asked[number][1].set_exception(ConnectionError("it has ended"))
    assert await most_in_a_turn(broker.unanswered, 0) <= 1
    assert not broker.forwarder._turns._clients


async def most_in_a_turn(count: Callable[[], int], least: int) -> int:
    """By how much `count` falls in a turn at most, until it is `least`."""
    most, before = 0, count()
    while before > least:
        await asyncio.sleep(0)
        most, before = max(most, before - count()), count()
    return most


async def test_forwarded_requests_use_bounded_memory_of_the_controller(tmp_path: Path) -> None:
    """However many peers forward very long requests, and requests of other nodes come in meanwhile."""
    value, peers = "x" * 30_000, 12
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="retention.ms", config_operation=0, value=value)
    resources = [kind.AlterConfigsResource(resource_type=2, resource_name=f"t{number}", configs=[config]) for number in range(100)]
    data = b"".join(map(bytes, encode_request(kind(resources=resources, validate_only=True), 1, 1, "c")))[4:]
    of_client = {"request_principal": principal_bytes("User:a"), "client_host_address": address_bytes("127.0.0.1")}
    envelope = EnvelopeRequest(request_data=data, **of_client)
    async with live_node(tmp_path) as node:
        budget = node.node_budget
        budget.bytes_max, budget.free_bytes = 2 * len(data), 64_000
        most = 0

        async def forward() -> int:
            async with Peer(controller_port(node)) as peer:
                return int((await peer.ask(envelope, 0)).error_code)

        async def watch() -> None:
            nonlocal most
            async with Peer(controller_port(node)) as peer:
                while True:
                    most = max(most, budget.used)
                    await peer.ask(ApiVersionsRequest(), 0)

        watching = asyncio.ensure_future(watch())
        assert await asyncio.gather(*(forward() for _ in range(peers))) == [0] * peers
        assert budget.exhausted_total and not watching.done()
        watching.cancel()
        # A request is in the buffer and in a copy; each connection may have begun another.
        assert most < budget.bytes_max + 2 * len(data) + peers * RECEIVE_BYTES_GROWN < peers * len(data)
        while budget.used:
            await asyncio.sleep(0)


async def test_a_place_that_becomes_free_is_not_given_to_a_request_that_was_cancelled_in_the_same_turn() -> None:
    """It was counted for ever, and the innocent request that gave it back failed."""
    turns = ClientTurns(Supervisor(asyncio.get_running_loop()), of_each=1, of_all=1)
    go = asyncio.Event()

    async def ask(client: str) -> str:
        async with turns.turn(client, 1_000_000):
            await go.wait()
            return client

    async def started(client: str) -> asyncio.Task[str]:
        task = asyncio.ensure_future(ask(client))
        await asyncio.sleep(0)
        return task

    first, cancelled, second, third = [await started(client) for client in ("a", "b", "a", "c")]
    go.set()
    cancelled.cancel()
    assert await asyncio.gather(first, second, third) == ["a", "a", "c"]
    assert cancelled.cancelled() and turns._taken == 0 and not turns._clients


async def test_a_broker_that_stops_cancels_the_requests_that_have_a_place_and_those_that_wait_together() -> None:
    turns = ClientTurns(Supervisor(asyncio.get_running_loop()), of_each=1)

    async def ask() -> None:
        async with turns.turn("a", 1_000_000):
            await asyncio.Event().wait()

    tasks = [asyncio.ensure_future(ask()) for _ in range(3)]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks) and turns._taken == 0 and not turns._clients
