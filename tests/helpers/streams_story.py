"""Requests of members of streams groups (KIP-1071), good and bad, as they are sent to Apache Kafka and to a broker of ours.

The answers of Apache Kafka 4.4.0 are in tests/golden/streams-groups.txt. `python -m helpers.streams_story BOOTSTRAP DIRECTORY` prints those
of a fresh broker with the properties of `STORY_PROPERTIES`; the directory is that of its `__consumer_offsets-0`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from helpers.asked import Asked, retry, written
from helpers.streams_group_world import ROLES, Request, Roles, subtopology, topology, wire_tasks

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_groups import DeleteGroupsRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_delete import OffsetDeleteRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from minikafka.wire.messages.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest

STORY_PROPERTIES = {
    "offsets.topic.num.partitions": "1", "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "5000", "group.streams.min.heartbeat.interval.ms": "5000",
    "group.streams.min.session.timeout.ms": "45000", "group.streams.max.size": "3",
}  # fmt: skip
CHANGELOG = "g-store-changelog"
_MORE = subtopology("0", "a", repartition_sink_topics=["g-r-repartition"])


class Streams(Asked):
    """A broker, and all that it answers to members of streams groups."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.epochs: dict[str, int] = {}
        self.held: dict[str, Roles] = {}

    def send(self, what: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        tasks = fields.pop("tasks", None)
        if tasks is not None:
            fields |= {f"{role}_tasks": wire_tasks(tasks.get(role, set())) for role in ROLES}
        given = {"group_id": "g", "endpoint_information_epoch": 0, **fields}
        return self.tell(what, Request(member_id=member_id, member_epoch=epoch, **given), version)

    def comes(self, what: str, member_id: str, **fields: Any) -> Any:
        """A member joins; its process has its name, unless another is given."""
        given = {
            "rebalance_timeout_ms": 60_000, "topology": stateful(), "process_id": f"p-{member_id}", "tasks": {}, "epoch": 0, **fields,
        }  # fmt: skip
        return self.send(what, member_id, given.pop("epoch"), **given)


def stateful(**fields: Any) -> Any:
    """What most members run: two subtopologies, the first of which has state."""
    return topology(subtopology("0", "a", changelogs=(CHANGELOG,)), subtopology("1", "b"), **fields)


def prepare(asked: Streams) -> None:
    topic = CreateTopicsRequest.CreatableTopic
    wanted = [topic(name=name, num_partitions=count, replication_factor=1) for name, count in (("a", 4), ("b", 2), ("c", 3))]
    made = asked.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7)
    assert [one.error_code for one in made.topics] == [0, 0, 0]
    asked.ids = {one.name: one.topic_id for one in made.topics}
    retry(lambda: asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0)
    retry(lambda: asked.ask(ListGroupsRequest(), 5).error_code == 0)
    absent = Request(group_id="g", member_id="m", member_epoch=3, endpoint_information_epoch=0)
    retry(lambda: asked.ask(absent, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND)


def refusals(asked: Streams) -> None:
    """Requests that every group refuses."""
    asked.send("nobody's group", "m", 4)
    asked.send("leaves nobody's group", "m", -1)
    asked.comes("no member id", "")
    asked.comes("no group id", "m", group_id="")
    asked.comes("an empty instance id", "m", instance_id="")
    asked.comes("an empty rack", "m", rack_id=" ")
    asked.comes("no rebalance time-out", "m", rebalance_timeout_ms=-1)
    asked.comes("has something", "m", tasks={"active": {("0", 0)}})
    asked.comes("says nothing of its tasks", "m", tasks=None)
    asked.comes("no topology", "m", topology=None)
    asked.comes("an epoch below all", "m", epoch=-3, topology=None)
    asked.comes("leaves for a while without an instance", "m", epoch=-2, topology=None)
    asked.send("a topology though it is a member", "m", 3, topology=stateful())
    asked.send("one role of three", "m", 3, active_tasks=[])
    asked.comes("a pattern", "m", topology=topology(subtopology("0", "a", source_topic_regex=["x.*"])))
    infos = [Request.TopicInfo(name=CHANGELOG, partitions=3, replication_factor=0, topic_configs=[])]
    asked.comes("a changelog with partitions", "m", topology=topology(subtopology("0", "a", state_changelog_topics=infos)))
    asked.comes("a topic of Kafka's", "m", topology=topology(subtopology("0", "__consumer_offsets")))
    asked.comes("a name that is none", "m", topology=topology(subtopology("0", "a b", "c/d")))
    asked.comes("a topology epoch below all", "m", topology=stateful(epoch=-1))
    asked.comes("a subtopology twice", "m", topology=topology(subtopology("0", "a"), subtopology("0", "b")))
    asked.comes("a sink that nobody reads", "m", topology=topology(_MORE), group_id="refused")


def unready(asked: Streams) -> None:
    """Topics that are missing or have the wrong number of partitions."""
    asked.comes("reads nothing that is", "u1", group_id="u", topology=topology(subtopology("0", "x", "y")))
    asked.tell("described as not ready", StreamsGroupDescribeRequest(group_ids=["u"]), 1)
    asked.tell("listed as not ready", ListGroupsRequest(states_filter=["not_ready"]), 5)
    asked.send("goes on", "u1", 2, group_id="u")
    asked.send("leaves", "u1", -1, group_id="u")
    joined = topology(
        subtopology("0", "a", "b", copartition_groups=[Request.CopartitionGroup(
            source_topics=[0, 1], source_topic_regex=[], repartition_source_topics=[],
        )]),
    )  # fmt: skip
    asked.comes("joins what cannot be joined", "v1", group_id="v", topology=joined)
    asked.send("leaves", "v1", -1, group_id="v")


def membership(asked: Streams) -> None:
    """Joins, topics that are made, tasks that move, fencing, leaving."""
    asked.comes("m1 joins", "m1", client_tags=[Request.KeyValue(key="zone", value="z1")])
    again = Request(group_id="g", member_id="m1", member_epoch=2, endpoint_information_epoch=0)
    again.active_tasks, again.standby_tasks, again.warmup_tasks = [], [], []
    # The changelog is created, and the coordinator learns of it.
    retry(lambda: asked.ask(again, 1).member_epoch == 3)
    mine = {"active": {("0", 0), ("0", 1), ("0", 2), ("0", 3), ("1", 0), ("1", 1)}}
    epoch = asked.comes("m1 joins again", "m1").member_epoch
    asked.send("m1 goes on", "m1", epoch, tasks=mine)
    asked.send("m1 from the future", "m1", 9)
    asked.send("m1 has what is not", "m1", epoch, tasks={"active": {("0", 7)}})
    asked.send("m1 has what nobody has", "m1", epoch, tasks={"standby": {("9", 0)}})
    twice = [Request.TaskOffset(subtopology_id="0", partition=0, offset=1)] * 2
    asked.send("m1 tells offsets twice", "m1", epoch, task_offsets=twice)
    asked.send("m1 tells offsets", "m1", epoch, task_offsets=twice[:1], task_end_offsets=twice[1:])
    asked.comes("m2 joins", "m2", rack_id="r", user_endpoint=Request.Endpoint(host="h", port=7))
    answer = asked.send("m1 is told", "m1", epoch, tasks=mine)
    left = {"active": {(one.subtopology_id, index) for one in answer.active_tasks for index in one.partitions}}
    asked.send("m2 waits", "m2", epoch + 1, tasks={})
    asked.send("m1 gives up", "m1", epoch, tasks=left)
    asked.send("m1 repeats", "m1", epoch, tasks=left)
    asked.send("m1 repeats with more", "m1", epoch, tasks=mine)
    answer = asked.send("m2 takes", "m2", epoch + 1, tasks={})
    asked.send("m2 goes on, and knows who answers", "m2", epoch + 1, endpoint_information_epoch=answer.endpoint_information_epoch)
    asked.comes("m1 with another topology", "m1", topology=topology(subtopology("0", "c")))
    asked.comes("m1 with a newer topology", "m1", topology=stateful(epoch=1))
    asked.send("v0", "m2", epoch + 1, version=0)
    asked.comes("s1 joins", "s1", instance_id="i1", process_id="p-m2")
    asked.comes("one too many", "m9")
    asked.comes("s2 wants its place", "s2", instance_id="i1")
    asked.send("s1 leaves for a while", "s1", -2, instance_id="i1")
    asked.comes("s2 takes its place", "s2", instance_id="i1", process_id="p-m2")
    asked.send("s1 is fenced", "s1", epoch + 2, instance_id="i1")
    asked.send("nobody's instance", "s1", epoch + 2, instance_id="i9")
    asked.send("s2 leaves for good", "s2", -1, instance_id="i1")
    asked.send("m2 leaves, and all are to stop", "m2", -1, shutdown_application=True)
    asked.send("m2 is gone", "m2", epoch + 1)


def offsets(asked: Streams) -> None:
    """Commits and reads need the epoch."""
    held = StreamsGroupDescribeRequest(group_ids=["g"])
    member = asked.ask(held, 1).groups[0].members[0]
    mine = {"active": {(one.subtopology_id, index) for one in member.assignment.active_tasks for index in one.partitions}}
    epoch = asked.send("m1 goes on", "m1", member.member_epoch, tasks=mine).member_epoch
    topic, part = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    first = min(index for name, index in mine["active"] if name == "0")
    for who, at, version, name, index in (
        ("m1", epoch, 9, "a", first), ("m1", epoch - 1, 9, "a", first), ("m1", epoch - 1, 9, "c", 0), ("m1", 1, 9, "a", first),
        ("m1", epoch + 1, 9, "a", 0), ("m9", epoch, 9, "a", 0), ("", -1, 9, "a", 0), ("m1", epoch, 8, "a", 0),
    ):  # fmt: skip
        topics = [topic(name=name, partitions=[part(partition_index=index, committed_offset=5, committed_metadata="")])]
        request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=at, member_id=who, topics=topics)
        asked.tell(f"commit of {who} at {at - epoch} v{version}", request, version)
    fetch = OffsetFetchRequest
    for whose, at in (("m1", epoch), ("m1", epoch - 1), ("m9", epoch), (None, -1)):
        groups = [
            fetch.OffsetFetchRequestGroup(
                group_id="g", member_id=whose, member_epoch=at,
                topics=[fetch.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1, 2, 3])],
            )
        ]  # fmt: skip
        asked.tell(f"fetch of {whose} at {at - epoch}", fetch(groups=groups), 9)
    kind = OffsetDeleteRequest
    for name in ("a", "c"):
        partitions = [kind.OffsetDeleteRequestPartition(partition_index=0)]
        topics = [kind.OffsetDeleteRequestTopic(name=name, partitions=partitions)]
        asked.tell(f"delete offsets of {name}", kind(group_id="g", topics=topics), 0)


