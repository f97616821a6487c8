"""A large consumer group (KIP-848): how long it takes to settle, what it costs the coordinator, and what a member's death costs the others.

    python tests/bench/consumer_groups.py --members 100 --partitions 1000
    python tests/bench/consumer_groups.py --members 1000 --partitions 10000 --interval-ms 1000

Members are bare heartbeats over a few connections, so that they cost less than what is measured. Shown are the time from the last join
until every partition is owned and every member has reached the last epoch, the processor time of the broker from the first join on, and its
share of a core while the group is quiet. Then one member falls silent. Shown are the time from the end of its session until others own its
partitions, how many partitions the others had to give up, which would be their pause, and their slowest heartbeat before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from minikafka.client.admin import Admin
from minikafka.client.cluster import Cluster
from minikafka.client.group import find_coordinator
from minikafka.testing.cluster import ProcessCluster
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

QUIET_S = 10
CONNECTIONS = 8
MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Member:
    """Owns what it is told, and gives up at once."""

    def __init__(self, number: int) -> None:
        self.member_id = f"member-{number:05}"
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.reported: dict[bytes, list[int]] = {}
        self.beats = 0
        self.refused: Counter[str] = Counter()
        #: Partitions that it had to give up, and its slowest heartbeat, since `look_afresh`.
        self.given_up = 0
        self.slowest_s = 0.0

    def look_afresh(self) -> None:
        """Forget what was seen so far."""
        self.given_up, self.slowest_s = 0, 0.0

    async def beat(self, channel: Any, topics: list[str]) -> None:
        """One heartbeat."""
        request = ConsumerGroupHeartbeatRequest(group_id="bench", member_id=self.member_id, member_epoch=self.epoch)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.subscribed_topic_names, request.topic_partitions = 60_000, topics, []
        elif self.reported != self.owned:
            entry = ConsumerGroupHeartbeatRequest.TopicPartitions
            request.topic_partitions = [entry(topic_id=topic_id, partitions=found) for topic_id, found in self.owned.items()]
        reported = dict(self.owned)
        begun = time.monotonic()
        answer = cast(ConsumerGroupHeartbeatResponse, await channel.request(request, 1, 120_000))
        self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
        if answer.error_code in MOVED:
            self.refused[ErrorCode(answer.error_code).name] += 1
            await asyncio.sleep(0.1)
            return
        assert not answer.error_code, answer
        self.epoch, self.reported = answer.member_epoch, reported
        self.beats += 1
        if answer.assignment is not None:
            before = partitions_of(self)
            self.owned = {topic.topic_id: list(topic.partitions) for topic in answer.assignment.topic_partitions}
            self.given_up += len(before - partitions_of(self))

    async def live(self, channel: Any, topics: list[str], interval_s: float) -> None:
        """Heartbeats for ever; at once when there is something to tell."""
        while True:
            begun = time.monotonic()
            await self.beat(channel, topics)
            if self.reported == self.owned:
                await asyncio.sleep(max(interval_s - (time.monotonic() - begun), 0))


def partitions_of(*members: Member) -> set[tuple[bytes, int]]:
    """What members own."""
    return {(topic_id, index) for member in members for topic_id, found in member.owned.items() for index in found}


def processor_s(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(cluster: ProcessCluster, options: argparse.Namespace) -> None:
    """The figures."""
    topics = [f"t{number:03}" for number in range(options.topics)]
    async with Admin(cluster.bootstrap) as admin:
        for name in topics:
            await admin.create_topic(name, partitions=options.partitions // options.topics, replication_factor=options.brokers)
    meta = Cluster(cluster.bootstrap)
    coordinator = await find_coordinator(meta, "bench", 60_000)
    channels = [await meta.channel_at(coordinator.host, coordinator.port, f"bench-{number}") for number in range(CONNECTIONS)]
    members = [Member(number) for number in range(options.members)]
    process = cluster.nodes[coordinator.node_id].process
    assert process is not None
    pid = process.pid
    used_s, begun = processor_s(pid), time.monotonic()
    interval_s = options.interval_ms / 1000
    lives = [member.live(channels[number % CONNECTIONS], topics, interval_s) for number, member in enumerate(members)]
    tasks = [asyncio.ensure_future(life) for life in lives]
    await until(lambda: all(member.epoch for member in members), tasks)
    joined = time.monotonic()
    await until(lambda: is_settled(members, options.partitions), tasks)
    settled = time.monotonic()
    print(
        f"{options.members} members, {options.partitions} partitions, {options.brokers} broker(s), a heartbeat in {options.interval_ms} ms:"
        f" all joined after {joined - begun:.2f} s, settled {settled - joined:.2f} s later;"
        f" {processor_s(pid) - used_s:.2f} s of processor time of the coordinator's broker;"
        f" refused meanwhile: {dict(sum((member.refused for member in members), Counter())) or 'none'}"
    )
    used_s, beats = processor_s(pid), sum(member.beats for member in members)
    for member in members:
        member.look_afresh()
    await asyncio.sleep(QUIET_S)
    beats = sum(member.beats for member in members) - beats
    share = (processor_s(pid) - used_s) / QUIET_S
    print(f"quiet: {beats / QUIET_S:.0f} heartbeats a second, {100 * share:.1f} % of a core; load average {os.getloadavg()[0]:.1f}")
    await death(members, tasks, options)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await meta.close()


async def death(members: list[Member], tasks: list[asyncio.Future[None]], options: argparse.Namespace) -> None:
    """One member falls silent; what that costs the others."""
    session_s = options.session_ms / 1000
    slowest_before_s = max(member.slowest_s for member in members)
    others, dying = members[1:], tasks.pop(0)
    dying.cancel()
    begun = time.monotonic()
    for member in others:
        member.look_afresh()
    await until(lambda: is_settled(others, options.partitions), tasks)
    print(
        f"a member died: others own its {len(partitions_of(members[0]))} partitions {time.monotonic() - begun - session_s:.2f} s"
        f" after its session of {session_s:.0f} s; they gave up {sum(member.given_up for member in others)} partitions;"
        f" slowest heartbeat {1000 * max(member.slowest_s for member in others):.0f} ms ({1000 * slowest_before_s:.0f} ms before)"
    )


async def until(condition: Callable[[], bool], tasks: list[asyncio.Future[None]], timeout_s: float = 300) -> None:
    """Wait. A member that fails ends the measurement."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.01)


def is_settled(members: list[Member], partitions: int) -> bool:
    """Whether all are in one epoch, and everything is owned once."""
    if len({member.epoch for member in members}) != 1:
        return False
    count = sum(len(found) for member in members for found in member.owned.values())
    return count == partitions == len(partitions_of(*members))


def main() -> None:
    """Figures of one group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--interval-ms", type=int, default=100)
    parser.add_argument("--session-ms", type=int, default=10_000, help="a busy machine needs more")
    options = parser.parse_args()
    properties = {
        "group.consumer.heartbeat.interval.ms": str(options.interval_ms), "group.consumer.min.heartbeat.interval.ms": "1",
        "offsets.topic.num.partitions": "1", "broker.session.timeout.ms": "60000",
        "group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": str(options.session_ms),
    }  # fmt: skip
    with ProcessCluster(options.brokers, properties=properties) as cluster:
        asyncio.run(measure(cluster, options))


if __name__ == "__main__":
    main()
