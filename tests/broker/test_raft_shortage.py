"""Too few descriptors at the metadata log: everything waits, in its order, and goes on when there are some. The node does not end."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.raft_nodes import Listener, close, config_of, environment_of, format_node, host_of

from minikafka.broker.quorum.raft_host import RaftHost, SnapshotId
from minikafka.storage.errors import ResourceShortage
from minikafka.storage.filesystem import OsFileSystem
from minikafka.wire.records.metadata_records import FeatureLevelRecord

Lone = tuple[RaftHost, Listener, "Shortage"]


class Shortage:
    """While it lasts, no file whose path ends with the given text can be opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ends: tuple[str, ...] = ()
        self.met = asyncio.Event()
        loop, real, real_sync = asyncio.get_running_loop(), OsFileSystem.open, OsFileSystem.fsync_dir

        def check(path: str) -> None:
            if self.ends and path.endswith(self.ends):
                loop.call_soon_threadsafe(self.met.set)
                raise OSError(errno.EMFILE, "Too many open files", path)

        def opened(filesystem: OsFileSystem, path: str, **options: bool):
            check(path)
            return real(filesystem, path, **options)

        def synced(filesystem: OsFileSystem, path: str) -> None:
            check(path)
            real_sync(filesystem, path)

        monkeypatch.setattr(OsFileSystem, "open", opened)
        monkeypatch.setattr(OsFileSystem, "fsync_dir", synced)

    def begin(self, *ends: str) -> None:
        self.ends = ends
        self.met.clear()

    def end(self) -> None:
        self.ends = ()


@pytest.fixture
async def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lone:
    config = config_of(tmp_path / "d", controller_quorum_election_timeout_ms=50, controller_quorum_election_backoff_max_ms=20)
    format_node(config, standalone=True)
    listener = Listener()
    host = host_of(config, listener=listener, environment=environment_of())
    await host.start()
    return host, listener, Shortage(monkeypatch)


def level(number: int) -> list[FeatureLevelRecord]:
    return [FeatureLevelRecord(name="x", feature_level=number)]


async def after(shortage: Shortage, tries: Callable[[], bool]) -> None:
    """It was met, and nothing came of it while it lasted."""
    await shortage.met.wait()
    shortage.met.clear()
    await shortage.met.wait()
    assert not tries(), "what lacks descriptors is not done"
    shortage.end()


async def test_a_sync_is_tried_again(lone: Lone) -> None:
    host, listener, shortage = lone
    host.metadata_log.log.durability.is_flush_requested = True
    shortage.begin("__cluster_metadata-0", ".index")
    last = host.append(level(7))
    await after(shortage, lambda: host.high_watermark > last)
    await host.wait_committed(last)
    assert host.failure is None and host.is_leader
    assert [record.feature_level for _, record in listener.records] == [7]
    await close(host)


async def test_a_vote_is_written_before_anything_follows_from_it(lone: Lone) -> None:
    host, listener, shortage = lone
    epoch = host.leader_epoch
    shortage.begin("quorum-state.tmp")
    host.resign(epoch)
    await after(shortage, lambda: listener.leaders[-1][1] > epoch and listener.leaders[-1][2])
    await listener.until(lambda: listener.leaders[-1][1] > epoch and listener.leaders[-1][2])
    assert host.failure is None
    state = json.loads(Path(host.metadata_log.directory, "quorum-state").read_text())
    assert state["leaderEpoch"] == host.leader_epoch, "nobody leads in an epoch that a restart would not remember"
    await host.wait_committed(host.append(level(8)))
    await close(host)


async def test_committed_metadata_are_delivered_later(lone: Lone, monkeypatch: pytest.MonkeyPatch) -> None:
    host, listener, shortage = lone
    real, is_short = type(host.metadata_log).batches, [True]

    def batches(log, *arguments):
        if is_short[0]:
            shortage.met.set()
            raise ResourceShortage("no descriptors")
        return real(log, *arguments)

    monkeypatch.setattr(type(host.metadata_log), "batches", batches)
    last = host.append(level(9))
    await after(shortage, lambda: bool(listener.records))
    is_short[0] = False
    await host.wait_committed(last)
    assert [record.feature_level for _, record in listener.records] == [9] and host.failure is None
    await close(host)


async def test_an_append_is_refused_and_the_node_goes_on(lone: Lone) -> None:
    host, _, shortage = lone
    host.metadata_log.log.config.segment_bytes = 100
    shortage.begin(".log")
    with pytest.raises(ResourceShortage):
        host.append(level(1))
    shortage.end()
    await host.wait_committed(host.append(level(2)))
    assert host.failure is None and len(host.metadata_log.log.segments) == 2
    await close(host)


async def test_a_snapshot_leaves_what_a_listener_still_needs(lone: Lone, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cleaned up to what was delivered, not up to the high watermark."""
    host, listener, shortage = lone
    config, log = host.metadata_log._config, host.metadata_log.log
    monkeypatch.setattr(config, "metadata_max_retention_bytes", 1)
    log.config.segment_bytes = 100
    last = host.append(level(1))
    await host.wait_committed(last)
    real, is_short = type(host.metadata_log).batches, [True]

    def batches(log, *arguments):
        if is_short[0]:
            shortage.met.set()
            raise ResourceShortage("no descriptors")
        return real(log, *arguments)

    monkeypatch.setattr(type(host.metadata_log), "batches", batches)
    for number in (2, 3, 4):
        last = host.append(level(number))
    await after(shortage, lambda: len(listener.records) > 1)
    await shortage.met.wait()
    for offset in (last, last + 1):
        host.write_snapshot(SnapshotId(offset, host.leader_epoch), level(4), 5)
        await host._snapshots.finish()
    is_short[0] = False
    await host.wait_committed(last)
    assert [record.feature_level for _, record in listener.records] == [1, 2, 3, 4] and host.failure is None
    await close(host)
