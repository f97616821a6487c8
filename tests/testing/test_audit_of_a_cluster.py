"""EmbeddedCluster.audit: a proof that is not complete is no quiet return."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.log_clusters import MetadataLog, Partition, plain, write_broker

from minikafka.testing import inspection
from minikafka.testing.errors import ClusterError

TOPIC = bytes(range(16))


def cluster_of(path: Path, brokers: tuple[int, ...], batches: int) -> Any:
    log = MetadataLog().broker(1).broker(2).broker(3).topic("t", TOPIC).partition(TOPIC, (1, 2, 3), (1, 2, 3), 1)
    for broker in brokers:
        write_broker(path / str(broker), broker, [Partition("t-0", [plain(offset) for offset in range(batches)])], log.encode())
    return SimpleNamespace(brokers=[SimpleNamespace(log_dir=path / str(broker)) for broker in brokers])


def test_an_incomplete_comparison_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "describe", lambda cluster: "what it looks like")
    assert inspection.audit(cluster_of(tmp_path / "whole", (1, 2, 3), 5), [], raise_on_mismatch=True).outcome == "PASS"
    without_one = cluster_of(tmp_path / "less", (1, 2), 5)
    with pytest.raises(ClusterError, match="log directories were not given"):
        inspection.audit(without_one, [], raise_on_mismatch=True)
    assert inspection.audit(without_one, [], raise_on_mismatch=False).outcome == "INCOMPLETE"


def test_a_cluster_without_records_raises_nothing(tmp_path: Path) -> None:
    """All there is to compare is the metadata log; without that there is nothing."""
    cluster = cluster_of(tmp_path, (1, 2, 3), 0)
    assert inspection.audit(cluster, [], raise_on_mismatch=True).outcome == "PASS"
    assert inspection.audit(cluster, ["t"], raise_on_mismatch=True).outcome == "INCOMPLETE"
