"""Raft hosts talking over real sockets: observers, three voters, a dead leader, a wiped replica."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from helpers.raft_nodes import CLUSTER, Clock, Listener, config_of, environment_of, format_node

from minikafka.broker.front.dispatch import Dispatcher
from minikafka.broker.quorum import snapshots
from minikafka.broker.quorum.raft_host import RaftHost, SnapshotId
from minikafka.broker.quorum.raft_requests import RaftHandlers
from minikafka.broker.supervise import Supervisor
from minikafka.core.raft import events as ev
from minikafka.core.raft.roles import Election
from minikafka.net.channel import Channel
from minikafka.net.network import ConnectionLimits
from minikafka.net.server import SocketNetwork
from minikafka.net.turn_share import TurnShares
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import LogDirectory
from minikafka.testing.wait import LoadAdjustedDeadline
from minikafka.wire.batch import iterate_batches
from minikafka.wire.messages.describe_quorum import DescribeQuorumRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.vote import VoteRequest
from minikafka.wire.records.metadata_records import FeatureLevelRecord
from minikafka.wire.uuid import METADATA_TOPIC_ID


class Node:
    """A controller (or observer) with its own listener and disk."""

    def __init__(self, node_id: int, path, **changes) -> None:
        self.node_id = node_id
        self.path = path
        self.changes = changes
        self.listener = Listener()
        self.port = 0

    async def bind(self) -> None:
        self.network = SocketNetwork(asyncio.get_running_loop())
        supervisor = Supervisor(asyncio.get_running_loop())
        self.dispatcher = Dispatcher("controller", Clock(), supervisor, lambda: ([("kraft.version", 0, 1)], [], 0))
        self.socket = await self.network.listen(
            "127.0.0.1", self.port, lambda connection: self.dispatcher.session("CONTROLLER"), ConnectionLimits()
        )
        self.port = self.socket.port

    async def start(self, *, is_controller: bool = True, **options) -> None:
        config = config_of(self.path, node_id=self.node_id, is_controller=is_controller, **{**self.changes, **options})
        if not self.path.exists():
            format_node(config, no_initial_controllers=is_controller and not config.voters)
        self.directory = LogDirectory(OsFileSystem(), str(self.path))
        self.directory.open()
        environment = environment_of(self.node_id, self.network)
        self.raft = RaftHost(
            self.node_id, config, environment, self.directory, cluster_id=CLUSTER,
            is_controller=is_controller, listeners=[("CONTROLLER", "127.0.0.1", self.port)] if is_controller else (),
        )  # fmt: skip
        self.listener = Listener()
        self.raft.subscribe(self.listener)
        RaftHandlers(self.raft, environment).register(self.dispatcher)
        await self.raft.start()
        self.socket.accept()

    async def stop(self) -> None:
        await self.raft.stop()
        self.directory.close()
        self.socket.close()

    def kill(self) -> None:
        self.raft.abandon()
        self.directory.abandon()
        self.socket.close()


async def cluster(tmp_path, size: int, **changes) -> list[Node]:
    nodes = [Node(node_id, tmp_path / f"node-{node_id}") for node_id in range(1, size + 1)]
    for node in nodes:
        await node.bind()
    voters = {node.node_id: ("127.0.0.1", node.port) for node in nodes}
    for node in nodes:
        node.changes = {"voters": voters, **changes}
        await node.start()
    return nodes


async def leader_of(nodes: list[Node], timeout_s: float = 10) -> Node:
    end = LoadAdjustedDeadline(timeout_s)
    while not end.is_over:
        for node in nodes:
            if node.raft.is_leader and any(is_self and epoch == node.raft.leader_epoch for _, epoch, is_self in node.listener.leaders):
                return node
        waits = [asyncio.ensure_future(node.listener.changed.wait()) for node in nodes]
        for node in nodes:
            node.listener.changed.clear()
        _, pending = await asyncio.wait(waits, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
    raise AssertionError("no leader")


def feature(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="feature", feature_level=level)


def levels(listener: Listener) -> list[int]:
    return [record.feature_level for _, record in listener.records]


async def test_an_observer_follows(tmp_path) -> None:
    controller, observer = Node(1, tmp_path / "c"), Node(2, tmp_path / "o")
    await controller.bind()
    await observer.bind()
    voters = {1: ("127.0.0.1", controller.port)}
    await controller.start(voters=voters)
    await observer.start(is_controller=False, voters=voters)
    await observer.listener.until(lambda: observer.raft.leader_id == 1)
    for level in range(20):
        offset = controller.raft.append([feature(level)])
        await observer.listener.until(lambda offset=offset: observer.listener.offset > offset)
    assert levels(observer.listener) == list(range(20))
    assert observer.raft.leader_endpoint() == ("127.0.0.1", controller.port)
    await observer.stop()
    await controller.stop()


async def test_three_voters_elect_and_survive_the_leader(tmp_path) -> None:
    nodes = await cluster(tmp_path, 3)
    leader = await leader_of(nodes)
    await leader.raft.wait_committed(leader.raft.append([feature(1)]))
    followers = [node for node in nodes if node is not leader]
    for node in followers:
        await node.listener.until(lambda node=node: levels(node.listener) == [1])
    leader.kill()
    second = await leader_of(followers)
    assert second.raft.leader_epoch > 1
    await second.raft.wait_committed(second.raft.append([feature(2)]))
    await leader.bind()
    await leader.start()
    await leader.listener.until(lambda: levels(leader.listener) == [1, 2])
    shutil.copy(leader.path / "__cluster_metadata-0" / "quorum-state", tmp_path / "state")
    for node in nodes:
        await node.stop()


async def test_a_leader_that_stops_hands_over(tmp_path) -> None:
    nodes = await cluster(tmp_path, 3, controller_quorum_fetch_timeout_ms=600_000)
    leader = await leader_of(nodes)
    await leader.raft.wait_committed(leader.raft.append([feature(1)]))
    others = [node for node in nodes if node is not leader]
    await leader.stop()
    # Nobody waits until the leader has been silent for ten minutes.
    await leader_of(others)
    for node in others:
        await node.stop()


async def test_a_late_replica_begins_with_the_snapshot(tmp_path) -> None:
    controller = Node(1, tmp_path / "c")
    await controller.bind()
    voters = {1: ("127.0.0.1", controller.port)}
    await controller.start(voters=voters)
    for level in range(10):
        last = controller.raft.append([feature(level)])
    await controller.raft.wait_committed(last)
    controller.raft.write_snapshot(SnapshotId(6, 1), [feature(level) for level in range(5)], 7)
    await controller.raft._snapshots.finish()
    late = Node(2, tmp_path / "late")
    await late.bind()
    await late.start(is_controller=False, voters=voters)
    await late.listener.until(lambda: late.listener.offset == last + 1)
    assert late.listener.snapshots[0][0] == (6, 1)
    assert levels(late.listener) == [5, 6, 7, 8, 9]
    ours = (tmp_path / "c" / "__cluster_metadata-0" / "00000000000000000006-0000000001.checkpoint").read_bytes()
    assert (tmp_path / "late" / "__cluster_metadata-0" / "00000000000000000006-0000000001.checkpoint").read_bytes() == ours
    assert late.raft.log_start_offset == 6
    await late.stop()
    await controller.stop()


async def test_a_large_snapshot_is_installed_in_several_turns_and_what_arrives_meanwhile_waits(tmp_path, monkeypatch) -> None:
    controller = Node(1, tmp_path / "c")
    await controller.bind()
    voters = {1: ("127.0.0.1", controller.port)}
    await controller.start(voters=voters)
    for level in range(10):
        last = controller.raft.append([feature(level)])
    await controller.raft.wait_committed(last)
    many = [feature(level) for level in range(5 * snapshots.STEP_RECORDS)]
    controller.raft.write_snapshot(SnapshotId(6, 1), many, 7)
    await controller.raft._snapshots.finish()
    decoded, most, turns = 0, 0, 0
    real = snapshots.decode_metadata_record

    def counted(value):
        nonlocal decoded
        decoded += 1
        return real(value)

    async def watch() -> None:
        nonlocal decoded, most, turns
        while True:
            most, turns, decoded = max(most, decoded), turns + (decoded > 0), 0
            await asyncio.sleep(0)

    monkeypatch.setattr(snapshots, "decode_metadata_record", counted)
    monkeypatch.setattr(TurnShares, "begin", lambda shares: lambda: True)
    watching = asyncio.ensure_future(watch())
    late = Node(2, tmp_path / "late")
    await late.bind()
    await late.start(is_controller=False, voters=voters)
    while not late.raft._installing.is_going_on:
        await asyncio.sleep(0)
    late.raft._feed(ev.FetchedAppended(is_refused=True))
    assert late.raft._events, "it waits for the snapshot"
    late.raft._events.clear()
    await late.listener.until(lambda: late.listener.offset == last + 1)
    watching.cancel()
    assert late.listener.snapshots == [((6, 1), many)] and levels(late.listener) == [5, 6, 7, 8, 9]
    assert most <= snapshots.STEP_RECORDS and turns >= 5
    await late.stop()
    await controller.stop()


async def test_answers_on_the_wire(tmp_path) -> None:
    controller = Node(1, tmp_path / "c")
    await controller.bind()
    await controller.start(voters={1: ("127.0.0.1", controller.port)})
    channel = await Channel.open(controller.network, "127.0.0.1", controller.port, client_id="test")
    kind = FetchRequest

    async def fetch(offset: int, epoch: int, last_epoch: int, version: int, cluster_id: str | None = CLUSTER, **fields):
        partition = kind.FetchPartition(current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last_epoch, **fields)
        request = kind(cluster_id=cluster_id, topics=[kind.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])])
        if version >= 15:
            request.replica_state = kind.ReplicaState(replica_id=9)
        else:
            request.replica_id = 9
        response = await channel.request(request, version)
        return response, response.responses[0].partitions[0] if response.responses else None

    assert (await fetch(0, 1, 0, 17, "other"))[0].error_code == 104
    response, partition = await fetch(0, 1, 0, 17)
    assert partition.error_code == 0 and partition.high_watermark == 1 and len(partition.records) == 91
    assert (response.node_endpoints[0].node_id, response.node_endpoints[0].port) == (1, controller.port)
    assert (await fetch(0, 1, 0, 16))[0].node_endpoints == []
    assert (await fetch(0, 0, 0, 17))[1].error_code == 74
    assert (await fetch(0, 2, 0, 17))[1].error_code == 75
    assert (await fetch(7, 1, 1, 17))[1].diverging_epoch.end_offset == 1
    response, partition = await fetch(1, 1, 1, 18, high_watermark=-1)
    assert partition.high_watermark == 1 and bytes(partition.records) == b""
    request = kind(cluster_id=CLUSTER, topics=[kind.FetchTopic(topic="__cluster_metadata", partitions=[kind.FetchPartition()])])
    assert (await channel.request(request, 12)).error_code == 42
    vote = VoteRequest(
        cluster_id=CLUSTER,
        topics=[VoteRequest.TopicData(topic_name="__cluster_metadata", partitions=[VoteRequest.PartitionData(replica_id=1)])],
    )
    vote.topics[0].partitions[0].replica_epoch = 0
    assert (await channel.request(vote, 0)).topics[0].partitions[0].error_code == 74
    assert (await channel.request(VoteRequest(cluster_id="other"), 0)).error_code == 104
    topics = [
        DescribeQuorumRequest.TopicData(topic_name=name, partitions=[DescribeQuorumRequest.PartitionData()])
        for name in ("__cluster_metadata", "t")
    ]
    answer, unknown = [await channel.request(DescribeQuorumRequest(topics=[topic]), 2) for topic in topics]
    described = answer.topics[0].partitions[0]
    assert (described.leader_id, described.leader_epoch, described.high_watermark) == (1, 1, 1)
    assert described.current_voters[0].log_end_offset == 1 and described.observers[0].replica_id == 9
    assert unknown.topics[0].partitions[0].error_code == 3
    assert answer.nodes[0].listeners[0].port == controller.port
    channel.close()
    await controller.stop()


@pytest.mark.parametrize("join_first", [True, False])
async def test_voters_are_added_and_removed(tmp_path, join_first) -> None:
    first, second = Node(1, tmp_path / "a"), Node(2, tmp_path / "b")
    await first.bind()
    await second.bind()
    config = config_of(first.path, node_id=1, advertised={"CONTROLLER": type("E", (), {"host": "127.0.0.1", "port": first.port})})
    format_node(config, standalone=True)
    await first.start()
    await second.start(bootstrap_controllers=[("127.0.0.1", first.port)])
    await second.listener.until(lambda: second.raft.leader_id == 1)
    from minikafka.wire.messages.add_raft_voter import AddRaftVoterRequest
    from minikafka.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

    channel = await Channel.open(first.network, "127.0.0.1", first.port, client_id="test")
    directory_id = second.directory.meta.directory_id
    if join_first:
        wrong = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=2, voter_directory_id=directory_id)
        assert (await channel.request(wrong)).error_code == 127
    add = AddRaftVoterRequest(
        cluster_id=CLUSTER, timeout_ms=5000, voter_id=2, voter_directory_id=directory_id,
        listeners=[AddRaftVoterRequest.Listener(name="CONTROLLER", host="127.0.0.1", port=second.port)],
    )  # fmt: skip
    assert (await channel.request(add)).error_code == 0
    assert first.raft.quorum.voters.node_ids == (1, 2)
    assert (await channel.request(add)).error_code == 126
    await first.raft.wait_committed(first.raft.append([feature(1)]))
    leaving = 2 if join_first else 1
    directory = second.directory if join_first else first.directory
    remove = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=leaving, voter_directory_id=directory.meta.directory_id)
    assert (await channel.request(remove)).error_code == 0
    channel.close()
    left = second if join_first else first
    stays = first if join_first else second
    await leader_of([stays])
    await stays.raft.wait_committed(stays.raft.append([feature(2)]))
    await left.listener.until(lambda: levels(left.listener)[-1:] == [2])
    await left.stop()
    await stays.stop()


async def test_a_controller_joins_by_itself_and_moves_to_another_port(tmp_path) -> None:
    first, second = Node(1, tmp_path / "a"), Node(2, tmp_path / "b")
    await first.bind()
    await second.bind()
    config = config_of(first.path, node_id=1, advertised={"CONTROLLER": type("E", (), {"host": "127.0.0.1", "port": first.port})})
    format_node(config, standalone=True)
    await first.start()
    second.changes = {"bootstrap_controllers": [("127.0.0.1", first.port)], "controller_quorum_auto_join_enable": True}
    await second.start()
    await second.listener.until(lambda: second.raft.leader_id == 1)
    await second.listener.until(lambda: second.raft.quorum.voters.node_ids == (1, 2))
    await first.raft.wait_committed(first.raft.append([feature(1)]))
    assert first.raft.quorum.voters.node_ids == (1, 2)
    await second.stop()
    second.port = 0
    await second.bind()
    await second.start()

    def knows_the_port() -> bool:
        return first.raft.quorum.voters.endpoint(2).port == second.port

    await second.listener.until(lambda: second.raft.leader_id == 1)
    await second.listener.until(knows_the_port)
    await first.raft.wait_committed(first.raft.append([feature(2)]))
    assert knows_the_port()
    await second.stop()
    await first.stop()


async def until(condition, timeout_s: float = 30) -> None:
    end = LoadAdjustedDeadline(timeout_s)
    while not condition():
        assert not end.is_over
        await asyncio.sleep(0.005)


def refused_by(candidate: Node, voter: Node) -> bool:
    role = candidate.raft.quorum.role
    return isinstance(role, Election) and voter.node_id in role.rejected


@pytest.mark.parametrize("version", [0, 1], ids=["static", "dynamic"])
async def test_a_voter_that_lost_what_it_may_have_promised_votes_when_it_has_it_again(tmp_path, version: int) -> None:
    """Not before, not after another restart either; the others can do without it."""
    nodes = await cluster(tmp_path, 3)
    leader = await leader_of(nodes)
    if version:
        await until(lambda: leader.raft.upgrade_kraft_version(1, validate_only=False) is None)
    for level in range(6):
        await leader.raft.wait_committed(leader.raft.append([feature(level)]))
    loser, other = (node for node in nodes if node is not leader)
    for node in nodes:
        await node.listener.until(lambda node=node: len(levels(node.listener)) == 6)
    for node in nodes:
        node.kill()
    log = loser.path / "__cluster_metadata-0"
    segment, note = log / "00000000000000000000.log", log / "promises-lost"
    data = bytearray(segment.read_bytes())
    rotten = list(iterate_batches(bytes(data)))[-4]
    data[rotten.position + rotten.size_in_bytes - 2] ^= 1
    segment.write_bytes(data)
    for node in (loser, other):
        await node.bind()
        await node.start()
    promised_before = int(note.read_text().split()[-1])
    assert f"offset {rotten.base_offset} " in note.read_text() and rotten.base_offset + 4 <= promised_before < rotten.base_offset + 20
    await until(lambda: refused_by(other, loser))
    loser.kill()
    await loser.bind()
    await loser.start()
    await until(lambda: not isinstance(other.raft.quorum.role, Election))
    await until(lambda: refused_by(other, loser))
    assert not isinstance(loser.raft.quorum.role, Election) and not other.raft.is_leader and note.exists()
    await leader.bind()
    await leader.start()
    second = await leader_of(nodes)
    assert second is not loser
    await until(lambda: not note.exists())
    await loser.listener.until(lambda: levels(loser.listener) == list(range(6)))
    second.kill()
    rest = [node for node in nodes if node is not second]
    third = await leader_of(rest)
    await third.raft.wait_committed(third.raft.append([feature(6)]))
    for node in rest:
        await node.stop()
