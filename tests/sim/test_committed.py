"""The simulator's own comparisons: with all that is committed, with what a cleaned log has to keep, and of a share group's deliveries."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from minikafka.core.metadata.image import MetadataImage
from minikafka.sim import compaction
from minikafka.sim.attempts import Attempt
from minikafka.sim.dead_letters import DeadLetters
from minikafka.sim.disk import Disk, DiskView
from minikafka.sim.replicas import Truth, first_difference, log_of
from minikafka.sim.shares import Shares
from minikafka.sim.swarm import Options
from minikafka.sim.world import World
from minikafka.wire.batch import build_batch
from minikafka.wire.record import Record

LOG = "/data/t-0"


def batch(offset: int, value: bytes | None, key: bytes | None = None) -> bytes:
    data = bytearray(build_batch([Record(0, 1, key, value)]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def disk_of(*segments: list[bytes]) -> Disk:
    """A disk with one log; a segment begins with its first batch."""
    disk = Disk()
    view = DiskView(disk)
    view.mkdir(LOG)
    for batches in segments:
        name = f"{int.from_bytes(batches[0][:8], 'big'):020}.log"
        view.open(f"{LOG}/{name}", create=True).pwrite(b"".join(batches), 0)
    return disk


def truth_of(disk: Disk) -> Truth:
    truth = Truth()
    for found in log_of(disk, LOG):
        truth.append(found)
    return truth


ALL = [batch(offset, b"%d" % offset) for offset in range(6)]


def test_all_that_is_committed_is_compared_however_the_log_is_divided() -> None:
    truth = truth_of(disk_of(ALL))
    assert first_difference(disk_of(ALL[:2], ALL[2:5], ALL[5:]), LOG, truth, 0) is None
    assert first_difference(disk_of([*ALL, batch(6, b"not committed")]), LOG, truth, 0) is None
    other = [*ALL[:2], batch(2, b"another"), *ALL[3:]]
    found = first_difference(disk_of(other), LOG, truth, 0)
    assert found is not None and found.base == 2
    gap = first_difference(disk_of(ALL[:3], ALL[4:]), LOG, truth, 0)
    assert gap is not None and gap.base == 3
    short = first_difference(disk_of(ALL[:5]), LOG, truth, 0)
    assert short is not None and short.base == 5


def test_what_was_deleted_below_the_start_of_a_log_is_not_missed() -> None:
    truth = truth_of(disk_of(ALL))
    assert first_difference(disk_of(ALL[2:]), LOG, truth, 2) is None
    lost = first_difference(disk_of(ALL[2:]), LOG, truth, 0)
    assert lost is not None and lost.base == 0


def test_a_file_that_was_cut_and_written_again_is_summed_anew() -> None:
    truth, disk = truth_of(disk_of(ALL)), disk_of(ALL)
    assert first_difference(disk, LOG, truth, 0) is None
    inode = next(iter(disk.files[LOG].values()))
    inode.truncate(4 * len(ALL[0]))
    inode.write(ALL[4] + batch(5, b"x"), 4 * len(ALL[0]))
    found = first_difference(disk, LOG, truth, 0)
    assert found is not None and found.base == 5


class Recorder:
    """Invariants of which nothing is needed but where violations go."""

    def __init__(self, **options: Any) -> None:
        self.violations: list[str] = []
        self.checked: Counter[str] = Counter()
        self.image = MetadataImage()
        self.rotten: set[int] = set()
        rot = SimpleNamespace(of=lambda node, directory: self.rotten)
        self.world = SimpleNamespace(
            options=SimpleNamespace(**options), violate=lambda rule, text: self.violations.append(rule), chaos=SimpleNamespace(rot=rot)
        )


def cleaned(*kept: bytes, rotten: tuple[int, ...] = ()) -> list[str]:
    """The violations of a cleaned replica, after "a" was written twice, then "b", and "c" was deleted."""
    written = [batch(0, b"1", b"a"), batch(1, b"2", b"a"), batch(2, b"3", b"b"), batch(3, b"4", b"c"), batch(4, None, b"c")]
    disk = disk_of(written)
    truth = truth_of(disk)
    for _, inode in compaction.segments_of(disk, LOG):
        for found in log_of(disk, LOG):
            truth.contents.update({offset: (key, crc, True) for offset, key, crc in compaction.contents(inode, found)})
    invariants: Any = Recorder()
    invariants.rotten.update(rotten)
    compaction.check(invariants, SimpleNamespace(disk=disk_of(list(kept))), LOG, truth)  # type: ignore[arg-type]
    return list(invariants.violations)


def test_a_cleaned_log_has_the_last_record_of_every_key_as_it_was() -> None:
    last = [batch(1, b"2", b"a"), batch(2, b"3", b"b")]
    assert cleaned(*last, batch(4, None, b"c")) == []
    assert cleaned(batch(1, b"other", b"a"), last[1], rotten=(1,)) == []
    assert cleaned(*last) == [], "a tombstone may be gone"
    assert cleaned(last[0]) == ["S4"], "b is lost"
    assert cleaned(batch(0, b"1", b"a"), last[1]) == ["S4"], "the last value of a is lost"
    assert cleaned(last[0], batch(2, b"4", b"b")) == ["S4"], "another value is there"


def test_what_was_acknowledged_with_acks_1_is_lost_by_an_election_only() -> None:
    world = World(Options(seed=1), [])
    log, registration = (b"t" * 16, 0), SimpleNamespace(leader_epoch=4)
    image: Any = SimpleNamespace(topics_by_id={log[0]: SimpleNamespace(name="t", partitions={0: registration})})
    invariants = world.invariants
    invariants.image, invariants.truths[log] = image, truth_of(disk_of(ALL))

    def rule(*batch: int) -> str | None:
        world.violation, invariants._unreplicated = None, {(log, batch)}  # type: ignore[assignment]
        invariants._check_unreplicated()
        return None if world.violation is None else world.violation.rule

    assert rule(*invariants.truths[log].batches[1].key) is None
    assert rule(1, 1, 4, 99) == rule(9, 9, 4, 99) == "S14", "nobody was elected after it"
    assert rule(1, 1, 3, 99) is None


def test_what_a_share_group_has_settled_stays_settled() -> None:
    def violations(count: int, *attempts: tuple[bool, int]) -> list[str]:
        recorder: Any = Recorder(delivery_count_max=3)
        shares = Shares(recorder)
        for is_final, code in attempts:
            attempt = Attempt((0, 7), 1, is_final=is_final, kind=1 if is_final else 2)
            shares.trying(attempt)
            shares.answered([attempt], code)
        run = SimpleNamespace(first_offset=7, last_offset=7, delivery_count=count)
        shares.acquired("n1", SimpleNamespace(index=0, topic_id=bytes(16)), [run])  # type: ignore[arg-type]
        return list(recorder.violations)

    assert violations(1) == violations(3) == violations(2, (False, 0)) == violations(1, (True, 6)) == violations(1, (False, 6)) == []
    assert violations(2, (True, 0)) == violations(1, (False, 0)) == violations(4) == violations(0) == ["S28"]


def test_what_a_replaced_leader_delivered_for_the_last_time_may_be_archived() -> None:
    """It may archive the record when the delivery ends: its writes count until its successor has read the state."""
    recorder: Any = Recorder(delivery_count_max=2)
    topic = SimpleNamespace(partitions={0: SimpleNamespace(leader_epoch=5)})
    recorder.image = SimpleNamespace(topics_by_id={bytes(16): topic})
    replicas = SimpleNamespace(is_in_doubt=lambda partition: False)
    replaced: Any = SimpleNamespace(node=SimpleNamespace(broker=SimpleNamespace(replicas=replicas)))
    shares = Shares(recorder)
    shares.answered([Attempt((0, 7), 1, is_final=False, kind=2)], 0)
    for count, left in ((1, [(0, 7)]), (2, [])):
        run = SimpleNamespace(first_offset=7, last_offset=7, delivery_count=count)
        shares.acquired(replaced, SimpleNamespace(index=0, topic_id=bytes(16), leader_epoch=4), [run])
        assert shares.unsettled([(0, 7)]) == left and recorder.violations == []


def test_the_dead_letter_queue_gets_what_is_given_up_and_nothing_else() -> None:
    recorder: Any = Recorder(delivery_count_max=3)
    letters = DeadLetters(recorder)
    rejected, delivered, accepted, late = (0, 0), (0, 1), (0, 2), (0, 3)
    letters.trying(Attempt(rejected, 1, is_final=True, kind=3))
    letters.confirmed(Attempt(rejected, 1, is_final=True, kind=3))
    letters.delivered(delivered, 3)
    letters.confirmed(Attempt(delivered, 3, is_final=False, kind=2))
    for kind in (1, 3):
        letters.trying(Attempt(late, 1, is_final=True, kind=kind))
        letters.confirmed(Attempt(late, 1, is_final=True, kind=kind))
    assert letters.missing() == [rejected, delivered]
    for place in (rejected, delivered):
        letters.arrived(place, b"as it was")
    assert letters.missing() == recorder.violations == []
    letters.judge({rejected: b"as it was", delivered: b"as it was"})
    assert recorder.violations == []
    letters.judge({rejected: b"as it was", delivered: b"otherwise"})
    assert recorder.violations == ["S29"]
    letters.delivered(accepted, 1)
    letters.arrived(accepted, None)
    assert recorder.violations == ["S29", "S29"]


def test_a_share_group_must_be_given_every_record_until_it_settles_it() -> None:
    recorder: Any = Recorder(delivery_count_max=3)
    shares = Shares(recorder)
    for offset, count in ((0, 1), (1, 3), (2, 1)):
        run = SimpleNamespace(first_offset=offset, last_offset=offset, delivery_count=count)
        shares.acquired("n1", SimpleNamespace(index=0, topic_id=bytes(16)), [run])  # type: ignore[arg-type]
    shares.trying(Attempt((0, 2), 1, is_final=True, kind=1))
    assert shares.unsettled([(0, 0), (0, 1), (0, 2), (0, 3)]) == [(0, 0), (0, 3)]