def administration(asked: Streams) -> None:
    """The group as tools see it."""
    asked.tell("described", StreamsGroupDescribeRequest(group_ids=["g", "none", ""], include_authorized_operations=True), 1)
    asked.tell("described v0", StreamsGroupDescribeRequest(group_ids=["g"]), 0)
    asked.tell("described with what it runs", StreamsGroupDescribeRequest(group_ids=["g", "none"], include_topology_description=True), 1)
    update = StreamsGroupTopologyDescriptionUpdateRequest
    for member_id in ("m1", ""):
        asked.tell(f"{member_id or 'nobody'} tells what it runs", update(group_id="g", member_id=member_id, topology_epoch=1), 0)
    asked.tell("described as classic", DescribeGroupsRequest(groups=["g", "none"]), 6)
    asked.tell("listed", ListGroupsRequest(types_filter=["streams"]), 5)
    asked.tell("listed as consumer", ListGroupsRequest(types_filter=["consumer"]), 5)
    asked.tell("not empty", DeleteGroupsRequest(groups_names=["g"]), 2)


def classic_join(asked: Streams, what: str, member_id: str) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1b\0\0\0\0")
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id=member_id, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    return asked.tell(what, request, 5)


def ending(asked: Streams) -> None:
    """The last member leaves; the group is deleted."""
    refused = classic_join(asked, "a consumer wants to join", "")
    asked.drawn.setdefault(refused.member_id, "MEMBER")
    asked.send("m1 leaves", "m1", -1)
    asked.tell("is empty", StreamsGroupDescribeRequest(group_ids=["g"]), 1)
    for group_id in ("g", "u", "v"):
        asked.tell(f"{group_id} is deleted", DeleteGroupsRequest(groups_names=[group_id]), 2)
    asked.tell("is gone", StreamsGroupDescribeRequest(group_ids=["g"]), 1)


def chapters(asked: Streams) -> None:
    """All chapters, in order."""
    prepare(asked)
    for chapter in (refusals, unready, membership, offsets, administration, ending):
        asked.heard.append(f"-- {chapter.__name__}")
        chapter(asked)


if __name__ == "__main__":
    broker = Streams(sys.argv[1])
    chapters(broker)
    print("\n".join([*broker.heard, "-- records", *written(broker, Path(sys.argv[2]))]))
