"""`streams-groups` prints what kafka-streams-groups.sh prints, here beside a cluster that is only told of."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner, Result

from minikafka.cli import streams_groups
from minikafka.cli.main import cli
from minikafka.client import streams_groups as client
from minikafka.client.admin import ListedOffset
from minikafka.client.errors import BrokerError
from minikafka.client.streams_groups import StreamsAssignment, StreamsGroupDescription, StreamsMember, StreamsSubtopology
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.streams_group_describe import StreamsGroupDescribeResponse

INPUT, REPARTITION, CHANGELOG = "lines", "g-counts-repartition", "g-counts-changelog"
SUBTOPOLOGIES = {"0": StreamsSubtopology([INPUT], [], []), "1": StreamsSubtopology([], [REPARTITION], [CHANGELOG, "odd-one"])}
ASSIGNED = StreamsAssignment({"0": [0, 1], "1": [0]}, {"1": [1]}, {})
MEMBER = StreamsMember("m", 3, "p", "g-1-consumer", "/127.0.0.1", False, ASSIGNED, StreamsAssignment({"0": [0]}, {}, {"1": [1]}))


@dataclass
class Cluster:
    """One group `g`, and what is asked of it that changes something."""

    state: str = "Stable"
    members: list[StreamsMember] = field(default_factory=lambda: [MEMBER])
    committed: dict[tuple[str, int], tuple[int, int]] = field(default_factory=lambda: {(INPUT, 0): (4, 2), (REPARTITION, 0): (1, -1)})
    outcomes: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)
    described: tuple[int, Any] = (1, None)
    done: list[Any] = field(default_factory=list)

    async def describe(self, admin: object, group_id: str) -> StreamsGroupDescription:
        if group_id != "g":
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        return StreamsGroupDescription("g", self.state, 7, 6, 0, ("127.0.0.1:9092", 1), SUBTOPOLOGIES, self.members)

    async def described_topology(self, admin: object, group_id: str) -> tuple[int, Any]:
        return self.described

    async def list_groups_with_types(self) -> list[tuple[str, str, str, str]]:
        return [("c", "consumer", "Stable", "consumer"), ("g", "streams", self.state, "streams")]

    async def group_offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        return {key: offset for key, (offset, _) in self.committed.items()}

    async def group_offsets_and_epochs(self, group_id: str) -> dict[tuple[str, int], tuple[int, int]]:
        return self.committed

    async def list_offsets(self, wanted: dict[tuple[str, int], Any]) -> dict[tuple[str, int], ListedOffset]:
        return {key: ListedOffset(2 if place == "earliest" else 10, 0, 0) for key, place in wanted.items()}

    async def commit_offsets(self, group_id: str, offsets: dict[tuple[str, int], int]) -> None:
        self.done.append(("commit", offsets))

    async def delete_offsets(self, group_id: str, keys: list[tuple[str, int]]) -> dict[tuple[str, int], ErrorCode]:
        self.done.append(("forget", keys))
        return {key: self.outcomes.get(key, ErrorCode.NONE) for key in keys}

    async def delete_group(self, group_id: str) -> None:
        self.done.append(("delete", group_id))

    async def delete_topic(self, name: str) -> None:
        if name == "gone":
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        self.done.append(("delete topic", name))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(streams_groups, "with_admin", lambda bootstrap, work, *, traceback: asyncio.run(work(made)))
    monkeypatch.setattr(client, "describe_streams_group", made.describe)
    monkeypatch.setattr(client, "topology_description", made.described_topology)
    return made


def run(words: str, status: int = 0) -> Result:
    done = CliRunner().invoke(cli, ["streams-groups", *words.split()], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done


def lines(words: str, status: int = 0) -> list[str]:
    return [line.rstrip() for line in run(words, status).stdout.splitlines() if line.strip()]


def test_lists(cluster: Cluster) -> None:
    assert lines("--list") == ["g"]
    assert lines("--list --state") == lines("--list --state stable,NOTREADY") == ["GROUP           STATE", "g               Stable"]
    assert lines("--list --state empty -o jsonl") == []
    assert "must be one of Empty, NotReady" in run("--list --state Asleep", 2).stderr


def test_descriptions(cluster: Cluster) -> None:
    assert lines("--describe --group g") == [
        "GROUP           TOPIC                PARTITION  OFFSET-LAG",
        "g               g-counts-repartition 0          9",
        "g               lines                0          6",
        "g               lines                1          8",
    ]
    assert lines("--describe --group g --offsets --verbose")[1:3] == [
        "g               g-counts-repartition 0          1               -               10              9",
        "g               lines                0          4               2               10              6",
    ]
    assert lines("--describe --group g --state") == [
        "GROUP           COORDINATOR (ID)          STATE                     #MEMBERS",
        "g               127.0.0.1:9092 (1)        Stable                    1",
    ]
    assert lines("--describe --all-groups --state --verbose") == [
        "GROUP           COORDINATOR (ID)          STATE                     GROUP-EPOCH     TARGET-ASSIGNMENT-EPOCH   #MEMBERS",
        "g               127.0.0.1:9092 (1)        Stable                    7               6                         1",
    ]
    assert lines("--describe --group g --members") == [
        "GROUP           MEMBER          PROCESS         CLIENT-ID       ASSIGNMENTS",
        "g               m               p               g-1-consumer    ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[1];",
    ]
    title, row = lines("--describe --group g --members --verbose")
    assert title == (
        "GROUP           TARGET-ASSIGNMENT-EPOCH   TOPOLOGY-EPOCH MEMBER          MEMBER-PROTOCOL MEMBER-EPOCH    PROCESS         "
        "CLIENT-ID       ASSIGNMENTS"
    )
    assert row == (
        "g               6                         0              m               streams         3               p               "
        "g-1-consumer    ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[1]; TARGET-ACTIVE: 0:[0]; TARGET-WARMUP: 1:[1];"
    )
    assert run("--describe --group nobody", 1).stderr == "Error: Streams group 'nobody' does not exist.\n"


def test_topologies(cluster: Cluster) -> None:
    """As Topology.describe() of Kafka Streams 4.3 shows the word count."""
    assert run("--describe --group g --topology", 1).stderr == "Error: No topology description is stored for streams group 'g'.\n"
    cluster.described = (2, None)
    assert "failed to fetch the topology description for streams group 'g'" in run("--describe --group g --topology", 1).stderr
    kind = StreamsGroupDescribeResponse
    node = kind.TopologyDescriptionNode
    first = [
        node(name="SOURCE-0", node_type=1, source_topics=["lines"], successors=["MAP-1"]),
        node(name="MAP-1", node_type=2, successors=["SINK-2"]),
        node(name="SINK-2", node_type=3, sink_topic="g-counts-repartition"),
    ]
    second = [node(name="SOURCE-3", node_type=1, source_topics=["g-counts-repartition"], successors=["COUNT-4"]),
              node(name="COUNT-4", node_type=2, stores=["counts"])]  # fmt: skip
    store = kind.TopologyDescriptionGlobalStore(
        source=node(name="GLOBAL-SOURCE", node_type=1, source_topics=["prices"], successors=["GLOBAL"]),
        processor=node(name="GLOBAL", node_type=2, stores=["prices-store"]),
    )
    subtopologies = [kind.TopologyDescriptionSubtopology(subtopology_id=name, nodes=nodes) for name, nodes in (("1", second), ("0", first))]
    cluster.described = (3, kind.TopologyDescription(subtopologies=subtopologies, global_stores=[store]))
    assert run("--describe --group g --topology").stdout == """\
