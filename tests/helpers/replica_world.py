"""Replicas of one partition, driven by hand: the broker's own leader core, fetch reader, fetcher and logs; no sockets, no clock, no loop.

A scenario is a text of steps, one a line or separated by semicolons (`#` begins a comment):

    lead 1 [isr 1 2]   the controller elects 1 in the next epoch; every running replica that is not deaf hears of it at once
    deaf 3 / hear 3    replica 3 hears nothing of elections / hears the newest one
    produce x5 [acks=1]  the leader appends five records in one batch; their names are m0, m1 ... in order of writing
    fetch 2 [3 ...]    replica 2 asks whom it takes for the leader and deals with the answer
    ask 2 / take 2     the two halves of a fetch: the leader reads and answers / the follower deals with the answer
    sync [2 3]         fetches until nothing changes any more
    kill 2 / crash 2   the process dies; what it wrote stays / the power fails: what was not synced is lost
    start 2            comes back with the log that is on its disk (as a follower of whoever leads, when it hears of it)
    flush 1            what replica 1 has written is safe on its disk
    wait 5000          milliseconds pass
    decide / lose / refuse CODE   the oldest change of the in-sync set that a leader asked for is granted / lost on its way / refused
    retain 1 7         the leader's log start moves to offset 7 (DeleteRecords, retention)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from helpers.batches import batch
from helpers.cold_disk import looked_up
from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.partitions.fetch_read import FetchParams, PartitionRead, PartitionReader
from minikafka.broker.partitions.fetcher import LATEST_TIMESTAMP, Fetcher
from minikafka.broker.partitions.partition import LeaderRules, Partition
from minikafka.core.fetch_session import FetchPartition
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.core.partition.follower import FetchPlan
from minikafka.core.partition.isr import AlterOutcome, IsrProposal
from minikafka.core.purgatory import Purgatory
from minikafka.core.replication_quota import ReplicationQuota
from minikafka.storage.config import LogConfig
from minikafka.storage.log import Log
from minikafka.storage.recovery import load_log
from minikafka.wire.batch import iterate_batches
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchResponse

TOPIC, TOPIC_ID = "p", bytes(15) + b"\x01"
DIRECTORY = "/data/p-0"
WALL_MS = 1_700_000_100_000
LAG_MS = 10_000
BYTES_MAX = 1 << 20
CONSUMER = -1
Entry = tuple[int, int, str]


class Timer:
    """A timer that never goes off: time passes only by `wait`."""

    def cancel(self) -> None:
        pass


class Finished:
    """A task that has ended."""

    def add_done_callback(self, callback: Any) -> None:
        pass


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Stands in for an executor."""
    return function(*arguments)


