"""Draws the options and faults of a seed: cluster, network, disks, clients, and a list of faults with their times.

This is swarm testing: each seed leaves out most kinds of faults and stresses others, so some seeds are calm and some are very rough. Most
runs are short (`LOADS_S`): a cluster starts, works under faults for two to five seconds and heals. In these the time-outs are short too,
and faults follow each other faster, so that elections, fencing and shrinking in-sync sets still happen. A second of CPU time finds more
this way than in long runs; a few long ones cover what takes longer. Faults are drawn before the run, with times and symbolic targets ("the
leader of partition 2"), so that one can be left out without changing the others. This is how a failing seed is shrunk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

NEVER = "9223372036854775807"
#: Seconds of load -> percentage of the seeds. The start and healing take about four simulated seconds more.
LOADS_S = {2.0: 50, 3.0: 25, 5.0: 15, 10.0: 8, 20.0: 2}
#: Loads up to this have short time-outs.
SHORT_LOAD_S = 5.0
#: Shares of the seeds with transactions, with a group of the consumer protocol, with a share group, and with a streams group.
TRANSACTIONS_SHARE = 0.25
CONSUMERS_SHARE = 0.25
SHARES_SHARE = 0.2
#: Share of the seeds in which few requests of a connection are served at a time.
FEW_ANSWERS_SHARE = 0.25
#: Share of the share groups that have a dead-letter queue.
DEAD_LETTERS_SHARE = 0.6
STREAMS_SHARE = 0.15
#: Share of the seeds in which work is divided among turns of the loop.
LONG_STEPS_SHARE = 0.4
#: With longer delays of each fetch, followers need more than one batch from it.
SHORT_DELAY_S_MAX = 0.004
#: Share of the seeds whose producers send several partitions in one request.
GATHERING_SHARE = 0.3
#: Share of the seeds in which frames arrive together.
TOGETHER_SHARE = 0.4
SHAPES = {
    # name: (dedicated controllers, brokers or combined nodes)
    "combined": (0, 3),
    "separate": (1, 3),
    "quorum": (3, 3),
    "five": (0, 5),
    "single": (0, 1),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at_s`: seconds from the start of the load; `seconds`: how long it lasts or the node stays down; `target`: any, leader,
    controller, coordinator; `pick`: a random number from which the fault's details are derived."""

    at_s: float
    kind: str
    target: str = "any"
    seconds: float = 1.0
    pick: int = 0

    def __str__(self) -> str:
        return f"{self.at_s:7.2f} s  {self.kind} {self.target} ({self.seconds:.1f} s, pick {self.pick})"


@dataclass(slots=True)
class Options:
    """Everything about a run except its faults. Times in seconds unless the name has another unit."""

    seed: int
    shape: str = "combined"
    partitions: int = 2
    min_isr: int = 2
    duration_s: float = 20.0
    producers: int = 2
    readers: int = 1
    group_members: int = 2
    pace_s: float = 0.2
    batch_records_max: int = 3
    value_bytes: int = 20
    delay_min_s: float = 0.0002
    delay_mean_s: float = 0.001
    break_probability: float = 0.0
    clock_spread: float = 0.0
    blocking_s: float = 0.0005
    sync_s: float = 0.0
    #: One in this many reads of disks finds nothing in memory, and waits on another thread for `blocking_s`; 0: none does.
    misses_every: int = 0
    #: How long every callback of a node takes; 0.01 simulates a machine that is overloaded a hundredfold.
    turn_s: float = 0.0
    #: Mean time that a step of divided work seems to take: more than net.turn_share.SHARE_S, and each step has a turn of the loop.
    step_s: float = 0.0
    delivery_timeout_ms: int = 15_000
    #: Mean seconds until a process reads what has arrived, all frames together; None: it handles each frame when it arrives.
    wake_s: float | None = None
    #: How many requests of a connection are served at a time; one in Apache Kafka.
    pending_answers_max: int = 256
    #: The batch.size of the producers: with a small one they send several batches of a partition at once.
    batch_bytes_max: int = 1 << 18
    #: How long producers wait to send batches of several partitions in one request; None: each request has one partition.
    gather_s: float | None = None
    properties: dict[str, str] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    profile: str = "calm"
    has_cleaner: bool = False
    #: Voters in the metadata log (KIP-853), not in the configuration.
    is_dynamic: bool = False
    #: Writers with transactions, every second of which copies records with their offsets; and read_committed readers.
    transactors: int = 0
    committed_readers: int = 0
    transaction_timeout_ms: int = 2000
    #: Writers with acks=1 beside those with transactions: elections lose their records, which causes truncations to the high watermark.
    hasty_writers: int = 0
    #: Members of a group of the consumer protocol (KIP-848), how many of them are static, and its session timeout.
    consumer_members: int = 0
    static_members: int = 0
    session_timeout_s: float = 1.5
    #: Members of a share group (KIP-932), its delivery count limit, and whether it has a dead-letter queue (KIP-1191).
    share_members: int = 0
    delivery_count_max: int = 5
    has_dead_letters: bool = False
    #: Members of a streams group (KIP-1071).
    streams_members: int = 0

    @property
    def group_protocols(self) -> list[str]:
        """The new group protocols that have members: consumer (KIP-848), share (KIP-932), streams (KIP-1071)."""
        members = {"consumer": self.consumer_members, "share": self.share_members, "streams": self.streams_members}
        return [protocol for protocol, count in members.items() if count]

    @property
    def brokers(self) -> int:
        """Nodes that are brokers."""
        return SHAPES[self.shape][1]

    @property
    def replication_factor(self) -> int:
        """The replication factor of every topic."""
        return min(3, self.brokers)


