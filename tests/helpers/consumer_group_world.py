"""The core of consumer groups over a log in memory, with consumers that follow the protocol or break it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from minikafka.core.coordinator.shard import Append, CoordinatorRecord
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.consumer.coordinator import ConsumerGroups, Surroundings
from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.consumer.settings import ConsumerGroupConfig, GroupIntervals
from minikafka.core.group.effects import Effects
from minikafka.core.group.migrating import MigratingRebalancer
from minikafka.core.pattern import matching
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

Partitions = set[tuple[bytes, int]]


def topic_id_of(name: str) -> bytes:
    """An id that reads as the name."""
    return name.encode().rjust(16, b".")


@dataclass
class FakeTopic:
    """A topic with racks for every partition."""

    name: str
    partition_count: int
    rack_names: list[str] = field(default_factory=list)

    @property
    def topic_id(self) -> bytes:
        """Its id."""
        return topic_id_of(self.name)

    def racks(self, index: int) -> list[str]:
        """Racks of a partition's replicas."""
        return self.rack_names


class FakeTopics:
    """The topics of a cluster."""

    def __init__(self) -> None:
        self.version = 0
        self.topics: dict[str, FakeTopic] = {}

    def by_name(self, name: str) -> FakeTopic | None:
        """A topic."""
        return self.topics.get(name)

    def by_id(self, topic_id: bytes) -> FakeTopic | None:
        """A topic."""
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> list[str]:
        """Names of all topics."""
        return list(self.topics)


