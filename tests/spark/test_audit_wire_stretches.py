"""A replica on the wire is read in stretches of offsets, by several tasks: the verdict is that of one task, and a broker that goes away in
the midst costs no more than what was not read."""

from __future__ import annotations

import socket
import threading
from collections import Counter

import pytest
from helpers.log_clusters import ABORT, COMMIT, TRANSACTIONAL, Batch, marker, plain
from helpers.wire_replicas import WireReplicas

from minikafka.spark import fetch_reader
from minikafka.spark.audit import AuditResult
from minikafka.spark.fetch_client import BrokerError, Connection, Fetched
from minikafka.spark.live import BYTES_AN_OFFSET, stretches_of

BROKERS = (1, 2, 3)


def written() -> list[Batch]:
    """Batches of one record, of several, of a producer with transactions, and one that spans more offsets than many stretches."""
    batches = [plain(offset) for offset in range(5)]
    sequence = 0
    for number in range(4):
        base = batches[-1].last + 1
        records = [(delta, b"k", b"v") for delta in range(3)]
        batches.append(Batch(base, records, producer=7, producer_epoch=0, sequence=sequence, attributes=TRANSACTIONAL))
        batches.append(marker(base + 3, ABORT if number % 2 else COMMIT, 7))
        sequence += 3
    batches.append(plain(batches[-1].last + 1, 20))
    batches += [plain(batches[-1].last + 1 + 2 * number, 2, epoch=1) for number in range(6)]
    return batches


def alike(**more: object) -> WireReplicas:
    return WireReplicas({broker: written() for broker in BROKERS}, **more)  # type: ignore[arg-type]


def amounts(result: AuditResult) -> list[tuple[object, ...]]:
    return [(one.verdict, one.batches_compared, one.records_compared, one.replicas[0]["log_end"]) for one in result.partitions]


