"""quorum-state and the metadata logs that Apache Kafka 4.3 left: same bytes, and our host goes on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.raft_nodes import Listener, close, config_of, host_of

from minikafka.broker.quorum import quorum_state
from minikafka.core.raft.types import ElectionState, ReplicaKey
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import MetaProperties, format_directory
from minikafka.wire.batch import iterate_batches
from minikafka.wire.uuid import uuid_from_text

GOLDEN = Path(__file__).parents[1] / "golden"
STATES = {
    "kraft-static/stopped": (ElectionState(2, 1, None), 0, (1,)),
    "kraft-standalone/stopped": (ElectionState(1, 1, None), 1, (1,)),
    "kraft-dynamic/voter-1": (ElectionState(3, 2, ReplicaKey(2, uuid_from_text("AAAAAAAAQACAAAAAAAAAIg"))), 1, (1, 2, 3)),
    "kraft-dynamic/late-observer-4": (ElectionState(2, 1, None), 0, ()),
}


@pytest.mark.parametrize("folder", STATES)
def test_quorum_state_is_kafkas(folder) -> None:
    data = (GOLDEN / folder / "__cluster_metadata-0" / "quorum-state").read_bytes()
    state, version, voters = STATES[folder]
    assert quorum_state.decode(data) == state
    assert quorum_state.encode(state, version, voters) == data


def test_a_damaged_quorum_state_is_not_guessed() -> None:
    for data in (b"", b"{}", b'{"leaderId":1,"leaderEpoch":"x","votedId":1,"data_version":0}', b'{"data_version":7}', b"\xff"):
        with pytest.raises(CorruptFile):
            quorum_state.decode(data)


def restore(tmp_path: Path, folder: str, directory_id: str, node_id: int = 1) -> Path:
    target = tmp_path / "d"
    shutil.copytree(GOLDEN / folder / "__cluster_metadata-0", target / "__cluster_metadata-0")
    meta = MetaProperties("golden-standaloneCCCC", node_id, uuid_from_text(directory_id))
    format_directory(OsFileSystem(), str(target), meta, 1)
    return target


async def test_our_host_goes_on_where_kafka_stopped(tmp_path) -> None:
    target = restore(tmp_path, "kraft-standalone/stopped", "7dc2m72qS7GY3f1EZbw9zQ")
    log = target / "__cluster_metadata-0" / "00000000000000000000.log"
    before = log.read_bytes()
    listener = Listener()
    host = host_of(config_of(target), listener=listener)
    await host.start()
    assert host.is_leader and host.leader_epoch == 2 and host.kraft_version == 1
    assert listener.snapshots[0][0] == (112, 1) and len(listener.snapshots[0][1]) == 66
    assert [offset for offset, _ in listener.records] == list(range(112, 146))
    await close(host)
    # Some days after Kafka wrote its last record, ours begins a segment.
    after = b"".join(path.read_bytes() for path in sorted(log.parent.glob("*.log")))
    assert after.startswith(before)
    added = list(iterate_batches(after[len(before) :]))
    theirs = next(iterate_batches((GOLDEN / "kraft-static/stopped/__cluster_metadata-0/00000000000000000000.log").read_bytes()))
    assert [(batch.base_offset, batch.partition_leader_epoch, batch.is_control) for batch in added] == [(146, 2, True)]
    assert len(added[0].view) == len(theirs.view) == 91
    assert next(added[0].records()).value == next(theirs.records()).value


async def test_the_first_batch_of_a_dynamic_quorum_is_kafkas(tmp_path) -> None:
    target = tmp_path / "d"
    shutil.copytree(GOLDEN / "kraft-standalone/formatted/__cluster_metadata-0", target / "__cluster_metadata-0")
    shutil.copy(GOLDEN / "kraft-standalone/formatted/root/bootstrap.checkpoint", target)
    shutil.copy(GOLDEN / "kraft-standalone/formatted/root/meta.properties", target)
    host = host_of(config_of(target))
    await host.start()
    await close(host)
    name = "__cluster_metadata-0/00000000000000000000.log"
    ours = next(iterate_batches((target / name).read_bytes()))
    theirs = next(iterate_batches((GOLDEN / "kraft-standalone/stopped" / name).read_bytes()))
    assert ours.size_in_bytes == theirs.size_in_bytes == 174
    assert [(r.key, r.value) for r in ours.records()] == [(r.key, r.value) for r in theirs.records()]
    state = "__cluster_metadata-0/quorum-state"
    assert (target / state).read_bytes() == (GOLDEN / "kraft-standalone/stopped" / state).read_bytes()


async def test_a_voter_of_three_remembers_its_vote(tmp_path) -> None:
    target = restore(tmp_path, "kraft-dynamic/voter-1", "AAAAAAAAQACAAAAAAAAAEQ")
    host = host_of(config_of(target))
    await host.start()
    assert not host.is_leader and host.leader_epoch == 3 and host.leader_id == 2
    assert host.leader_endpoint() == ("127.0.0.1", 21612)
    assert host.quorum.voters.node_ids == (1, 2, 3)
    assert host.quorum.election.voted == ReplicaKey(2, uuid_from_text("AAAAAAAAQACAAAAAAAAAIg"))
    host.abandon()
    host._log_directory.abandon()
