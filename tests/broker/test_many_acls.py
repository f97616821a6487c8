"""What a request asks of ACLs takes no longer because a cluster has very many."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.coverage_pause import without_coverage
from helpers.live_node import broker_port, controller_port, live_node
from helpers.peer import Peer
from helpers.turn_lengths import TURN_UNITS, too_long

from minikafka.broker.admin.acls import COMPARISONS_AT_ONCE
from minikafka.broker.node import Node
from minikafka.broker.security.authorization.authority import Authority
from minikafka.core.authorizer.acl import Acl, Operation, PatternType, Permission, ResourceType
from minikafka.core.authorizer.authorizer import AclAuthorizer
from minikafka.core.metadata.delta import MetadataDelta
from minikafka.core.metadata.image import empty_image
from minikafka.steps import STEP_ITEMS, Steps
from minikafka.wire.errors import ApiError
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.describe_acls import DescribeAclsRequest
from minikafka.wire.records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
COUNT = 2 * COMPARISONS_AT_ONCE
ANY = 1


def acl(number: int, *, topic: str | None = None, principal: str | None = None) -> Acl:
    name, who = topic or f"t-{number}", principal or f"User:u-{number}"
    return Acl(ResourceType.TOPIC, name, PatternType.LITERAL, who, "*", Operation.READ, Permission.ALLOW)


def everything() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY, principal_filter=None, host_filter=None,
        operation=ANY, permission_type=ANY,
    )  # fmt: skip


def fill(node: Node) -> None:
    """As if the metadata log had them: most are about one topic, or of one principal."""
    assert node.authority is not None and node.controller is not None
    made = [acl(n, topic="many" if n % 3 == 0 else None, principal="User:busy" if n % 3 == 1 else None) for n in range(COUNT)]
    delta = MetadataDelta(node.metadata.image)
    delta.apply_all([one.to_record(number.to_bytes(16)) for number, one in enumerate(made)])
    node.metadata.image = image = delta.image()
    node.authority.on_metadata(delta, image)
    node.controller.core.state.image = image


async def create_and_delete(peer: Peer, names: Iterator[str]) -> None:
    name = next(names)
    creation = CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="many", resource_pattern_type=3, principal=name, host="*", operation=3, permission_type=3,
    )  # fmt: skip
    answer = await peer.ask(CreateAclsRequest(creations=[creation]), 3)
    assert [one.error_code for one in answer.results] == [0]
    wanted = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ANY, resource_name_filter="many", pattern_type_filter=ANY, principal_filter=name, host_filter=None,
        operation=ANY, permission_type=ANY,
    )  # fmt: skip
    answer = await peer.ask(DeleteAclsRequest(filters=[wanted]), 3)
    assert len(answer.filter_results[0].matching_acls) == 1


async def describe(peer: Peer) -> None:
    peer.send(everything(), 3)
    assert len(await peer.frame()) > 20 * COUNT  # decoding it here would be a turn, too


async def decide(authorizer: AclAuthorizer, names: Iterator[str]) -> None:
    name, topic = next(names), ResourceType.TOPIC
    assert not authorizer.decide(name, "10.0.0.1", Operation.READ, topic, "many").is_allowed
    assert not authorizer.allows_some(name, "10.0.0.1", Operation.READ, topic)
    assert authorizer.allows_some("User:busy", name, Operation.READ, topic)


async def test_no_turn_looks_at_all_of_them(tmp_path: Path) -> None:
    names = (f"User:new-{number}" for number in count())
    with without_coverage():
        async with live_node(tmp_path, SETTINGS) as node, Peer(broker_port(node)) as peer, Peer(controller_port(node)) as direct:
            fill(node)
            answer = await peer.ask(everything(), 3)
            assert sum(len(resource.acls) for resource in answer.resources) == COUNT
            assert node.authority is not None
            for work, units in (
                (partial(create_and_delete, peer, names), TURN_UNITS),
                (partial(describe, peer), TURN_UNITS),
                (partial(describe, direct), TURN_UNITS),
                (partial(decide, node.authority.acls, names), 4),
            ):
                await work()
                found = await too_long(work, units)
                assert not found, f"{work}: {found}"


def rule(number: int, user: str = "u") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16), resource_type=2, resource_name=f"t{number}", pattern_type=3, principal=f"User:{user}", host="*",
        operation=3, permission_type=3,
    )  # fmt: skip


def test_the_acls_of_the_first_image_are_loaded_in_steps() -> None:
    """90,000 took a turn of more than a second at every start. Until they are all there, nobody but super users is allowed anything."""
    loading: list[Steps[None]] = []
    authority = Authority(["User:admin"], allow_everyone=True, creates_topics=False, now_ms=lambda: 0, load=loading.append)

    def allows(number: int, user: str = "u") -> bool:
        context: Any = SimpleNamespace(principal=f"User:{user}", client_host="1.2.3.4", api_key=-1, api_version=0)
        return authority.allows(context, Operation.READ, ResourceType.TOPIC, f"t{number}", log=False)

    first = MetadataDelta(empty_image())
    first.apply_all([rule(number) for number in range(1_000)])
    image = first.image()
    authority.on_metadata(first, image)
    (steps,) = loading
    count = 0
    for _ in steps:
        count += 1
        assert allows(1, "admin") and not authority.loaded.is_set()
        with pytest.raises(ApiError, match="not loaded yet"):
            allows(1)
        if count == 3:
            later = MetadataDelta(image)
            later.apply_all([RemoveAccessControlEntryRecord(id=rule(1).id), rule(999, "v"), rule(2_000)])
            image = later.image()
            authority.on_metadata(later, image)
    assert count >= 1_000 // STEP_ITEMS and authority.loaded.is_set()
    assert allows(1, "w"), "no ACL is about it any more"
    assert allows(2) and not allows(2, "w") and allows(999, "v") and not allows(999) and not allows(2_000, "w")
    # A snapshot that comes later names what differs.
    snapshot = MetadataDelta.from_snapshot(image, [rule(2, "w"), rule(3)], 40, 1)
    authority.on_metadata(snapshot, snapshot.image())
    assert allows(2, "w") and not allows(2) and allows(3) and allows(999, "x") and authority.acls.count == 2
    assert not loading[1:]
