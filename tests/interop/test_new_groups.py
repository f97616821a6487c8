"""Consumer groups (KIP-848) and share groups (KIP-932) with members in them, whose coordinators and leaders change between the kinds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.asked import QUICK, Asked, retry
from helpers.ledger import GroupReader, Writer, audit, create_topic
from helpers.mixed_cluster import BOTH, KAFKA_NEXT, MINI, MixedCluster, MixedNode
from helpers.share_members import ShareMembers

from minikafka.testing.probe import metadata
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(900)]
NODES = (1, 2, 3)
PARTITIONS = 4
GROUP_RESOURCE = 32
#: For the start of an Apache Kafka node beside others on a busy machine.
SLOW_S = 240
REPLICATED = {
    "share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "2",
    "group.share.heartbeat.interval.ms": "1000", "group.share.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000",
}  # fmt: skip
PREFERRED = 0
INTERNAL = ("__consumer_offsets", "__share_group_state")


def lead(cluster: MixedCluster, node_id: int) -> None:
    """Make a node the leader of the topic and of both coordinators' topics."""
    counts = {"t": PARTITIONS, **dict.fromkeys(INTERNAL, 1)}
    for topic in counts:
        cluster.wait_for_isr(topic, set(NODES), SLOW_S)
    asked, moving, electing = Asked(cluster.nodes[node_id].address), AlterPartitionReassignmentsRequest, ElectLeadersRequest
    replicas = [node_id, *(other for other in NODES if other != node_id)]
    moved = [
        moving.ReassignableTopic(
            name=topic, partitions=[moving.ReassignablePartition(partition_index=index, replicas=replicas) for index in range(count)]
        )
        for topic, count in counts.items()
    ]
    assert asked.ask(moving(topics=moved, timeout_ms=30_000), 0).error_code == ErrorCode.NONE
    partitions = [electing.TopicPartitions(topic=topic, partitions=list(range(count))) for topic, count in counts.items()]

    def leads() -> bool:
        asked.ask(electing(election_type=PREFERRED, topic_partitions=partitions, timeout_ms=30_000), 2)
        return all(leader == node_id for topic in counts for leader, _ in cluster.partitions(topic).values())

    cluster.wait_for(leads, f"node {node_id} to lead everything", SLOW_S)


def read_from_the_beginning(bootstrap: str, group: str) -> None:
    """A share group begins with the first record."""
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[config])
    answer = Asked(bootstrap).ask(kind(resources=[resource]), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_groups_go_on_while_coordinators_change_their_kind(end: str, tmp_path: Path) -> None:
    """Each node leads both coordinators' topics in turn, and ends. What a share group acknowledged is delivered to nobody afterwards."""
    nodes = [(1, MINI, BOTH), (2, KAFKA_NEXT, BOTH), (3, MINI, BOTH)]
    with MixedCluster(tmp_path / "nodes", nodes, properties=REPLICATED) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", PARTITIONS, 3)
        cluster.wait_for_isr("t", set(NODES))
        read_from_the_beginning(cluster.bootstrap, "shared")
        readers = [GroupReader(cluster.bootstrap, "t", "modern", "consumer") for _ in range(2)]
        (tmp_path / "members").mkdir()
        writing, sharing = (
            Writer(cluster.bootstrap, "t", PARTITIONS, per_second=200), ShareMembers(cluster.bootstrap, "shared", "t", tmp_path / "members")
        )
        with readers[0], readers[1], writing as writer, sharing as shared:
            shared.add()
            shared.add("async")
            shared.wait_for_more(timeout_s=SLOW_S)
            for node_id in (*NODES, 2):
                lead(cluster, node_id)
                writer.wait_for_more(100, SLOW_S)
                shared.wait_for_more(100, SLOW_S)
                (cluster.stop if end == "stopped" else cluster.kill)(node_id)
                writer.wait_for_more(100, SLOW_S)
                shared.wait_for_more(100, SLOW_S)
                cluster.start(node_id, wait=False)
                cluster.wait_for_brokers(SLOW_S)
            writer.stop()
            written = writer.acknowledged.keys()
            cluster.wait_for(lambda: readers[0].seen.keys() | readers[1].seen.keys() >= written, "the group to read everything", SLOW_S)
            expected = {("t", index, offset) for index in range(PARTITIONS) for offset in range(end_of(writer, index))}
            cluster.wait_for(lambda: lag(cluster.bootstrap, "shared") == 0, "the share group to acknowledge everything", SLOW_S)
            # Of an acknowledgement whose answer was lost with a node, a member knows no result.
            assert shared.deliveries().keys() >= expected
            assert shared.delivered_after_acknowledgement() == []
            assert max(shared.deliveries().values()) <= 5
        assert writer.check(cluster.bootstrap) > 500
        assert [reader.failures for reader in readers] == [[], []]
        if end == "stopped":
            assert set((readers[0].seen + readers[1].seen).values()) == {1}
        cluster.check_errors()
        for node_id in NODES:
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])


