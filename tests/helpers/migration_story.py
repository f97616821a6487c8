"""Members of the classic protocol in groups that become consumer groups and classic again, played against a broker step by step."""

from __future__ import annotations

from typing import Any

from helpers.asked import Asked
from helpers.mixed_groups import assignment, subscription

from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.heartbeat import HeartbeatRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.leave_group import LeaveGroupRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.sync_group import SyncGroupRequest

Owned = set[tuple[str, int]]


class Classic:
    """A static classic member, which assigns everything to itself when it leads."""

    def __init__(self, asked: Asked, name: str, group: str = "m") -> None:
        self.asked, self.name, self.group = asked, name, group
        self.member_id, self.generation = "", -1

    def join(self, what: str, *names: str, owned: Owned = frozenset(), version: int = 9, protocol: str = "range", **fields: Any) -> Any:  # type: ignore[assignment]
        entry = JoinGroupRequest.JoinGroupRequestProtocol
        metadata = fields.pop("metadata", None) or subscription(list(names), owned)
        request = JoinGroupRequest(
            **{
                "group_id": self.group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": self.member_id,
                "group_instance_id": self.name, "protocol_type": "consumer", "protocols": [entry(name=protocol, metadata=metadata)],
                **fields,
            }
        )  # fmt: skip
        answer = self.asked.ask(request, version)
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.generation_id
        if answer.member_id and answer.member_id != "nobody":
            self.asked.drawn[answer.member_id] = f"<{self.name}>"
        self.asked.heard.append(f"{what}: {self.asked.words(answer)}")
        return answer

    def sync(self, what: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        given = [entry(member_id=each, assignment=data) for each, data in (assignments or {}).items()]
        values = {
            "group_id": self.group, "generation_id": self.generation, "member_id": self.member_id, "group_instance_id": self.name,
            "protocol_type": "consumer", "protocol_name": "range", "assignments": given, **fields,
        }  # fmt: skip
        return self.asked.tell(what, SyncGroupRequest(**values), 5)

    def beat(self, what: str, **fields: Any) -> Any:
        values = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id, "group_instance_id": self.name}
        return self.asked.tell(what, HeartbeatRequest(**{**values, **fields}), 4)

    def leave(self, what: str, *others: tuple[str, str | None]) -> Any:
        entry = LeaveGroupRequest.MemberIdentity
        members = [entry(member_id=member, group_instance_id=instance) for member, instance in ((self.member_id, self.name), *others)]
        return self.asked.tell(what, LeaveGroupRequest(group_id=self.group, members=members), 5)


def alone(asked: Asked, name: str, group: str, owned: Owned) -> Classic:
    """A classic group of one, which is stable."""
    one = Classic(asked, name, group)
    one.join(f"{name} joins {group}", "a")
    one.sync(f"{name} has its assignment", {one.member_id: assignment(owned)})
    return one


def upgrade(asked: Asked) -> Classic:
    """A consumer comes to a classic group; the classic member goes on, and makes mistakes."""
    everything = {("a", index) for index in range(4)}
    one = alone(asked, "k1", "m", everything)
    asked.beat("a heartbeat that does not join", "c1", 3, group_id="m")
    asked.join("c1 joins", "c1", "a", group_id="m")
    one.beat("k1 is told")
    one.sync("k1 syncs too late")
    one.join("k1 joins again", "a", owned=everything)
    one.sync("k1 keeps half of it")
    one.beat("k1 has something to give up")
    one.join("k1 gives up", "a", owned={("a", 0), ("a", 1)})
    one.sync("k1 has what it is to have")
    one.beat("k1 goes on")
    asked.beat("c1 takes the rest", "c1", one.generation, group_id="m")
    asked.tell("described", ConsumerGroupDescribeRequest(group_ids=["m"]), 1)
    asked.tell("described as classic", DescribeGroupsRequest(groups=["m"]), 6)
    asked.tell("listed", ListGroupsRequest(), 5)
    return one


