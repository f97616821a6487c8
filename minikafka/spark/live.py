"""Adds remote replicas to a plan: a running cluster is audited by fetching raw batches directly from each replica."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from minikafka.addresses import host_port
from minikafka.spark.claims import COORDINATOR_TOPICS
from minikafka.spark.directories import LogDirectory
from minikafka.spark.fetch_client import (
    LEADER_NOT_AVAILABLE,
    OFFSET_NOT_AVAILABLE,
    OUT_OF_RANGE,
    UNKNOWN_PARTITION,
    BrokerError,
    ClusterState,
    Connection,
    Fetched,
    Place,
    first_answer,
    name_of,
)
from minikafka.spark.findings import Finding, FindingList
from minikafka.spark.metadata_log import PartitionClaim
from minikafka.spark.security import Security
from minikafka.spark.sources import COMPACT, UNKNOWN, Plan, Replica, Segment, cleaned_by_itself

PARTITIONS_A_REQUEST = 500
SPLIT_BYTES = 512 << 20
#: Assumed size of a log per offset, if its broker does not report the size.
BYTES_AN_OFFSET = 100
FOLLOWERS_WAIT_S = 10.0


def add_live_replicas(
    plan: Plan, bootstrap: str, security: Security, topics: Iterable[str], partitions: Iterable[tuple[str, int]], each_max: int,
    split_bytes: int = SPLIT_BYTES,
) -> None:  # fmt: skip
    """Add every replica of the running cluster to the plan. Raises BrokerError if no broker answers, ValueError.

    Each replica's claim is [its log start, its high watermark) at the plan's instant, as the replica reports it. If a broker's log
    directory is already in the plan, its remote copy is named `node/live`. A log of more than `split_bytes` is divided into ranges of
    offsets, each read by its own task.
    """
    topic_names, only = list(topics), set(partitions)
    state = first_answer(bootstrap, security, topic_names)
    for name in state.unknown:
        if name in topic_names:
            raise BrokerError(f"topic {name} does not exist")
    cluster_ids = {directory.cluster_id for directory in plan.directories if directory.cluster_id}
    if cluster_ids and state.cluster_id and state.cluster_id not in cluster_ids:
        text = f"the running cluster is {state.cluster_id}, but the directories belong to {', '.join(cluster_ids)}"
        plan.findings.add(Finding("cluster-id", text))
    brokers_with_directories = {directory.broker for directory in plan.directories}
    by_broker: dict[int, list[tuple[str, int]]] = {}
    for key, partition in state.partitions.items():
        if not only or key in only:
            for node in partition.replicas:
                by_broker.setdefault(node, []).append(key)
    ignorant = _wait_for_leaders(state, security, {key for keys in by_broker.values() for key in keys})
    plan.instant_ms = time.time_ns() // 1_000_000
    compacted = _compacted(state, security, {key[0] for keys in by_broker.values() for key in keys})
    asked: list[tuple[int, str, Place | None, list[tuple[str, int]]]] = []
    for node, keys in sorted(by_broker.items()):
        name = f"{node}/live" if str(node) in brokers_with_directories else str(node)
        place = Place(*state.brokers[node], security) if node in state.brokers else None
        path = f"kafka://{host_port(place.host, place.port)}" if place else "kafka:// (down)"
        plan.directories.append(LogDirectory(path, name, state.cluster_id, clean=False))
        asked.append((node, name, place, sorted(keys)))
    for of_coordinators in (True, False):  # first the committed offsets of groups, then the logs that they refer to
        for node, name, place, keys in asked:
            chosen = [key for key in keys if (key[0] in COORDINATOR_TOPICS) == of_coordinators]
            _probe(plan, state, node, name, place, chosen, each_max, split_bytes)
    _report_ignorant(plan, ignorant)
    behind = _wait_for_followers(plan)
    _limit_cleaners(plan, compacted)
    if behind:
        _report_behind(behind, first_answer(bootstrap, security, topic_names))


def live_claims(bootstrap: str, security: Security) -> dict[tuple[str, int], PartitionClaim]:
    """What the controller says now of every partition. Raises BrokerError."""
    state = first_answer(bootstrap, security, [])
    return {key: _claim(state, key) for key in state.partitions}


def identity(bootstrap: str, security: Security, topics: Iterable[str]) -> tuple[str, dict[str, str]]:
    """The cluster id, and the topic ids if the brokers report them (since Kafka 2.8). Raises BrokerError."""
    names = sorted(set(topics))
    state = first_answer(bootstrap, security, names)
    for host, port in state.brokers.values() if names else ():
        with contextlib.suppress(BrokerError), Connection(host, port, security) as connection:
            return state.cluster_id, connection.topic_ids(names)
    return state.cluster_id, {}


def _wait_for_leaders(state: ClusterState, security: Security, keys: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Wait until the leaders know what is committed. After an election a leader learns it from its followers' next fetches, and until then
    its high watermark may be too small, as it tells consumers that look for the end (KIP-207). Returns the partitions whose leaders still
    do not know it."""
    deadline, waiting = time.monotonic() + FOLLOWERS_WAIT_S, sorted(keys)
    while True:
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for key in waiting:
            by_leader.setdefault(state.partitions[key].leader, []).append(key)
        places = {leader: Place(*state.brokers[leader], security) for leader in by_leader if leader in state.brokers}
        waiting = [key for leader, place in places.items() for key in _unknown_to(place, by_leader[leader])]
        if not waiting or time.monotonic() > deadline:
            return set(waiting)
        time.sleep(0.05)


