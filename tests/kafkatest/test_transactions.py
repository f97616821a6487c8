"""Follows Apache Kafka's `core/transactions_test.py` and `core/group_mode_transactions_test.py`: TransactionalMessageCopier copies a topic,
with aborts, while brokers or copiers are bounced; what is committed is the input, once, in order."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

import pytest
from kafkatest.verifiable import Client, Producer, bounce, create, in_sync, read_all

from minikafka.testing.cluster import ProcessCluster

pytestmark = [pytest.mark.java, pytest.mark.kafkatest, pytest.mark.timeout(600)]
INPUT, OUTPUT, PARTITIONS, RECORDS = "input-topic", "output-topic", 2, 10_000


class Copier(Client):
    """TransactionalMessageCopier of one partition, or a member of a group of copiers."""

    def __init__(self, directory: Path, cluster: ProcessCluster, number: int, *, group_mode: bool) -> None:
        where = ("--broker-list", cluster.bootstrap, "--input-topic", INPUT, "--output-topic", OUTPUT, "--input-partition", str(number))
        how = ("--consumer-group", "copiers", "--transactional-id", f"copier-{number}", "--transaction-size", "53")
        more = (
            "--enable-random-aborts",
            "--use-group-metadata",
            "--transaction-timeout",
            "10000",
            *(("--group-mode",) if group_mode else ()),
        )
        super().__init__(directory, f"copier-{number}", "TransactionalMessageCopier", *where, *how, *more)

    @property
    def remaining(self) -> int:
        """Records that are left, by the latest report of its latest process; -1 before its first."""
        told = [event for event in self.latest() if "remaining" in event]
        return int(told[-1]["remaining"]) if told else -1


def fill(cluster: ProcessCluster, directory: Path) -> dict[int, list[str]]:
    """Write the input, with keys that put half of it into each partition; its values by partition."""
    producer = Producer(directory, cluster.bootstrap, INPUT, rate=5000)
    producer.command += ["--repeating-keys", "100"]
    with producer.running():
        producer.more(RECORDS)
        producer.stop()
    written = by_partition(read_all(cluster, INPUT))
    assert min(len(written[partition]) for partition in range(PARTITIONS)) > RECORDS / 4, "a copier has too little to copy"
    return written


def by_partition(found: dict[tuple[str, int, int], str]) -> dict[int, list[str]]:
    values = defaultdict[int, list[str]](list)
    for (_, partition, _), value in sorted(found.items()):
        values[partition].append(value)
    return values


@pytest.mark.parametrize("group_mode", [False, True], ids=["partitions", "group"])
@pytest.mark.parametrize("hard", [False, True], ids=["clean_bounce", "hard_bounce"])
@pytest.mark.parametrize("target", ["brokers", "clients"])
def test_transactions(tmp_path: Path, target: str, hard: bool, group_mode: bool) -> None:
    with ProcessCluster(3, controllers=3) as cluster, contextlib.ExitStack() as stack:
        create(cluster, INPUT, PARTITIONS)
        create(cluster, OUTPUT, PARTITIONS)
        written = fill(cluster, tmp_path)
        copiers = [stack.enter_context(Copier(tmp_path, cluster, number, group_mode=group_mode).running()) for number in range(PARTITIONS)]
        for node_id, copier in zip(cluster.nodes, [*copiers, copiers[0]], strict=True):
            copier.wait_for(lambda copier=copier: copier.remaining >= 0, "the copier's first report")  # type: ignore[misc]
            if target == "brokers":
                bounce(cluster, node_id, hard=hard)
                in_sync(cluster, OUTPUT)
            else:
                if hard:
                    copier.kill()
                else:
                    copier.stop()
                copier.start()
        count = sum(map(len, written.values()))

        def is_copied() -> bool:
            return len(read_all(cluster, OUTPUT, isolation="read_committed")) >= count

        cluster.wait_for(is_copied, "the whole copy", timeout_s=180)
        assert by_partition(read_all(cluster, OUTPUT, isolation="read_committed")) == written
