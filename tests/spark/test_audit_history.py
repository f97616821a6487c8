"""What the copies of the metadata log say together: how far the quorum agrees, what was before snapshots, who never heard of a record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import MetadataLog, Partition, lines, plain, quorum_state, uuid_text, write_broker
from helpers.log_fault_quorums import METADATA, added_voters, copy_of, registered, uncopied_tail, write_brokers, write_copy, write_snapshot

from minikafka.spark.audit import AuditResult
from minikafka.spark.compare import PartitionResult
from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_epochs import EpochHistory
from minikafka.spark.metadata_log import ClusterImage, apply_record
from minikafka.spark.quorum import Node, agreed_ends

NEW_TOPIC = bytes(range(40, 56))


def metadata_of(result: AuditResult) -> PartitionResult:
    return next(one for one in result.partitions if one.topic == "__cluster_metadata")


# ---- how far the quorum agrees ---------------------------------------------------------------------------------------------------


def quorum_of(*ends: int, voters: tuple[int, ...] = BROKERS) -> dict[int, MetadataLog]:
    """Logs of the nodes 1, 2 and so on, which end at these offsets behind the first six records."""
    logs = {}
    for node, end in enumerate(ends, 1):
        logs[node] = registered(MetadataLog().voters(voters))
        for number in range(end):
            logs[node].config("t", "retention.ms", str(number))
    return logs


@pytest.mark.parametrize(("ends", "fence", "above"), [((7, 7, 7), 7, 0), ((9, 7, 4), 4, 3), ((9, 7, 7), 7, 0)])
def test_the_fence_of_the_metadata_log_is_where_the_quorum_agrees(tmp_path: Path, ends: tuple[int, ...], fence: int, above: int) -> None:
    """Killed nodes, none of which has made a snapshot."""
    write_brokers(tmp_path, clean=False)
    logs = quorum_of(*ends)
    for node, log in logs.items():
        write_copy(tmp_path / f"b{node}", log, [(1, 0)], quorum_state(1, 1))
    result = audit(tmp_path)
    found, first = metadata_of(result), len(logs[1].values) - ends[0]
    assert result.outcome == "PASS"
    assert (found.fence_from, found.fence_to) == (0, first + fence)
    assert found.batches_compared == first + fence + above, "two of three answer for those above the shortest log"


def test_copies_that_differ_below_the_fence_are_an_error(tmp_path: Path) -> None:
    write_brokers(tmp_path, clean=False)
    for node, log in quorum_of(5, 5, 5).items():
        if node == 2:
            log.values[-2] = log.values[-1]
        write_copy(tmp_path / f"b{node}", log, [(1, 0)], quorum_state(1, 1))
    assert (verdict := metadata_of(audit(tmp_path))).verdict == "DIVERGENT", verdict


@pytest.mark.parametrize("life", [added_voters, uncopied_tail])
def test_what_a_leader_wrote_to_no_majority_lies_above_the_fence(tmp_path: Path, life: object) -> None:
    assert callable(life)
    life(tmp_path)
    result = audit(tmp_path)
    found = metadata_of(result)
    assert result.outcome == "PASS" and found.batches_compared > 0
    assert {one.level for one in result.findings.kept if one.topic == "__cluster_metadata"} <= {"note"}


def history(*epochs: tuple[int, int], end: int) -> EpochHistory:
    return EpochHistory(dict(epochs), end)


@pytest.mark.parametrize(("one", "other", "shared"), [
    (history((1, 0), end=9), history((1, 0), end=7), 7),
    (history((1, 0), (3, 5), end=9), history((1, 0), (2, 4), end=9), 4),
    (history((1, 0), (3, 5), end=9), history((1, 0), (2, 4), (3, 5), end=7), 7),
    (history((1, 0), end=5), history((1, 6), end=9), -1),
    (history((1, 0), (2, 9), end=9), history((2, 9), end=9), -1),
    (EpochHistory({1: 0}, 9, {}), EpochHistory({1: 6}, 8, {6: 1}), 8),
    (EpochHistory({1: 0}, 6, {}), EpochHistory({}, -1, {6: 1}), 6),
    (EpochHistory({2: 0}, 6, {}), EpochHistory({}, -1, {6: 1}), -1),
])  # fmt: skip
def test_how_far_two_logs_hold_the_same_records(one: EpochHistory, other: EpochHistory, shared: int) -> None:
    assert one.shared_with(other) == other.shared_with(one) == shared


def node(name: str, *epochs: tuple[int, int], end: int, voters: tuple[str, ...] = ("1", "2", "3")) -> Node:
    return Node(name, f"/{name}", log_voters={0: dict.fromkeys(voters, "")}, history=history(*epochs, end=end))


@pytest.mark.parametrize(("nodes", "ends"), [
    ([node("1", (1, 0), end=9), node("2", (1, 0), end=7), node("3", (1, 0), end=4)], {"/1": 7, "/2": 7, "/3": 4}),
    ([node("1", (1, 0), (2, 5), end=9), node("2", (1, 0), end=7), node("3", (1, 0), end=7)], {"/1": 5, "/2": 7, "/3": 7}),
    ([node("1", (1, 0), end=9), node("2", (1, 0), end=7)], {"/1": 7, "/2": 7}),
    ([node("1", (1, 0), end=9)], {}),
    ([node("1", (1, 0), end=9, voters=("1",)), node("2", (1, 0), end=20, voters=("1",))], {"/1": 9, "/2": 9}),
    ([node("1", (1, 0), end=9, voters=()), node("2", (1, 0), end=7, voters=())], {"/1": 7, "/2": 7}),
])  # fmt: skip
def test_how_far_each_copy_holds_what_a_majority_holds(nodes: list[Node], ends: dict[str, int]) -> None:
    assert agreed_ends(nodes) == ends


# ---- what was before a snapshot --------------------------------------------------------------------------------------------------


def begun_with_snapshots(folder: Path, log: MetadataLog, nodes: tuple[int, ...] = (2,)) -> None:
    """Nodes that have a snapshot in place of all but the last record."""
    end = len(log.values) - 1
    for broker in BROKERS:
        begin = end if broker in nodes else 0
        write_copy(folder / f"b{broker}", log, [(1, 0)], quorum_state(1, 1), begin)
        if begin:
            write_snapshot(folder / f"b{broker}", log, end, 1)


def test_an_election_of_which_only_an_older_copy_knows(tmp_path: Path) -> None:
    """Of the copies that agree, the audit may go by one that began with a snapshot."""
    log = registered(MetadataLog().voters(BROKERS)).change(TOPIC, isr=(1,)).change(TOPIC, leader=2, isr=(2,), recovering=True)
    log.change(TOPIC, isr=(2, 3), recovering=False).config("t", "retention.ms", "1").config("t", "retention.ms", "2")
    write_brokers(tmp_path)
    common = [plain(offset) for offset in range(20)]
    old = [*common, *(plain(offset, text="acked") for offset in range(20, 60))]
    new = [*common, *(plain(offset, epoch=2, text="new") for offset in range(20, 50))]
    for broker in BROKERS:
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
        one = Partition("t-0", old if broker == 1 else new, epochs=((0, 0),) if broker == 1 else ((0, 0), (2, 20)))
        one.write(tmp_path / f"b{broker}", clean=True)
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (tmp_path / f"b{broker}" / name).write_text(lines([f"t 0 {one.end}"]))
    begun_with_snapshots(tmp_path, log, (2, 3))
    result = audit(tmp_path)
    assert verdicts(result)["t-0"] == "LOST"
    assert "unclean election of broker 2 in leader epoch 2 (metadata offset 7," in messages_of(result, "unclean-loss")[0]


@pytest.mark.parametrize(("was_removed", "outcome"), [(False, "INCOMPLETE"), (True, "PASS")])
def test_a_topic_of_which_only_an_older_copy_can_know(tmp_path: Path, was_removed: bool, outcome: str) -> None:
    log = MetadataLog().voters(BROKERS)
    if was_removed:
        log.topic("u", NEW_TOPIC).remove(NEW_TOPIC)
    registered(log).config("t", "retention.ms", "1").config("t", "retention.ms", "2")
    write_brokers(tmp_path)
    begun_with_snapshots(tmp_path, log, (2, 3))
    shutil.copytree(tmp_path / "b3" / "t-0", tmp_path / "b3" / "u-0")
    (tmp_path / "b3" / "u-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(NEW_TOPIC)}\n")
    result = audit(tmp_path)
    assert result.outcome == outcome, result.findings.kept
    assert len(messages_of(result, "stray-replica")) == 1


@pytest.mark.parametrize(("policy", "outcome"), [("compact", "PASS"), ("delete", "FAIL")])
def test_a_policy_of_which_only_an_older_copy_knows(tmp_path: Path, policy: str, outcome: str) -> None:
    """The topic was compacted until a moment before the snapshot, or never."""
    log = registered(MetadataLog().voters(BROKERS)).config("t", "cleanup.policy", policy).config("t", "cleanup.policy", "delete")
    log.config("t", "retention.ms", "1").config("t", "retention.ms", "2")
    write_brokers(tmp_path)
    for broker in BROKERS:
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
        Partition("t-0", [plain(at) for at in range(40) if at != 7], (0, 20)).write(tmp_path / f"b{broker}")
        (tmp_path / f"b{broker}" / "cleaner-offset-checkpoint").write_text(lines(["t 0 20"]))
    begun_with_snapshots(tmp_path, log, (2, 3))
    state = json.loads((tmp_path / "b1" / METADATA / "quorum-state").read_text())
    assert state["leaderEpoch"] == 1
    assert audit(tmp_path).outcome == outcome


def test_what_an_older_copy_alone_proposes_is_not_the_past(tmp_path: Path) -> None:
    """Node 1 was about to compact the topic, which no other node has heard of."""
    log = registered(MetadataLog().voters(BROKERS)).config("t", "retention.ms", "1").config("t", "retention.ms", "2")
    write_brokers(tmp_path)
    begun_with_snapshots(tmp_path, log, (2, 3))
    write_copy(tmp_path / "b1", copy_of(log).config("t", "cleanup.policy", "compact"), [(1, 0)], quorum_state(1, 1))
    for broker in BROKERS:
        shutil.rmtree(tmp_path / f"b{broker}" / "t-0")
        Partition("t-0", [plain(at) for at in range(40) if at != 7], (0, 20)).write(tmp_path / f"b{broker}")
    assert audit(tmp_path).outcome == "FAIL"


# ---- who never heard of a record -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours_back", "has_heard", "clean", "outcome"), [
    (0, False, False, "PASS"), (1, False, False, "PASS"), (1, False, True, "PASS"), (0, True, True, "FAIL"),
])  # fmt: skip
def test_a_partition_is_new_to_who_never_heard_of_it(
    tmp_path: Path, hours_back: int, has_heard: bool, clean: bool, outcome: str
) -> None:
    """Its record's time says little: a controller's clock may have been set back (simulated copy 41217-25)."""
    log = registered_topic(isr=BROKERS).voters(BROKERS)
    known = len(log.values)
    log.topic("new", NEW_TOPIC).partition(NEW_TOPIC, BROKERS, BROKERS, 1)
    batches = log.batches()
    for batch in batches[known:]:
        batch.time_ms -= 3_600_000 * hours_back
    for broker in BROKERS:
        held = [Partition("t-0", [plain(at) for at in range(9)])]
        if broker != 3:
            held.append(Partition("new-0", [], epochs=(), topic_id=NEW_TOPIC))
        heard = batches if broker != 3 or has_heard else batches[:known]
        write_broker(tmp_path / f"b{broker}", broker, held, b"".join(batch.encode() for batch in heard), clean)
    result = audit(tmp_path)
    assert result.outcome == outcome, result.findings.kept


# ---- records as Kafka reads them -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["t", ""])
def test_eligible_leaders_are_cleared(tmp_path: Path, topic: str) -> None:
    """A change of min.insync.replicas clears them, and a snapshot has none."""
    log = registered(MetadataLog().voters(BROKERS)).change(TOPIC, isr=(1,), elr=(2, 3))
    log.other(28, bytes([len(topic) + 1]) + topic.encode() + b"\0").config("t", "retention.ms", "1")
    image = ClusterImage()
    for at, value in enumerate(log.values):
        if at not in log.controls:
            apply_record(image, value, at)
    assert image.claims()["t", 0].elr == ()


def image_before(log: MetadataLog, at: int) -> ClusterImage:
    image = ClusterImage()
    for value in log.values[:at]:
        apply_record(image, value)
    return image


def changed(log: MetadataLog, at: int, change: tuple[int, int]) -> bytes:
    value = bytearray(log.values[at])
    value[change[0]] = change[1]
    return bytes(value)


@pytest.mark.parametrize(("change", "text"), [
    ((-1, 1), "ends too early"), ((-2, 0), "null in place of a list"), ((2, 3), "unknown version 3"), ((0, 2), "frame version 2"),
])  # fmt: skip
def test_what_kafka_refuses_in_a_record_is_refused(change: tuple[int, int], text: str) -> None:
    log = registered(MetadataLog())
    with pytest.raises(FormatError, match=text):
        apply_record(image_before(log, 4), changed(log, 4, change))


def test_bytes_behind_a_records_last_field_are_refused() -> None:
    log = registered(MetadataLog())
    with pytest.raises(FormatError, match="1 bytes behind its last field"):
        apply_record(image_before(log, 4), log.values[4] + b"\0")


def test_a_record_of_a_later_release_makes_an_audit_incomplete(tmp_path: Path) -> None:
    write_brokers(tmp_path)
    for broker in BROKERS:
        log = registered(MetadataLog().voters(BROKERS))
        log.values[5] = changed(log, 5, (2, 9))
        write_copy(tmp_path / f"b{broker}", log, [(1, 0)], quorum_state(1, 1))
    result = audit(tmp_path)
    assert result.outcome == "INCOMPLETE" and "unknown version 9" in messages_of(result, "not-compared")[0]
