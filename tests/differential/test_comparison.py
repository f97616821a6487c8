"""Drawing, comparing and shortening, without brokers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from differential import run
from differential.apis import APIS
from differential.comparison import Comparison
from differential.drawing import Step, sequence
from differential.leftovers import undoing
from differential.side import Side
from differential.target import Target

from minikafka.wire.frame import encode_request
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.registry import api


class Fake:
    """Answers with the place of the request, and otherwise once it has heard two Metadata requests and a DeleteGroups."""

    def __init__(self, *, differs: bool) -> None:
        self.differs = differs
        self.answered = 0

    async def play(self, steps: list[Step], prefix: str) -> AsyncGenerator[Any]:
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

    def play(self, steps: list[Step], prefix: str) -> AsyncGenerator[Any]:
        self.fake.differs = self.differing.pop(0)
        return self.fake.play(steps, prefix)


def test_a_seed_draws_the_same_requests_of_many_apis_and_all_can_be_encoded() -> None:
    assert [str(step) for step in sequence(5, 30)] == [str(step) for step in sequence(5, 30)]
    drawn = [step for seed in range(60) for step in sequence(seed, 30)]
    assert {type(step.request).API_KEY for step in drawn} == set(APIS)
    side = Side(Target("127.0.0.1:1"))
    for step in drawn:
        entry = api(type(step.request).API_KEY)
        assert entry is not None and entry.min_version <= step.version <= entry.max_version
        assert list(encode_request(side._own(step.request), step.version, 1, "c"))


async def test_what_differs_is_found_and_shortened() -> None:
    steps = sequence(1, 10)
    requests = [MetadataRequest(), DeleteGroupsRequest(), MetadataRequest(), *(step.request for step in steps[:3]), DeleteGroupsRequest()]
    ours = Fake(differs=True)
    comparison = Comparison(cast(Side, Fake(differs=False)), cast(Side, ours))
    found = await comparison.play([Step(request, 0) for request in requests])
    assert [(one.step, one.api, one.path, one.kafka, one.ours) for one in found] == [(6, "DeleteGroups", "topics.error_code", 0, 3)]
    shorter = await comparison._shortened([Step(request, 0) for request in requests])
    assert [type(step.request).__name__ for step in shorter] == ["MetadataRequest", "MetadataRequest", "DeleteGroupsRequest"]
    assert await comparison.play(shorter[1:]) == []


@pytest.mark.parametrize(
    ("differing", "told", "answered"),
    [
        ([True, True, True, True, True, True], [("differs", True)], 3 + 3 + 3 + 2 + 2 + 3),
        ([True, False], [("among others", False)], 3 + 4),
        ([False], [], 4),
    ],
)
async def test_a_sequence_counts_if_it_also_differs_alone_and_stops_there(
    differing: list[bool], told: list[tuple[str, bool]], answered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [MetadataRequest(), MetadataRequest(), DeleteGroupsRequest(), MetadataRequest()]
    monkeypatch.setattr(run, "sequence", lambda seed, length: [Step(request, 0) for request in requests])
    ours = Fake(differs=False)
    lanes = run.Lanes(("127.0.0.1:1", "127.0.0.1:1"), 1)
    lanes._comparisons = [Comparison(cast(Side, Fake(differs=False)), cast(Side, Moody(ours, differing)))]
    found = [one async for one in lanes.play([7], 4)]
    assert [is_certain for _, is_certain in found] == [is_certain for _, is_certain in told]
    assert all(text in shown or "\n" in shown for (shown, _), (text, _) in zip(found, told, strict=True))
    assert ours.answered == answered


async def test_a_sequence_ends_where_only_one_has_done_what_it_was_asked_for() -> None:
    requests = [MetadataRequest(), MetadataRequest(), DeleteGroupsRequest(), DeleteGroupsRequest()]
    ours = Fake(differs=True)
    comparison = Comparison(cast(Side, Fake(differs=False)), cast(Side, ours))
    comparison._known = [{"api": "DeleteGroups", "path": "topics.error_code", "kafka": 0, "as_a_whole": True}]
    assert await comparison.play([Step(request, 0) for request in requests]) == [] and ours.answered == 3
    del comparison._known[0]["as_a_whole"]
    assert await comparison.play([Step(request, 0) for request in requests]) == [] and ours.answered == 3 + 4


def test_what_a_sequence_has_changed_for_all_is_taken_back() -> None:
    acls, quotas, users = CreateAclsRequest, AlterClientQuotasRequest, AlterUserScramCredentialsRequest
    entity = quotas.EntityData(entity_type="user", entity_name="l0r1-u")
    requests = [
        acls(creations=[acls.AclCreation(principal="User:l0r1-u"), acls.AclCreation(principal="User:other")]),
        quotas(entries=[quotas.EntryData(entity=[entity], ops=[])]),
        users(upsertions=[users.ScramCredentialUpsertion(name="l0r1-u", mechanism=1, salt=b"", salted_password=b"")]),
        MetadataRequest(),
    ]
    deleted, removed, forgotten = [request for request, _ in undoing(requests, "l0r1-")]
    assert [one.principal_filter for one in deleted.filters] == ["User:l0r1-u"]
    assert all(operation.remove for operation in removed.entries[0].ops) and removed.entries[0].entity == [entity]
    assert [(one.name, one.mechanism) for one in forgotten.deletions] == [("l0r1-u", 1)]
    assert list(undoing([MetadataRequest()], "l0r1-")) == []
