"""Topics, requests, connections, groups, and parked requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from minikafka.broker.measures.request_times import PHASES, QUANTILES
from minikafka.broker.observe.metrics.exposition import labels
from minikafka.broker.observe.metrics.table import RATES
from minikafka.broker.partitions.partition import TRAFFIC
from minikafka.core.transaction.state import TransactionState
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.measures.readings import Readings
    from minikafka.broker.measures.request_times import RequestTimes
    from minikafka.broker.observe.metrics.exposition import Page
    from minikafka.broker.observe.observed import ObservedNode
    from minikafka.broker.partitions.partition import Partition

GROUP_STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")
#: Name of the meter for each counter of `TRAFFIC`.
METERS = dict(
    zip(
        TRAFFIC,
        (
            "bytesin", "bytesout", "messagesin", "bytesrejected", "totalproducerequests", "failedproducerequests",
            "totalfetchrequests", "failedfetchrequests",
        ),
        strict=True,
    )
)  # fmt: skip
#: (index in `TRAFFIC`, name) of the counters that also have a moving average.
AVERAGED = ((TRAFFIC.index("bytes_in"), "BytesInPerSec"), (TRAFFIC.index("bytes_out"), "BytesOutPerSec"))
#: APIs that are reported even before their first request, because dashboards expect them.
ALWAYS = ("Produce", "Fetch", "Metadata", "OffsetCommit")
#: (name, requests by version, errors by code, times)
RequestRow = tuple[str, list[int], dict[int, int], "RequestTimes | None"]


def topics(page: Page, node: ObservedNode, readings: Readings, partitions: list[Partition]) -> None:
    """Traffic by topic and in total. Partitions that have left still count, so that no counter ever decreases."""
    assert node.broker is not None
    manager, prefix = node.broker.replicas, "kafka_server_brokertopicmetrics"
    total = [0] * len(TRAFFIC)
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        entry = by_topic.get(partition.topic)
        if entry is None:
            entry = by_topic[partition.topic] = list(manager.traffic_of_gone.get(partition.topic, [0] * len(TRAFFIC)))
        for number, value in enumerate(partition.traffic):
            entry[number] += value
    for topic, gone in manager.traffic_of_gone.items():
        if topic not in by_topic:
            total = [a + b for a, b in zip(total, gone, strict=True)]
    for entry in by_topic.values():
        total = [a + b for a, b in zip(total, entry, strict=True)]
    spelled = {topic: labels(topic=topic) for topic in by_topic}
    for number, meter in enumerate(METERS.values()):
        samples = [("", total[number]), *((spelled[topic], entry[number]) for topic, entry in by_topic.items())]
        page.many(f"{prefix}_{meter}_total", samples)
    if page.heads(RATES):
        _averages(page, readings, node.environment.clock.now_ms(), total, by_topic)
    page.one(f"{prefix}_replicationbytesin_total", manager.replication_bytes_in)
    page.one(f"{prefix}_replicationbytesout_total", manager.replication_bytes_out)
    page.one(f"{prefix}_producemessageconversions_total", 0)
    page.one(f"{prefix}_fetchmessageconversions_total", 0)


def _averages(page: Page, readings: Readings, now_ms: int, total: list[int], by_topic: dict[str, list[int]]) -> None:
    samples = []
    for number, name in AVERAGED:
        samples.append((labels(name=name), readings.moving_average(("all topics", name), total[number], now_ms)))
        samples += [
            (labels(name=name, topic=topic), readings.moving_average(("topic", name, topic), entry[number], now_ms))
            for topic, entry in by_topic.items()
        ]
    readings.keep("topic", {("topic", name, topic) for _, name in AVERAGED for topic in by_topic})
    page.many(RATES, samples)


def request_rows(node: ObservedNode) -> list[RequestRow]:
    """The requests of all listeners, with Fetch also split by consumers and followers. If brokers and controllers both serve an API, only
    the broker's requests count."""
    rows: list[RequestRow] = []
    broker = node.broker
    for dispatcher in (None if broker is None else broker.dispatcher, node.controller_dispatcher):
        if dispatcher is None:
            continue
        reported = {row[0] for row in rows}
        is_broker = broker is not None and dispatcher is broker.dispatcher
        for entry in dispatcher.entries:
            if entry.name not in reported and (entry.count or (is_broker and entry.name in ALWAYS)):
                rows.append((entry.name, entry.counts, entry.errors, dispatcher.times))
            if entry.name == "Fetch" and is_broker and broker is not None:
                followers = broker.fetch.follower_counts
                consumers = [all_of - some for all_of, some in zip(entry.counts, followers, strict=True)]
                rows += [("FetchConsumer", consumers, {}, dispatcher.times), ("FetchFollower", followers, {}, dispatcher.times)]
    return rows


def requests(page: Page, rows: list[RequestRow]) -> None:
    """Counts of requests and of errors."""
    prefix = "kafka_network_requestmetrics"
    page.many(
        f"{prefix}_requests_total",
        [
            (labels(request=name, version=str(version)), count)
            for name, counts, _, _ in rows
            for version, count in enumerate(counts)
            if count or (version + 1 == len(counts) and not sum(counts))
        ],
    )
    samples = []
    for name, counts, errors, _ in rows:
        if name.startswith("Fetch") and name != "Fetch":
            continue
        samples.append((labels(request=name, error="NONE"), max(sum(counts) - sum(errors.values()), 0)))
        samples += [(labels(request=name, error=_name_of(code)), count) for code, count in errors.items()]
    page.many(f"{prefix}_errors_total", samples)


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def phases(rows: list[RequestRow]) -> Iterator[tuple[str, Any]]:
    """(name of the family, its samples) for each phase of requests."""
    names = [name for name, _ in QUANTILES]
    for phase in PHASES:
        yield (
            f"kafka_network_requestmetrics_{phase}timems",
            [
                ({"request": name}, zip(names, times.quantiles(name, phase), strict=True), sum(counts))
                for name, counts, _, times in rows
                if times is not None
            ],
        )