def _unknown_to(place: Place, keys: list[tuple[str, int]]) -> list[tuple[str, int]]:
    found: dict[tuple[str, int], tuple[int, int]] = {}
    with contextlib.suppress(BrokerError), Connection(place.host, place.port, place.security) as connection:
        for start in range(0, len(keys), PARTITIONS_A_REQUEST):
            found |= connection.latest(keys[start : start + PARTITIONS_A_REQUEST])
    return [key for key, (error, _) in found.items() if error in (LEADER_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE)]


def _report_ignorant(plan: Plan, ignorant: set[tuple[str, int]]) -> None:
    for one in (one for key in sorted(ignorant) for one in plan.replicas.get(key, ())):
        if one.place is not None and one.claim is not None and one.node == one.claim.leader:
            text = f"its leader, broker {one.node}, has not learned since its election what is committed, beyond {one.high_watermark}"
            found = Finding("not-compared", text, one.topic, one.partition, (one.broker,), one.high_watermark, details={"lags": True})
            one.findings.add(found)


def _report_behind(behind: list[tuple[Replica, int]], state: ClusterState) -> None:
    """Report replicas that are still in sync but whose high watermark lags: their records above it were not read."""
    for one, high_watermark in behind:
        now = state.partitions.get((one.topic, one.partition))
        if now is not None and int(one.node) in now.isr:
            text = f"broker {one.node} is in sync, but considers offsets committed only up to {one.high_watermark}, "
            text += f"another replica up to {high_watermark}"
            text += f", also {FOLLOWERS_WAIT_S:.0f} s later: what it holds from there on was not compared"
            found = Finding("not-compared", text, one.topic, one.partition, (one.broker,), one.high_watermark, details={"lags": True})
            one.findings.add(found)


def _wait_for_followers(plan: Plan) -> list[tuple[Replica, int]]:
    """Wait until the in-sync followers, which learn the high watermark with their next fetch, reach the largest one first reported.
    Returns the replicas that answer but do not reach it, with the high watermark that they should have."""
    deadline = time.monotonic() + FOLLOWERS_WAIT_S
    high_watermarks = {key: max((one.high_watermark for one in copies if one.place), default=0) for key, copies in plan.replicas.items()}
    silent: set[int] = set()  # reading them will show why: records were deleted, or the replica is gone
    while True:
        behind: dict[Place, dict[tuple[str, int], Replica]] = {}
        for key, copies in plan.replicas.items():
            for one in copies:
                is_in_sync = one.claim is not None and one.node in one.claim.isr
                if one.place and one.high_watermark < high_watermarks[key] and is_in_sync and id(one) not in silent:
                    behind.setdefault(one.place, {})[key] = one
        if not behind or time.monotonic() > deadline:
            return [(one, high_watermarks[key]) for replicas in behind.values() for key, one in replicas.items()]
        time.sleep(0.05)
        for place, replicas in behind.items():
            with contextlib.suppress(BrokerError), Connection(place.host, place.port, place.security) as connection:
                offsets = {key: one.log_start for key, one in replicas.items()}
                for key, found in connection.fetch(offsets, 1, partition_bytes_max=1).items():
                    if found.error:
                        silent.add(id(replicas[key]))
                    else:
                        replicas[key].high_watermark = min(max(replicas[key].high_watermark, found.high_watermark), high_watermarks[key])


def _compacted(state: ClusterState, security: Security, topics: set[str]) -> set[str]:
    for host, port in state.brokers.values():
        try:
            with Connection(host, port, security) as connection:
                return connection.compacted(sorted(topics)) if topics else set()
        except BrokerError:
            continue
    return set()


