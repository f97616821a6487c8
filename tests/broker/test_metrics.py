"""Metrics: names that stock dashboards ask for, sums and single series, dialects, the timeline, and what a scrape costs."""

from __future__ import annotations

import copy
import json
import logging
import math
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from bench.scrape import measure
from prometheus_client.parser import text_string_to_metric_families

from minikafka.broker.measures.readings import Readings
from minikafka.broker.observe.metrics import traffic
from minikafka.broker.observe.metrics.exposition import Page, labels
from minikafka.broker.observe.metrics.node import NodeMetrics, _disk_bytes
from minikafka.broker.observe.metrics.reference import reference_page
from minikafka.broker.observe.metrics.table import METRICS
from minikafka.broker.observe.timeline import EVENTS_MAX, Timeline
from minikafka.cli.log_format import JsonFormatter
from minikafka.core.metadata.image import RECOVERING, PartitionRegistration
from minikafka.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(60)
#: What Strimzi's, Confluent's and kafka_exporter's dashboards and alerts read.
#: Told by the active controller, whoever that is.
CONTROLLERS_ONLY = {"kafka_brokers", "kafka_broker_info"}
NAMES = (Path(__file__).parents[1] / "golden" / "metric_names.txt").read_text().split()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, topics={"orders": {"partitions": 3}}, config={"minikafka.metrics.dialects": "s,c,r"}) as made:
        producer = confluent_kafka.Producer(made.client_config())
        for number in range(30):
            producer.produce("orders", b"x" * 100, partition=number % 3)
        assert producer.flush(10) == 0
        consumer = confluent_kafka.Consumer(made.client_config(**{"group.id": "g"}))
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", n, 4) for n in range(3)], asynchronous=False)
        consumer.close()
        made.wait_until(lambda: sum_of(made, "kafka_topic_partition_current_offset", 'topic="orders"') == 30, "the high watermarks")
        # A coordinator that follows learns of the high watermark with its next fetch.
        made.wait_until(lambda: sum_of(made, "kafka_consumergroup_lag_sum", 'consumergroup="g"') == 18, "the coordinator to know them too")
        yield made


def scrape(cluster: EmbeddedCluster, node_id: int) -> str:
    text: str = cluster.broker(node_id).ask("metrics")
    return text


def sum_of(cluster: EmbeddedCluster, name: str, containing: str = "") -> float:
    found = 0.0
    for broker in cluster.brokers:
        for key, value in cluster.metrics(broker.node_id).items():
            if key.partition("{")[0] == name and containing in key:
                found += value
    return found


def test_every_name_is_there_and_the_text_is_well_formed(cluster: EmbeddedCluster) -> None:
    found: set[str] = set()
    for broker in cluster.brokers:
        text = scrape(cluster, broker.node_id)
        families = list(text_string_to_metric_families(text))
        names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(names) == len(set(names)), "no family is written twice"
        samples = [(s.name, tuple(sorted(s.labels.items()))) for family in families for s in family.samples]
        assert len(samples) == len(set(samples))
        found |= {name for name, _ in samples}
    assert not [name for name in NAMES if name not in found]
    assert not [name for name in found if name.endswith("_created") and name.startswith("kafka")]


