"""Seeded cases for the assignor and the topics of streams groups, which Apache Kafka 4.4 was asked too.

    javac -cp "JARS/*" -d OUT tests/golden/streams/StreamsOracle.java
    python -m helpers.streams_cases | java -cp "JARS/*:OUT" StreamsOracle > tests/golden/streams/cases.jsonl

JARS: a folder with the jars of org.apache.kafka:kafka_2.13:4.4.0 and what it needs. A case is a dictionary of JSON: `members`,
`subtopologies` (number of tasks and whether it is stateful) and `standbys` for the assignor; `topology` and `topics` for the topics.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minikafka.core.group.streams.assignors import ASSIGNORS
from minikafka.core.group.streams.model import (
    ConfiguredSubtopology,
    ConfiguredTopology,
    GroupSpec,
    InternalTopic,
    MemberSpec,
    TasksTuple,
    Topology,
)
from minikafka.steps import at_once
from minikafka.wire.records.group_records import StreamsGroupTopologyValue

Case = dict[str, Any]
LIVES, TOPOLOGIES = 30, 120
_CHANGELOG = {"changelog": InternalTopic("changelog", 1)}


# -- the assignor --------------------------------------------------------------------------------------------------------


def spec_of(case: Case) -> tuple[GroupSpec, ConfiguredTopology]:
    """The assignor's input."""
    members = {
        member_id: MemberSpec(
            member["process"],
            TasksTuple(*(_tasks(member.get(role, {})) for role in ("active", "standby", "warmup"))),
            task_offsets={
                name: {int(place): offset for place, offset in offsets.items()} for name, offsets in member.get("offsets", {}).items()
            },
        )
        for member_id, member in case["members"].items()
    }
    subtopologies = {
        name: ConfiguredSubtopology(count, frozenset(), {}, frozenset(), _CHANGELOG if stateful else {})
        for name, (count, stateful) in sorted(case["subtopologies"].items())
    }
    return GroupSpec(members, case["standbys"]), ConfiguredTopology(1, 1, subtopologies, {})


