"""A view of the whole cluster for the page /ui and for /v1/cluster: this broker's metadata, and offsets and sizes from all brokers, through
Kafka's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minikafka.addresses import host_port
from minikafka.broker.front.turns import in_steps
from minikafka.broker.observe.clients_view import clients_that_push
from minikafka.broker.observe.last_audit import LastAudit
from minikafka.broker.observe.shows_records import shows_records
from minikafka.client.errors import ClientError
from minikafka.net.tasks import within
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.list_offsets import ListOffsetsRequest

if TYPE_CHECKING:
    from minikafka.broker.observe.observed import ObservedNode
    from minikafka.broker.partitions.partition import Partition
    from minikafka.client.maintenance import Maintenance

LATEST, EARLIEST = -1, -2
GROUPS_MAX = 50
ASK_TIMEOUT_S = 2.0
AGE_S_MAX = 1.0
INTERNAL_PREFIX = "__"
Key = tuple[str, int]
#: Broker in service -> its replicas: (size in bytes, lag in records); None = it did not answer.
Disks = dict[int, dict[Key, tuple[int, int]] | None]
_UNREACHABLE = (ClientError, OSError, TimeoutError)


class ClusterView:
    """The cluster as JSON, at most a second old. Concurrent requests share one result."""

    def __init__(self, node: ObservedNode) -> None:
        self._node = node
        self._admin: Maintenance | None = None
        self._last_audit = LastAudit(node.config.minikafka_audit_report_dir)
        self._cached: dict[str, Any] = {}
        self._cached_s = float("-inf")
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Disconnect."""
        if self._admin is not None:
            await self._admin.close()

    async def get(self) -> dict[str, Any]:
        """The result of `_make`, at most AGE_S_MAX old."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._cached_s > AGE_S_MAX:
                self._cached, self._cached_s = await self._make(), now_s
            return self._cached

    async def _make(self) -> dict[str, Any]:
        """cluster_id, node_id, controller, brokers, partitions with replicas, groups, events (newest first), audit, clients.

        `behind_ms` of a replica is the time since it was caught up. Only the leader knows it, so it is None for other brokers' partitions.
        """
        node = self._node
        image = node.metadata.image
        fenced = {broker.broker_id for broker in image.brokers.values() if broker.fenced}
        offsets: dict[int, dict[Key, int]] = {LATEST: {}, EARLIEST: {}}
        disks: Disks = {}
        groups: list[dict[str, Any]] | None = None
        admin = await self.connected()
        if admin is not None:
            leaders = self._leaders(fenced)
            alive = [broker_id for broker_id in image.brokers if broker_id not in fenced]
            requests = [self._offsets(admin, n, keys, when) for when in (LATEST, EARLIEST) for n, keys in leaders.items()]
            ends, sizes, groups = await asyncio.gather(
                asyncio.gather(*requests), asyncio.gather(*(self._disk(admin, n) for n in alive)), self._groups(admin)
            )
            for part, when in zip(ends, [when for when in (LATEST, EARLIEST) for _ in leaders], strict=True):
                offsets[when].update(part)
            disks = dict(zip(alive, sizes, strict=True))
        raft = node.raft
        return {
            "cluster_id": node.cluster_id,
            "node_id": node.config.node_id,
            "controller": -1 if raft.leader_id is None else raft.leader_id,
            "controller_epoch": raft.leader_epoch,
            "brokers": self._brokers(disks),
            "partitions": [row async for row in in_steps(self._partitions(offsets, disks))],
            "groups": groups,
            "events": [
                {"wall_ms": e.wall_ms, "kind": e.kind, "topic": e.topic, "partition": e.partition, "text": e.text}
                for e in reversed(node.timeline.events)
            ],
            "audit": self._last_audit.get(),
            "clients": None if node.broker is None else clients_that_push(node.broker.client_metrics, node.environment.clock.now_ms()),
            "shows_records": shows_records(node),
        }

    async def connected(self) -> Maintenance | None:
        """The client for requests to brokers; None if this node is not a broker in service, or cannot connect."""
        node = self._node
        if node.broker is None or not node.ready.is_set():
            return None
        if self._admin is None:
            from minikafka.client.maintenance import Maintenance

            host, port, _ = node.registered_listeners[node.config.inter_broker_listener]
            self._admin = Maintenance(host_port(host, port), client_id="minikafka-ui", timeout_ms=int(ASK_TIMEOUT_S * 1000))
        try:
            await within(ASK_TIMEOUT_S, self._admin.cluster.refresh([]))
        except _UNREACHABLE:
            return None
        return self._admin

    def _leaders(self, fenced: Iterable[int]) -> dict[int, list[Key]]:
        found: dict[int, list[Key]] = {}
        for topic in self._node.metadata.image.topics_by_name.values():
            for index, p in topic.partitions.items():
                if p.leader >= 0 and p.leader not in fenced:
                    found.setdefault(p.leader, []).append((topic.name, index))
        return found

    async def _offsets(self, admin: Maintenance, node_id: int, keys: list[Key], when: int) -> dict[Key, int]:
        """Offsets of a leader's partitions, with one request."""
        topics: dict[str, list[Any]] = {}
        for topic, index in keys:
            topics.setdefault(topic, []).append(ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=when))
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
        )
        try:
            response: Any = await within(ASK_TIMEOUT_S, admin.cluster.request(request, node_id))
        except _UNREACHABLE:
            return {}
        return {
            (topic.name, p.partition_index): p.offset
            for topic in response.topics
            for p in topic.partitions
            if p.error_code == ErrorCode.NONE
        }

    @staticmethod
    async def _disk(admin: Maintenance, node_id: int) -> dict[Key, tuple[int, int]] | None:
        try:
            answer = (await within(ASK_TIMEOUT_S, admin.describe_log_dirs([node_id])))[node_id]
        except _UNREACHABLE:
            return None
        return {
            (topic.name, p.partition_index): (p.partition_size, p.offset_lag)
            for result in answer.results
            for topic in result.topics
            for p in topic.partitions
        }

    async def _groups(self, admin: Maintenance) -> list[dict[str, Any]] | None:
        """Groups with their lag. If a broker does not answer, the previous result, or None."""
        found = []
        try:
            for name, kind, state in (await within(ASK_TIMEOUT_S, admin.list_groups()))[:GROUPS_MAX]:
                if kind not in ("consumer", ""):
                    continue
                committed = await within(ASK_TIMEOUT_S, admin.group_offsets(name))
                ends = await within(ASK_TIMEOUT_S, admin.list_offsets(dict.fromkeys(committed, "latest")))
                members = len((await within(ASK_TIMEOUT_S, admin.describe_group(name))).members)
                lag = sum(max(ends[key].offset - offset, 0) for key, offset in committed.items())
                found.append({"group": name, "state": state, "members": members, "lag": lag})
        except _UNREACHABLE:
            before: list[dict[str, Any]] | None = self._cached.get("groups")
            return before
        return found

    def _brokers(self, disks: Disks) -> list[dict[str, Any]]:
        rows = []
        for broker in sorted(self._node.metadata.image.brokers.values(), key=lambda b: b.broker_id):
            name = self._node.config.inter_broker_listener
            host, port = (broker.listeners.get(name) or next(iter(broker.listeners.values()), ("", 0)))[:2]
            answers = not broker.fenced and disks.get(broker.broker_id) is not None
            row = {"id": broker.broker_id, "host": host, "port": port, "rack": broker.rack, "fenced": broker.fenced, "answers": answers}
            rows.append(row)
        return rows

    def _behind_ms(self, local: Partition | None, node_id: int) -> int | None:
        leader = None if local is None else local.leader
        follower = None if leader is None else leader.followers.get(node_id)
        if leader is None or follower is None:
            return None
        return follower.behind_ms(leader.log_end_offset, self._node.environment.clock.now_ms())

    def _partitions(self, offsets: dict[int, dict[Key, int]], disks: Disks) -> Iterable[dict[str, Any]]:
        node = self._node
        own = {} if node.broker is None else node.broker.replicas.partitions
        for name, topic in sorted(node.metadata.image.topics_by_name.items()):
            for index, p in sorted(topic.partitions.items()):
                key = (name, index)
                end = offsets[LATEST].get(key)
                replicas = []
                for node_id in p.replicas:
                    size, lag = (disks.get(node_id) or {}).get(key, (None, None))
                    local = own.get(key) if node_id == node.config.node_id else None
                    log_end = local.log.log_end_offset if local is not None else None if lag is None or end is None else max(end - lag, 0)
                    cut = sum(local.truncations.values()) if local is not None else 0
                    replicas.append(
                        {
                            "id": node_id,
                            "log_end_offset": log_end,
                            "lag": lag,
                            "behind_ms": self._behind_ms(own.get(key), node_id),
                            "size": size,
                            "truncations": cut,
                        }
                    )
                yield {
                    "topic": name,
                    "partition": index,
                    "internal": name.startswith(INTERNAL_PREFIX),
                    "leader": p.leader,
                    "leader_epoch": p.leader_epoch,
                    "isr": list(p.isr),
                    "log_start_offset": offsets[EARLIEST].get(key),
                    "high_watermark": end,
                    "replicas": replicas,
                }