#: kind -> (weight, targets, least seconds, most seconds).
KINDS: dict[str, tuple[float, tuple[str, ...], float, float]] = {
    "kill": (3.0, ("any", "leader", "controller", "coordinator"), 0.1, 6.0),
    "wipe": (1.5, ("any", "leader"), 0.1, 6.0),
    "power": (2.0, ("any", "leader", "controller"), 0.1, 6.0),
    "stop": (1.5, ("any", "leader", "controller"), 0.5, 4.0),
    "pause": (2.0, ("any", "leader", "controller"), 0.2, 8.0),
    "isolate": (2.0, ("any", "leader", "controller"), 0.5, 8.0),
    "isolate_out": (1.0, ("any", "leader", "controller"), 0.5, 8.0),
    "isolate_in": (1.0, ("any", "leader", "controller"), 0.5, 8.0),
    "split": (1.0, ("any",), 0.5, 8.0),
    "ring": (0.5, ("any",), 0.5, 8.0),
    "from_controllers": (1.0, ("any", "leader"), 0.5, 8.0),
    "from_brokers": (1.0, ("any", "leader"), 0.5, 8.0),
    "break_all": (1.0, ("any", "leader", "controller"), 0.1, 0.2),
    "slow_link": (1.0, ("any", "leader"), 0.5, 6.0),
    "slow_node": (1.0, ("any", "leader", "controller"), 0.5, 6.0),
    "disk_slow": (1.0, ("any", "leader", "controller"), 0.5, 6.0),
    "disk_full": (0.7, ("any", "leader"), 0.5, 4.0),
    "disk_error": (0.7, ("any", "leader", "controller"), 0.2, 3.0),
    "rot": (1.0, ("any", "leader", "leader"), 0.5, 5.0),
    "clock": (0.7, ("any", "leader", "controller"), 0.5, 3.0),
    "kill_all": (0.3, ("any",), 0.1, 2.0),
    "client_crash": (1.0, ("any",), 0.1, 2.0),
    "elect": (0.7, ("any",), 0.1, 0.2),
    "reassign": (0.7, ("any",), 0.1, 0.2),
    "grow": (0.4, ("any",), 0.1, 0.2),
    "topics": (0.5, ("any",), 0.5, 2.0),
    "min_isr": (0.3, ("any",), 0.5, 3.0),
    "voters": (3.0, ("any", "controller"), 0.3, 3.0),
}


#: Kinds that are drawn separately (`_more_rot`), in the format of `KINDS`.
ROT_KINDS: dict[str, tuple[float, tuple[str, ...], float, float]] = {
    "rot_internal": (2.0, ("any",), 0.5, 4.0),
    "rot_metadata": (3.0, ("any", "controller", "controller"), 0.3, 4.0),
    "rot_fetched": (1.0, ("leader",), 0.5, 4.0),
}
#: Share of the seeds with faults of several kinds.
ROT_SHARE = 0.2
#: Profiles with power cuts that leave a gap in a metadata log, and the share of their seeds.
GAPS_IN = frozenset({"crashes", "disks", "rot", "mixed", "storm"})
GAPS_SHARE = 0.15
#: Share of the seeds with transactions.
STALLS_SHARE = 0.4
#: Share of the seeds with disks whose files are not all in memory.
MISSES_SHARE = 0.4


