"""What became of brokers and partitions stands in the log, one line each with its reason, for people and as JSON."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import confluent_kafka
import pytest

from minikafka.cli.log_format import CONSOLE, JsonFormatter
from minikafka.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(60)
LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO |WARNING) minikafka[\w.]*: (.+)$")


@pytest.fixture
def said() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """What is logged, in both formats."""
    streams = io.StringIO(), io.StringIO()
    logger = logging.getLogger("minikafka")
    handlers = [logging.StreamHandler(stream) for stream in streams]
    for handler, formatter in zip(handlers, (logging.Formatter(CONSOLE), JsonFormatter(1)), strict=True):
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    yield streams
    for handler in handlers:
        logger.removeHandler(handler)


def test_elections_in_sync_sets_truncations_and_fencing(said: tuple[io.StringIO, io.StringIO]) -> None:
    with EmbeddedCluster(3, topics={"orders": {"partitions": 1}}) as cluster:
        old = cluster.leader("orders", 0)
        others = [broker.node_id for broker in cluster.brokers if broker.node_id != old]
        cluster.wait_isr("orders", 0, members=[1, 2, 3])
        careful = confluent_kafka.Producer(cluster.client_config(log_level=2))
        careful.produce("orders", b"all have this")
        producer = confluent_kafka.Producer(cluster.client_config(acks=1, log_level=2))
        assert careful.flush(10) == 0 and producer.list_topics("orders", timeout=10).topics
        cluster.partition_network([old], others)
        for _ in range(3):
            producer.produce("orders", b"only the old leader has this")
        assert producer.flush(10) == 0
        # Not the controller's decision: until it hears of that, the next leader may still fetch from the old one.
        cluster.wait_until(lambda: "orders-0: leads in epoch 1 from offset 1" in said[0].getvalue(), "another leader")
        cluster.heal()
        again = [f"orders-0: in epoch 1 the in-sync replicas are {found}" for found in permuted([old, *others])]
        cluster.wait_until(lambda: any(text in said[0].getvalue() for text in again), "the old leader to be in sync again")
    console, machine = (stream.getvalue().splitlines() for stream in said)
    messages = [found[2] for found in map(LINE.match, console) if found is not None]
    entries: list[dict[str, Any]] = [json.loads(line) for line in machine]

    def only(pattern: str) -> re.Match[str]:
        """The line, which must be there as JSON too."""
        found = [match for match in map(re.compile(pattern).fullmatch, messages) if match is not None]
        assert found, f"no line like {pattern} in\n" + "\n".join(messages)
        assert found[0][0] in [entry["message"] for entry in entries]
        return found[0]

    only(rf"broker {old} is fenced, because nothing was heard of it for \d+ ms \(broker\.session\.timeout\.ms\); \d+ partitions? changes?"
         rf"|broker {old} is fenced, because its connection closed and it did not come back; \d+ partitions? changes?")  # fmt: skip
    elected = only(rf"orders-0: in epoch 1 broker (\d) leads after broker {old}, in sync [\d, ]+, because broker {old} is fenced")
    only(rf"orders-0: in epoch 1 in sync [\d, ]+, with {old} again, because leader broker {elected[1]} requested it")
    only(r"orders-0: in epoch 1 the in-sync replicas are \[[\d, ]+\] after \[[\d, ]+\], as this leader asked \(partition epoch \d+\)")
    cut = only(r"orders-0: in epoch 1 truncated from 4 to 1, because epoch 0 ends at 1 on leader broker \d \(3 were never committed\)")
    entry = next(entry for entry in entries if entry["message"] == cut[0])
    assert (entry["node"], entry["partition"], entry["epoch"], entry["level"]) == (1, "orders-0", 1, "INFO")
    only(r"epoch \d+ of the metadata quorum has leader \d")


def permuted(members: list[int]) -> list[str]:
    """The set in each order."""
    return [str(list(order)) for order in permutations(members)]
