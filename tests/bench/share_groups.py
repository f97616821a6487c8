"""A share group (KIP-932): records a second that its members fetch and acknowledge one by one, and what a record costs the brokers.

    python tests/bench/share_groups.py [--kind kafka-next] [--members 10] [--partitions 12] [--records 500000] [--record-bytes 100]

Three combined nodes, three replicas of everything. The records are there before the members come. A member acknowledges what it has
fetched with its next fetch, one type a record (`--release-every N`: every Nth record of a batch is released first and comes again). Members
are bare requests in one process, so that they cost less than what is measured. `--kind kafka-next` measures Apache Kafka 4.4.0 instead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from confluent_kafka import Producer
from helpers.ledger import create_topic
from helpers.mixed_cluster import BOTH, KAFKA_NEXT, MINI, MixedCluster

from minikafka.client.cluster import Cluster
from minikafka.client.group import find_coordinator
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from minikafka.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from minikafka.wire.uuid import uuid_to_text

ACCEPT, RELEASE = 1, 2
GROUP, TOPIC = "bench", "t"
GROUP_RESOURCE = 32
TIMEOUT_MS = 60_000
REPLICATED = {
    "share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "12", "broker.session.timeout.ms": "20000", "group.share.assignment.interval.ms": "0",
}  # fmt: skip
Partition = tuple[bytes, int]
Acquired = tuple[int, int, int]


class Session:
    """A member's share session with one broker."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.epoch = 0
        self.partitions: set[Partition] = set()
        self.fetched: dict[Partition, list[Acquired]] = {}


class Member:
    """One member: it fetches from every leader at once."""

    def __init__(self, meta: Cluster, number: int, options: argparse.Namespace) -> None:
        self._meta, self._options = meta, options
        self._client = f"bench-{number}"
        self.member_id = uuid_to_text(os.urandom(16))
        self.epoch = 0
        self.assigned: list[Partition] = []
        self.accepted = self.fetches = 0
        self._sessions: dict[int, Session] = {}

    async def join(self) -> None:
        """Until it has partitions."""
        coordinator = await find_coordinator(self._meta, GROUP, TIMEOUT_MS)
        channel = await self._meta.channel_at(coordinator.host, coordinator.port, self._client)
        while not self.assigned:
            names = [TOPIC] if self.epoch == 0 else None
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch, subscribed_topic_names=names
            )
            answer: Any = await channel.request(request, None, TIMEOUT_MS)
            if answer.error_code == ErrorCode.NONE:
                self.epoch = answer.member_epoch
                if answer.assignment is not None:
                    self.assigned = [(one.topic_id, index) for one in answer.assignment.topic_partitions for index in one.partitions]
            await asyncio.sleep(0.1)

    async def live(self) -> None:
        """Heartbeats and fetches for ever."""
        by_leader: dict[int, set[Partition]] = {}
        for topic_id, index in self.assigned:
            leader = (await self._meta.leader(TOPIC, index, timeout_ms=TIMEOUT_MS)).leader
            by_leader.setdefault(leader, set()).add((topic_id, index))
        await asyncio.gather(self._beat(), *(self._fetch_from(leader, found) for leader, found in by_leader.items()))

    async def _beat(self) -> None:
        coordinator = await find_coordinator(self._meta, GROUP, TIMEOUT_MS)
        channel = await self._meta.channel_at(coordinator.host, coordinator.port, self._client)
        while True:
            await asyncio.sleep(2)
            request = ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=self.epoch)
            answer: Any = await channel.request(request, None, TIMEOUT_MS)
            # On a busy machine the coordinator may move.
            if answer.error_code == ErrorCode.NONE:
                self.epoch = answer.member_epoch
            else:
                assert answer.error_code == ErrorCode.NOT_COORDINATOR, answer
                coordinator = await find_coordinator(self._meta, GROUP, TIMEOUT_MS)
                channel = await self._meta.channel_at(coordinator.host, coordinator.port, self._client)

    async def _fetch_from(self, leader: int, partitions: set[Partition]) -> None:
        session = Session(await self._meta.channel_to(leader, self._client))
        while True:
            request = self._request(session, partitions)
            given = {key: found for key, found in session.fetched.items() if found}
            session.fetched = {}
            answer: Any = await session.channel.request(request, None, TIMEOUT_MS)
            self._take(session, answer, given)
            session.partitions = partitions

    def _request(self, session: Session, partitions: set[Partition]) -> ShareFetchRequest:
        kind = ShareFetchRequest
        new = partitions - session.partitions
        topics = [
            kind.FetchPartition(partition_index=key[1], acknowledgement_batches=self._batches(session.fetched.get(key, [])))
            for key in sorted(new | session.fetched.keys())
        ]
        topic_id = next(iter(partitions))[0]
        return kind(
            group_id=GROUP, member_id=self.member_id, share_session_epoch=session.epoch, max_wait_ms=500, min_bytes=1, max_bytes=50 << 20,
            max_records=500, batch_size=500, share_acquire_mode=0, topics=[kind.FetchTopic(topic_id=topic_id, partitions=topics)],
            forgotten_topics_data=[],
        )  # fmt: skip

    def _batches(self, acquired: list[Acquired]) -> list[ShareFetchRequest.AcknowledgementBatch]:
        kind = ShareFetchRequest.AcknowledgementBatch
        found = []
        for first, last, count in acquired:
            types = [ACCEPT] * (last - first + 1)
            if self._options.release_every and count == 1:
                types[:: self._options.release_every] = [RELEASE] * len(types[:: self._options.release_every])
            found.append(kind(first_offset=first, last_offset=last, acknowledge_types=types))
        return found

    def _take(self, session: Session, answer: ShareFetchResponse, given: dict[Partition, list[Acquired]]) -> None:
        assert answer.error_code == ErrorCode.NONE, answer.error_code
        session.epoch += 1
        self.fetches += 1
        for topic in answer.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                assert data.error_code == data.acknowledge_error_code == ErrorCode.NONE, (data.error_code, data.acknowledge_error_code)
                session.fetched[key] = [(one.first_offset, one.last_offset, one.delivery_count) for one in data.acquired_records]
        for batch in (batch for batches in given.values() for batch in self._batches(batches)):
            self.accepted += sum(kind == ACCEPT for kind in batch.acknowledge_types)