#: Profiles with connections that fall silent, and the share of their seeds.
SILENCES_IN = frozenset({"crashes", "network", "mixed", "storm"})
SILENCES_SHARE = 0.35

#: Profiles with shortages of descriptors and memory, and the share of their seeds.
SHORTAGES_IN = frozenset({"crashes", "disks", "mixed", "storm"})
SHORTAGES_SHARE = 0.3


def draw(seed: int, *, profile: str | None = None, duration_s: float | None = None) -> tuple[Options, list[Fault]]:
    """Options and faults of a seed. `profile`: calm, one, crashes, network, disks, rot, mixed, storm; None = drawn."""
    generator = random.Random(f"swarm/{seed}")
    pick = generator.random()
    drawn = (
        "calm" if pick < 0.12 else "one" if pick < 0.25 else "crashes" if pick < 0.43 else "network" if pick < 0.61
        else "disks" if pick < 0.7 else "rot" if pick < 0.74 else "mixed" if pick < 0.93 else "storm"
    )  # fmt: skip
    profile = profile or drawn
    options = _options(seed, generator, profile, duration_s)
    faults = _faults(generator, options)
    _transactions(options)
    _consumer_group(options)
    _share_group(options)
    _streams_group(options)
    _arrivals(options)
    _pending_answers(options)
    _steps(options)
    _gathering(options)
    _misses(options)
    drawn_apart = [*_more_rot(options), *_gaps(options), *_stalls(options), *_silences(options), *_shortages(options)]
    return options, sorted([*faults, *drawn_apart], key=lambda fault: fault.at_s)


def _more_rot(options: Options) -> list[Fault]:
    """Draw faults of ROT_KINDS, with a separate generator, so that a seed's other faults do not change."""
    generator = random.Random(f"swarm/rot/{options.seed}")
    if options.profile in ("calm", "one") or (options.profile != "rot" and generator.random() >= ROT_SHARE):
        return []
    faults = []
    for _ in range(generator.choice((1, 2, 3))):
        kind = generator.choices(list(ROT_KINDS), [entry[0] for entry in ROT_KINDS.values()])[0]
        _, targets, least, most = ROT_KINDS[kind]
        at_s = round(generator.uniform(0.1, 0.9) * options.duration_s, 3)
        seconds = round(generator.uniform(least, most), 3)
        faults.append(Fault(at_s, kind, targets[generator.randrange(len(targets))], seconds, generator.randrange(1 << 16)))
    return faults


def _gaps(options: Options) -> list[Fault]:
    """Draw power cuts that leave a gap, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/holes/{options.seed}")
    if options.profile not in GAPS_IN or generator.random() >= GAPS_SHARE:
        return []
    faults = []
    for _ in range(generator.choice((1, 1, 2))):
        at_s = round(generator.uniform(0.1, 0.7) * options.duration_s, 3)
        seconds = round(generator.uniform(0.3, 4.0), 3)
        faults.append(Fault(at_s, "hole", generator.choice(("controller", "any")), seconds, generator.randrange(1 << 16)))
    return faults


def _stalls(options: Options) -> list[Fault]:
    """Draw pauses of followers that are longer than a coordinator waits for its records and markers, but too short for the follower to
    leave the in-sync set. With a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/stalls/{options.seed}")
    if options.profile == "calm" or not options.transactors or generator.random() >= STALLS_SHARE:
        return []
    options.properties |= {
        "request.timeout.ms": generator.choice(("300", "600")),
        "offsets.commit.timeout.ms": generator.choice(("300", "1000")),
        "broker.session.timeout.ms": "3000",
        "replica.lag.time.max.ms": "20000",
    }
    faults, at_s = [], generator.expovariate(1.0) * 0.5
    while at_s < options.duration_s:
        faults.append(Fault(round(at_s, 3), "pause", "any", round(generator.uniform(0.3, 1.2), 3), generator.randrange(1 << 16)))
        at_s += 0.3 + generator.expovariate(1.0) * 0.7
    return faults


