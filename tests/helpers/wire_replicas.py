"""Brokers as an audit over the wire sees them, in this process: replicas of one partition and scripted connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from helpers.log_clusters import Batch

from minikafka.spark import fetch_reader, live
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine
from minikafka.spark.fetch_client import LEADER_NOT_AVAILABLE, OUT_OF_RANGE, BrokerError, ClusterState, Fetched, PartitionState

KEY = ("t", 0)


@dataclass
class WireReplicas:
    """`logs`: {broker: its batches}. `answer_bytes`: how much a broker sends at once; at least a batch. `on_fetch(broker, offset)` is
    called at each Fetch that reads records, and may raise. `fetched` keeps them. `tells_sizes`: whether brokers answer DescribeLogDirs.
    `high_watermarks`: high watermarks that are other than the end of the log. `topic_id`: "" of a broker that does not tell it. `down`:
    brokers that are replicas, but out of sync and away. `ignorant`: how many times the leader says that it does not know what is
    committed."""

    logs: dict[int, list[Batch]]
    answer_bytes: int = 1
    log_start: int = 0
    compacted: bool = False
    tells_sizes: bool = True
    leader_epoch: int = 1
    topic_id: str = "A" * 22
    cluster_id: str = "c"
    high_watermarks: dict[int, int] = field(default_factory=dict)
    down: tuple[int, ...] = ()
    ignorant: int = 0
    on_fetch: Callable[[int, int], None] = lambda broker, offset: None
    fetched: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes = {broker: [one.encode() for one in batches] for broker, batches in self.logs.items()}
        self.high_watermark = max(batches[-1].last for batches in self.logs.values()) + 1

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Redirect connections to these replicas."""
        world, nodes = self, sorted(self.logs)

        class Connection(_Connection):
            replicas = world

        def state(*_: object) -> ClusterState:
            partition = PartitionState(nodes[0], world.leader_epoch, sorted({*nodes, *world.down}), nodes)
            return ClusterState(world.cluster_id, {node: ("h", node) for node in nodes}, {KEY: partition}, [])

        monkeypatch.setattr(live, "first_answer", state)
        monkeypatch.setattr(live, "FOLLOWERS_WAIT_S", 0.0)
        monkeypatch.setattr(live, "Connection", Connection)
        monkeypatch.setattr(fetch_reader, "Connection", Connection)
        monkeypatch.setattr(fetch_reader, "PAUSE_S", 0.0)
        monkeypatch.setattr(fetch_reader, "_away_since", {})

    def audit(self, split_bytes: int = 512 << 20, confirm: bool = False, paths: Sequence[str] = (), **options: Any) -> AuditResult:
        """An audit of it, and of the log directories at `paths`."""
        return run_audit(paths, LocalEngine(1), AuditOptions(bootstrap="h:1", split_bytes=split_bytes, confirm=confirm, **options))


class _Connection:
    replicas: WireReplicas
    place = "h:1"

    def __init__(self, host: str, port: int, security: object = None) -> None:
        self.broker = port

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compacted(self, topics: Sequence[str]) -> set[str]:
        return set(topics) if self.replicas.compacted else set()

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.replicas.topic_id) if self.replicas.topic_id else {}

    def earliest(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        return dict.fromkeys(keys, (0, self.replicas.log_start))

    def latest(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        world = self.replicas
        world.ignorant -= 1
        error = LEADER_NOT_AVAILABLE if world.ignorant >= 0 else 0
        return dict.fromkeys(keys, (error, world.high_watermark))

    def sizes(self, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        if not self.replicas.tells_sizes:
            raise BrokerError("not allowed")
        return dict.fromkeys(keys, sum(map(len, self.replicas.bytes[self.broker])))

    def fetch(self, wanted: dict[tuple[str, int], int], bytes_max: int, **_: Any) -> dict[tuple[str, int], Fetched]:
        world, offset = self.replicas, wanted[KEY]
        if bytes_max > 1:
            world.on_fetch(self.broker, offset)
            world.fetched.append((self.broker, offset))
        if not world.log_start <= offset <= world.high_watermark:
            return {KEY: Fetched(OUT_OF_RANGE, world.high_watermark, -1, memoryview(b""))}
        data = b""
        for one, piece in zip(world.logs[self.broker], world.bytes[self.broker], strict=True):
            if one.last >= offset and (not data or len(data) + len(piece) <= min(bytes_max, world.answer_bytes)):
                data += piece
            elif data:
                break
        return {KEY: Fetched(0, world.high_watermarks.get(self.broker, world.high_watermark), world.log_start, memoryview(data))}