class AtOnce:
    """Stands in for a supervisor: the work is done before `start` returns."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> Finished:
        asyncio.run(work)
        return Finished()

    def call_later(self, delay_s: float, name: str, work: Any) -> Timer:
        return Timer()


@dataclass(slots=True)
class Parked:
    """A waiting acks=all produce; `code` is its result."""

    replica: Replica
    required: int
    values: list[str]
    is_done: bool = False
    code: ErrorCode | None = None

    def try_complete(self, key: Hashable = None) -> bool:
        leader = self.replica.partition.leader
        self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader is None else leader.is_replicated(self.required)
        self.is_done = self.code is not None
        return self.is_done

    def expire(self) -> None:
        self.is_done, self.code = True, ErrorCode.REQUEST_TIMED_OUT


@dataclass(slots=True)
class Answer:
    """A fetch answer on its way to a follower."""

    data: FetchResponse.PartitionData
    plan: FetchPlan


class SilentEvents:
    """PartitionEvents without listeners."""

    def appended(self, partition: Partition) -> None:
        pass

    def high_watermark_moved(self, partition: Partition) -> None:
        pass

    def follower_fetched(self, partition: Partition) -> None:
        pass

    def changed(self, partition: Partition) -> None:
        pass

    def replicated(self, partition: Partition, size: int) -> None:
        pass

    def truncated(self, partition: Partition, records: int) -> None:
        pass

    async def cut_is_synced(self, partition: Partition) -> None:
        pass

    def sync_due(self, partition: Partition) -> None:
        pass

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        pass

    def moved(self, partition: Partition) -> None:
        pass


def _unexpected(operation: object, error: Exception) -> None:
    raise error


class Replica(SilentEvents):
    """One broker's part of the partition: its partition object, its fetcher and their effects."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.broker_epoch = 1
        self.disk = MemoryFileSystem()
        self.rules = LeaderRules(broker_id, LAG_MS, self.is_eligible)
        self.throttles = SimpleNamespace(leader=ReplicationQuota(), follower=ReplicationQuota())
        self.is_running = False
        self.is_deaf = False
        self.answer: Answer | None = None
        self.start(is_clean=True, high_watermark=0)

    # What Partition, Fetcher and PartitionReader tell and ask.

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        other = self.world.replicas[broker_id]
        return broker_id not in self.world.fenced and broker_epoch in (-1, other.broker_epoch)

    def require(self, topic: str, topic_id: bytes | None, index: int) -> Partition:
        return self.partition

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        self.world.proposals.append((self, proposal))

    def appended(self, partition: Partition) -> None:
        self.fetches.wake(partition.key)

    def high_watermark_moved(self, partition: Partition) -> None:
        self.changed(partition)

    def changed(self, partition: Partition) -> None:
        self.produces.wake(partition.key)
        self.fetches.wake(partition.key)

    def truncated(self, partition: Partition, records: int) -> None:
        self.fetches.wake(partition.key)

    # Life.

    def start(self, *, is_clean: bool = False, high_watermark: int = 0, recovery_point: int = 0) -> None:
        """Load the log as the broker does at its start."""
        config = LogConfig(**self.world.log_config)
        log = load_log(
            self.disk, DIRECTORY, TOPIC, 0, config, wall_ms=WALL_MS, is_clean=is_clean, high_watermark=high_watermark,
            recovery_point=recovery_point,
        )  # fmt: skip
        self.produces, self.fetches = Purgatory(_unexpected), Purgatory(_unexpected)
        self.partition = Partition(self, self.rules, TOPIC, TOPIC_ID, 0, log)
        self.reader = PartitionReader(self, False)  # type: ignore[arg-type]
        self.fetcher: Fetcher | None = None
        self.answer = None
        self.is_running = True

    @property
    def log(self) -> Log:
        return self.partition.log

    def learn(self, registration: PartitionRegistration) -> None:
        """The metadata of the partition has changed (ReplicaManager._assume_role)."""
        partition = self.partition
        if registration.leader == self.broker_id:
            self.fetcher = None
            partition.make_leader(registration, self.world.min_isr, self.world.now_ms)
        else:
            changed = partition.make_follower(registration)
            if changed:
                self._follow(registration.leader)
        self.changed(partition)

    def _follow(self, leader_id: int) -> None:
        world = self.world
        config = SimpleNamespace(
            replica_fetch_backoff_ms=1000, replica_fetch_max_bytes=BYTES_MAX, replica_fetch_min_bytes=1,
            replica_fetch_response_max_bytes=BYTES_MAX,
        )  # fmt: skip
        clock = SimpleNamespace(now_ms=lambda: world.now_ms, wall_ms=lambda: WALL_MS + world.now_ms)
        environment = SimpleNamespace(clock=clock, supervisor=AtOnce(), run_blocking=at_once)
        replication: Any = SimpleNamespace(
            config=config, environment=environment, broker_id=self.broker_id, throttles=self.throttles,
            broker_epoch=lambda: self.broker_epoch,
        )  # fmt: skip
        self.fetcher = Fetcher(replication, self, lambda *_: None, leader_id, 0)
        self.fetcher.add(self.partition)
        self.fetcher._channel = _Channel(self, leader_id)  # type: ignore[assignment]

    # Fetching.

    def ask(self) -> None:
        """Send a fetch to the supposed leader, which reads, notes the follower's position and answers."""
        fetcher = self.fetcher
        assert fetcher is not None, f"{self.broker_id} follows nobody"
        fetcher.follower.disconnected()  # so that it names everything
        plan = fetcher.follower.next_fetch(self.world.now_ms)
        if plan is None:
            return
        other = self.world.replicas[fetcher.leader_id]
        if not other.is_running:
            return
        wanted = FetchPartition(TOPIC, TOPIC_ID, 0)
        wanted.update(fetcher._request(plan).topics[0].partitions[0])
        params = FetchParams(self.broker_id, self.broker_epoch, 0, "", by_id=True, may_read_follower=True, listener="PLAINTEXT")
        self.answer = Answer(_data(other.read(wanted, params)), plan)

    def read(self, wanted: FetchPartition, params: FetchParams) -> PartitionRead:
        return looked_up(lambda look: self.reader.read(wanted, params, BYTES_MAX, True, self.world.now_ms, None, look))  # type: ignore[arg-type]

    def take(self) -> None:
        """Handle the answer that is on its way, if any."""
        answer, self.answer = self.answer, None
        fetcher = self.fetcher
        if answer is not None and fetcher is not None and fetcher.follower.is_current(answer.plan):
            fetcher._take(answer.plan, (TOPIC_ID, 0), answer.data, self.world.now_ms)

    def content(self) -> list[Entry]:
        """(offset, epoch, value) of every record on the disk."""
        log, found = self.log, []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            piece = log.read(offset, BYTES_MAX, end_offset=log.log_end_offset).slice
            for one in iterate_batches(memoryview(piece.read())):
                one.check()
                found += [(record.offset, one.partition_leader_epoch, (record.value or b"").decode()) for record in one.records()]
                offset = one.next_offset
        return found