def _silences(options: Options) -> list[Fault]:
    """Draw connections that fall silent, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/silences/{options.seed}")
    if options.profile not in SILENCES_IN or generator.random() >= SILENCES_SHARE:
        return []
    faults = []
    for _ in range(generator.choice((1, 1, 2, 3))):
        at_s = round(generator.uniform(0.05, 0.9) * options.duration_s, 3)
        target = generator.choice(("any", "leader", "controller", "controller"))
        faults.append(Fault(at_s, "silence", target, 0.1, generator.randrange(1 << 16)))
    return faults


def _shortages(options: Options) -> list[Fault]:
    """Draw shortages of descriptors and memory, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/shortages/{options.seed}")
    if options.profile not in SHORTAGES_IN or generator.random() >= SHORTAGES_SHARE:
        return []
    faults = []
    for _ in range(generator.choice((1, 2, 4))):
        at_s = round(generator.uniform(0.0, 0.9) * options.duration_s, 3)
        target = generator.choice(("any", "leader", "controller", "coordinator"))
        faults.append(Fault(at_s, "shortage", target, round(generator.uniform(0.2, 3.0), 3), generator.randrange(1 << 16)))
    return faults


def _arrivals(options: Options) -> None:
    """Draw how frames arrive, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/arrivals/{options.seed}")
    if generator.random() >= TOGETHER_SHARE:
        return
    options.wake_s = generator.choice((0.0, 0.001, 0.005, 0.02))
    options.batch_bytes_max = generator.choice((1, 1, 100, 1 << 18))
    options.batch_records_max = generator.choice((3, 8, 8))
    if options.batch_bytes_max < Options(0).batch_bytes_max or options.wake_s > SHORT_DELAY_S_MAX:
        # Followers that take one batch with each fetch could not keep up with so many small ones, or with so long a way.
        options.properties["replica.fetch.max.bytes"] = "1048576"


def _pending_answers(options: Options) -> None:
    """Draw how many requests of a connection are served at a time, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/answers/{options.seed}")
    if generator.random() < FEW_ANSWERS_SHARE:
        options.pending_answers_max = generator.choice((1, 1, 2, 8))


def _steps(options: Options) -> None:
    """Draw how long steps of divided work seem to take, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/steps/{options.seed}")
    if generator.random() < LONG_STEPS_SHARE:
        options.step_s = generator.choice((0.001, 0.004, 0.02))
        if options.step_s > SHORT_DELAY_S_MAX:
            options.properties["replica.fetch.max.bytes"] = "1048576"


def _gathering(options: Options) -> None:
    """Draw whether producers send several partitions in one request, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/gathering/{options.seed}")
    if generator.random() < GATHERING_SHARE:
        options.gather_s = generator.choice((0.0, 0.002, 0.02))
        options.partitions = generator.choice((2, 4, 6))
        options.batch_records_max = max(options.batch_records_max, 3)


def _misses(options: Options) -> None:
    """Draw how often disks have to be waited for, with a separate generator, as `_more_rot`."""
    generator = random.Random(f"swarm/misses/{options.seed}")
    if generator.random() < MISSES_SHARE:
        options.misses_every = generator.choice((1, 2, 5, 30))


