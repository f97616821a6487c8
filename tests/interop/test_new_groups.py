"""Consumer groups (KIP-848) and share groups (KIP-932) with members in them, whose coordinators and leaders change between the kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.asked import QUICK, Asked, retry
from helpers.ledger import GroupReader, Writer, audit, create_topic
from helpers.mixed_cluster import BOTH, KAFKA_NEXT, MINI, MixedCluster, MixedNode
from helpers.share_members import ShareMembers

from minikafka.testing.probe import metadata
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(400)]
NODES = (1, 2, 3)
PARTITIONS = 4
GROUP_RESOURCE = 32
REPLICATED = {
    "share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "2",
    "group.share.heartbeat.interval.ms": "1000", "group.share.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000", "group.consumer.min.heartbeat.interval.ms": "1000",
}  # fmt: skip
INTERNAL = ("__consumer_offsets", "__share_group_state")


def leader_kinds(cluster: MixedCluster) -> set[tuple[str, str]]:
    """(topic, kind of the node that leads it) of both coordinators' topics."""
    found = {(topic, leader) for topic in INTERNAL for leader, _ in cluster.partitions(topic).values()}
    return {(topic, cluster.nodes[leader].kind) for topic, leader in found if leader in cluster.nodes}


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
            shared.wait_for_more()
            led: set[tuple[str, str]] = set()
            for node_id in (*NODES, 2):
                for topic in (*INTERNAL, "t"):
                    cluster.wait_for_isr(topic, set(NODES), 60)
                led |= leader_kinds(cluster)
                (cluster.stop if end == "stopped" else cluster.kill)(node_id)
                writer.wait_for_more(100)
                shared.wait_for_more(100)
                led |= leader_kinds(cluster)
                cluster.start(node_id)
            writer.stop()
            for reader in readers:
                reader.stop()
            expected = {("t", index, offset) for index in range(PARTITIONS) for offset in range(end_of(writer, index))}
            shared.wait_until_acknowledged(expected)
            assert shared.delivered_after_acknowledgement() == []
            assert max(shared.deliveries().values()) <= 5
        assert writer.check(cluster.bootstrap) > 500
        assert led == {(topic, kind) for topic in INTERNAL for kind in (MINI, KAFKA_NEXT)}
        assert [reader.failures for reader in readers] == [[], []]
        seen = readers[0].seen + readers[1].seen
        assert seen.keys() >= writer.acknowledged.keys()
        if end == "stopped":
            assert set(seen.values()) == {1}
        cluster.check_errors()
        for node_id in NODES:
            cluster.stop(node_id)
        audit([node.data for node in cluster.nodes.values()])


def end_of(writer: Writer, partition: int) -> int:
    """The offset after the last acknowledged record of a partition."""
    offsets = [offset for where, offset in writer.acknowledged.values() if where == partition and offset is not None]
    return max(offsets) + 1


class Rebalance:
    """A group of the consumer protocol that stops in the midst of a rebalance: what its members are told and who they are."""

    def __init__(self, node: MixedNode) -> None:
        self.node = node
        self.asked = Asked(node.address)

    def reach(self) -> None:
        """Until the node coordinates the group."""
        retry(lambda: self.asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0)
        topic = metadata("127.0.0.1", self.node.port, ["t"], 5.0).topics[0]
        self.asked.ids = {"t": topic.topic_id}
        retry(lambda: self.described().error_code == ErrorCode.NONE)

    def described(self) -> Any:
        return self.asked.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0]

    def state(self) -> Any:
        """The group in words, but for what only a running process knows of its members' clients."""
        return self.asked.words(self.described())


def test_a_directory_goes_to_apache_kafka_and_back_in_the_midst_of_a_rebalance(tmp_path: Path) -> None:
    """Three members, of which one joins as the others have not given up what it is to have; each step of it at the other kind."""
    with MixedCluster(tmp_path, [(1, MINI, BOTH)], properties=QUICK) as cluster:
        cluster.format()
        cluster.start()
        create_topic(cluster.bootstrap, "t", PARTITIONS, 1)
        group = Rebalance(cluster.nodes[1])
        retry(lambda: group.asked.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code == 0)
        group.asked.ids = {"t": metadata("127.0.0.1", group.node.port, ["t"], 5.0).topics[0].topic_id}
        asked = group.asked
        retry(lambda: asked.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND)
        assert partitions(asked.join("a joins", "a", "t")) == [0, 1, 2, 3]
        asked.join("b joins", "b", "t", instance_id="i")
        asked.beat("a is told", "a", 1, owned={"t": [0, 1, 2, 3]})

        def move(kind: str) -> None:
            before = group.state()
            cluster.stop(1)
            cluster.start(1, kind=kind)
            group.reach()
            assert group.state() == before

        move(KAFKA_NEXT)
        assert group.described().group_state == "Reconciling"
        assert partitions(asked.beat("b waits", "b", 2, instance_id="i")) in ([], None)
        asked.beat("a gives up", "a", 1, owned={"t": [0, 1]})
        move(MINI)
        assert partitions(asked.beat("b takes", "b", 2, instance_id="i", **whole())) == [2, 3]
        asked.join("c joins", "c", "t")
        asked.beat("b is told", "b", 2, instance_id="i", owned={"t": [2, 3]})
        move(KAFKA_NEXT)
        asked.beat("a is told", "a", 2, owned={"t": [0, 1]})
        given = [asked.beat(f"{name} goes on", name, epoch, **fields) for name, epoch, fields in (
            ("a", 2, {}), ("b", 2, {"instance_id": "i"}), ("c", 3, {}))]
        move(MINI)
        assert given
        cluster.check_errors()


def whole() -> dict[str, Any]:
    """Fields of a heartbeat after a change of coordinator: everything, so that everything is answered."""
    return {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "owned": {}}


def partitions(answer: Any) -> list[int] | None:
    """What a heartbeat's answer assigns."""
    assert answer.error_code == ErrorCode.NONE, answer
    if answer.assignment is None:
        return None
    return sorted(index for topic in answer.assignment.topic_partitions for index in topic.partitions)