def test_sums_over_the_brokers_are_right(cluster: EmbeddedCluster) -> None:
    assert sum_of(cluster, "kafka_server_brokertopicmetrics_messagesin_total", 'topic="orders"') == 30
    assert sum_of(cluster, "kafka_topic_partition_current_offset", 'topic="orders"') == 30
    assert sum_of(cluster, "kafka_topic_partitions", 'topic="orders"') == 3
    assert sum_of(cluster, "kafka_consumergroup_lag_sum", 'consumergroup="g"') == 30 - 3 * 4
    assert sum_of(cluster, "kafka_brokers") == 3
    assert sum_of(cluster, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    for broker in cluster.brokers:
        metrics = cluster.metrics(broker.node_id)
        single = sum(v for k, v in metrics.items() if k.startswith("kafka_server_brokertopicmetrics_messagesin_total{"))
        assert metrics["kafka_server_brokertopicmetrics_messagesin_total"] == single, "the aggregate beside the topics"


def test_confluents_and_the_reporters_names_on_demand(cluster: EmbeddedCluster) -> None:
    metrics = cluster.metrics(1)
    assert metrics["kafka_server_brokertopicmetrics_messagesinpersec"] == metrics["kafka_server_brokertopicmetrics_messagesin_total"]
    assert "kafka_server_raft_metrics_current_epoch" in metrics and "kafka_server_raftmetrics_current_epoch" in metrics
    only = Page(("c",))
    only.one("kafka_server_replicamanager_isrshrinks_total", 1)
    assert only.text().splitlines()[1:] == [
        "# TYPE kafka_server_replicamanager_isrshrinkspersec untyped",
        "kafka_server_replicamanager_isrshrinkspersec 1",
    ]


def test_requests_to_brokers_and_to_controllers(cluster: EmbeddedCluster) -> None:
    for name in ("Produce", "Metadata", "CreateTopics", "BrokerRegistration"):
        asked = sum_of(cluster, "kafka_network_requestmetrics_requests_total", f'request="{name}"')
        assert asked == sum_of(cluster, "kafka_network_requestmetrics_totaltimems_count", f'request="{name}"')
        assert asked > 0, name
    followers = sum_of(cluster, "kafka_network_requestmetrics_requests_total", 'request="FetchFollower"')
    consumers = sum_of(cluster, "kafka_network_requestmetrics_requests_total", 'request="FetchConsumer"')
    assert followers + consumers <= sum_of(cluster, "kafka_network_requestmetrics_requests_total", 'request="Fetch"')
    longest = 'request="FetchFollower",quantile="0.999"'
    cluster.wait_until(lambda: sum_of(cluster, "kafka_network_requestmetrics_remotetimems", longest) > 1, "a fetch that was parked")


def test_labels_are_escaped() -> None:
    assert labels(a='x"y\\z\n') == '{a="x\\"y\\\\z\\n"}'


def test_a_thousand_partitions_are_scraped_in_small_steps() -> None:
    total_s, longest_s, size = measure(1000, rounds=5)
    assert size > 500_000
    # Some 20 ms and 3 ms of processor time (`tests/bench/scrape.py`); between two steps the loop serves others.
    assert longest_s < total_s / 3, (total_s, longest_s)


def registration(leader: int, isr: tuple[int, ...], epoch: int) -> PartitionRegistration:
    return PartitionRegistration((1, 2, 3), isr, leader, epoch)


def test_the_timeline_tells_elections_and_in_sync_sets() -> None:
    timeline = Timeline(lambda: 7)
    topic_id = bytes(16)

    before: dict[int, Any] = {}

    def step(partition: Any, brokers: Any = None) -> None:
        topic = SimpleNamespace(name="t", is_new=not before, changed={0: partition}, previous=dict(before))
        before[0] = partition
        delta: Any = SimpleNamespace(changed_topics={topic_id: topic}, changed_brokers=brokers or {})
        timeline.on_metadata(delta, None)  # type: ignore[arg-type]

    step(registration(1, (1, 2, 3), 0), {1: SimpleNamespace(fenced=False)})
    step(registration(2, (2, 3), 1), {1: SimpleNamespace(fenced=True)})
    step(registration(-1, (2,), 2))
    step(PartitionRegistration((1, 2, 3), (3,), 3, 3, leader_recovery_state=RECOVERING))
    step(registration(3, (3, 1), 3), {1: None})
    step(registration(2, (1, 2), 4))
    assert [event.text for event in timeline.events] == [
        "broker 1 is in service",
        "t has 1 partition",
        "broker 1 is fenced: it has stopped or was silent for too long",
        "t-0: broker 2 leads in epoch 1, after broker 1",
        "t-0: in sync 2, 3 (removed 1)",
        "t-0: no leader; broker 2 is gone, and no in-sync replica can take over",
        "t-0: in sync 2 (removed 3)",
        "t-0: broker 3 leads in epoch 3, after an unclean election: records may be lost",
        "t-0: in sync 3 (removed 2; added 3)",
        "broker 1 is unregistered",
        "t-0: in sync 3, 1 (added 1)",
        "t-0: broker 2 leads in epoch 4, after broker 3",
        "t-0: in sync 1, 2 (removed 3; added 2)",
    ]
    assert timeline.unclean_elections == 1
    many = range(3 * EVENTS_MAX)
    unclean = PartitionRegistration((1, 2, 3), (3,), 3, 5, leader_recovery_state=RECOVERING)
    changes = SimpleNamespace(
        name="t", is_new=False, changed=dict.fromkeys(many, unclean), previous=dict.fromkeys(many, registration(1, (1, 2), 4))
    )
    noted: list[str] = []
    timeline._note = lambda *arguments: noted.append(arguments[-1])  # type: ignore[method-assign]
    timeline.on_metadata(SimpleNamespace(changed_topics={topic_id: changes}, changed_brokers={}), None)  # type: ignore[arg-type]
    assert timeline.unclean_elections == 1 + len(many), "all are counted"
    assert len(noted) == 2 * EVENTS_MAX and noted[-1].startswith(f"t-{many[-1]}: "), "the last ones are told"


def test_log_lines_as_json() -> None:
    record = logging.LogRecord("minikafka.replicas", logging.INFO, "", 0, "%s: leads in epoch %d from offset 0", ("orders-3", 7), None)
    entry = json.loads(JsonFormatter(2).format(record))
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {
        "level": "INFO", "logger": "minikafka.replicas", "node": 2, "partition": "orders-3", "epoch": 7,
        "message": "orders-3: leads in epoch 7 from offset 0",
    }  # fmt: skip


def test_the_reference_is_current() -> None:
    assert (Path(__file__).parents[2] / "docs" / "metrics.md").read_text() == reference_page()


@pytest.mark.parametrize("dialects", [("s",), ("c",), ("r",), ("k",), ("s", "c", "r", "k")])
def test_every_metric_is_exported_under_the_names_of_the_table(cluster: EmbeddedCluster, dialects: tuple[str, ...]) -> None:
    """And no other; labels as well. A family without samples stands there with its head."""
    node = cluster.broker(1).process._runner.node
    config = copy.copy(node.config)
    config.minikafka_metrics_dialects = list(dialects)
    metrics = NodeMetrics(SimpleNamespace(**{**vars(node), "config": config, "stopping": False, "controller_dispatcher": None}))  # type: ignore[arg-type]
    text = metrics.render().decode()
    reported = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    reported = {name: kind for name, kind in reported.items() if not name.startswith(("process_", "python_"))}
    wanted = {metric.names[d] for metric in METRICS.values() for d in dialects if d in metric.names} - CONTROLLERS_ONLY
    if _disk_bytes() is None:
        wanted = {name for name in wanted if "linux_disk" not in name}
    assert set(reported) - CONTROLLERS_ONLY == wanted
    by_name: dict[str, set[str]] = {}
    for metric in METRICS.values():
        for dialect in dialects:
            if dialect in metric.names:
                by_name.setdefault(metric.names[dialect], set()).update(metric.label_in(dialect, label) for label in metric.labels)
    for line in text.splitlines():
        name, _, rest = line.partition(" ")[0].partition("{")
        expected_family = by_name.get(name, by_name.get(name.removesuffix("_count")))
        if expected_family is not None:
            assert set(re.findall(r'(\w+)="', line[len(name) : line.rindex("}")] if rest else "")) <= expected_family, line


def test_kafkas_moving_average_of_fifteen_minutes() -> None:
    """It begins with the first rate, forgets a change by 1/e in 15 minutes however often it is read; a counter set back is rest."""
    often, seldom = Readings(), Readings()
    assert often.moving_average("a", 5_000, 0) == seldom.moving_average("a", 5_000, 0) == 0
    assert often.moving_average("a", 15_000, 10_000) == seldom.moving_average("a", 15_000, 10_000) == 1000
    assert often.moving_average("a", 99_999, 10_500) == 1000, "two scrapers at once are one"
    for at_s in range(20, 911, 10):
        average = often.moving_average("a", 15_000, at_s * 1000)
    assert average == pytest.approx(1000 / math.e) == pytest.approx(seldom.moving_average("a", 15_000, 910_000))
    assert 0 < often.moving_average("a", 0, 920_000) < average
    often.moving_average(("topic", "t"), 1, 0)
    often.keep("topic", set())
    assert often.moving_average(("topic", "t"), 9, 10_000) == 0


def test_rates_of_topics_as_kafkas_beans_are_called(cluster: EmbeddedCluster) -> None:
    """Kafka UI takes a broker's rate from the sample with one label, a topic's from those with a topic."""
    node = cluster.broker(1).process._runner.node
    page, readings = Page(("k",)), Readings()
    for _ in range(2):
        page = Page(("k",))
        traffic.topics(page, node, readings, list(node.broker.replicas.partitions.values()))
    lines = [line.rpartition(" ")[0] for line in page.text().splitlines() if not line.startswith("#")]
    name = "kafka_server_BrokerTopicMetrics_FifteenMinuteRate"
    assert f'{name}{{name="BytesInPerSec"}}' in lines and f'{name}{{name="BytesOutPerSec",topic="orders"}}' in lines
    assert all(line.startswith(name) for line in lines) and f"# TYPE {name} gauge" in page.text()
