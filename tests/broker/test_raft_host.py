"""The raft host on a real disk: one voter, observers over a network, snapshots, restarts."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from minikafka.broker.environment import Environment
from minikafka.broker.format import format_storage
from minikafka.broker.hosts.raft import NotLeader, RaftHost, SnapshotId
from storage.filesystem import OsFileSystem
from storage.log_dir import LogDirectory
from wire.batch import iterate_batches
from wire.records.metadata_records import FeatureLevelRecord

CLUSTER = "golden-standaloneCCCC"


class Clock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Listener:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.records: list[tuple[int, object]] = []
        self.leaders: list[tuple[int | None, int, bool]] = []
        self.snapshots: list[tuple[SnapshotId, list[object]]] = []
        self.offset = 0
        self.changed = asyncio.Event()

    def on_commit(self, base_offset, epoch, records) -> None:
        self.records += records

    def on_snapshot(self, snapshot_id, records) -> None:
        self.snapshots.append((snapshot_id, list(records)))
        self.records = []
        self.changed.set()

    def on_high_watermark(self, offset) -> None:
        assert offset > self.offset
        self.offset = offset
        self.changed.set()

    def on_leader_change(self, leader_id, epoch, is_self) -> None:
        self.leaders.append((leader_id, epoch, is_self))
        self.changed.set()

    async def until(self, condition, timeout_s: float = 10) -> None:
        async def wait() -> None:
            while not condition():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), timeout_s)


def config_of(directory: Path, **changes):
    values = {
        "metadata_log_segment_bytes": 1 << 30,
        "metadata_log_segment_ms": 604_800_000,
        "metadata_max_retention_bytes": 104_857_600,
        "metadata_max_retention_ms": 604_800_000,
        "controller_quorum_election_timeout_ms": 1000,
        "controller_quorum_fetch_timeout_ms": 2000,
        "controller_quorum_election_backoff_max_ms": 1000,
        "controller_quorum_request_timeout_ms": 2000,
        "controller_quorum_retry_backoff_ms": 20,
        "controller_listener_names": ["CONTROLLER"],
        "bootstrap_controllers": [],
        "voters": {},
        "node_id": 1,
        "is_controller": True,
        "process_roles": ["broker", "controller"],
        "directories": [str(directory)],
        "metadata_directory": str(directory),
        "advertised": {"CONTROLLER": SimpleNamespace(host="127.0.0.1", port=21621)},
    }
    return SimpleNamespace(**{**values, **changes})


def environment_of(seed: int = 1, network=None) -> Environment:
    loop = asyncio.get_running_loop()

    async def run_blocking(function, *arguments):
        return await loop.run_in_executor(None, function, *arguments)

    return Environment(network, OsFileSystem(), Clock(), random.Random(seed), loop, run_blocking)


def format_node(config, **options) -> None:
    format_storage(
        OsFileSystem(), config, cluster_id=CLUSTER, wall_ms=1_700_000_000_000, random_bytes=random.Random(5).randbytes, **options
    )


def host_of(config, *, listener=None, environment=None, is_controller=True) -> RaftHost:
    directory = LogDirectory(OsFileSystem(), config.metadata_directory)
    directory.open()
    host = RaftHost(
        config.node_id,
        config,
        environment or environment_of(),
        directory,
        cluster_id=CLUSTER,
        is_controller=is_controller,
        listeners=[("CONTROLLER", "127.0.0.1", 21621)] if is_controller else (),
    )
    if listener is not None:
        host.subscribe(listener)
    return host


async def close(host: RaftHost) -> None:
    await host.stop()
    host._log_directory.close()


async def test_a_lone_voter_leads_on_return(tmp_path) -> None:
    config = config_of(tmp_path / "d")
    format_node(config, standalone=True)
    listener = Listener()
    host = host_of(config, listener=listener)
    started = time.perf_counter()
    await host.start()
    assert time.perf_counter() - started < 0.5
    assert host.is_leader and host.leader_epoch == 1 and host.high_watermark == 3 and host.kraft_version == 1
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
    host.write_snapshot(SnapshotId(18, 1), [FeatureLevelRecord(name="feature", feature_level=14)], 5)
    assert host.log_start_offset == 18
    names = sorted(p.name for p in (tmp_path / "d" / "__cluster_metadata-0").glob("*.checkpoint"))
    assert names == ["00000000000000000018-0000000001.checkpoint"]
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