class GroupsWorld:
    """One shard. What it appends is committed at once, unless `is_stalled`."""

    def __init__(self, config: ConsumerGroupConfig | None = None, intervals: GroupIntervals | None = None, **topics: int) -> None:
        self.now_ms = 0
        #: The clock of the day minus the loop's.
        self.wall_offset_ms = 1_000_000
        self.config = config or ConsumerGroupConfig()
        self.intervals = intervals or GroupIntervals(assignment_interval_ms=0)
        self.topics = FakeTopics()
        self.log: list[CoordinatorRecord] = []
        self.batches: list[list[CoordinatorRecord]] = []
        self.uncommitted: list[Append] = []
        self.is_stalled = False
        self.effects = Effects()
        self.answers: list[tuple[object, ConsumerGroupHeartbeatResponse]] = []
        self.resolutions: list[tuple[str, tuple[str, ...]]] = []
        #: What is done in steps: whenever nothing else is to be done, or, when `is_stepwise`, by `take_step`.
        self.work: deque[Iterator[None]] = deque()
        self.is_stepwise = False
        self.steps = 0
        for name, count in topics.items():
            self.topics.topics[name] = FakeTopic(name, count)
        self.groups = self._new_groups()

    def _new_groups(self) -> ConsumerGroups:
        around = Surroundings(
            config=self.config, topics=self.topics, intervals=lambda group_id: self.intervals,
            wall_ms=lambda now_ms: self.wall_offset_ms + now_ms, new_member_id=lambda: "made-by-the-broker", make_room=lambda group_id: [],
            classics=MigratingRebalancer(GroupConfig(), lambda: "uuid", lambda now_ms: 1_000_000 + now_ms),
        )  # fmt: skip
        return ConsumerGroups(around, lambda: self.effects)

    # -- the runtime -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out the shard's effects until there are none left."""
        while self.effects:
            effects, self.effects = self.effects, Effects()
            self.uncommitted += effects.appends
            self.answers += effects.answers
            self.work += effects.work
            self.resolutions += [(group_id, regexes) for _, group_id, regexes in effects.resolutions]
            if not self.is_stalled:
                self.commit()
            if not self.effects and not self.is_stepwise:
                self.take_step()

    def take_step(self) -> None:
        """A turn of what is done in steps."""
        if not self.work:
            return
        steps = self.work.popleft()
        if next(steps, self) is not self:
            self.work.append(steps)
            self.steps += 1
        if self.effects:
            self.run()
        elif not self.is_stepwise:
            self.take_step()

    def commit(self) -> None:
        """Commit everything that was written."""
        while self.uncommitted:
            append = self.uncommitted.pop(0)
            self.batches.append(append.records)
            for record in append.records:
                self.log.append(record)
                self.groups.replay(record.key, record.value)
            append.on_settled(True, self.now_ms)
            append.on_done(ErrorCode.NONE, self.now_ms)
        if self.effects:
            self.run()

    def refuse(self, code: ErrorCode) -> None:
        """Fail the pending writes."""
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            append.on_settled(False, self.now_ms)
            append.on_done(code, self.now_ms)
        self.run()

    def fail_over(self) -> None:
        """Another broker loads the committed records; waiting requests get an error."""
        self.groups.shutdown()
        self.work.clear()
        waiting, self.uncommitted = self.uncommitted, []
        for append in waiting:
            append.on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.now_ms)
        self.answers += self.effects.answers
        self.effects = Effects()
        self.groups = self._new_groups()
        for record in self.log:
            self.groups.replay(record.key, record.value)
        self.groups.loaded(self.now_ms)
        self.run()

    def advance(self, ms: int) -> None:
        """Let time pass, stopping at each deadline."""
        end_ms = self.now_ms + ms
        while (due_ms := self.groups.sessions.timers.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(due_ms, self.now_ms)
            self.groups.on_deadline(self.now_ms)
            self.run()
        self.now_ms = end_ms

    # -- the cluster -----------------------------------------------------------------------------------------------------

    def topic(self, name: str, partitions: int) -> None:
        """Create or enlarge a topic; without partitions delete it."""
        self.topics.version += 1
        is_new = name not in self.topics.topics
        if partitions:
            self.topics.topics[name] = FakeTopic(name, partitions)
        else:
            del self.topics.topics[name]
        self.groups.topics_changed([name], has_new=is_new)

    def resolve(self) -> None:
        """Resolve the patterns that are asked for."""
        waiting, self.resolutions = self.resolutions, []
        for group_id, regexes in waiting:
            found = {
                regex: ResolvedRegex(frozenset(matching(regex, self.topics.names())), self.topics.version, 1_000_000 + self.now_ms)
                for regex in sorted(regexes)
            }
            self.groups.resolved(group_id, found, self.now_ms)
        self.run()

    def group(self, group_id: str = "g") -> ConsumerGroup:
        """A group that is committed."""
        return self.groups.groups[group_id]

    # -- requests --------------------------------------------------------------------------------------------------------

    def send(self, reply: object, *, version: int = 1, client: str = "c", **fields: object) -> None:
        """Send a heartbeat whose answer may come later."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "", "member_epoch": 0, **fields})  # type: ignore[arg-type]
        self.groups.heartbeat(reply, request, Client(client, "/1.1.1.1", version), self.now_ms)
        self.run()

    def answer(self, reply: object) -> ConsumerGroupHeartbeatResponse | None:
        """The answer, which can be taken once."""
        for number, (whose, answer) in enumerate(self.answers):
            if whose == reply:
                del self.answers[number]
                return answer
        return None

    def beat(self, member_id: str, epoch: int, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that is answered at once."""
        self.send("now", member_id=member_id, member_epoch=epoch, **fields)
        answer = self.answer("now")
        assert answer is not None
        return answer

    def join(self, member_id: str, *names: str, **fields: object) -> ConsumerGroupHeartbeatResponse:
        """A consumer joins."""
        epoch = int(str(fields.pop("member_epoch", 0)))
        return self.beat(
            member_id, epoch, **{"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(names), "topic_partitions": [], **fields}
        )


def wire_partitions(owned: Partitions) -> list[ConsumerGroupHeartbeatRequest.TopicPartitions]:
    """The tasks or partitions as a request has them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        topics.setdefault(topic_id, []).append(partition)
    return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]


def assigned(answer: ConsumerGroupHeartbeatResponse) -> Partitions | None:
    """The assignment in an answer; None if it has none."""
    if answer.assignment is None:
        return None
    return {(topic.topic_id, partition) for topic in answer.assignment.topic_partitions for partition in topic.partitions}
