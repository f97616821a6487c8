"""Small written clusters and the audit's findings about them, as text that tests compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.log_clusters import Batch, MetadataLog, Partition, write_broker

from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine

TOPIC = bytes(range(16))
BROKERS = (1, 2, 3)


def audit(path: Path, **options: Any) -> AuditResult:
    return run_audit([str(path)], LocalEngine(1), AuditOptions(**options))


def messages_of(result: AuditResult, check: str) -> list[str]:
    return [f"{','.join(one.brokers)}: {one.message}" for one in result.findings.kept if one.check == check]


def verdicts(result: AuditResult) -> dict[str, str]:
    return {f"{one.topic}-{one.partition}": one.verdict for one in result.partitions}


def three_alike(
    tmp_path: Path, batches: list[Batch], change: Callable[[int, Partition], None] = lambda broker, one: None, **more: Any
) -> Path:
    """Three brokers with the same partition t-0, without a metadata log; `change` alters a broker's copy before it is written."""
    for broker in BROKERS:
        one = Partition("t-0", list(batches), **more)
        change(broker, one)
        write_broker(tmp_path / f"b{broker}", broker, [one])
    return tmp_path


def registered_topic(
    isr: tuple[int, ...] = BROKERS, elr: tuple[int, ...] = (), leader: int = 1, leader_epoch: int = 0
) -> MetadataLog:  # fmt: skip
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    return log.topic("t", TOPIC).partition(TOPIC, BROKERS, isr, leader, leader_epoch, elr=elr)
