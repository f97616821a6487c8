"""Answers with very much in them: no list of any API is encoded in one turn of the loop, and what a broker has much of is made in steps."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.test_long_requests import AUTHORIZER
from helpers.live_node import broker_port, live_node
from helpers.long_frames import filled, lists_of
from helpers.peer import Peer

from minikafka.broker.front import long_answers
from minikafka.broker.front.large_requests import LargeRequests
from minikafka.broker.front.long_answers import ENTRIES_AT_ONCE, LongAnswers
from minikafka.broker.node import Node
from minikafka.broker.supervise import Supervisor
from minikafka.core.group.classic import ClassicGroup
from minikafka.core.group.offsets import CommittedOffset
from minikafka.core.metadata.image import PartitionRegistration, TopicImage
from minikafka.storage.producer_state import ProducerEntry
from minikafka.wire import lazy_list as lazy_list_module
from minikafka.wire.errors import NotEncodable
from minikafka.wire.frame import response_bytes
from minikafka.wire.lazy_list import AT_ONCE, LazyList, filter_elements, lazy_list, map_elements, unresolved_lists
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from minikafka.wire.messages.describe_producers import DescribeProducersRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.list_config_resources import ListConfigResourcesRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.registry import apis

MUCH = 2 * ENTRIES_AT_ONCE
#: Produce answers what stands in a request, whose parts are answered in steps already.
PRODUCE_KEY = 0
#: Lists that are no longer than a cluster has brokers, by API key.
BOUNDED = {1: (("node_endpoints",),)}


class CountedTurns:
    def __init__(self) -> None:
        self.taken = 0

    async def next(self) -> None:
        self.taken += 1


def long_answers_of(turns: CountedTurns) -> LongAnswers:
    return LongAnswers(Supervisor(asyncio.get_running_loop()), turns)  # type: ignore[arg-type]


def test_every_list_of_every_answer_is_seen_to_be_long() -> None:
    lists = [(entry, path) for entry in apis() for path in lists_of(entry.response, entry.max_version) if entry.key != PRODUCE_KEY]
    answers = [(entry, path, filled(entry.response, entry.max_version, path, ENTRIES_AT_ONCE + 1)) for entry, path in lists]
    short = [f"{entry.name} {path}" for entry, path, answer in answers if not LongAnswers.is_long(answer)]
    bounded = [f"{entry.name} {path}" for entry, path, _ in answers if path in BOUNDED.get(entry.key, ())]
    assert short == bounded, "\n".join(short)
    assert len(lists) > 150


@pytest.mark.asyncio
async def test_a_long_answer_is_encoded_in_steps_to_the_same_bytes() -> None:
    response, turns = ListGroupsResponse(groups=listed(MUCH)), CountedTurns()
    pieces = await long_answers_of(turns).encoded(response, 4, 7)
    assert b"".join(bytes(piece) for piece in pieces) == response_bytes(response, 4, 7)  # type: ignore[arg-type]
    assert turns.taken >= MUCH // 512


@pytest.mark.asyncio
async def test_an_answer_that_cannot_be_encoded_lets_its_files_go() -> None:
    released: list[int] = []

    class Region:
        size = 10

        def release(self) -> None:
            released.append(1)

    class Response:
        API_KEY = 1
        FIELDS = ()

        def encode_in_steps(self, version: int, pieces: list[Any]) -> Iterator[int]:
            pieces += [b"a", Region()]
            yield 500
            pieces += [Region(), b"b"]
            raise NotEncodable("it is no number")

    with pytest.raises(NotEncodable):
        await long_answers_of(CountedTurns()).encoded(Response(), 4, 7)  # type: ignore[arg-type]
    assert len(released) == 2


@pytest.mark.asyncio
async def test_steps_of_what_begins_together_have_a_turn_each() -> None:
    """The first ones, too: 400 clients that ask for much at once once made a turn of more than a second."""
    loop, steps, in_a_turn = asyncio.get_running_loop(), [0], list[int]()
    large = LargeRequests(Supervisor(loop))

    class Connection:
        def hold(self) -> None: ...

        def go_on(self) -> None: ...

    def step(number: int) -> int:
        steps[0] += 1
        return number

    def look() -> None:
        in_a_turn.append(steps[0])
        if steps[0] < 20 * (2 * AT_ONCE + 3):
            loop.call_soon(look)

    class Entry:
        elements_max = 1 << 20

        @staticmethod
        def decode_in_steps(*_: Any) -> Iterator[int]:
            yield step(1)
            yield step(2)
            yield step(3)

    answers: list[Any] = []
    context: Any = SimpleNamespace(api_version=4, correlation_id=7, connection=Connection(), close=answers.append, keep=lambda _: None)
    entry: Any = Entry()
    loop.call_soon(look)
    for _ in range(20):
        rows = [*range(2 * AT_ONCE)]
        response = ListGroupsResponse(groups=lazy_list(rows, lambda number: ListGroupsResponse.ListedGroup(group_id=f"g{step(number)}")))
        large.answers.start(context, response, answers.append)
    await asyncio.gather(*(large._decoded(context, entry, b"", 0, []) for _ in range(20)))
    while len(answers) < 20:
        await asyncio.sleep(0)
    assert max(after - before for before, after in itertools.pairwise([0, *in_a_turn])) <= 2 * AT_ONCE


# -- lists that are made as they are encoded ----------------------------------------------------------------------------------


def listed(count: int) -> Any:
    return lazy_list([*range(count)], lambda number: ListGroupsResponse.ListedGroup(group_id=f"g{number}"))


def test_a_lazy_list_is_as_long_as_what_it_keeps() -> None:
    assert type(listed(AT_ONCE)) is list and type(listed(AT_ONCE + 1)) is LazyList
    for count in (AT_ONCE, 4 * AT_ONCE):
        groups = filter_elements(listed(count), lambda group: group.group_id.endswith("7"))
        groups = map_elements(groups, lambda group: ListGroupsResponse.ListedGroup(group_id=group.group_id.upper()))
        response = ListGroupsResponse(groups=groups)
        steps = sum(1 for lazy in unresolved_lists(response) for _ in lazy.resolve())
        assert steps == (count // lazy_list_module.STEP_ITEMS if count > AT_ONCE else 0)
        ids = [f"G{number}" for number in range(count) if number % 10 == 7]
        assert [group.group_id for group in groups] == ids and len(groups) == len(ids)
        assert [group.group_id for group in groups[1:3]] == ids[1:3] and groups[-1].group_id == ids[-1]
        assert [group.group_id for group in ListGroupsResponse.decode(4, response.encode(4)).groups] == ids


# -- a broker that has much ---------------------------------------------------------------------------------------------------


async def filled_up(node: Node, peer: Peer) -> None:
    """As much as makes an answer long, of everything that can be asked for as a whole."""
    assert node.broker is not None
    while (await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)).coordinators[0].error_code:
        await asyncio.sleep(0.01)
    while not (shards := node.broker.groups.loaded_shards()):
        await asyncio.sleep(0.01)
    image, shard = node.metadata.image, shards[0]
    log: Any = node.broker.replicas.partitions["__consumer_offsets", 0].log
    for number in range(MUCH):
        partitions = {index: PartitionRegistration([7, 8], [7], 7) for index in range(1 if number else AT_ONCE + 1)}
        topic = TopicImage(f"topic-{number}", uuid.UUID(int=number + 10**6).bytes, partitions)
        image.topics_by_name[topic.name] = image.topics_by_id[topic.topic_id] = topic
        image.client_quotas[(("client-id", f"c{number}"),)] = {"producer_byte_rate": 1.0}
        image.configs[(32, f"g{number}")] = {"a": "b"}
        shard.groups[f"g{number}"] = ClassicGroup(f"g{number}", 0)
        shard.offsets.put("g", f"topic-{number}", 0, CommittedOffset(number, -1, "", 0))
        log.producer_state.entries[number] = ProducerEntry(number)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_long_descriptions_are_built_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_group, of_topic = OffsetFetchRequest.OffsetFetchRequestGroup, DescribeProducersRequest.TopicRequest
    asked: list[tuple[Any, int]] = [
        (MetadataRequest(topics=None), 12),
        (ListGroupsRequest(), 5),
        (DescribeClientQuotasRequest(components=[], strict=False), 1),
        (ListConfigResourcesRequest(), 1),
        (OffsetFetchRequest(groups=[of_group(group_id="g", topics=None)]), 9),
        (DescribeProducersRequest(topics=[of_topic(name="__consumer_offsets", partition_indexes=[0])]), 0),
    ]
    seen: list[bool] = []
    start = LongAnswers.start

    def noted(self: LongAnswers, context: Any, response: Any, done: Any) -> None:
        seen.append(any(True for _ in unresolved_lists(response)))
        start(self, context, response, done)

    monkeypatch.setattr(long_answers.LongAnswers, "start", noted)
    properties = {**AUTHORIZER, "super.users": "User:nobody", "offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
    async with live_node(tmp_path, properties) as node, Peer(broker_port(node)) as peer:
        await filled_up(node, peer)
        in_steps = [(await peer.ask(request, version)).encode(version) for request, version in asked]
        assert seen == [True] * len(asked), "each is a list that is made as it is encoded"
        monkeypatch.setattr(lazy_list_module, "cast", lambda _, lazy: list(lazy))
        assert [(await peer.ask(request, version)).encode(version) for request, version in asked] == in_steps
