"""Drawing, comparing and shortening, without brokers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, cast

import pytest
from differential.comparison import Comparison, Difference
from differential.drawing import APIS, Step, sequence
from differential.side import Side

from minikafka.wire.frame import encode_request
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.registry import api


class Fake:
    """Answers with the place of the request, and otherwise once it has heard two Metadata requests and a DeleteGroups."""

    def __init__(self, *, differs: bool) -> None:
        self.differs = differs
        self.answered = 0

    def play(self, steps: list[Step], prefix: str) -> Generator[Any]:
        heard: list[str] = []
        for step in steps:
            heard.append(type(step.request).__name__)
            is_due = heard.count("MetadataRequest") >= 2 and heard[-1] == "DeleteGroupsRequest"
            self.answered += 1
            yield {"topics": [{"name": "a", "error_code": 3 if is_due and self.differs else 0}]}


class Moody:
    """A fake that differs in some of its plays."""

    def __init__(self, fake: Fake, differing: list[bool]) -> None:
        self.fake = fake
        self.differing = list(differing)

    def play(self, steps: list[Step], prefix: str) -> Generator[Any]:
        self.fake.differs = self.differing.pop(0)
        return self.fake.play(steps, prefix)


def test_a_seed_draws_the_same_requests_of_many_apis_and_all_can_be_encoded() -> None:
    assert [str(step) for step in sequence(5, 30)] == [str(step) for step in sequence(5, 30)]
    drawn = [step for seed in range(60) for step in sequence(seed, 30)]
    assert {type(step.request).API_KEY for step in drawn} == set(APIS)
    side = Side("127.0.0.1:1")
    for step in drawn:
        entry = api(type(step.request).API_KEY)
        assert entry is not None and entry.min_version <= step.version <= entry.max_version
        assert list(encode_request(side._own(step.request), step.version, 1, "c"))


def test_what_differs_is_found_and_shortened() -> None:
    steps = sequence(1, 10)
    requests = [MetadataRequest(), DeleteGroupsRequest(), MetadataRequest(), *(step.request for step in steps[:3]), DeleteGroupsRequest()]
    ours = Fake(differs=True)
    comparison = Comparison(cast(Side, Fake(differs=False)), cast(Side, ours))
    found = comparison.play([Step(request, 0) for request in requests])
    assert [(one.step, one.api, one.path, one.kafka, one.ours) for one in found] == [(6, "DeleteGroups", "topics.error_code", 0, 3)]
    shorter = comparison._shortened([Step(request, 0) for request in requests])
    assert [type(step.request).__name__ for step in shorter] == ["MetadataRequest", "MetadataRequest", "DeleteGroupsRequest"]
    assert comparison.play(shorter[1:]) == []


@pytest.mark.parametrize(
    ("differing", "is_told", "answered"), [([True, True, True, True, True], True, 3 + 3 + 2 + 2 + 3), ([True, False], False, 3 + 4)]
)
def test_a_sequence_counts_if_it_differs_twice_and_stops_there(differing: list[bool], is_told: bool, answered: int) -> None:
    requests = [MetadataRequest(), MetadataRequest(), DeleteGroupsRequest(), MetadataRequest()]
    ours = Fake(differs=False)
    comparison = Comparison(cast(Side, Fake(differs=False)), cast(Side, Moody(ours, differing)))
    told = comparison.tell([Step(request, 0) for request in requests], "here")
    assert (told is not None, comparison.seen_once) == (is_told, not is_told)
    assert ours.answered == answered


@pytest.mark.parametrize(
    ("kafka", "ours", "is_known"),
    [
        ([{"group_id": "~g", "protocol_type": ""}], [], True),
        ([{"group_id": "~g", "protocol_type": ""}, {"group_id": "~h"}], [{"group_id": "~h"}], True),
        ([{"group_id": "~g", "protocol_type": "consumer"}], [], False),
        ([{"group_id": "~g", "protocol_type": ""}], [{"group_id": "~h", "protocol_type": ""}], False),
        ([], [{"group_id": "~g", "protocol_type": ""}], False),
    ],
)  # fmt: skip
def test_of_listed_groups_only_those_of_refused_commits_may_be_more_there(kafka: list[Any], ours: list[Any], is_known: bool) -> None:
    side = cast(Side, Fake(differs=False))
    assert Comparison(side, side)._is_known(Difference(0, "ListGroups", "groups", kafka, ours)) is is_known
