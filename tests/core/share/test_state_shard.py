"""The share coordinator's shard: what is committed is what is read, and who was fenced writes no more."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from minikafka.core.coordinator.shard import Append
from minikafka.core.share.coordinator import Outcome, ShareCoordinatorConfig, ShareStateShard, StateWrite
from minikafka.core.share.state import SharePartitionKey
from minikafka.core.share.state_batches import DeliveryState, StateBatch, combine, is_sound
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.share_records import ShareSnapshotValue, ShareUpdateValue

TOPIC = b"t" * 16
KEY = SharePartitionKey("g", TOPIC, 0)


class OneTopic:
    topic_id, name, partition_count = TOPIC, "t", 4

    def racks(self, index: int) -> list[str]:
        return []


class Topics:
    version = 1
    exists = True

    def by_id(self, topic_id: bytes) -> Any:
        return OneTopic() if self.exists and topic_id == TOPIC else None

    def by_name(self, name: str) -> Any:
        return OneTopic() if self.exists and name == "t" else None

    def names(self) -> list[str]:
        return ["t"]


class World:
    """A shard and its log; appends are committed at once, unless `is_held`."""

    def __init__(self, config: ShareCoordinatorConfig | None = None) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.topics = Topics()
        self.wall_ms = 1000
        self.log: list[Any] = []
        self.held: list[Append] = []
        self.is_held = False
        self.restart()

    def restart(self) -> None:
        """Another broker loads the log."""
        self.shard = ShareStateShard(self.config, self.topics, lambda: self.wall_ms)
        for offset, record in enumerate(self.log):
            self.shard.offset = offset
            self.shard.replay(record.key, record.value)
        self.shard.loaded(0)

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for append in effects.appends:
                if self.is_held:
                    self.held.append(append)
                else:
                    self.commit(append)
            for reply, outcome in effects.answers:
                reply(outcome)

    def commit(self, append: Append) -> None:
        for record in append.records:
            self.shard.offset = len(self.log)
            self.log.append(record)
            self.shard.replay(record.key, record.value)
        append.on_settled(True, 0)
        append.on_done(ErrorCode.NONE, 0)

    def ask(self, method: str, *arguments: Any) -> list[Outcome]:
        answers: list[Outcome] = []
        getattr(self.shard, method)(answers.append, KEY, *arguments, 0)
        self.run()
        return answers

    def initialize(self, epoch: int = 1, start: int = 0) -> ErrorCode:
        return self.ask("initialize", epoch, start)[0].code

    def write(self, *batches: StateBatch, leader: int = 0, epoch: int = 1, start: int = -1) -> ErrorCode:
        return self.ask("write", StateWrite(epoch, leader, start, 0, batches))[0].code

    def read(self, leader: int = 0) -> Outcome:
        return self.ask("read", leader)[0]


def test_written_state_is_read_after_the_coordinators_death() -> None:
    world = World()
    assert world.initialize(start=10) is ErrorCode.NONE
    assert world.write(StateBatch(10, 19, 2, 1)) is ErrorCode.NONE
    assert world.write(StateBatch(15, 24, 0, 2), start=12) is ErrorCode.NONE
    for _ in range(2):
        state = world.read().state
        assert state is not None
        assert (state.start_offset, list(state.batches)) == (12, [StateBatch(12, 14, 2, 1), StateBatch(15, 24, 0, 2)])
        world.restart()


def test_a_leader_that_has_read_fences_those_before_it() -> None:
    world = World()
    world.initialize()
    assert world.read(5).code is ErrorCode.NONE
    world.restart()
    assert world.write(StateBatch(0, 0, 2, 1), leader=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(4).code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(StateBatch(0, 0, 2, 1), leader=5) is ErrorCode.NONE


def test_a_write_waits_for_the_fence_that_is_under_way() -> None:
    world = World()
    world.initialize()
    world.is_held = True
    fence, late = world.ask("read", 5), world.ask("write", StateWrite(1, 4, -1, 0, [StateBatch(0, 0, 2, 1)]))
    assert (fence, late) == ([], [])
    world.is_held = False
    world.commit(world.held.pop())
    world.run()
    assert fence[0].code is ErrorCode.NONE
    assert late[0].code is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(0, 5, 5, 1), StateBatch(0, 5, 1, 1), StateBatch(0, 5, -1, 1), StateBatch(-1, 5, 0, 1), StateBatch(6, 5, 0, 1),
        StateBatch(0, (1 << 63) - 1, 0, 1), StateBatch(0, 5, 0, -1), StateBatch(0, 5, 0, (1 << 15) - 1),
    ],
)  # fmt: skip
def test_a_state_that_no_leader_could_go_on_from_is_not_written(batch: StateBatch) -> None:
    world = World()
    world.initialize()
    assert world.write(StateBatch(0, 5, DeliveryState.ARCHIVING, (1 << 15) - 1)) is ErrorCode.NONE
    assert world.write(batch) is ErrorCode.INVALID_REQUEST
    assert not is_sound(batch)
    assert len(world.log) == 2


def test_states_of_older_epochs_are_fenced() -> None:
    world = World()
    world.initialize(epoch=3)
    for batch in (StateBatch(0, 0, 2, 1), StateBatch(1, 0, 2, 1)):
        assert world.write(batch, epoch=2) is ErrorCode.FENCED_STATE_EPOCH
    assert world.initialize(epoch=2) is ErrorCode.FENCED_STATE_EPOCH
    assert world.initialize(epoch=4) is ErrorCode.NONE
    assert [record.value.snapshot_epoch for record in world.log] == [0, 1]


@pytest.mark.parametrize("epoch", [3, 4])
def test_an_earlier_try_to_initialize_that_arrives_late_resets_nothing(epoch: int) -> None:
    """The group coordinator asks again after a time-out. Seed 10088: members were given records that they had acknowledged."""
    world = World()
    assert world.initialize(epoch=3, start=-1) is ErrorCode.NONE
    assert world.write(StateBatch(0, 6, 2, 1), leader=1, epoch=3, start=7) is ErrorCode.NONE
    appended = len(world.log)
    assert world.initialize(epoch=epoch, start=-1) is ErrorCode.NONE
    assert len(world.log) == appended + (epoch > 3)
    state = world.read(1).state
    assert state is not None and (state.start_offset, state.state_epoch) == (7, epoch)


@pytest.mark.parametrize("updates_per_snapshot", [0, 500])
def test_an_alteration_that_was_given_up_is_fenced_before_members_get_the_partition(updates_per_snapshot: int) -> None:
    """The coordinator that began it in epoch 4 was suspended. The next one does not know whether it was made; a member joins in epoch 5,
    and only initialized partitions are assigned."""
    world = World(ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot))
    assert world.initialize(epoch=3, start=-1) is ErrorCode.NONE
    assert world.write(StateBatch(5, 6, 2, 1), leader=1, epoch=3, start=4) is ErrorCode.NONE
    assert world.initialize(epoch=5, start=-1) is ErrorCode.NONE
    kept = world.read(1).state
    assert kept is not None and (kept.start_offset, list(kept.batches)) == (4, [StateBatch(5, 6, 2, 1)])
    assert world.write(StateBatch(4, 4, 2, 1), leader=1, epoch=3) is ErrorCode.FENCED_STATE_EPOCH, "its leader reads it again"
    assert world.write(StateBatch(4, 4, 2, 1), leader=1, epoch=5) is ErrorCode.NONE
    world.restart()
    assert world.initialize(epoch=4, start=0) is ErrorCode.FENCED_STATE_EPOCH
    assert world.initialize(epoch=6, start=0) is ErrorCode.NONE, "a later one counts"


@pytest.mark.parametrize("updates_per_snapshot", [0, 1, 500])
@pytest.mark.parametrize("batches", [[], [StateBatch(7, 9, 0, 1)]], ids=["settled", "released"])
def test_an_earlier_try_to_begin_at_an_offset_resets_nothing_that_a_leader_has_used(
    updates_per_snapshot: int, batches: list[StateBatch]
) -> None:
    """Seed 7004060: a new partition of a topic that its group knows begins at 0."""
    world = World(ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot))
    assert world.initialize(epoch=3, start=0) is ErrorCode.NONE
    assert world.initialize(epoch=3, start=5) is ErrorCode.NONE, "nobody has used it yet"
    for offset in (6, 7):
        assert world.ask("write", StateWrite(3, 0, offset, 0, batches))[0].code is ErrorCode.NONE
    for _ in range(2):
        assert world.initialize(epoch=3, start=0) is ErrorCode.NONE
        state = world.read(0).state
        assert state is not None and (state.start_offset, list(state.batches)) == (7, batches)
        world.restart()
    assert world.initialize(epoch=4, start=2) is ErrorCode.NONE
    state = world.read(0).state
    assert state is not None and (state.start_offset, list(state.batches)) == (2, [])


@pytest.mark.parametrize("updates_per_snapshot", [0, 500])
def test_an_earlier_try_to_write_that_arrives_late_forgets_nothing(updates_per_snapshot: int) -> None:
    """A leader writes again after a time-out. Records that the state no longer mentioned were delivered again."""
    world = World(ShareCoordinatorConfig(updates_per_snapshot=updates_per_snapshot))
    world.initialize()
    writes = [StateWrite(1, 1, start, count, [batch]) for start, count, batch in (
        (0, 5, StateBatch(0, 4, 2, 1)), (5, 5, StateBatch(5, 9, 2, 1)), (10, 3, StateBatch(12, 14, 2, 1)),
    )]  # fmt: skip
    world.read(1)
    for write in (*writes, writes[0], replace(writes[1], start_offset=-1)):
        assert world.ask("write", write)[0].code is ErrorCode.NONE
    for _ in range(2):
        state = world.read(1).state
        assert state is not None and (state.start_offset, list(state.batches)) == (10, [StateBatch(12, 14, 2, 1)])
        world.restart()


def test_an_uninitialized_state_is_refused_and_its_summary_is_empty() -> None:
    world = World()
    assert world.write(StateBatch(0, 0, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert world.read().code is ErrorCode.INVALID_REQUEST
    summary = world.shard.read_summary(KEY).state
    assert summary is not None
    assert (summary.start_offset, summary.delivery_complete_count) == (-1, -1)
    assert world.ask("delete")[0].code is ErrorCode.NONE
    assert not world.log


def test_a_snapshot_comes_after_as_many_updates_as_configured() -> None:
    world = World(ShareCoordinatorConfig(updates_per_snapshot=2))
    world.initialize()
    for offset in range(4):
        world.write(StateBatch(offset, offset, 2, 1))
    kinds = [type(record.value) for record in world.log]
    assert kinds == [ShareSnapshotValue, ShareUpdateValue, ShareUpdateValue, ShareSnapshotValue, ShareUpdateValue]
    assert world.shard.last_redundant_offset() == 3
    world.restart()
    state = world.read().state
    assert state is not None
    assert list(state.batches) == [StateBatch(0, 3, 2, 1)]
    assert world.shard.last_redundant_offset() == 3


def test_idle_states_get_a_snapshot_so_that_the_log_can_be_deleted() -> None:
    world = World()
    world.initialize()
    world.write(StateBatch(5, 5, 2, 1))
    for _ in world.shard.snapshot_cold(0):
        world.run()
    assert len(world.log) == 2
    world.wall_ms += world.config.cold_interval_ms
    for _ in world.shard.snapshot_cold(0):
        world.run()
    world.run()
    assert world.shard.last_redundant_offset() == 2
    world.log[:2] = [world.log[2]] * 2
    world.restart()
    state = world.read().state
    assert state is not None
    assert (list(state.batches), state.snapshot_epoch) == ([StateBatch(5, 5, 2, 1)], 1)


def test_topics_that_are_gone_take_their_states_with_them() -> None:
    world = World()
    world.initialize()
    world.topics.exists = False
    assert world.write(StateBatch(0, 0, 2, 1)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in world.shard.topics_deleted([TOPIC], 0):
        world.run()
    world.run()
    assert world.shard.count == 0
    assert world.log[-1].value is None


def test_a_shard_has_room_for_so_many_and_no_more() -> None:
    world = World(ShareCoordinatorConfig(partitions_max=1))
    world.initialize()
    answers: list[Outcome] = []
    world.shard.initialize(answers.append, SharePartitionKey("other", TOPIC, 0), 1, 0, 0)
    world.run()
    assert answers[0].code is ErrorCode.POLICY_VIOLATION
    assert world.initialize(epoch=2) is ErrorCode.NONE


def test_waiting_requests_fail_when_the_leadership_ends() -> None:
    world = World()
    world.initialize()
    world.is_held = True
    world.ask("read", 5)
    waiting = world.ask("read", 6)
    world.shard.shutdown()
    world.run()
    assert waiting[0].code is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("seed", range(30))
def test_stretches_say_of_every_record_what_the_strongest_says(seed: int) -> None:
    draw = random.Random(seed)

    def some() -> list[StateBatch]:
        drawn = [(draw.randrange(30), draw.randrange(10), draw.choice((0, 2, 4)), draw.randrange(3)) for _ in range(8)]
        return [StateBatch(first, first + size, state, count) for first, size, state, count in drawn]

    so_far, new, start = some(), some(), draw.choice((-1, 0, 12))
    combined = combine(so_far, new, start)
    states = {offset: (b.delivery_count, b.delivery_state) for b in combined for offset in range(b.first_offset, b.last_offset + 1)}
    wanted: dict[int, tuple[int, int]] = {}
    for batch in so_far + new:
        for offset in range(max(batch.first_offset, start), batch.last_offset + 1):
            wanted[offset] = max(wanted.get(offset, (-1, -1)), (batch.delivery_count, batch.delivery_state))
    assert states == wanted
    assert sum(b.last_offset - b.first_offset + 1 for b in combined) == len(states)


def test_negative_epochs_are_refused_before_anything_else() -> None:
    """Apache Kafka 4.4 answers so, whether there is a state or not (ShareCoordinatorShard)."""
    world = World()
    assert world.initialize(epoch=-1) is ErrorCode.INVALID_REQUEST and not world.log
    world.initialize(epoch=3)
    read = world.read(leader=-1)
    assert [world.initialize(epoch=-1), world.write(epoch=-1), world.write(leader=-1, epoch=3)] == [ErrorCode.INVALID_REQUEST] * 3
    assert (read.code, read.message) == (ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
    assert len(world.log) == 1