def connections(page: Page, node: ObservedNode, readings: Readings) -> None:
    """Connections by listener, and by client software."""
    now_ms = node.environment.clock.now_ms()
    rows: dict[str, list[tuple[dict[str, str], float]]] = {}
    refused, blocked, paused, sending = [], [], 0, 0
    for name, listener in node.listeners.items():
        where = {"listener": name, "networkProcessor": "0"}
        open_ones = list(getattr(listener, "connections", {}).values())
        accepted, closed = getattr(listener, "accepted_total", 0), getattr(listener, "closed_total", 0)
        paused += sum(connection.paused for connection in open_ones)
        sending += sum(connection.is_sending for connection in open_ones)
        values = {
            "connection_count": len(open_ones),
            "connection_creation_total": accepted,
            "connection_creation_rate": readings.rate(("creation", name), accepted, now_ms),
            "connection_close_total": closed,
            "connection_close_rate": readings.rate(("close", name), closed, now_ms),
        }
        for metric, value in values.items():
            rows.setdefault(metric, []).append((where, value))
        refused.append(({"listener": name}, getattr(listener, "refused_total", 0)))
        blocked.append(({"listener": name}, readings.rate(("blocked", name), getattr(listener, "blocked_s", 0.0), now_ms)))
    for metric, samples in rows.items():
        page.labelled(f"kafka_server_socket_server_metrics_{metric}", samples)
    page.labelled("kafka_server_socket_server_metrics_connections_software", _software(node))
    page.labelled("minikafka_connections_refused_total", refused)
    page.labelled("kafka_network_acceptor_acceptorblocked_percent", blocked)
    page.one("kafka_network_requestchannel_requestqueuesize", paused)
    page.one("kafka_network_requestchannel_responsequeuesize", sending)


def _software(node: ObservedNode) -> list[tuple[dict[str, str], float]]:
    dispatchers = [node.controller_dispatcher, None if node.broker is None else node.broker.dispatcher]
    counts: dict[tuple[str, str, str], int] = {}
    for dispatcher in dispatchers:
        for software in () if dispatcher is None else list(dispatcher.software.values()):
            counts[software] = counts.get(software, 0) + 1
    return [
        ({"clientSoftwareName": name, "clientSoftwareVersion": version, "listener": listener, "networkProcessor": "0"}, count)
        for (listener, name, version), count in counts.items()
    ]


def groups(page: Page, node: ObservedNode) -> None:
    """Groups that this broker coordinates."""
    assert node.broker is not None
    host = node.broker.groups
    counts = host.group_counts
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    page.one(f"{prefix}_numgroups", sum(counts.values()))
    for state in GROUP_STATES:
        page.one(f"{prefix}_numgroups{state.lower()}", counts.get(state, 0))
    offsets = sum(len(shard.offsets.of_group(group)) for shard in host.loaded_shards() for group, *_ in shard.listed())
    page.one(f"{prefix}_numoffsets", offsets)


def transactions(page: Page, node: ObservedNode, readings: Readings) -> None:
    """Transactions that this broker coordinates."""
    assert node.broker is not None
    host, clock = node.broker.transactions, node.environment.clock
    now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
    found = [transaction for shard in host.loaded_shards() for transaction in shard.transactions]
    begun = [transaction.start_ms for transaction in found if transaction.state is TransactionState.ONGOING]
    values = {
        "partition_load_time_max": host.loads.largest(now_ms),
        "partition_load_time_avg": host.loads.average(now_ms),
        "partitions_total_size": len(host.loaded_shards()),
        "transactional_id_count": len(found),
        "active_transaction_total_time_max": max(wall_ms - min(begun, default=wall_ms), 0),
        "transaction_timeout_count": host.timeouts,
        "transaction_timeout_rate": readings.rate("transaction timeouts", host.timeouts, now_ms),
    }
    for name, value in values.items():
        page.one(f"kafka_server_transaction_coordinator_metrics_{name}", value)


def waiting(page: Page, node: ObservedNode) -> None:
    """Parked requests and fetch sessions."""
    assert node.broker is not None
    waiting, sessions = node.broker.replicas.waiting, node.broker.fetch.sessions
    purgatories = (("Produce", waiting.produces), ("Fetch", waiting.fetches), ("DeleteRecords", waiting.deletes))
    prefix = "kafka_server_delayedoperationpurgatory"
    page.labelled(f"{prefix}_numdelayedoperations", [({"delayedOperation": name}, len(found)) for name, found in purgatories])
    sizes = [({"delayedOperation": name}, sum(map(len, found.watched.values()))) for name, found in purgatories]
    page.labelled(f"{prefix}_purgatorysize", sizes)
    prefix = "kafka_server_fetchsessioncache"
    page.one(f"{prefix}_numincrementalfetchsessions", len(sessions))
    page.one(f"{prefix}_numincrementalfetchpartitionscached", sessions.partitions_count)
    page.one(f"{prefix}_incrementalfetchsessionevictions_total", sessions.evictions)