def _limit_cleaners(plan: Plan, compacted: set[str]) -> None:
    """Note how far cleaners may have come. No broker tells this over the network, and its cleaner goes on while it is read: the limit is
    its high watermark, also for the holes that a replica in a given directory copied from it. A directory's own history may say that a
    topic was compacted once, a broker that it is compacted by its own configuration."""
    for key, copies in plan.replicas.items():
        wired = [one for one in copies if one.place is not None]
        if not wired or (key[0] not in compacted and all(one.policy != COMPACT for one in copies)):
            continue
        for one in wired:
            one.policy, one.cleaned = COMPACT, one.high_watermark
        for one in copies:
            if one.policy != COMPACT:
                one.policy, one.cleaned = COMPACT, 0 if one.is_future else cleaned_by_itself(one)
        limit = max(max(one.cleaned, one.cleaned_to) for one in copies)
        for one in copies:
            one.cleaned_to = limit


def _probe(
    plan: Plan, state: ClusterState, node: int, name: str, place: Place | None, keys: list[tuple[str, int]], each_max: int,
    split_bytes: int,
) -> None:  # fmt: skip
    """Ask one broker for the bounds of its replicas. Replicas without an answer become findings."""
    if not keys:
        return
    try:
        if place is None:
            raise BrokerError(f"broker {node} is not in the cluster")
        with Connection(place.host, place.port, place.security) as connection:
            for start in range(0, len(keys), PARTITIONS_A_REQUEST):
                chosen = keys[start : start + PARTITIONS_A_REQUEST]
                bounds, sizes = _bounds(connection, chosen), _sizes(connection, chosen)
                for key, found in bounds.items():
                    if isinstance(found, int):
                        _absent(plan, state, key, name, node, f"broker {node} does not serve it: {name_of(found)}")
                    else:
                        stretches = stretches_of(found, sizes.get(key, -1), split_bytes)
                        _add(plan, state, key, name, place, found, each_max, stretches)
    except BrokerError as error:
        for key in keys:
            _absent(plan, state, key, name, node, error.text)


def _bounds(connection: Connection, keys: list[tuple[str, int]]) -> dict[tuple[str, int], Fetched | int]:
    """{partition: (bounds) or error code}, for all of `keys`, whatever an answer leaves out. The log start comes first, so that the fetch
    lies inside the log."""
    starts = connection.earliest(keys)
    inside = {key: offset for key, (error, offset) in starts.items() if not error and offset >= 0}
    result: dict[tuple[str, int], Fetched | int] = dict.fromkeys(keys, UNKNOWN_PARTITION)
    result |= {key: error or OUT_OF_RANGE for key, (error, _) in starts.items() if key not in inside}
    for key, found in (connection.fetch(inside, 1, partition_bytes_max=1) if inside else {}).items():
        if found.error:
            result[key] = found.error
        else:
            found.log_start = max(found.log_start, inside[key])
            result[key] = found
    return result


def _sizes(connection: Connection, keys: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The sizes of the logs in bytes; empty if this user is not authorized."""
    try:
        return connection.sizes(keys)
    except BrokerError as error:
        if error.is_away:
            raise
        return {}


def stretches_of(found: Fetched, size: int, split_bytes: int) -> list[Segment]:
    """The offsets that a replica answers for, in ranges of about `split_bytes`, assuming equally large batches. `size`: bytes of its log,
    -1 if the broker does not report it. If a range begins inside a batch, the batch belongs to the previous range."""
    begin, high_watermark = found.log_start, max(found.high_watermark, found.log_start)
    size = size if size >= 0 else max(len(found.records) if high_watermark > begin else 0, (high_watermark - begin) * BYTES_AN_OFFSET)
    count = max(1, min(-(-size // split_bytes), high_watermark - begin))
    return [Segment(begin + (high_watermark - begin) * number // count, size // count, ()) for number in range(count)]


def _claim(state: ClusterState, key: tuple[str, int]) -> PartitionClaim:
    partition = state.partitions[key]
    replicas, isr = tuple(map(str, partition.replicas)), tuple(map(str, partition.isr))
    return PartitionClaim("", replicas, isr, str(partition.leader), partition.leader_epoch, -1)


def _absent(plan: Plan, state: ClusterState, key: tuple[str, int], name: str, node: int, text: str) -> None:
    in_sync = node in state.partitions[key].isr
    finding = Finding("unreadable" if in_sync else "replica-offline", text, *key, brokers=(name,))
    plan.missing.setdefault(key, []).append(finding)


def _add(
    plan: Plan, state: ClusterState, key: tuple[str, int], name: str, place: Place, found: Fetched, each_max: int, stretches: list[Segment],
) -> None:  # fmt: skip
    begin, high_watermark = found.log_start, max(found.high_watermark, found.log_start)
    replica = Replica(
        *key, name, f"kafka://{host_port(place.host, place.port)}", stretches, [], False, high_watermark, True,
        begin, None, 0, findings=FindingList(each_max), place=place, node=name.partition("/")[0], policy=UNKNOWN,
    )  # fmt: skip
    replica.claim = _claim(state, key)
    plan.replicas.setdefault(key, []).append(replica)