@pytest.mark.parametrize(("split_bytes", "answer_bytes"), [(1, 1), (1, 1 << 20), (150, 300), (400, 1), (1000, 300), (1 << 30, 1 << 20)])
def test_many_stretches_say_what_one_says(monkeypatch: pytest.MonkeyPatch, split_bytes: int, answer_bytes: int) -> None:
    world = alike(answer_bytes=answer_bytes)
    world.install(monkeypatch)
    whole, split = world.audit(), world.audit(split_bytes)
    assert amounts(split) == amounts(whole) and split.outcome == "PASS" and not split.findings.total("error")
    pieces = split.plan.replicas["t", 0][0].segments
    assert len(pieces) == min(world.high_watermark, -(-sum(map(len, world.bytes[1])) // split_bytes))
    assert whole.batches_compared == len(written())


@pytest.mark.parametrize("number", [0, 6, 13, 17])
def test_a_batch_that_is_other_or_gone_is_found_wherever_stretches_begin(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    one = written()[number]
    for split_bytes in (1, 400):
        world = alike(answer_bytes=300)
        world.install(monkeypatch)
        other = Batch(one.base, one.records, one.epoch, one.time_ms + 1, one.producer, one.producer_epoch, one.sequence, one.attributes)
        world.bytes[3][number] = other.encode()
        result = world.audit(split_bytes)
        assert [(found.check, found.offset) for found in result.findings.kept if found.level == "error"] == [("replica-differs", one.base)]
        # Missing on all brokers: over the wire nobody can tell whether the topic was compacted once, but for the last stretch.
        for brokers, statuses in (((3,), {1}), (BROKERS, {1, 3})):
            world = alike(answer_bytes=300)
            world.install(monkeypatch)
            for broker in brokers:
                del world.logs[broker][number], world.bytes[broker][number]
            assert world.audit(split_bytes).exit_code in statuses, (number, brokers)


@pytest.mark.parametrize("held", [[], [plain(0), plain(1)]])
@pytest.mark.parametrize(("is_compacted", "is_going_on", "is_alarm"), [(True, True, False), (True, False, True), (False, True, True)])
def test_a_cleaner_may_take_all_that_lay_before_the_fence(
    monkeypatch: pytest.MonkeyPatch, held: list[Batch], is_compacted: bool, is_going_on: bool, is_alarm: bool
) -> None:
    """Between the look at the high watermarks and the reading the log went on, and was cleaned."""
    batches = [*held, *([plain(25), plain(26)] if is_going_on else [])] or [plain(0)]
    world = WireReplicas({broker: batches for broker in BROKERS}, compacted=is_compacted, high_watermarks=dict.fromkeys(BROKERS, 20))
    world.high_watermark = 30
    world.install(monkeypatch)
    result = world.audit()
    assert bool(result.findings.total("error")) == is_alarm, result.findings.kept


@pytest.mark.parametrize("split_bytes", [1, 150, 1 << 30])
def test_a_compacted_log_has_gaps_where_stretches_begin(monkeypatch: pytest.MonkeyPatch, split_bytes: int) -> None:
    kept = [Batch(base, [(0, b"k%d" % base, b"v")]) for base in (0, 3, 4, 11, 25, 26, 40)]
    world = WireReplicas({broker: list(kept) for broker in BROKERS}, compacted=True)
    world.install(monkeypatch)
    assert world.audit(split_bytes).outcome == "PASS"
    world.bytes[2][4] = Batch(25, [(0, b"k25", b"w")]).encode()
    assert world.audit(split_bytes).exit_code == 1


def test_where_a_broker_does_not_tell_sizes_they_are_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = alike(tells_sizes=False)
    world.install(monkeypatch)
    result = world.audit(10 * BYTES_AN_OFFSET)
    assert result.outcome == "PASS" and len(result.plan.replicas["t", 0][0].segments) == -(-world.high_watermark // 10)


@pytest.mark.parametrize(("bounds", "size", "split_bytes", "pieces"), [
    ((0, 0), 0, 100, [0]), ((5, 5), 10_000, 100, [5]), ((5, 6), 10_000, 100, [5]), ((10, 20), 100, 100, [10]),
    ((10, 20), 101, 100, [10, 15]),
    ((10, 20), 1 << 50, 1, list(range(10, 20))), ((0, 20), -1, 1000, [0, 10]),
])  # fmt: skip
def test_stretches(bounds: tuple[int, int], size: int, split_bytes: int, pieces: list[int]) -> None:
    found = stretches_of(Fetched(0, bounds[1], bounds[0], memoryview(b"")), size, split_bytes)
    assert [one.base_offset for one in found] == pieces


# ---- brokers that go away ------------------------------------------------------------------------------------------------------------


class Away:
    """Broker 2 goes away at its `at`th Fetch, for `times` attempts."""

    def __init__(self, at: int, times: int) -> None:
        self.at, self.left, self.seen = at, times, 0

    def __call__(self, broker: int, offset: int) -> None:
        self.seen += broker == 2
        if broker == 2 and self.seen > self.at and self.left:
            self.left -= 1
            raise BrokerError("broker h:2 closed the connection", is_away=True)


@pytest.mark.parametrize("split_bytes", [400, 1 << 30])
def test_a_reader_goes_on_where_the_broker_went_away(monkeypatch: pytest.MonkeyPatch, split_bytes: int) -> None:
    for at in (0, 5, 6, 9):
        world = alike(on_fetch=Away(at, 3))
        world.install(monkeypatch)
        assert world.audit(split_bytes).outcome == "PASS"
        asked = Counter(offset for broker, offset in world.fetched if broker == 2)
        again = Counter(offset for broker, offset in world.fetched if broker == 1)
        assert asked == again, "nothing is read twice"


def test_unread_stretches_make_the_partition_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the broker is awaited once, not by each stretch."""
    world = alike(on_fetch=(away := Away(4, 1 << 30)))
    world.install(monkeypatch)
    monkeypatch.setattr(fetch_reader, "PATIENCE_S", 0.02)
    result = world.audit(200)
    stretches = len(result.plan.replicas["t", 0][1].segments)
    assert result.exit_code == 3 and [one.verdict for one in result.partitions] == ["UNREADABLE"]
    assert {one.check for one in result.findings.kept if one.level == "error"} >= {"unreadable"} and stretches > 5
    monkeypatch.setattr(fetch_reader, "PATIENCE_S", 0.0)
    before = away.seen
    world.audit(200)
    assert away.seen - before == 2 * stretches, "each stretch is tried while the others are read, and once more when they are"


def test_only_a_stretch_that_was_not_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = alike(on_fetch=Away(5, 1))
    world.install(monkeypatch)
    monkeypatch.setattr(fetch_reader, "PATIENCE_S", 0.0)
    result = world.audit(200)
    assert result.outcome == "PASS" and len(world.fetched) < 3 * len(written()) + 3 * len(result.plan.replicas["t", 0][1].segments)
    often = Counter(world.fetched)
    twice = {offset for (broker, offset), count in often.items() if broker == 2 and count > often[1, offset]}
    bases = [one.base_offset for one in result.plan.replicas["t", 0][1].segments]
    assert len({max(base for base in bases if base <= offset) for offset in twice}) <= 1


def test_a_broker_that_came_back_may_not_know_its_partitions_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    def starting(broker: int, offset: int) -> None:
        if broker == 2 and starts:
            raise starts.pop(0)

    starts = [BrokerError("closed", is_away=True), BrokerError("broker h:2 refuses t-0: NOT_LEADER_OR_FOLLOWER")]
    world = alike(on_fetch=starting)
    world.install(monkeypatch)
    assert world.audit(400).outcome == "PASS" and not starts
    starts.append(BrokerError("broker h:2 refuses t-0: UNKNOWN_TOPIC_OR_PARTITION"))
    starts.append(BrokerError("broker h:2 refuses t-0: UNKNOWN_TOPIC_OR_PARTITION"))
    assert world.audit().exit_code == 3, "a broker that was never away is believed at once"


def test_a_broker_that_sends_what_was_not_asked_for_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    world = alike()
    world.install(monkeypatch)
    world.bytes[2][7] = world.bytes[2][0]
    assert world.audit(1 << 30).exit_code == 1


def _close_the_next(server: socket.socket) -> None:
    server.accept()[0].close()


def test_a_broker_that_closes_the_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        closer = threading.Thread(target=_close_the_next, args=(server,))
        closer.start()
        with pytest.raises(BrokerError) as gone, Connection("127.0.0.1", port) as connection:
            connection.metadata()
        closer.join()
    assert gone.value.is_away
    with pytest.raises(BrokerError) as refused:
        Connection("127.0.0.1", port)
    assert refused.value.is_away and type(refused.value)(*refused.value.__reduce__()[1]).is_away
