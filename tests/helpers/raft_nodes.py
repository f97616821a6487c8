"""Raft hosts for tests: a listener that records its calls, configurations, formatted directories."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace

from minikafka.broker.environment import Environment
from minikafka.broker.quorum.format import format_storage
from minikafka.broker.quorum.raft_host import RaftHost, SnapshotId
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.log_dir import LogDirectory

CLUSTER = "golden-standaloneCCCC"


class Clock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Listener:
    """Records its calls."""

    def __init__(self) -> None:
        self.records: list[tuple[int, object]] = []
        self.leaders: list[tuple[int | None, int, bool]] = []
        self.snapshots: list[tuple[SnapshotId, list[object]]] = []
        self.offset = 0
        self.changed = asyncio.Event()

    def on_part(self, records) -> None:
        self.records += records

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
        "controller_quorum_retry_backoff_max_ms": 1000,
        "controller_quorum_auto_join_enable": False,
        "controller_quorum_fetch_max_bytes": 1 << 20,
        "controller_quorum_fetch_snapshot_max_bytes": 1 << 20,
        "controller_listener_names": ["CONTROLLER"],
        "controller_listener": "CONTROLLER",
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