def lag(bootstrap: str, group: str) -> int:
    """Records of all partitions that a share group has not acknowledged."""
    kind = DescribeShareGroupOffsetsRequest
    found = Asked(bootstrap).ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
    asked = kind(groups=[kind.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])
    answer = Asked(f"{found.host}:{found.port}").ask(asked, 1).groups[0]
    assert answer.error_code == ErrorCode.NONE, answer
    lags = [partition.lag for topic in answer.topics for partition in topic.partitions]
    return sum(lags) if len(lags) == PARTITIONS and min(lags) >= 0 else -1


def end_of(writer: Writer, partition: int) -> int:
    """The offset after the last acknowledged record of a partition."""
    offsets = [offset for where, offset in writer.acknowledged.values() if where == partition and offset is not None]
    return max(offsets) + 1


class Rebalance:
    """A group of the consumer protocol whose members say everything with each heartbeat, so that each answer says everything."""

    def __init__(self, node: MixedNode) -> None:
        self.node = node
        self.asked = Asked(node.address)
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[int]] = {}
        self.instances: dict[str, str | None] = {}

    def is_coordinated(self, expected: ErrorCode) -> bool:
        """Whether the node coordinates the group, and says this of it."""
        found = self.asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0]
        if found.error_code:
            return False
        self.asked.ids = {"t": metadata("127.0.0.1", self.node.port, ["t"], 5.0).topics[0].topic_id}
        return bool(self.described().error_code == expected)

    def described(self) -> Any:
        return self.asked.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0]

    def state(self) -> Any:
        """The group in words."""
        return self.asked.words(self.described())

    def join(self, name: str, instance_id: str | None = None) -> list[int]:
        """Join as a new member; what it may have."""
        self.epochs[name], self.owned[name], self.instances[name] = 0, [], instance_id
        return self.beat(name)

    def beat(self, name: str, gives_up: Sequence[int] = ()) -> list[int]:
        """A heartbeat after it has given something up; what it may have."""
        self.owned[name] = [index for index in self.owned[name] if index not in gives_up]
        answer = self.asked.beat(
            name, name, self.epochs[name], instance_id=self.instances[name], rebalance_timeout_ms=120_000, subscribed_topic_names=["t"],
            owned={"t": self.owned[name]} if self.owned[name] else {},
        )  # fmt: skip
        assert answer.error_code == ErrorCode.NONE, answer
        self.epochs[name] = answer.member_epoch
        given = sorted(index for topic in answer.assignment.topic_partitions for index in topic.partitions)
        # What is taken away is given up when the test says so.
        self.owned[name] = sorted({*self.owned[name], *given})
        return given


def test_a_directory_goes_to_apache_kafka_and_back_in_the_midst_of_a_rebalance(tmp_path: Path) -> None:
    """Members join while the others have not given up what these are to have. The node changes its kind at each step of it."""
    with MixedCluster(tmp_path, [(1, MINI, BOTH)], properties=QUICK) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", PARTITIONS, 1)
        group = Rebalance(cluster.nodes[1])
        retry(lambda: group.is_coordinated(ErrorCode.GROUP_ID_NOT_FOUND))

        def move(kind: str) -> None:
            before = group.state()
            cluster.stop(1)
            cluster.start(1, kind=kind, wait=False)
            cluster.wait_for_brokers(SLOW_S)
            retry(lambda: group.is_coordinated(ErrorCode.NONE))
            assert group.state() == before

        assert group.join("a") == [0, 1, 2, 3]
        assert group.join("b", instance_id="i") == []
        move(KAFKA_NEXT)
        assert group.beat("a") == [0, 1], "a is to give up two, and has not heard of it"
        assert group.beat("b") == []
        move(MINI)
        assert group.beat("b") == [], "what a has is not given to b"
        assert group.beat("a", gives_up=[2, 3]) == [0, 1]
        move(KAFKA_NEXT)
        assert group.beat("b") == [2, 3]
        assert group.join("c") == []
        move(MINI)
        found = {name: group.beat(name) for name in "abc"}
        for _ in range(3):
            found = {name: group.beat(name, gives_up=sorted(set(group.owned[name]) - set(found[name]))) for name in "abc"}
        assert sorted(index for owned in found.values() for index in owned) == [0, 1, 2, 3] and all(found.values())
        cluster.check_errors()
