"""A slice of Apache Kafka's own tests, in one JVM: producing, fetching, group offsets and transactions. It runs wherever Java
and Maven are."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_suite import harness, results

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
CLASSES = (
    "kafka.server.ProduceRequestTest",
    "kafka.server.FetchRequestTest",
    "kafka.server.OffsetFetchRequestTest",
    "kafka.api.TransactionsTest",
)
METHODS = (
    "ProduceRequest|FetchRequest(ToNonReplica|V4WithReadCommitted)|OrderAndSizeLimits|EpochValidation|MultiGroups|GroupErrors"
    "|BasicTransactions|SendOffsetsToTransaction|FencingOnCommit"
)


def test_producing_fetching_group_offsets_and_transactions(tmp_path: Path) -> None:
    lines = tmp_path / "results.tsv"
    assert harness.run_classes(CLASSES, lines, tmp_path / "work", harness.Options(methods=METHODS, class_timeout_s=120)) == 0
    found = [result for result in results.read(lines).values() if result.state != "skip"]
    assert {result.class_name for result in found if result.state == "pass"} == set(CLASSES)
    assert [f"{result.test}: {result.note}" for result in results.unexplained(found, results.reasons())] == []
