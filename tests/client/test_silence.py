"""Commands say that no broker answers while their clients go on trying, whatever they do just then; and a record's time-out holds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from helpers.topic_server import TopicServer

from minikafka.cli.main import cli
from minikafka.client import silence
from minikafka.client.errors import DeliveryFailed, NoBrokers
from minikafka.client.producer import Producer
from minikafka.client.silence import Silence, on_silence

pytestmark = pytest.mark.timeout(60)
Said = list[tuple[str, float | None]]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    """What a command would say; silences are short."""
    monkeypatch.setattr(silence, "FIRST_S", 0.05)
    monkeypatch.setattr(silence, "LATER_S", 0.05)
    found: Said = []
    token = on_silence.set(lambda addresses, left_s: found.append((addresses, left_s)))
    yield found
    on_silence.reset(token)


async def until(said: Said, count: int) -> None:
    while len(said) < count:
        await asyncio.sleep(0.005)


async def test_a_silence_is_told_once_and_the_next_one_again(said: Said) -> None:
    heard_s = 0.0
    watch = Silence(lambda: "a:1", lambda: heard_s, lambda: False)
    for _ in range(3):
        with pytest.raises(NoBrokers), watch.watched():
            raise NoBrokers("refused at once")
    await until(said, 1)
    loop = asyncio.get_running_loop()
    with watch.watched(loop.time() + 10):
        await asyncio.sleep(0.15)
    assert said == [("a:1", None)], "it was the same silence, which ends here"
    with watch.watched(loop.time() + 10):
        await until(said, 2)
    assert said[1][0] == "a:1" and 0 < (said[1][1] or 0) < 10


async def test_who_answers_now_and_then_is_not_silent(said: Said) -> None:
    loop = asyncio.get_running_loop()
    heard_s = loop.time() + 1000
    watch = Silence(lambda: "a:1", lambda: heard_s, lambda: True)
    with watch.watched():
        await asyncio.sleep(0.2)
        assert said == []
        heard_s = 0.0
        await until(said, 1)


async def test_brokers_that_die_later_are_named_and_the_record_fails_in_its_time(said: Said) -> None:
    """A producer that had connected said nothing, and waited for the metadata as long as a request may take: 30 s."""
    is_dead = False
    with TopicServer("t", 1, lambda partition, number: "drop" if is_dead else None) as server:
        producer = Producer(server.bootstrap, delivery_timeout_ms=500)
        await producer.start()
        await (await producer.send("t", b"first"))
        is_dead = True
    future = await producer.send("t", b"second")
    with pytest.raises(DeliveryFailed, match=r"tried for 0\.5 s"):
        await asyncio.wait_for(future, 15)
    assert said[0][0] == server.bootstrap
    assert (said[0][1] or 0) < 0.5
    await producer.close(timeout_ms=0)


@pytest.mark.parametrize("command", ["topics --list", "groups --list", "acls --list", "produce t", "consume t -n 1", "share-groups --list"])
def test_every_command_says_that_it_waits_for_an_answer(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ask brokers without a retry said nothing for five seconds."""
    monkeypatch.setattr(silence, "FIRST_S", 0.05)
    monkeypatch.setattr("minikafka.client.cluster.CONNECT_TIMEOUT_MS", 500)
    monkeypatch.setattr("minikafka.cli.common.FIRST_ANSWER_MS", 300)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = CliRunner().invoke(cli, [*command.split(), "-b", address], input="apples\n")
    lines = done.stderr.splitlines()
    assert lines[0] == f"no answer from {address} yet, still trying ...", done.output
    assert lines[-1].startswith("error: no broker answers")
    assert done.stdout == ""