class _Channel:
    """Answers the questions for the leader's first and last offset."""

    closed = False

    def __init__(self, asker: Replica, leader_id: int) -> None:
        self._asker, self._leader_id = asker, leader_id

    async def request(self, request: Any) -> Any:
        asked = request.topics[0].partitions[0]
        other = self._asker.world.replicas[self._leader_id]
        try:
            other.partition.check_epoch(asked.current_leader_epoch)
            other.partition.leading()
        except ApiError as error:
            answer = SimpleNamespace(error_code=error.code, offset=-1)
        else:
            log = other.log
            latest = asked.timestamp == LATEST_TIMESTAMP
            answer = SimpleNamespace(error_code=0, offset=log.log_end_offset if latest else log.log_start_offset)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[answer])])


def _data(read: PartitionRead) -> FetchResponse.PartitionData:
    data = FetchResponse.PartitionData(
        partition_index=0,
        error_code=read.code,
        high_watermark=read.high_watermark,
        log_start_offset=read.log_start_offset,
        records=memoryview(b"" if read.slice is None else read.slice.read()),
    )
    if read.diverging is not None:
        data.diverging_epoch = FetchResponse.EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
    read.release()
    return data


@dataclass(slots=True)
class World:
    """The partition's replicas 1..n, the controller's state, and the producers' acknowledgements."""

    replica_count: int = 3
    min_isr: int = 1
    log_config: dict[str, Any] = field(default_factory=dict)
    now_ms: int = 100_000
    fenced: set[int] = field(default_factory=set)
    proposals: list[tuple[Replica, IsrProposal]] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    replicas: dict[int, Replica] = field(default_factory=dict)
    registration: PartitionRegistration | None = None
    _parked: list[Parked] = field(default_factory=list)
    _written: int = 0

    def __post_init__(self) -> None:
        for number in range(1, self.replica_count + 1):
            self.replicas[number] = Replica(self, number)

    def __getitem__(self, broker_id: int) -> Replica:
        return self.replicas[broker_id]

    def play(self, text: str) -> World:
        """Carry out steps; see the module."""
        for line in text.splitlines():
            for step in line.partition("#")[0].split(";"):
                words = step.split()
                if words:
                    getattr(self, f"_do_{words[0]}")(*words[1:])
                    self._settle()
        return self

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> Replica:
        """The replica that the controller has elected."""
        assert self.registration is not None
        return self.replicas[self.registration.leader]

    def logs(self, *brokers: int) -> list[list[Entry]]:
        """The content of the replicas, of all by default."""
        return [self.replicas[number].content() for number in brokers or sorted(self.replicas)]

    def values(self, broker_id: int) -> list[str]:
        """The values of a replica's records."""
        return [value for _, _, value in self.replicas[broker_id].content()]

    def epochs(self, broker_id: int) -> list[tuple[int, int]]:
        """The (epoch, start offset) entries of a replica's epoch cache."""
        return self.replicas[broker_id].log.epochs.entries

    def consume(self, broker_id: int, offset: int, *, epoch: int = -1, last_epoch: int = -1) -> PartitionRead:
        """What a consumer's fetch gets."""
        wanted = FetchPartition(TOPIC, TOPIC_ID, 0)
        wanted.fetch_offset, wanted.leader_epoch, wanted.last_fetched_epoch, wanted.max_bytes = offset, epoch, last_epoch, BYTES_MAX
        params = FetchParams(CONSUMER, -1, 0, "", by_id=True, may_read_follower=True, listener="PLAINTEXT")
        return self.replicas[broker_id].read(wanted, params)

    def agree(self, *brokers: int) -> None:
        """Assert that the replicas hold the same records, and every acknowledged one."""
        first, *others = self.logs(*brokers)
        assert all(other == first for other in others), self.logs(*brokers)
        values = [value for _, _, value in first]
        assert len(values) == len(set(values)), f"a record is there twice: {values}"
        missing = [value for value in self.acked if value not in values]
        assert not missing, f"acknowledged and gone: {missing}"

    # -- steps -----------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        for parked in list(self._parked):
            if not parked.is_done and parked.replica.is_running:
                parked.try_complete()
            if parked.is_done or not parked.replica.is_running:
                self._parked.remove(parked)
                if parked.code is ErrorCode.NONE:
                    self.acked += parked.values

    def _do_lead(self, leader: str, *words: str) -> None:
        old = self.registration
        isr = tuple(map(int, words[1:])) if words else (tuple(self.replicas) if old is None else old.isr)
        epoch, partition_epoch = (0, 0) if old is None else (old.leader_epoch + 1, old.partition_epoch + 1)
        self.registration = PartitionRegistration(tuple(self.replicas), isr, int(leader), epoch, partition_epoch)
        self._publish()

    def _publish(self) -> None:
        assert self.registration is not None
        for replica in self.replicas.values():
            if replica.is_running and not replica.is_deaf:
                replica.learn(self.registration)

    def _do_deaf(self, *brokers: str) -> None:
        for number in brokers:
            self.replicas[int(number)].is_deaf = True

    def _do_hear(self, *brokers: str) -> None:
        assert self.registration is not None
        for number in brokers:
            replica = self.replicas[int(number)]
            replica.is_deaf = False
            replica.learn(self.registration)

    def _do_produce(self, *words: str) -> None:
        """`produce x5`, `produce 2 x5` (to a replica that takes itself for the leader), `acks=1`."""
        acks = 1 if "acks=1" in words else -1
        count = next(int(word[1:]) for word in words if word.startswith("x"))
        named = [int(word) for word in words if word.isdigit()]
        replica = self.replicas[named[0]] if named else self.leader
        values = [f"m{self._written + number}" for number in range(count)]
        self._written += count
        records = memoryview(batch(*[value.encode() for value in values]))
        info = replica.partition.append(records, acks, WALL_MS, self.now_ms)
        if acks < 0:
            self._parked.append(Parked(replica, info.last_offset + 1, values))

    def _do_fetch(self, *brokers: str) -> None:
        for number in brokers:
            self._do_ask(number)
            self._do_take(number)

    def _do_ask(self, number: str) -> None:
        self.replicas[int(number)].ask()

    def _do_take(self, number: str) -> None:
        self.replicas[int(number)].take()

    def _do_sync(self, *brokers: str) -> None:
        chosen = [int(number) for number in brokers] or [number for number in self.running if self[number].fetcher is not None]
        before: Any = None
        rounds = 0
        while before != (before := [(self[n].content(), self[n].log.high_watermark, self[n].log.log_start_offset) for n in self.running]):
            rounds += 1
            assert rounds < 100, "the followers never come to rest"
            self.now_ms += 1000
            for number in chosen:
                self._do_fetch(str(number))

    @property
    def running(self) -> list[int]:
        """The replicas whose processes run."""
        return [number for number, replica in self.replicas.items() if replica.is_running]

    def _do_kill(self, number: str) -> None:
        replica = self.replicas[int(number)]
        replica.disk = replica.disk.kill()
        replica.is_running = False
        replica.answer = replica.fetcher = None

    def _do_crash(self, number: str) -> None:
        """A power cut that loses everything unsynced: the worst case of `MemoryFileSystem.crash`."""
        replica = self.replicas[int(number)]
        disk = MemoryFileSystem()
        disk.directories = set(replica.disk.directories)
        for name, inode in replica.disk.durable_names.items():
            disk.write(name, inode.durable)
        replica.disk = disk
        replica.is_running = False
        replica.answer = replica.fetcher = None

    def _do_start(self, number: str) -> None:
        replica = self.replicas[int(number)]
        replica.broker_epoch += 1
        replica.start()
        if self.registration is not None and not replica.is_deaf:
            replica.learn(self.registration)

    def _do_flush(self, number: str) -> None:
        self.replicas[int(number)].log.flush()

    def _do_wait(self, milliseconds: str) -> None:
        self.now_ms += int(milliseconds)

    def _do_decide(self) -> None:
        replica, proposal = self.proposals.pop(0)
        old = self.registration
        assert old is not None
        if proposal.leader_epoch != old.leader_epoch or proposal.partition_epoch != old.partition_epoch:
            self._refuse(replica, proposal, ErrorCode.FENCED_LEADER_EPOCH)
            return
        partition_epoch = old.partition_epoch + 1
        self.registration = PartitionRegistration(old.replicas, proposal.isr, old.leader, old.leader_epoch, partition_epoch)
        self._publish()

    def _do_lose(self) -> None:
        self.proposals.pop(0)

    def _do_refuse(self, code: str) -> None:
        self._refuse(*self.proposals.pop(0), ErrorCode[code])

    def _refuse(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        leader = replica.partition.leader
        if leader is not None and leader.isr.pending is proposal and leader.refused(proposal, code) is AlterOutcome.RETRY:
            self.proposals.append((replica, proposal))

    def _do_shrink(self) -> None:
        leader = self.leader.partition.leader
        assert leader is not None
        proposal = leader.shrinkage(self.now_ms)
        if proposal is not None:
            self.proposals.append((self.leader, proposal))

    def _do_retain(self, number: str, offset: str) -> None:
        self.replicas[int(number)].log.increment_log_start_offset(int(offset))
