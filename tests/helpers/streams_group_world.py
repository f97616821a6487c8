"""The core of streams groups over a log in memory, with members that follow the protocol or break it."""

from __future__ import annotations

import random
from typing import Any

from helpers.consumer_group_world import FakeTopic, GroupsWorld

from minikafka.core.group.config import Client
from minikafka.core.group.effects import Creation
from minikafka.core.group.streams.coordinator import StreamsGroups, StreamsSurroundings
from minikafka.core.group.streams.member import Task
from minikafka.core.group.streams.settings import StreamsIntervals, StreamsSettings
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

Request = StreamsGroupHeartbeatRequest
ROLES = ("active", "standby", "warmup")
Roles = dict[str, set[Task]]
REFUSED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNRELEASED_INSTANCE_ID}


def subtopology(name: str, *sources: str, changelogs: tuple[str, ...] = (), **fields: Any) -> StreamsGroupHeartbeatRequest.Subtopology:
    """One that reads some topics and keeps its state in others."""
    infos = [Request.TopicInfo(name=topic, partitions=0, replication_factor=0, topic_configs=[]) for topic in changelogs]
    return Request.Subtopology(
        **{
            "subtopology_id": name, "source_topics": list(sources), "source_topic_regex": [], "state_changelog_topics": infos,
            "repartition_sink_topics": [], "repartition_source_topics": [], "copartition_groups": [], **fields,
        }
    )  # fmt: skip


def topology(*subtopologies: StreamsGroupHeartbeatRequest.Subtopology, epoch: int = 0) -> StreamsGroupHeartbeatRequest.Topology:
    """What a member brings when it joins: "0" reads `a` and has state, "1" reads `b`, unless others are given."""
    given = list(subtopologies) or [subtopology("0", "a", changelogs=("g-a-changelog",)), subtopology("1", "b")]
    return Request.Topology(epoch=epoch, subtopologies=given)


def wire_tasks(tasks: set[Task]) -> list[StreamsGroupHeartbeatRequest.TaskIds]:
    """The tasks or partitions as a request has them."""
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        found.setdefault(name, []).append(partition)
    return [Request.TaskIds(subtopology_id=name, partitions=partitions) for name, partitions in found.items()]


def assigned_tasks(answer: StreamsGroupHeartbeatResponse) -> Roles | None:
    """The assignment in an answer; None if it has none."""
    if answer.active_tasks is None:
        return None
    return {
        role: {(one.subtopology_id, partition) for one in getattr(answer, f"{role}_tasks") for partition in one.partitions}
        for role in ROLES
    }


class StreamsWorld(GroupsWorld):
    """One shard. Internal topics are made when `make_topics` is called, or at once."""

    groups: Any

    def __init__(self, intervals: StreamsIntervals | None = None, size_max: int = 100, *, makes_topics: bool = True, **topics: int) -> None:
        quick = StreamsIntervals(assignment_interval_ms=0, initial_rebalance_delay_ms=0)
        self.settings = StreamsSettings(size_max, intervals=lambda group_id: self.streams_intervals)
        self.streams_intervals = intervals or quick
        self.makes_topics = makes_topics
        self.creations: list[Creation] = []
        super().__init__(**topics)

    def _new_groups(self) -> Any:
        around = StreamsSurroundings(
            self.settings, self.topics, lambda now_ms: self.wall_offset_ms + now_ms, lambda group_id: [], lambda group_id: False
        )
        return StreamsGroups(around, lambda: self.effects)

    def run(self) -> None:
        while self.effects:
            self.creations += self.effects.creations
            self.effects.creations = []
            super().run()
        if self.makes_topics:
            self.make_topics()

    def make_topics(self) -> None:
        """The controllers have made what the coordinator asked for."""
        waiting, self.creations = self.creations, []
        for creation in waiting:
            for topic in creation.topics.values():
                if topic.name not in self.topics.topics:
                    self.topic(topic.name, topic.partition_count)

    def topic(self, name: str, partitions: int) -> None:
        self.topics.version += 1
        if partitions:
            self.topics.topics[name] = FakeTopic(name, partitions)
        else:
            del self.topics.topics[name]
        self.groups.topics_changed([name])

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.groups.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.groups.on_deadline(self.now_ms)
            self.run()
        self.now_ms = end_ms

    def send(self, reply: object, *, version: int = 1, client: str = "c", **fields: Any) -> None:
        given: dict[str, Any] = {"group_id": "g", "member_id": "", "member_epoch": 0, "endpoint_information_epoch": 0, **fields}
        self.groups.heartbeat(reply, Request(**given), Client(client, "/1.1.1.1", version), self.now_ms)
        self.run()

    def join(self, member_id: str, *names: str, **fields: Any) -> Any:
        """A member joins; its process has its name, unless another is given."""
        given = {
            "rebalance_timeout_ms": 60_000, "topology": topology(), "process_id": f"p-{member_id}",
            **{f"{role}_tasks": [] for role in ROLES}, **fields,
        }  # fmt: skip
        return self.beat(member_id, 0, **given)

    def go_on(self, member_id: str, epoch: int, tasks: Roles | None = None, **fields: Any) -> Any:
        """A heartbeat, with or without the member's tasks."""
        reported = {} if tasks is None else {f"{role}_tasks": wire_tasks(tasks.get(role, set())) for role in ROLES}
        return self.beat(member_id, epoch, **reported, **fields)