def processor_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fill(bootstrap: str, options: argparse.Namespace) -> None:
    """The records, evenly over the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(options.records):
        producer.produce(TOPIC, b"x" * options.record_bytes, partition=number % options.partitions)
        if number % 10_000 == 0:
            producer.poll(0.01)
    assert producer.flush(120) == 0


async def measure(cluster: MixedCluster, options: argparse.Namespace) -> None:
    """The figures."""
    meta = Cluster(cluster.bootstrap)
    await meta.refresh([TOPIC])
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=[config])
    channel = await meta.channel_at("127.0.0.1", next(iter(cluster.nodes.values())).port, "setup")
    await channel.request(kind(resources=[resource]), None, TIMEOUT_MS)
    members = [Member(meta, number, options) for number in range(options.members)]
    await asyncio.gather(*(member.join() for member in members))
    pids = [node.process.pid for node in cluster.nodes.values() if node.process is not None]

    def used() -> tuple[float, float]:
        return sum(map(processor_s, pids)), time.process_time()

    tasks = [asyncio.ensure_future(member.live()) for member in members]
    (brokers_s, own_s), begun = used(), time.monotonic()
    while (accepted := sum(member.accepted for member in members)) < options.records:
        assert time.monotonic() < begun + options.limit_s, f"{accepted} records"
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.02)
    took_s = time.monotonic() - begun
    brokers_s, own_s = used()[0] - brokers_s, used()[1] - own_s
    fetches = sum(member.fetches for member in members)
    print(
        f"{options.kind}: {options.members} members, {options.partitions} partitions: {accepted / took_s:,.0f} records/s acknowledged"
        f" ({accepted / fetches:.0f} a fetch); {brokers_s / accepted * 1e6:.1f} us of processor time a record in the three brokers,"
        f" {own_s / accepted * 1e6:.1f} in the members; load average {os.getloadavg()[0]:.1f}"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await meta.close()


def main() -> None:
    """Figures of one group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=(MINI, KAFKA_NEXT), default=MINI)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--release-every", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=300.0)
    options = parser.parse_args()
    nodes = [(node_id, options.kind, BOTH) for node_id in (1, 2, 3)]
    with tempfile.TemporaryDirectory() as name, MixedCluster(Path(name), nodes, properties=REPLICATED) as cluster:
        cluster.format()
        cluster.start(wait=False)
        cluster.wait_for_brokers(240)
        create_topic(cluster.bootstrap, TOPIC, options.partitions, 3)
        fill(cluster.bootstrap, options)
        asyncio.run(measure(cluster, options))


if __name__ == "__main__":
    main()