def _tasks(listed: dict[str, list[int]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(partitions) for name, partitions in listed.items()}


def listed(tasks: TasksTuple) -> list[dict[str, list[int]]]:
    """Active and standby tasks, for JSON."""
    return [{name: sorted(partitions) for name, partitions in sorted(role.items())} for role in (tasks.active, tasks.standby)]


@dataclass
class Life:
    """A group whose members come, go and restart and whose topology grows; every step is a case that starts from the last assignment."""

    seed: int
    case: Case = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        names = ["0", "1", "2", "10", "11", "\U0001f600", "ﬀ"][: self.chance.randint(1, 7)]
        subtopologies = {name: [self.chance.randint(1, 7), self.chance.random() < 0.7] for name in names}
        self.case = {"standbys": self.chance.choice([0, 0, 1, 1, 2]), "subtopologies": subtopologies, "members": {}}
        for _ in range(self.chance.randint(1, 6)):
            self._join()

    def step(self) -> Case:
        """The next case, with every member's assignment from the one before."""
        if "assigned" in self.case:
            for member_id, (active, standby) in self.case.pop("assigned").items():
                self.case["members"][member_id] |= {"active": active, "standby": standby}
            for _ in range(self.chance.randint(1, 3)):
                self.chance.choice([self._join, self._join, self._leave, self._restart, self._grow, self._tell_offsets, self._shuffle])()
        found: Case = json.loads(json.dumps(self.case))
        spec, topology = spec_of(found)
        self.case["assigned"] = {name: listed(tasks) for name, tasks in at_once(ASSIGNORS["sticky"](spec, topology)).items()}
        return found

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def _join(self) -> None:
        processes = [member["process"] for member in self.case["members"].values()]
        process = self.chance.choice(processes) if processes and self.chance.random() < 0.5 else self._uuid()
        self.case["members"][self._uuid()] = {"process": process}

    def _leave(self) -> None:
        members = self.case["members"]
        if len(members) > 1:
            del members[self.chance.choice(list(members))]

    def _restart(self) -> None:
        """Restart under another member id, without tasks, and report the offsets of the state on its disk."""
        members = self.case["members"]
        before = members.pop(self.chance.choice(list(members)))
        held = [(name, place) for role in ("active", "standby") for name, places in before.get(role, {}).items() for place in places]
        offsets: dict[str, dict[str, int]] = {}
        for name, place in held:
            offsets.setdefault(name, {})[str(place)] = self.chance.randint(0, 5)
        members[self._uuid()] = {"process": self.chance.choice([before["process"], self._uuid()]), "offsets": offsets}

    def _grow(self) -> None:
        name = self.chance.choice(list(self.case["subtopologies"]))
        count, stateful = self.case["subtopologies"][name]
        self.case["subtopologies"][name] = [max(1, count + self.chance.randint(-2, 4)), stateful]

    def _tell_offsets(self) -> None:
        for member in self.case["members"].values():
            offsets = {
                name: {str(place): self.chance.randint(0, 9) for place in places if self.chance.random() < 0.7}
                for name, places in member.get("standby", {}).items()
            }
            member["offsets"] = offsets

    def _shuffle(self) -> None:
        members = list(self.case["members"].items())
        self.chance.shuffle(members)
        self.case["members"] = dict(members)


# -- topics --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cluster:
    """Topics by name, with their numbers of partitions."""

    topics: dict[str, int]
    version: int = 1

    @dataclass(frozen=True)
    class Topic:
        name: str
        partition_count: int
        topic_id: bytes = bytes(16)

        def racks(self, index: int) -> list[str]:
            return []

    def by_name(self, name: str) -> Topic | None:
        return self.Topic(name, self.topics[name]) if name in self.topics else None

    def by_id(self, topic_id: bytes) -> Topic | None:
        return None

    def names(self) -> list[str]:
        return list(self.topics)


def topology_of(case: Case) -> Topology:
    """The topology of a case, which is written as Apache Kafka writes the record."""

    of = StreamsGroupTopologyValue

    def infos(listed: list[Case]) -> list[StreamsGroupTopologyValue.TopicInfo]:
        return [
            of.TopicInfo(
                name=info["name"],
                partitions=info["partitions"],
                replication_factor=info["replicationFactor"],
                topic_configs=[of.TopicConfig(key=config["key"], value=config["value"]) for config in info["topicConfigs"]],
            )
            for info in listed
        ]

    subtopologies = [
        of.Subtopology(
            subtopology_id=one["subtopologyId"],
            source_topics=one["sourceTopics"],
            state_changelog_topics=infos(one["stateChangelogTopics"]),
            repartition_sink_topics=one["repartitionSinkTopics"],
            repartition_source_topics=infos(one["repartitionSourceTopics"]),
            copartition_groups=[
                of.CopartitionGroup(source_topics=group["sourceTopics"], repartition_source_topics=group["repartitionSourceTopics"])
                for group in one["copartitionGroups"]
            ],
        )
        for one in case["topology"]["subtopologies"]
    ]
    return Topology.of(of(epoch=case["topology"]["epoch"], subtopologies=subtopologies))


def topics_case(seed: int) -> Case:
    """A topology, often a good one, and the topics of a cluster, often those that it needs."""
    chance = random.Random(seed)
    sources = {f"in-{number}": chance.choice([1, 2, 3, 3, 4]) for number in range(chance.randint(1, 4))}
    count = chance.choice([1, 2, 3, 5, 14])
    sinks: dict[int, list[str]] = {place: [] for place in range(count)}
    subtopologies = []
    for place in range(count):
        repartition = []
        for number in range(chance.choice([0, 0, 1, 1, 2]) if place or chance.random() < 0.1 else 0):
            name = f"g-{place}-{number}-repartition"
            writer = chance.randrange(place) if place and chance.random() < 0.9 else chance.randrange(count)
            if chance.random() < 0.97:
                sinks[writer].append(name)
            wanted = 0 if chance.random() < 0.8 else chance.choice([1, 2, 3, 3, -1] if chance.random() < 0.2 else [2, 3])
            repartition.append(_info(name, wanted, chance))
        read = chance.sample(sorted(sources), chance.randint(0 if repartition or chance.random() < 0.04 else 1, len(sources)))
        changelogs = [_info(f"g-{place}-store{number}-changelog", 0, chance) for number in range(chance.choice([0, 1, 1, 2]))]
        if chance.random() < 0.01:
            changelogs.append(_info("no topic at all", 0, chance))
        groups = []
        for _ in range(chance.choice([0, 0, 1])):
            first = chance.sample(range(len(read)), chance.randint(0, min(2, len(read))))
            second = chance.sample(range(len(repartition)), chance.randint(0, len(repartition)))
            groups.append({"sourceTopics": first, "sourceTopicRegex": [], "repartitionSourceTopics": second})
        subtopologies.append(
            {
                "subtopologyId": str(place), "sourceTopics": read, "sourceTopicRegex": [], "stateChangelogTopics": changelogs,
                "repartitionSinkTopics": sinks[place], "repartitionSourceTopics": repartition, "copartitionGroups": groups,
            }
        )  # fmt: skip
    topics = {name: partitions for name, partitions in sources.items() if chance.random() < 0.97}
    if chance.random() < 0.5:
        internal = [info for one in subtopologies for role in ("stateChangelogTopics", "repartitionSourceTopics") for info in one[role]]  # type: ignore[attr-defined]
        topics |= {info["name"]: info["partitions"] or 3 for info in internal if chance.random() < 0.6 and info["partitions"] >= 0}
    return {"topology": {"epoch": 0, "subtopologies": subtopologies}, "topics": topics}


def _info(name: str, partitions: int, chance: random.Random) -> Case:
    configs = [{"key": "cleanup.policy", "value": "compact"}, {"key": "segment.bytes", "value": "5"}][: chance.randint(0, 2)]
    return {"name": name, "partitions": partitions, "replicationFactor": chance.choice([0, 0, 1, 3]), "topicConfigs": configs}


def cases() -> Iterator[Case]:
    """Those of the golden file."""
    for seed in range(LIVES):
        life = Life(seed)
        for _ in range(5):
            yield life.step()
    for seed in range(TOPOLOGIES):
        yield topics_case(seed)


if __name__ == "__main__":
    for made in cases():
        sys.stdout.write(json.dumps(made) + "\n")