def mistakes(asked: Asked, one: Classic) -> None:
    """Refused requests and their errors."""
    one.sync("another protocol", protocol_name="roundrobin")
    one.sync("another type", protocol_type="connect")
    one.sync("no protocol", protocol_name=None)
    one.sync("an old generation", generation_id=one.generation - 1)
    one.beat("an old generation beats", generation_id=one.generation - 1)
    one.beat("nobody beats", member_id="nobody", group_instance_id=None)
    one.beat("not its instance", member_id="nobody")
    one.beat("an unknown instance", group_instance_id="k9")
    one.beat("a consumer beats", member_id="c1", group_instance_id=None)
    one.sync("a consumer syncs", member_id="c1", group_instance_id=None)
    other = Classic(asked, "k2", "m")
    other.join("another type joins", "a", protocol_type="connect")
    other.join("no common protocol", "a", protocol="mine")
    other.join("nonsense", "a", metadata=b"\0")
    other.member_id = "nobody"
    other.join("an instance that nobody has", "a")
    other.join("without an id", "a", group_instance_id=None, member_id="")
    topic, part = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    for at in (0, -1, 1):
        topics = [topic(name="a", partitions=[part(partition_index=0, committed_offset=5, committed_metadata="")])]
        request = OffsetCommitRequest(
            group_id="m", generation_id_or_member_epoch=one.generation + at, member_id=one.member_id, group_instance_id="k1", topics=topics
        )
        asked.tell(f"a commit at {at}", request, 9)


def downgrade(asked: Asked, one: Classic) -> None:
    """The consumer leaves; the group is classic again."""
    asked.beat("c1 leaves", "c1", -1, group_id="m")
    one.beat("k1 joins anew")
    asked.tell("is no consumer group", ConsumerGroupDescribeRequest(group_ids=["m"]), 1)
    asked.beat("c1 is nobody", "c1", one.generation, group_id="m")
    asked.beat("c1 leaves again", "c1", -1, group_id="m")
    one.join("k1 leads", "a")
    one.sync("k1 has everything", {one.member_id: assignment({("a", 0), ("a", 1), ("a", 2), ("a", 3)})})
    asked.tell("is a classic group", DescribeGroupsRequest(groups=["m"]), 6)


def replacing(asked: Asked) -> None:
    """A static member changes its protocol, there and back."""
    one = alone(asked, "s1", "s", {("a", 0), ("a", 1), ("a", 2), ("a", 3)})
    asked.join("c2 takes its place", "c2", "a", group_id="s", instance_id="s1")
    one.beat("s1 is fenced")
    asked.tell("one consumer", ConsumerGroupDescribeRequest(group_ids=["s"]), 1)
    one.member_id = ""
    one.join("s1 takes its place", "a")
    one.sync("s1 has it again")
    asked.tell("one classic member", DescribeGroupsRequest(groups=["s"]), 6)
    asked.beat("c2 is nobody", "c2", 4, group_id="s", instance_id="s1")


def leaving(asked: Asked) -> None:
    """Classic members leave a consumer group, which stays one; an administrator removes members."""
    one = alone(asked, "l1", "l", {("a", index) for index in range(4)})
    asked.join("c3 joins", "c3", "a", group_id="l")
    one.join("l1 joins again", "a")
    one.leave("l1 leaves, with others", ("nobody", None), ("", "l9"), ("other", "l1"))
    asked.tell("one is left", ConsumerGroupDescribeRequest(group_ids=["l"]), 1)
    one.leave("l1 is gone", ("c3", None))
    asked.tell("nobody is left", ConsumerGroupDescribeRequest(group_ids=["l"]), 1)


def refused(asked: Asked) -> None:
    """Groups that cannot become consumer groups."""
    connect = Classic(asked, "x1", "x")
    connect.join("of another type", protocol_type="connect", metadata=b"??")
    asked.join("c4 cannot join", "c4", "a", group_id="x")
    odd = Classic(asked, "y1", "y")
    odd.join("y1 joins", "a")
    odd.sync("of its own assignor", {odd.member_id: assignment({("a", 0)}, b"mine")})
    asked.join("c4 cannot join either", "c4", "a", group_id="y")
    odd.beat("y1 goes on")


def migrations(asked: Asked) -> None:
    """All of it."""
    one = upgrade(asked)
    mistakes(asked, one)
    downgrade(asked, one)
    for part in (replacing, leaving, refused):
        part(asked)
