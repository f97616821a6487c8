"""Which errors in the logs of a mixed cluster's nodes fail a test."""

from __future__ import annotations

import pytest
from helpers.mixed_cluster import errors

COORDINATOR = "2026-11-27 21:00:00,000 ERROR [GroupCoordinator id=2] Execution of {} failed due to {} (CoordinatorRuntime)"
MOVED = "org.apache.kafka.common.errors.NotCoordinatorException: This is not the correct coordinator."
LOST = "org.apache.kafka.common.errors.KafkaStorageException: disk"


@pytest.mark.parametrize(
    ("lines", "fails"),
    [
        ([COORDINATOR.format("FlushBatch", "This is not the correct coordinator."), MOVED], False),
        ([COORDINATOR.format("FlushBatch", "disk"), LOST], True),
        ([COORDINATOR.format("FlushBatch", "disk"), LOST, MOVED], True),
        ([COORDINATOR.format("UpdateImage", "This is not the correct coordinator."), MOVED], True),
        (["2026-11-27 21:00:00,000 ERROR minikafka.broker the batch failed", MOVED], True),
        (["Traceback (most recent call last):", MOVED], True),
        (["2026-11-27 21:00:00,000 INFO all is well (KafkaServer)"], False),
    ],
)
def test_only_a_batch_that_its_coordinators_end_overtook_may_be_logged(lines: list[str], fails: bool) -> None:
    assert bool(errors("\n".join(lines))) == fails