def _transactions(options: Options) -> None:
    """Draw the transactional clients, with a separate generator, so that seeds without transactions do not change."""
    generator = random.Random(f"swarm/transactions/{options.seed}")
    if generator.random() >= TRANSACTIONS_SHARE:
        return
    options.transactors = generator.choice((1, 2, 2, 3))
    options.committed_readers = generator.choice((0, 1, 1))
    options.transaction_timeout_ms = generator.choice((400, 800, 2000))
    # They replace other clients, so that a seed takes no longer.
    options.producers = 1
    options.group_members = min(options.group_members, 1)
    options.properties["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = generator.choice(("100", "500"))
    options.hasty_writers = generator.choice((0, 1))


def _consumer_group(options: Options) -> None:
    """Draw the group of the consumer protocol, with a separate generator, as `_transactions`."""
    generator = random.Random(f"swarm/consumers/{options.seed}")
    if generator.random() >= CONSUMERS_SHARE:
        return
    options.consumer_members = generator.choice((1, 2, 2, 3))
    options.static_members = generator.randrange(options.consumer_members + 1)
    options.session_timeout_s = generator.choice((0.7, 1.5, 3.0))
    # They replace the classic group, so that a seed takes no longer.
    options.group_members = 0
    session_ms = int(1000 * options.session_timeout_s)
    options.properties |= {
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": str(session_ms),
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": str(session_ms // generator.choice((4, 10))),
        "group.consumer.assignment.interval.ms": generator.choice(("0", "0", "300")),
        "group.consumer.assignors": generator.choice(("uniform,range", "range,uniform")),
    }


def _share_group(options: Options) -> None:
    """Draw the share group, with a separate generator, as `_transactions`."""
    generator = random.Random(f"swarm/shares/{options.seed}")
    if generator.random() >= SHARES_SHARE:
        return
    options.share_members = generator.choice((1, 2, 2, 3))
    options.delivery_count_max = generator.choice((2, 3, 5))
    options.readers = 0
    session_ms = generator.choice((700, 1500, 3000))
    options.properties |= {
        "group.share.delivery.count.limit": str(options.delivery_count_max),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "1000",
        "group.share.min.session.timeout.ms": "500",
        "group.share.session.timeout.ms": str(session_ms),
        "group.share.min.heartbeat.interval.ms": "50",
        "group.share.heartbeat.interval.ms": str(session_ms // 5),
        "group.share.assignment.interval.ms": "0",
        "group.share.initialize.retry.interval.ms": "500",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.write.timeout.ms": generator.choice(("500", "5000")),
        "share.coordinator.snapshot.update.records.per.snapshot": generator.choice(("1", "10", "500")),
    }
    options.has_dead_letters = generator.random() < DEAD_LETTERS_SHARE


def _streams_group(options: Options) -> None:
    """Draw the streams group, with a separate generator, as `_transactions`."""
    generator = random.Random(f"swarm/streams/{options.seed}")
    if generator.random() >= STREAMS_SHARE:
        return
    options.streams_members = generator.choice((1, 2, 2, 3))
    # They replace the classic group, so that a seed takes no longer.
    options.group_members = 0
    session_ms = int(1000 * options.session_timeout_s)
    options.properties |= {
        "group.streams.min.session.timeout.ms": "500",
        "group.streams.session.timeout.ms": str(session_ms),
        "group.streams.min.heartbeat.interval.ms": "50",
        "group.streams.heartbeat.interval.ms": str(session_ms // generator.choice((4, 10))),
        "group.streams.initial.rebalance.delay.ms": generator.choice(("0", "0", "300")),
        "group.streams.assignment.interval.ms": generator.choice(("0", "0", "300")),
        "group.streams.num.standby.replicas": generator.choice(("0", "1")),
    }


def _options(seed: int, generator: random.Random, profile: str, duration_s: float | None) -> Options:
    def one(*values: object) -> object:
        return values[generator.randrange(len(values))]

    load_s = generator.choices(list(LOADS_S), list(LOADS_S.values()))[0] if duration_s is None else duration_s
    is_short = load_s <= SHORT_LOAD_S
    shape = str(one("combined", "combined", "combined", "separate", "separate", "quorum", "five"))
    segment_ms = str(one("604800000", "604800000", "700", "2000") if is_short else one("604800000", "604800000", "1500", "6000"))
    options = Options(
        seed,
        shape=shape,
        partitions=int(str(one(1, 2, 2, 3))),
        min_isr=int(str(one(1, 2, 2, 2))),
        duration_s=load_s,
        producers=int(str(one(1, 2, 2, 3))),
        readers=int(str(one(0, 1, 1))),
        group_members=int(str(one(0, 1, 2))),
        pace_s=float(str(one(0.05, 0.15, 0.3))),
        batch_records_max=int(str(one(1, 3, 8))),
        value_bytes=int(str(one(16, 16, 200, 2000))),
        delay_mean_s=float(str(one(0.0005, 0.002, 0.01, 0.05))) if profile != "calm" else 0.001,
        delivery_timeout_ms=int(str(one(4_000, 15_000, 30_000))),
        profile=profile,
    )
    if profile in ("network", "mixed", "storm"):
        options.break_probability = float(str(one(0, 0, 0.002, 0.01)))
        options.clock_spread = float(str(one(0, 0, 0.02, 0.1)))
    if profile in ("disks", "mixed", "storm"):
        options.blocking_s = float(str(one(0.0005, 0.01, 0.1)))
        options.sync_s = float(str(one(0, 0, 0.005, 0.05)))
    options.has_cleaner = generator.random() < 0.3
    options.is_dynamic = generator.random() < 0.3 and shape in ("combined", "quorum", "five")
    options.topic = {
        "segment.ms": segment_ms,
        "index.interval.bytes": str(one("4096", "1")),
        "flush.messages": str(one(NEVER, NEVER, "1", "5")),
    }
    options.properties = _properties(one, is_short=is_short, has_cleaner=options.has_cleaner)
    # Drawn with a separate generator, so that the rest of a seed does not change.
    options.properties["minikafka.handover.ms"] = random.Random(f"handover/{seed}").choice(("0", "100", "1000", "1000", "1000"))
    if options.has_cleaner:
        options.properties |= {"log.roll.ms": "1500", "log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.backoff.ms": "500"}
    return options


def _properties(one: Callable[..., object], *, is_short: bool, has_cleaner: bool) -> dict[str, str]:
    """Properties of the brokers; `one` draws one of its arguments."""
    return {
        "broker.session.timeout.ms": str(one("700", "1500", "3000") if is_short else one("1500", "3000", "6000")),
        "broker.heartbeat.interval.ms": str(one("150", "300") if is_short else one("250", "500")),
        "replica.lag.time.max.ms": str(one("500", "1000", "2000") if is_short else one("1000", "2000", "5000")),
        "replica.fetch.wait.max.ms": str(one("100", "500", "500")),
        "replica.fetch.backoff.ms": str(one("200", "1000")),
        "replica.fetch.max.bytes": str(one("1", "1048576", "1048576")),
        "replica.high.watermark.checkpoint.interval.ms": str(one("500", "5000")),
        "replica.socket.timeout.ms": str(one("2000", "5000", "30000")),
        "num.replica.fetchers": str(one("1", "1", "2")),
        "log.flush.offset.checkpoint.interval.ms": str(one("1000", "60000")),
        "log.index.size.max.bytes": str(one("48", "4096")),
        "log.segment.delete.delay.ms": str(one("500", "60000")),
        "log.retention.check.interval.ms": "5000",
        "metadata.max.idle.interval.ms": str(one("500", "2000")),
        "metadata.log.max.record.bytes.between.snapshots": str(one("1000", "4000", "20971520")),
        "metadata.log.max.snapshot.interval.ms": str(one("0", "3000")),
        "metadata.max.retention.bytes": str(one("1000", "104857600")),
        "max.incremental.fetch.session.cache.slots": str(one("1", "1000", "1000")),
        "leader.imbalance.check.interval.seconds": str(one("1", "5", "300")),
        "log.cleaner.enable": str(has_cleaner).lower(),
    }


def _faults(generator: random.Random, options: Options) -> list[Fault]:
    profile = options.profile
    if profile == "calm":
        return []
    groups: dict[str, Callable[[str], bool]] = {
        "crashes": lambda kind: kind in ("kill", "power", "stop", "pause", "kill_all", "client_crash", "elect", "voters"),
        "network": lambda kind: kind
        in (
            "isolate", "isolate_in", "isolate_out", "split", "ring", "from_controllers", "from_brokers", "break_all", "slow_link",
            "slow_node", "pause",
        ),
        "disks": lambda kind: kind in ("disk_slow", "disk_full", "disk_error", "power", "kill", "clock", "wipe", "rot"),
        "rot": lambda kind: kind in ("rot", "isolate_in", "isolate_out", "pause", "reassign", "client_crash"),
    }  # fmt: skip
    is_in_profile = groups.get(profile)
    allowed = [kind for kind in KINDS if (is_in_profile is None or is_in_profile(kind)) and (options.is_dynamic or kind != "voters")]
    if profile in ("mixed", "storm"):
        # Swarm testing: leave out half of the kinds.
        allowed = [kind for kind in allowed if generator.random() < 0.5] or allowed
    if profile == "one":
        allowed = [allowed[generator.randrange(len(allowed))]]
    load_s = options.duration_s
    share = (0.12, 0.25, 0.5)[generator.randrange(3)]
    gap_s = {"one": load_s / 2, "storm": min(0.1 * load_s, 0.7)}.get(profile, min(share * load_s, 4.0))
    shorter = min(1.0, 2 * load_s / 8.0)
    faults: list[Fault] = []
    at_s = generator.expovariate(1.0) * gap_s
    while at_s < options.duration_s and not (profile == "one" and faults):
        kind = generator.choices(allowed, [KINDS[kind][0] for kind in allowed])[0]
        _, targets, least, most = KINDS[kind]
        seconds = min(least + generator.expovariate(1.0) * (most - least) / 2, most * 1.5)
        seconds = max(least, seconds * shorter)
        target = targets[generator.randrange(len(targets))]
        faults.append(Fault(round(at_s, 3), kind, target, round(seconds, 3), generator.randrange(1 << 16)))
        at_s += generator.expovariate(1.0) * gap_s
    return faults