Topologies:
   Sub-topology: 0
    Source: SOURCE-0 (topics: [lines])
      --> MAP-1
    Processor: MAP-1 (stores: [])
      --> SINK-2
      <-- SOURCE-0
    Sink: SINK-2 (topic: g-counts-repartition)
      <-- MAP-1

  Sub-topology: 1
    Source: SOURCE-3 (topics: [g-counts-repartition])
      --> COUNT-4
    Processor: COUNT-4 (stores: [counts])
      --> none
      <-- SOURCE-3

  Sub-topology: 2 for global store (will not generate tasks)
    Source: GLOBAL-SOURCE (topics: [prices])
      --> GLOBAL
    Processor: GLOBAL (stores: [prices-store])
      --> none
      <-- GLOBAL-SOURCE

"""


def test_a_group_is_reset_only_while_it_is_empty(cluster: Cluster) -> None:
    assert (
        "inactive, but the current state is Stable" in run("--reset-offsets --group g --all-input-topics --to-latest --execute", 1).stderr
    )
    cluster.state, cluster.members = "Empty", []
    assert "has no active members" in run("--describe --group g").stderr
    planned = lines("--reset-offsets --group g --all-input-topics --to-earliest --dry-run")
    assert [line.split() for line in planned] == [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], ["g", "lines", "0", "2"]]
    assert not cluster.done
    refused = run(
        "--reset-offsets --group g --all-input-topics --to-latest --execute --delete-internal-topic gone --delete-internal-topic x", 1
    )
    assert "Deleting internal topic 'gone' of group 'g' failed" in refused.stderr
    assert cluster.done == [("commit", {(INPUT, 0): 10}), ("delete topic", "x")]
    assert lines("--reset-offsets --group g --all-input-topics --shift-by 1 --dry-run --export") == ["lines,0,5"]


def test_offsets_are_forgotten(cluster: Cluster) -> None:
    assert lines("--delete-offsets --group g --all-input-topics") == [
        "Request succeeded for deleting offsets from group g.",
        "TOPIC           PARTITION  STATUS",
        "lines           0          Successful",
    ]
    cluster.outcomes = {(INPUT, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert "partition-level error" in run("--delete-offsets --group g --all-input-topics", 1).stderr


def test_a_group_is_deleted_with_the_topics_that_are_named_as_its_own(cluster: Cluster) -> None:
    refused = run("--delete --group g --group c", 1)
    assert "Streams group 'g' is not EMPTY" in refused.stderr
    assert "Group 'c' does not exist or is not a streams group" in refused.stderr
    cluster.state, cluster.members = "Empty", []
    done = run("--delete --all-groups --delete-all-internal-topics")
    assert done.stdout.splitlines() == [
        "Deletion of requested streams groups ('g') was successful.",
        "Deletion of associated internal topics of the streams groups ('g') was successful.",
    ]
    assert "The internal topic 'odd-one' is not inferred as internal" in done.stderr
    assert cluster.done == [("delete", "g"), ("delete topic", REPARTITION), ("delete topic", CHANGELOG)]


@pytest.mark.parametrize(
    "words",
    [
        "", "--describe", "--delete", "--delete-offsets --all-groups --all-input-topics", "--delete-offsets --group g",
        "--delete-offsets --group g --group h --all-input-topics", "--reset-offsets --group g --to-latest --execute",
        "--reset-offsets --group g --all-input-topics --execute", "--reset-offsets --group g --all-input-topics --to-latest",
        "--reset-offsets --group g --all-input-topics --to-latest --dry-run --execute", "--delete --group g --input-topic t",
        "--list --execute", "--delete --group g --delete-internal-topic t", "--describe --group g --delete-all-internal-topics",
        "--reset-offsets --group g --all-input-topics --to-latest --dry-run --delete-all-internal-topics",
    ],
)  # fmt: skip
def test_words_that_do_not_go_together(cluster: Cluster, words: str) -> None:
    assert "Error: " in run(words, 2).stderr
