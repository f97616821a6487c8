"""The raft host on a real disk: one voter, snapshots, restarts."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from helpers.raft_nodes import Listener, close, config_of, format_node, host_of

from minikafka.broker.quorum.metadata_batch import batch_of
from minikafka.broker.quorum.raft_host import NotLeader, SnapshotId
from minikafka.core.raft import events as ev
from minikafka.core.raft import messages as m
from minikafka.core.raft.types import OffsetAndEpoch
from minikafka.storage.filesystem import OsFile, OsFileSystem
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.metadata_records import FeatureLevelRecord


async def test_a_lone_voter_leads_on_return(tmp_path) -> None:
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    listener = Listener()
    host = host_of(config, listener=listener)
    await host.start()
    assert host.is_leader and host.leader_epoch == 1 and host.high_watermark == 3 and host.kraft_version == 1
    while not listener.leaders:  # in a later turn, if this one took long
        await asyncio.sleep(0)
    assert listener.leaders == [(1, 1, True)]
    assert host.leader_endpoint() == ("127.0.0.1", 21621)
    last = host.append([FeatureLevelRecord(name="metadata.version", feature_level=30), FeatureLevelRecord(name="x", feature_level=1)])
    assert last == 4
    await host.wait_committed(last)
    assert [record.name for _, record in listener.records] == ["metadata.version", "x"]
    log = tmp_path / "d" / "__cluster_metadata-0"
    assert json.loads((log / "quorum-state").read_text()) == {
        "leaderId": 1, "leaderEpoch": 1, "votedId": -1, "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA", "data_version": 1,
    }  # fmt: skip
    batches = list(iterate_batches((log / "00000000000000000000.log").read_bytes()))
    assert [(b.base_offset, b.last_offset, b.is_control, b.partition_leader_epoch) for b in batches] == [(0, 2, True, 1), (3, 4, False, 1)]
    assert (log / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    await close(host)
    with pytest.raises(NotLeader):
        host.append([FeatureLevelRecord(name="x", feature_level=1)])


async def test_a_restart_replays_and_raises_the_epoch(tmp_path) -> None:
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    for turn in range(3):
        listener = Listener()
        host = host_of(config, listener=listener)
        await host.start()
        assert host.leader_epoch == turn + 1
        while not listener.leaders:  # in a later turn, if this one took long
            await asyncio.sleep(0)
        assert listener.leaders == [(1, turn + 1, True)]
        assert [record.feature_level for _, record in listener.records] == list(range(turn))
        await host.wait_committed(host.append([FeatureLevelRecord(name="x", feature_level=turn)]))
        if turn == 1:
            host.abandon()
            host._log_directory.abandon()
        else:
            await close(host)


async def test_a_snapshot_is_written_read_and_the_log_is_cleaned_behind_it(tmp_path) -> None:
    config = config_of(tmp_path / "d", metadata_max_retention_bytes=1, metadata_log_segment_bytes=400)
    format_node(config, standalone=True)
    listener = Listener()
    host = host_of(config, listener=listener)
    await host.start()
    for level in range(20):
        last = host.append([FeatureLevelRecord(name="feature", feature_level=level)])
    await host.wait_committed(last)
    state = [FeatureLevelRecord(name="feature", feature_level=9)]
    with pytest.raises(ValueError, match="not within"):
        host.write_snapshot(SnapshotId(last + 2, 1), state, 5)
    host.write_snapshot(SnapshotId(13, 1), state, 5)
    await host._snapshots.finish()
    host.write_snapshot(SnapshotId(18, 1), [FeatureLevelRecord(name="feature", feature_level=14)], 5)
    assert host.log_start_offset == 13, "it is written in a thread"
    host.write_snapshot(SnapshotId(19, 1), state, 5)
    await host._snapshots.finish()
    assert host.log_start_offset == 18
    names = sorted(p.name for p in (tmp_path / "d" / "__cluster_metadata-0").glob("*.checkpoint"))
    assert names == ["00000000000000000018-0000000001.checkpoint"]
    stale = tmp_path / "d" / "__cluster_metadata-0" / "00000000000000000017-0000000001.checkpoint"
    stale.write_bytes(b"")
    host._snapshot_written(OffsetAndEpoch(17, 1))  # one that took so long that the log begins after it
    assert not stale.exists()
    stale = tmp_path / "d" / "__cluster_metadata-0" / "00000000000000000017-0000000001.checkpoint"
    stale.write_bytes(b"")
    host._snapshot_written(OffsetAndEpoch(17, 1))
    assert not stale.exists(), "it took so long that the log begins after it"
    late = Listener()
    host.subscribe(late)
    await late.until(lambda: late.offset == last + 1)
    assert late.snapshots[0][0] == (18, 1) and late.snapshots[0][1][0].feature_level == 14
    assert [record.feature_level for _, record in late.records] == [15, 16, 17, 18, 19]
    await close(host)
    again = Listener()
    host = host_of(config, listener=again)
    await host.start()
    assert host.quorum.voters.node_ids == (1,) and host.leader_epoch == 2
    assert again.snapshots[0][0] == (18, 1)
    assert [record.feature_level for _, record in again.records] == [15, 16, 17, 18, 19]
    await close(host)


async def test_a_truncation_is_synced_beside_the_loop_and_what_follows_waits(tmp_path, monkeypatch) -> None:
    """The next append synced it on the loop: file, directory and epochs."""
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    host = host_of(config)
    await host.start()
    end = host.quorum.log.end_offset
    log = host.metadata_log.log
    host._log.append_batch(batch_of([b"never committed"]), host.leader_epoch + 1)
    threads, answers = set[int](), list[int]()

    def noting(name: str) -> None:
        owner = OsFile if name == "fsync" else OsFileSystem
        real = getattr(owner, name)

        def noted(*arguments):
            threads.add(threading.get_ident())
            real(*arguments)

        monkeypatch.setattr(owner, name, noted)

    noting("fsync")
    noting("fsync_dir")
    host._carry_out([ev.Truncate(end), ev.Respond(lambda reply: answers.append(log.log_end_offset), m.Reply(ErrorCode.NONE))])
    assert host._is_waiting and not answers
    while host._is_waiting:
        await asyncio.sleep(0)
    assert answers == [end] == [log.log_end_offset] and not log.durability.is_cut
    assert threads and threading.get_ident() not in threads
    await host.wait_committed(host.append([FeatureLevelRecord(name="x", feature_level=1)]))
    await close(host)
