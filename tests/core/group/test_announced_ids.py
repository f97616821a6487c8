"""Member ids that a group has announced (KIP-394)."""

from __future__ import annotations

from core.group.test_shard import World

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.leave_group import LeaveGroupRequest


def test_a_member_id_that_was_announced_to_a_dynamic_member_is_no_static_ones() -> None:
    """An unexpected error in Apache Kafka."""
    world = World()
    announced = world.join("first")
    assert announced is not None and announced.error_code == ErrorCode.MEMBER_ID_REQUIRED
    static = world.join("static", announced.member_id, instance="i")
    assert static is not None and (static.error_code, static.generation_id) == (ErrorCode.INVALID_REQUEST, -1)
    dynamic = world.join("dynamic", announced.member_id)
    assert dynamic is None or dynamic.error_code == ErrorCode.NONE


def test_an_announced_member_leaves_whatever_instance_id_it_names() -> None:
    world = World()
    announced = world.join("first")
    assert announced is not None
    leave = LeaveGroupRequest(
        group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=announced.member_id, group_instance_id="i")]
    )
    world.shard.leave("leave", leave, 3, world.now_ms)
    world.settle()
    assert [member.error_code for member in world.answers["leave"].members] == [ErrorCode.NONE]
    again = world.join("again", announced.member_id)
    assert again is not None and again.error_code == ErrorCode.UNKNOWN_MEMBER_ID
