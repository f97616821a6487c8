"""A deterministic simulator of a whole quorum: the real cores, a simulated disk and network, faults, invariants at every step.

One seed gives everything. Disks lose what was not synced when a node crashes, and one of a
voter that the others can do without what was synced as well; messages are delayed, lost, reordered and cut off by
partitions; nodes pause, crash, restart, write snapshots, join and leave the voters. At the end everything heals and has to work again.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from minikafka.core.raft import events as ev
from minikafka.core.raft import messages as m
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.quorum import Quorum
from minikafka.core.raft.roles import Leader
from minikafka.core.raft.types import ElectionState, Endpoint, OffsetAndEpoch, QuorumConfig, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterHistory, VoterSet
from minikafka.wire.errors import ErrorCode

CHUNK = 2


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Batch:
    base: int
    end: int
    epoch: int
    content: tuple
    voters: list = field(default_factory=list)
    versions: list = field(default_factory=list)

    def key(self) -> tuple:
        return (self.base, self.end, self.epoch, self.content)


@dataclass
class Snapshot:
    """`batches`: everything before its end; that makes agreement checkable."""

    id: OffsetAndEpoch
    batches: list
    voters: VoterSet
    version: int


@dataclass
class Options:
    """Options drawn from the seed (swarm testing: each seed leaves some faults out)."""

    voters: int
    observers: int
    is_dynamic: bool
    loss: float
    delay_max: int
    flush_max: int
    crash: float
    partition: float
    pause: float
    snapshots: bool
    membership: bool
    disconnects: bool
    auto_join: bool
    upgrade: bool
    rot: float

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        def pick(*values):
            return values[rng.randrange(len(values))]

        is_dynamic = rng.random() < 0.5
        options = cls(
            pick(1, 2, 3, 3, 3, 5), pick(0, 1, 2), is_dynamic, pick(0, 0, 0.02, 0.1, 0.3), pick(2, 10, 50, 300), pick(1, 5, 40, 200),
            pick(0, 0.2, 0.5, 1.0), pick(0, 0.3, 1.0), pick(0, 0.3), rng.random() < 0.5, is_dynamic and rng.random() < 0.6,
            rng.random() < 0.5, is_dynamic and rng.random() < 0.3, not is_dynamic and rng.random() < 0.5, 0.0,
        )  # fmt: skip
        if options.voters > 2 and not options.membership and not options.auto_join:
            options.rot = pick(0, 0.3, 1.0)
        return options


class Node:
    """A node: its disk and, while it runs, its core."""

    def __init__(self, world: World, node_id: int, voters: VoterSet, version: int, can_be_voter: bool) -> None:
        self.world = world
        self.node_id = node_id
        self.key = ReplicaKey(node_id, bytes([node_id] * 16))
        self.endpoint = Endpoint("C", f"h{node_id}", 9000 + node_id)
        self.can_be_voter = can_be_voter
        self.boot = (voters, version)
        self.batches: list[Batch] = []
        self.flushed = 0
        self.start_offset = 0
        self.snapshots: list[Snapshot] = []
        self.election = ElectionState()
        self.votes: dict[int, ReplicaKey] = {}
        self.core: Quorum | None = None
        self.incarnation = 0
        self.paused_until = 0
        self.highest_epoch = 0
        self.highest_hw = -1
        self.syncing = False
        self.wake_at = -1
        self.parts: dict[OffsetAndEpoch, list] = {}
        self.has_lost_promises = False
        self.promised_before: int | None = None

    @property
    def end(self) -> int:
        if self.batches:
            return self.batches[-1].end
        return max(self.start_offset, self.snapshots[-1].id.offset if self.snapshots else 0)

    def boot_core(self) -> None:
        self.incarnation += 1
        last = self.batches[-1].end if self.batches else self.start_offset
        if self.snapshots and self.snapshots[-1].id.offset > last:
            # The log lost more than the snapshot covers, so it begins at the snapshot (as MetadataLog.load does).
            self.batches, self.start_offset = [], self.snapshots[-1].id.offset
            self.snapshots = self.snapshots[-1:]
        self.flushed = self.end
        epochs: list[tuple[int, int]] = []
        for batch in self.batches:
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base))
        history = VoterHistory(*self.boot)
        if self.snapshots and self.snapshots[-1].version > 0:
            history.install(self.snapshots[-1].id.offset, self.snapshots[-1].voters, self.snapshots[-1].version)
        floor = self.snapshots[-1].id.offset if self.snapshots else 0
        for batch in self.batches:
            for offset, voters in batch.voters:
                if offset >= floor:
                    history.add_voters(offset, voters)
            for offset, version in batch.versions:
                if offset >= floor:
                    history.add_version(offset, version)
        state = LogState(self.start_offset, self.end, epochs, [snapshot.id for snapshot in self.snapshots])
        world = self.world
        self.core = Quorum(
            self.key, QuorumConfig(auto_join=world.options.auto_join), random.Random(world.rng.getrandbits(32)), state, history,
            self.election,
            endpoints=(self.endpoint,) if self.can_be_voter else (),
            bootstrap_servers=[] if not world.options.is_dynamic else world.bootstrap, can_be_voter=self.can_be_voter,
            high_watermark=self.snapshots[-1].id.offset if self.snapshots else -1, has_lost_promises=self.has_lost_promises,
            promised_before=self.promised_before,
        )  # fmt: skip
        self.highest_hw = self.core.high_watermark
        self.syncing = False
        self.wake_at = -1
        self.parts = {}
        self.run(self.core.start(world.now))

    def crash(self) -> None:
        self.core = None
        self.incarnation += 1
        keep = self.world.rng.randrange(self.flushed, self.end + 1) if self.end > self.flushed else self.end
        self.batches = [batch for batch in self.batches if batch.end <= keep]

    def rot(self) -> None:
        """The process ends, and for the next one only the beginning of the log is valid."""
        self.crash()
        floor = self.snapshots[-1].id.offset if self.snapshots else 0
        valid = self.world.rng.randrange(len(self.batches) + 1)
        if valid < len(self.batches):
            keeps_promise = (self.end + valid) % 3 > 0 and (not self.has_lost_promises or self.promised_before is not None)
            self.promised_before = max(self.end, self.promised_before or 0) if keeps_promise else None
            self.has_lost_promises = True
        self.batches = self.batches[:valid]
        self.flushed = min(self.flushed, max(self.end, floor))

    def feed(self, event: ev.Event) -> None:
        if self.core is not None:
            self.run(self.core.step(event, self.world.now))

    def run(self, effects: list) -> None:
        """Carry out effects and the events that they cause, as the host does."""
        core = self.core
        queue: list[ev.Event] = []
        while True:
            for effect in effects:
                self.apply(effect, queue)
            self.world.check(self)
            if not queue:
                break
            effects = core.step(queue.pop(0), self.world.now)
        if self.can_be_voter and not self.syncing and self.flushed < self.end:
            self.syncing = True
            self.world.later(1, self.world.options.flush_max, self.synced, self.incarnation, self.end)
        deadline = core.next_deadline()
        if deadline is not None:
            at = max(deadline, self.world.now + 1)
            if self.wake_at < self.world.now or at < self.wake_at:
                self.wake_at = at
                self.world.at(at, self.wake, self.incarnation)

    def wake(self, incarnation: int) -> None:
        if self.core is None or incarnation != self.incarnation:
            return
        if self.paused_until > self.world.now:
            self.world.at(self.paused_until, self.wake, incarnation)
            return
        self.wake_at = -1
        self.run(self.core.on_deadline(self.world.now))

    def synced(self, incarnation: int, end: int) -> None:
        if incarnation != self.incarnation or self.core is None:
            return
        self.syncing = False
        self.flushed = max(self.flushed, min(end, self.end))
        self.feed(ev.Flushed(self.flushed))

    def apply(self, effect, queue: list) -> None:
        kind = type(effect)
        world = self.world
        if kind is ev.Persist:
            world.check_vote(self, effect.state)
            self.election = effect.state
        elif kind is ev.PromisesRegained:
            self.has_lost_promises, self.promised_before = False, None
        elif kind is ev.Truncate:
            self.batches = [batch for batch in self.batches if batch.end <= effect.offset]
            if self.end != effect.offset:
                raise Violation(f"node {self.node_id} was cut to {effect.offset}, inside of a batch")
            self.flushed = min(self.flushed, effect.offset)
            # A sync that is under way does not cover the records that replace the truncated ones.
            self.incarnation_sync()
        elif kind is ev.AppendLeaderChange:
            count = 1 + (effect.kraft_version is not None) + (effect.voter_set is not None)
            base = self.end
            voters = [(base + count - 1, effect.voter_set)] if effect.voter_set is not None else []
            versions = [(base + 1, effect.kraft_version)] if effect.kraft_version is not None else []
            queue.insert(0, self.append(Batch(base, base + count, effect.epoch, ("leader", self.node_id), voters, versions)))
        elif kind is ev.AppendVoters:
            base, last = self.end, self.end + (effect.kraft_version is not None)
            versions = [(base, effect.kraft_version)] if effect.kraft_version is not None else []
            what = ("voters", effect.voter_set.node_ids)
            batch = Batch(base, last + 1, effect.epoch, what, [(last, effect.voter_set)], versions)
            queue.insert(0, self.append(batch))
        elif kind is ev.AppendFetched:
            appended = []
            for batch in effect.records:
                if batch.base == self.end and batch.epoch <= effect.epoch:
                    appended.append(self.append(batch))
            queue[0:0] = [*appended, ev.FetchedAppended()]
        elif kind is ev.WriteSnapshotChunk:
            self.parts.setdefault(effect.snapshot, []).append(effect.data)
        elif kind is ev.InstallSnapshot:
            snapshot = world.snapshots[effect.snapshot]
            self.parts.pop(effect.snapshot)
            self.batches, self.snapshots = [], [snapshot]
            self.start_offset = self.flushed = snapshot.id.offset
            self.incarnation_sync()
            voters = snapshot.voters if snapshot.version > 0 else None
            queue.insert(0, ev.SnapshotInstalled(snapshot.id, voters, snapshot.version))
        elif kind is ev.Send:
            world.send(self, effect)
        elif kind is ev.Respond:
            effect.token(effect.reply)

    def incarnation_sync(self) -> None:
        if self.syncing:
            self.syncing = False
            self.incarnation += 1
            self.wake_at = -1

    def append(self, batch: Batch) -> ev.BatchAppended:
        assert batch.base == self.end
        self.batches.append(batch)
        return ev.BatchAppended(batch.epoch, batch.base, batch.end, list(batch.voters), list(batch.versions))

    def read(self, offset: int) -> list[Batch]:
        found = [batch for batch in self.batches if batch.end > offset]
        if found and found[0].base != offset:
            raise Violation(f"node {self.node_id} reads from {offset}, inside of a batch or before its log")
        return found[: 1 + self.world.rng.randrange(4)]


class World:
    """Time, network, faults and the truth about what was committed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options = Options.draw(self.rng)
        self.now = 0
        self.order = 0
        self.heap: list = []
        self.committed: list[Batch] = []
        self.leaders: dict[int, int] = {}
        self.named: dict[int, int] = {}
        self.snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.partition: list[set[int]] = []
        self.one_way: set[tuple[int, int]] = set()
        self.healed = False
        self.values = 0
        self.steps = 0
        self.faults = 0
        total = options.voters + options.observers
        keys = [ReplicaKey(i, bytes([i] * 16) if options.is_dynamic else bytes(16)) for i in range(1, options.voters + 1)]
        voters = VoterSet(Voter(key, (Endpoint("C", f"h{key.node_id}", 9000 + key.node_id),)) for key in keys)
        version = 1 if options.is_dynamic else 0
        self.bootstrap = [(f"h{i}", 9000 + i) for i in range(1, options.voters + 1)]
        self.by_port = {}
        self.nodes: dict[int, Node] = {}
        for i in range(1, total + 1):
            # Some observers of a dynamic quorum are controllers that may join; they have no voter set yet.
            is_voter = i <= options.voters
            knows = voters if is_voter or not options.is_dynamic else VoterSet()
            node = Node(self, i, knows, version if knows is voters else 0, is_voter or options.is_dynamic)
            self.nodes[i] = node
            self.by_port[9000 + i] = node
        for node in self.nodes.values():
            self.later(0, 200, self.restart, node)

    # -- time

    def at(self, when: int, function, *arguments) -> None:
        self.order += 1
        heapq.heappush(self.heap, (when, self.order, function, arguments))

    def later(self, low: int, high: int, function, *arguments) -> None:
        self.at(self.now + self.rng.randrange(low, high + 1), function, *arguments)

    def run(self, until: int) -> None:
        while self.heap and self.heap[0][0] <= until:
            when, _, function, arguments = heapq.heappop(self.heap)
            self.now = max(self.now, when)
            self.steps += 1
            function(*arguments)
        self.now = until

    # -- network

    def can_reach(self, source: int, target: int) -> bool:
        if self.healed:
            return True
        if (source, target) in self.one_way:
            return False
        return all((source in side) == (target in side) for side in self.partition)

    def transfer(self, source: int, target: int, function, *arguments) -> None:
        """Deliver after a delay, or lose."""
        if not self.can_reach(source, target) or (not self.healed and self.rng.random() < self.options.loss):
            return
        self.later(1, self.options.delay_max if not self.healed else 5, function, *arguments)

    def send(self, node: Node, effect: ev.Send) -> None:
        target = self.by_port[effect.endpoint.port]
        life = node.core

        def fail(is_refused: bool) -> None:
            if node.core is life:
                node.feed(ev.Failed(effect.request_id, is_refused))

        def answered(reply: m.Reply) -> None:
            if node.core is life:
                if node.paused_until > self.now:
                    self.at(node.paused_until, answered, reply)
                else:
                    node.feed(ev.Answered(effect.request_id, reply))

        def respond(reply: m.Reply) -> None:
            self.finish_reply(target, reply)
            self.transfer(target.node_id, node.node_id, answered, reply)

        def arrive() -> None:
            if target.core is None:
                self.transfer(target.node_id, node.node_id, fail, True)
            elif target.paused_until > self.now:
                self.at(target.paused_until, arrive)
            elif isinstance(effect.request, m.VersionsRequest):
                respond(m.VersionsReply(ErrorCode.NONE, version_min=0, version_max=1))
            else:
                target.feed(ev.Received(respond, effect.request))

        if self.options.disconnects and not self.healed and self.rng.random() < self.options.loss:
            self.later(1, self.options.delay_max, fail, False)
            return
        self.transfer(node.node_id, target.node_id, arrive)

    def finish_reply(self, node: Node, reply: m.Reply) -> None:
        """What the host adds when it answers: records, pieces of a snapshot."""
        if isinstance(reply, m.FetchReply):
            self.check_named(node, reply)
        if isinstance(reply, m.FetchReply) and 0 <= reply.read_from < reply.read_to:
            reply.records = node.read(reply.read_from)
        if isinstance(reply, m.FetchSnapshotReply) and reply.error is ErrorCode.NONE:
            snapshot = next((s for s in node.snapshots if s.id == reply.snapshot), None)
            if snapshot is None:
                reply.error = ErrorCode.SNAPSHOT_NOT_FOUND
                return
            self.snapshots[snapshot.id] = snapshot
            reply.size = 5
            reply.data_size = min(CHUNK, reply.size - reply.position)
            reply.data = b"x" * reply.data_size

    # -- faults

    def restart(self, node: Node) -> None:
        if node.core is None:
            node.boot_core()

    def fault(self) -> None:
        options, rng = self.options, self.rng
        self.faults += 1
        node = self.nodes[rng.randrange(1, len(self.nodes) + 1)]
        if rng.random() < options.crash * 0.5 and node.core is not None:
            node.crash()
            self.later(10, 4000, self.restart, node)
        if rng.random() < options.pause * 0.3 and node.core is not None:
            node.paused_until = self.now + rng.randrange(100, 5000)
        if rng.random() < options.partition * 0.5:
            split = rng.randrange(3)
            self.partition, self.one_way = [], set()
            if split == 0:
                self.partition = [{i for i in self.nodes if rng.random() < 0.5}]
            elif split == 1:
                self.one_way = {(node.node_id, other) for other in self.nodes if rng.random() < 0.7}
        if options.snapshots and rng.random() < 0.3 and node.core is not None:
            self.snapshot(node)
        if options.membership and rng.random() < 0.2:
            self.change_membership()
        if options.upgrade and rng.random() < 0.2:
            self.upgrade()
        if rng.random() < options.rot and node.core is not None and not any(other.has_lost_promises for other in self.nodes.values()):
            node.rot()
            self.later(10, 4000, self.restart, node)

    def upgrade(self) -> None:
        """Static voters become dynamic ones."""
        leader = self.leader()
        if leader is not None and leader.paused_until <= self.now and leader.core.upgrade_fault(1) is None:
            leader.run(leader.core.upgrade_kraft_version(1, self.now))

    def snapshot(self, node: Node) -> None:
        core = node.core
        boundaries = [batch for batch in node.batches if batch.end <= core.high_watermark and batch.base >= core.log.start_offset]
        if not boundaries:
            return
        batch = boundaries[self.rng.randrange(len(boundaries))]
        snapshot_id = OffsetAndEpoch(batch.end, batch.epoch)
        if snapshot_id in core.log.snapshots:
            return
        voters, version = core.history.at(batch.end)
        before = [entry for entry in self.committed if entry.end <= batch.end]
        node.snapshots = sorted([*node.snapshots, Snapshot(snapshot_id, before, voters, version)], key=lambda entry: entry.id)
        start = node.start_offset
        if self.rng.random() < 0.6:
            start = snapshot_id.offset
            node.start_offset = start
            node.snapshots = [entry for entry in node.snapshots if entry.id.offset >= start]
            node.batches = [entry for entry in node.batches if entry.base >= start]
        node.feed(ev.SnapshotWritten(snapshot_id, start))

    def leader(self) -> Node | None:
        best = None
        for node in self.nodes.values():
            if node.core is not None and node.core.is_leader and (best is None or node.core.epoch > best.core.epoch):
                best = node
        return best

    def change_membership(self) -> None:
        leader = self.leader()
        if leader is None or leader.paused_until > self.now:
            return
        voters = leader.core.voters
        node = self.nodes[self.rng.randrange(1, len(self.nodes) + 1)]
        if node.node_id in voters.node_ids:
            request: m.Request = m.RemoveVoterRequest(node.key)
        else:
            request = m.AddVoterRequest(node.key, (node.endpoint,), 2000, self.rng.random() < 0.5)
        leader.feed(ev.Received(lambda reply: None, request))

    def write(self) -> None:
        """Write a client's record at every node that takes itself for the leader."""
        for node in self.nodes.values():
            core = node.core
            if core is not None and core.is_leader and node.paused_until <= self.now and self.rng.random() < 0.8:
                self.values += 1
                batch = Batch(node.end, node.end + 1 + self.rng.randrange(3), core.epoch, ("value", self.values))
                node.feed(node.append(batch))

    # -- invariants

    def check_vote(self, node: Node, state: ElectionState) -> None:
        if state.epoch < node.election.epoch:
            raise Violation(f"seed {self.seed}: node {node.node_id} went from epoch {node.election.epoch} to {state.epoch}")
        if state.voted is not None:
            before = node.votes.setdefault(state.epoch, state.voted)
            if before.node_id != state.voted.node_id:
                raise Violation(f"seed {self.seed}: node {node.node_id} voted for {before} and {state.voted} in epoch {state.epoch}")

    def check(self, node: Node) -> None:
        core = node.core
        if core is None:
            return
        if core.epoch < node.highest_epoch:
            raise Violation(f"seed {self.seed}: epoch of node {node.node_id} went back")
        node.highest_epoch = core.epoch
        if isinstance(core.role, Leader) and self.leaders.setdefault(core.epoch, node.node_id) != node.node_id:
            raise Violation(f"seed {self.seed}: epoch {core.epoch} has leaders {self.leaders[core.epoch]} and {node.node_id}")
        if isinstance(core.role, Leader) and core.high_watermark > core.role.epoch_start:
            self.check_deposed(core.epoch)
        if core.high_watermark < node.highest_hw:
            raise Violation(f"seed {self.seed}: high watermark of node {node.node_id} went back")
        if core.high_watermark > node.highest_hw:
            self.check_committed(node, node.highest_hw, core.high_watermark)
            node.highest_hw = core.high_watermark

    def check_named(self, node: Node, reply: m.FetchReply) -> None:
        """An Apache Kafka voter ends when a leader names a high watermark below the voter's own. What a leader learned as a follower may
        be: it names none until a record of its own epoch is committed, and then none below any that was named up to its epoch."""
        if reply.error is not ErrorCode.NONE or reply.high_watermark < 0:
            return
        high_watermark = reply.high_watermark
        before = max((offset for epoch, offset in self.named.items() if epoch <= reply.epoch), default=0)
        if high_watermark < before:
            raise Violation(f"seed {self.seed}: epoch {reply.epoch} names the high watermark {high_watermark} after {before}")
        ends = {snapshot.id.offset: snapshot.id.epoch for snapshot in node.snapshots} | {batch.end: batch.epoch for batch in node.batches}
        if ends.get(high_watermark) != reply.epoch:
            raise Violation(f"seed {self.seed}: epoch {reply.epoch} names {high_watermark}, where it has committed nothing of its own")
        self.named[reply.epoch] = high_watermark

    def check_deposed(self, epoch: int) -> None:
        """A leader of an earlier epoch must be in doubt once a leader of this epoch has committed its first record."""
        for other in self.nodes.values():
            core = other.core
            if core is not None and core.is_leader and core.epoch < epoch and not core.is_in_doubt(self.now):
                raise Violation(f"seed {self.seed} at {self.now}: {other.node_id} is sure to lead epoch {core.epoch} in epoch {epoch}")

    def check_committed(self, node: Node, low: int, high: int) -> None:
        """All nodes agree on every batch below a high watermark."""
        by_base = {batch.base: batch for batch in self.committed[-400:]}
        end = self.committed[-1].end if self.committed else 0
        for batch in node.batches:
            if batch.end <= low or batch.base >= high:
                continue
            if batch.end > high:
                raise Violation(f"seed {self.seed}: high watermark {high} of node {node.node_id} is inside of a batch")
            existing = by_base.get(batch.base)
            if existing is not None:
                if existing.key() != batch.key():
                    raise Violation(f"seed {self.seed}: node {node.node_id} committed {batch.key()}, others {existing.key()}")
            elif batch.base == end:
                self.committed.append(batch)
                end = batch.end
            elif batch.base > end:
                raise Violation(f"seed {self.seed}: node {node.node_id} committed {batch.base}, the truth ends at {end}")
        if high > end:
            raise Violation(f"seed {self.seed}: node {node.node_id} has high watermark {high}, nobody has what is beyond {end}")

    # -- a whole run

    def play(self, duration_ms: int = 30_000) -> None:
        for when in range(500, duration_ms, 500):
            self.at(when, self.fault)
        for when in range(300, duration_ms, 70):
            self.at(when, self.write)
        self.run(duration_ms)
        self.heal()

    def heal(self) -> None:
        self.healed = True
        self.partition, self.one_way = [], set()
        for node in self.nodes.values():
            node.paused_until = 0
            self.restart(node)
        self.run(self.now + 15_000)
        leader = self.leader()
        if leader is None:
            raise Violation(f"seed {self.seed}: no leader after everything healed")
        before = leader.core.high_watermark
        self.write()
        target = leader.end
        self.run(self.now + 10_000)
        if leader.core.high_watermark < target and leader.core.is_leader:
            raise Violation(f"seed {self.seed}: nothing is committed after everything healed ({before}, {target})")
        truth = self.committed[-1].end if self.committed else 0
        for node in self.nodes.values():
            if node.core.high_watermark < min(target, truth):
                raise Violation(f"seed {self.seed}: node {node.node_id} stays at {node.core.high_watermark} of {truth}: {node.core.role}")
