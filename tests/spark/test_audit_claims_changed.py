"""The controllers decide something between the reading of their log and that of a partition: no fault of a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, messages_of, registered_topic
from helpers.log_clusters import Batch, MetadataLog, Partition, plain, write_broker

from minikafka.spark import audit as auditing
from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
from minikafka.spark.engine_local import LocalEngine

OTHER = bytes(range(50, 66))


def audited(
    path: Path, batches: list[Batch], logs: list[MetadataLog], topic_id: bytes,
    monkeypatch: pytest.MonkeyPatch, log_at: Callable[[int], int]
) -> AuditResult:  # fmt: skip
    """Audit while the copies of the metadata log become `logs[log_at(n)]` behind the n-th reading of the partition."""
    for broker in BROKERS:
        held = Partition("t-0", batches, epochs=((0, 0), (3, 1)) if len(batches) > 1 else ((0, 0),), topic_id=topic_id)
        write_broker(path / f"b{broker}", broker, [held], logs[0].encode(), clean=False)
    rounds: list[int] = []
    once: Any = auditing._round

    def counted(*given: Any) -> Any:
        found = once(*given)
        rounds.append(1)
        for broker in BROKERS:
            copy = path / f"b{broker}" / "__cluster_metadata-0" / f"{0:020d}.log"
            copy.write_bytes(logs[log_at(len(rounds))].encode())
        return found

    monkeypatch.setattr(auditing, "_round", counted)
    return run_audit([str(path / f"b{broker}") for broker in BROKERS], LocalEngine(1), AuditOptions())


def histories() -> list[MetadataLog]:
    """Elections one after the other."""
    logs = [registered_topic()]
    for number in range(10):
        following = MetadataLog(list(logs[-1].values))
        logs.append(following.change(TOPIC, leader=1 + number % 3))
    return logs


@pytest.mark.parametrize(("log_at", "status"), [(lambda n: min(n, 9), 0), (lambda n: 0, 1)])
def test_a_leader_that_was_elected_behind_the_reading_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_at: Callable[[int], int], status: int
) -> None:
    batches = [plain(0), plain(1, epoch=3)]
    result = audited(tmp_path, batches, histories(), TOPIC, monkeypatch, log_at)
    assert result.exit_code == status and len(messages_of(result, "epoch-unknown")) == 3 * status


@pytest.mark.parametrize(("log_at", "status"), [(lambda n: int(n > 1), 0), (lambda n: 0, 1)])
def test_a_topic_that_was_made_again_behind_the_reading_of_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_at: Callable[[int], int], status: int
) -> None:
    again = registered_topic().remove(TOPIC).topic("t", OTHER).partition(OTHER, BROKERS, BROKERS, 1)
    result = audited(tmp_path, [plain(0)], [registered_topic(), again], OTHER, monkeypatch, log_at)
    assert (result.exit_code == 1) == bool(status) and len(messages_of(result, "topic-id")) == 3 * status