class Processor:
    """A member that follows the answers but revokes slowly."""

    def __init__(self, name: str, process_id: str, world: StreamsWorld) -> None:
        self.member_id, self.process_id, self.world = name, process_id, world
        self.instance_id = f"i-{name}" if name.startswith("s") else None
        self.epoch = 0
        self.has: Roles = {role: set() for role in ROLES}
        self.wanted: Roles = {role: set() for role in ROLES}
        self.waits = False
        self.lies = True
        #: Whether it also lies about its process, its topology and its tasks.
        self.is_liar = False

    def beat(self, chance: random.Random) -> None:
        """One heartbeat, if none is under way; now and then it lies about its epoch."""
        if self.waits:
            return
        self.waits = True
        fields: dict[str, Any] = {"instance_id": self.instance_id} if self.instance_id else {}
        epoch = self.epoch
        if epoch == 0:
            self.has = {role: set() for role in ROLES}
            fields |= {"rebalance_timeout_ms": 20_000, "topology": topology(), "process_id": self.process_id}
        elif self.lies and chance.random() < 0.02:
            epoch = max(1, epoch + chance.choice([-1, 1]))
        reported = self._invent(chance, fields) if self.is_liar and self.lies else self.has
        fields |= {f"{role}_tasks": wire_tasks(reported[role]) for role in ROLES}
        self.world.send(self, member_id=self.member_id, member_epoch=epoch, **fields)

    def _invent(self, chance: random.Random, fields: dict[str, Any]) -> Roles:
        """What it says it has: tasks of others and of no subtopology. It may be in another process all of a sudden, and
        bring the topology of another epoch."""
        if chance.random() < 0.1:
            self.process_id = fields["process_id"] = f"p{chance.randint(1, 4)}"
        if self.epoch == 0 and chance.random() < 0.3:
            fields["topology"] = topology(epoch=chance.choice([-1, 1, 7]))
        # Who joins has nothing, or is refused.
        count = chance.randint(0, 4) if self.epoch > 0 or chance.random() < 0.1 else 0
        invented = {(chance.choice(["0", "0", "0", "1", "1", "1", "none"]), chance.randint(0, 5) // 2) for _ in range(count)}
        return {role: self.has[role] | invented for role in ROLES}

    def hear(self, chance: random.Random, *, is_lost: bool) -> None:
        """Take the answer, if there is one and it is not lost."""
        answer: Any = self.world.answer(self)
        if answer is None:
            return
        self.waits = False
        if is_lost:
            return
        if answer.error_code in REFUSED:
            self.epoch, self.has = 0, {role: set() for role in ROLES}
        elif answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.wanted = assigned_tasks(answer) or self.wanted
            for role in ROLES:
                # It delays the revocation of tasks.
                for task in sorted(self.has[role] - self.wanted[role]):
                    if chance.random() < 0.7:
                        self.has[role].discard(task)
                self.has[role] |= self.wanted[role]


