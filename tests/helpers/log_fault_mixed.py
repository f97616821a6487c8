"""Logs of Apache Kafka 4.3 in a cluster with minikafka: brokers 1 and 2 have what the real one left on its disk (tests/golden/logs), and
broker 3 has what our storage makes of the same batches as their follower."""

from __future__ import annotations

import base64
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from helpers import golden_logs
from helpers.log_clusters import MetadataLog, lines, write_broker

from minikafka.storage.config import LogConfig
from minikafka.storage.filesystem import OsFileSystem
from minikafka.storage.recovery import load_log

BROKERS = (1, 2, 3)
WALL_MS = 1_795_230_480_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A partition of tests/golden/logs. `sources`: its directory at broker 1 and at broker 2."""

    name: str
    sources: tuple[str, str]
    segment_bytes: int = 1 << 30
    log_start: int = 0


MIXED = (
    Recorded("rep-0", ("replicas/authentic/broker-1/rep-0", "replicas/authentic/broker-2/rep-0"), 1500),
    Recorded("plain-0", ("single-stopped/plain-0",) * 2, 12288, 101),
    Recorded("txn-0", ("single-stopped/txn-0",) * 2, 500),
    Recorded("mixed-0", ("single-stopped/mixed-0",) * 2),
)


def write_mixed(recorded: Recorded, folder: Path) -> None:
    """The log directories of three brokers."""
    topic, topic_id = recorded.name.removesuffix("-0"), _topic_id(golden_logs.ROOT / recorded.sources[0])
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.voters(BROKERS).topic(topic, topic_id).partition(topic_id, BROKERS, BROKERS, 1, 4)
    for broker in BROKERS:
        root = write_broker(folder / f"b{broker}", broker, [], log.encode())
        if broker < 3:
            golden_logs.install(recorded.sources[broker - 1], root / recorded.name)
            for file in (root / recorded.name).iterdir():
                file.chmod(0o644)
            end = max(int(file.stem) for file in (root / recorded.name).glob("*.snapshot"))
        else:
            _follow(recorded, root / recorded.name)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (root / name).write_text(lines([f"{topic} 0 {end}"]))
        (root / "log-start-offset-checkpoint").write_text(lines([f"{topic} 0 {recorded.log_start}"] if recorded.log_start else []))


def _topic_id(directory: Path) -> bytes:
    found = re.search(r"topic_id: (\S+)", (directory / "partition.metadata").read_text())
    assert found is not None
    return base64.urlsafe_b64decode(found[1] + "==")


def _follow(recorded: Recorded, directory: Path) -> None:
    """Our replica: the batches one by one, and a clean stop."""
    topic, _, number = recorded.name.rpartition("-")
    config = LogConfig(segment_bytes=recorded.segment_bytes, index_interval_bytes=300)
    log = load_log(OsFileSystem(), str(directory), topic, int(number), config, wall_ms=WALL_MS)
    for batch in golden_logs.stored_batches(recorded.sources[0]):
        log.append_as_follower(memoryview(batch))
    log.update_high_watermark(log.log_end_offset)
    if recorded.log_start:
        log.increment_log_start_offset(recorded.log_start)
    log.close()
    shutil.copy(golden_logs.ROOT / recorded.sources[0] / "partition.metadata", directory)
