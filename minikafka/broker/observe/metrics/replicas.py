"""Replicas, followers, logs and their compaction."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from minikafka.broker.measures.request_times import QUANTILES
from minikafka.broker.observe.metrics.exposition import labels

if TYPE_CHECKING:
    from minikafka.broker.measures.readings import Readings
    from minikafka.broker.observe.metrics.exposition import Page
    from minikafka.broker.observe.observed import ObservedNode
    from minikafka.broker.partitions.partition import Partition

LOG_GAUGES = (
    "kafka_log_log_size",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
    "kafka_log_log_numlogsegments",
    "minikafka_partition_high_watermark",
    "minikafka_partition_leader_epoch",
)
LEADER_GAUGES = (
    "kafka_cluster_partition_underreplicated",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_insyncreplicascount",
    "kafka_cluster_partition_laststableoffsetlag",
)


def log_values(partition: Partition) -> tuple[int, ...]:
    """The values of LOG_GAUGES."""
    log = partition.log
    return log.size, log.log_start_offset, log.log_end_offset, len(log.segments), log.high_watermark, partition.leader_epoch


def leader_values(partition: Partition) -> tuple[int, ...]:
    """The values of LEADER_GAUGES."""
    leader = partition.leader
    if leader is None:
        return 0, 0, 0, 0, 0, 0  # it lost the leadership during the scrape
    in_sync, size = len(leader.isr.committed), len(leader.replicas)
    margin, log = in_sync - leader.min_isr, partition.log
    return int(in_sync < size), int(margin < 0), int(margin == 0), size, in_sync, max(log.high_watermark - log.last_stable_offset, 0)


def replicas(page: Page, node: ObservedNode, partitions: list[Partition], led: list[Partition]) -> None:
    """Counts of replicas, of changes of in-sync sets, and of truncations."""
    assert node.broker is not None
    manager, prefix = node.broker.replicas, "kafka_server_replicamanager"
    margins = [_isr_margin(p) for p in led]
    values: dict[str, float] = {
        "partitioncount": len(partitions),
        "leadercount": len(led),
        "underreplicatedpartitions": sum(map(_is_under_replicated, led)),
        "underminisrpartitioncount": sum(margin < 0 for margin in margins),
        "atminisrpartitioncount": sum(margin == 0 for margin in margins),
        "offlinereplicacount": sum(p.log.failure is not None for p in partitions),
        "reassigningpartitions": sum(p.registration is not None and p.registration.is_reassigning for p in led),
        "isrshrinks_total": manager.in_sync_sets.shrinks,
        "isrexpands_total": manager.in_sync_sets.expands,
        "failedisrupdates_total": manager.in_sync_sets.refusals,
        "straypartitionscount": manager.placement.strays,
        "straypartitionstotalsize": manager.placement.stray_bytes,
    }
    for name, value in values.items():
        page.one(f"{prefix}_{name}", value)
    rows = [
        (labels(topic=p.topic, partition=str(p.index), reason=reason), count)
        for p in partitions
        if p.truncations
        for reason, count in p.truncations.items()
    ]
    page.many("minikafka_log_truncations_total", rows)
    page.one("minikafka_log_truncated_records_total", manager.truncated_records)
    outcomes = node.broker.handover.outcomes
    page.labelled("minikafka_handover_produces_total", [({"outcome": name}, count) for name, count in outcomes.items()])


def _is_under_replicated(partition: Partition) -> int:
    leader = partition.leader
    return int(leader is not None and len(leader.isr.committed) < len(leader.replicas))


def _isr_margin(partition: Partition) -> int:
    leader = partition.leader
    return 0 if leader is None else len(leader.isr.committed) - leader.min_isr


def fetchers(page: Page, node: ObservedNode, readings: Readings) -> None:
    """The lag of this broker's followers."""
    assert node.broker is not None
    running = list(node.broker.replicas.fetchers.fetchers)
    now_ms = node.environment.clock.now_ms()
    rows: list[tuple[dict[str, str], float]] = []
    rates: list[float] = []
    kept: set[Hashable] = set()
    failed = 0
    for fetcher in running:
        client = f"ReplicaFetcherThread-{fetcher.key[1]}-{fetcher.leader_id}"
        kept.add(("fetcher", id(fetcher)))
        rates.append(readings.rate(("fetcher", id(fetcher)), fetcher.follower.fetches, now_ms))
        for key, partition in fetcher.partitions.items():
            log = partition.log
            failed += log.failure is not None
            behind = max(fetcher.follower.partitions[key].leader_high_watermark - log.log_end_offset, 0)
            rows.append(({"clientId": client, "topic": partition.topic, "partition": str(partition.index)}, behind))
    readings.keep("fetcher", kept)
    page.labelled("kafka_server_fetcherlagmetrics_consumerlag", rows)
    values = {
        "maxlag": max((lag for _, lag in rows), default=0),
        "minfetchrate": min(rates, default=0.0),
        "failedpartitionscount": failed,
        "deadthreadcount": 0,
    }
    for name, value in values.items():
        page.labelled(f"kafka_server_replicafetchermanager_{name}", [({"clientId": "Replica"}, value)])


def logs(page: Page, node: ObservedNode) -> None:
    """Log directories and syncs."""
    assert node.broker is not None
    page.one("kafka_log_logmanager_offlinelogdirectorycount", sum(directory.is_offline for directory in node.directories))
    rows = [({"logDirectory": directory.path}, int(directory.is_offline)) for directory in node.directories]
    page.labelled("kafka_log_logmanager_logdirectoryoffline", rows)
    flushes = node.broker.replicas.upkeep.flushes
    values = zip([name for name, _ in QUANTILES], flushes.quantiles(), strict=True)
    page.quantiles("kafka_log_logflushstats_logflushrateandtimems", [({}, values, flushes.count)])


def cleaner(page: Page, node: ObservedNode) -> None:
    """Compaction."""
    assert node.broker is not None
    cleaner, prefix = node.broker.cleaner, "kafka_log_logcleanermanager"
    unreadable = {directory.path: cleaner.uncleanable(directory) for directory in node.directories}
    counts = [({"logDirectory": path}, len(found)) for path, found in unreadable.items()]
    page.labelled(f"{prefix}_uncleanable_partitions_count", counts)
    sizes = [({"logDirectory": path}, sum(log.size for log in found)) for path, found in unreadable.items()]
    page.labelled(f"{prefix}_uncleanable_bytes", sizes)
    page.one(f"{prefix}_max_dirty_percent", int(100 * cleaner.dirtiest))
    since = 0 if cleaner.last_round_ms is None else node.environment.clock.now_ms() - cleaner.last_round_ms
    page.one(f"{prefix}_time_since_last_run_ms", since)
    prefix = "kafka_log_logcleaner"
    page.one(f"{prefix}_cleaner_recopy_percent", int(100 * cleaner.last_recopied))
    page.one(f"{prefix}_max_buffer_utilization_percent", int(100 * cleaner.last_map_filled))
    page.one(f"{prefix}_max_clean_time_secs", cleaner.last_took_ms / 1000)
    page.one(f"{prefix}_max_compaction_delay_secs", cleaner.overdue_ms / 1000)
    page.one(f"{prefix}_deadthreadcount", cleaner.is_dead)
    page.one("minikafka_cleaner_rounds_total", cleaner.rounds)
    page.one("minikafka_cleaner_read_bytes_total", cleaner.bytes_read)
    page.one("minikafka_cleaner_written_bytes_total", cleaner.bytes_written)
