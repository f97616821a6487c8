"""What the controllers have agreed on, which copies of the metadata log contradict each other, and logs that none of them knows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of, registered_topic, verdicts
from helpers.log_clusters import CLUSTER_ID, MetadataLog, Partition, directory_id, lines, plain, quorum_state, write_broker
from helpers.log_oracle import parse

from minikafka.spark.logformat import parse_properties

METADATA = "__cluster_metadata-0"
BATCHES = [plain(offset) for offset in range(30)]
Change = Callable[[MetadataLog], object]


def cluster(
    folder: Path, log: MetadataLog, proposed: dict[int, Change] | None = None, held: dict[int, int] | None = None, name: str = "t-0",
    topic_id: bytes = TOPIC,
) -> Path:  # fmt: skip
    """`proposed`: what a node's metadata log has more than the others. `held`: how many batches a broker has, if not all."""
    for broker in BROKERS:
        mine = MetadataLog(list(log.values), dict(log.controls))
        (proposed or {}).get(broker, lambda _: None)(mine)
        one = Partition(name, BATCHES[: (held or {}).get(broker, len(BATCHES))], (0, 10), topic_id=topic_id)
        write_broker(folder / f"b{broker}", broker, [one], mine.encode())
    return folder


def with_voters() -> MetadataLog:
    return registered_topic().voters(BROKERS)


# ---- records that no majority has --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proposal", [
    lambda log: log.change(TOPIC, isr=(3,)), lambda log: log.remove(TOPIC), lambda log: log.config("t", "cleanup.policy", "compact"),
    lambda log: log.topic("new", bytes([5] * 16)).partition(bytes([5] * 16), BROKERS, BROKERS, 1),
])  # fmt: skip
def test_what_one_controller_alone_proposed_changes_nothing(tmp_path: Path, proposal: Change) -> None:
    result = audit(cluster(tmp_path, with_voters(), {3: proposal}))
    assert (result.outcome, verdicts(result)["t-0"]) == ("PASS", "MATCH"), [one.message for one in result.findings.kept]


@pytest.mark.parametrize(("proposing", "code"), [((3,), 1), ((2, 3), 0)])
def test_a_replica_is_in_sync_until_a_majority_has_the_record_that_drops_it(tmp_path: Path, proposing: tuple[int, ...], code: int) -> None:
    """Brokers 1 and 2 lack what broker 3 has committed."""
    shrink = dict.fromkeys(proposing, lambda log: log.change(TOPIC, isr=(3,), leader=3))
    result = audit(cluster(tmp_path, with_voters(), shrink, {1: 20, 2: 20}))
    assert result.exit_code == code and len(messages_of(result, "isr-claim")) == (2 if code else 0)


def test_who_is_to_be_in_sync_must_be_complete_already(tmp_path: Path) -> None:
    log = registered_topic(isr=(1, 2)).voters(BROKERS)
    result = audit(cluster(tmp_path, log, {3: lambda log: log.change(TOPIC, isr=BROKERS)}, {3: 20}))
    assert result.exit_code == 1 and [one.brokers for one in result.findings.kept if one.check == "isr-claim"] == [("3",)]


def test_a_voter_whose_copy_is_not_there_may_have_the_records_too(tmp_path: Path) -> None:
    """Then they are committed, and broker 1 is out of sync."""
    log = registered_topic(isr=(1, 2)).voters(BROKERS)
    folder = cluster(tmp_path / "given", log, {2: lambda log: log.change(TOPIC, isr=(2,), leader=2)}, {1: 20})
    (folder / "b3").rename(tmp_path / "b3")
    result = audit(folder)
    assert (result.outcome, messages_of(result, "isr-claim")) == ("INCOMPLETE", [])


# ---- epochs that nobody voted for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("knowing", "code"), [((3,), 1), ((2, 3), 0), ((1, 2, 3), 0)])
def test_a_leader_writes_when_a_majority_has_elected_it(tmp_path: Path, knowing: tuple[int, ...], code: int) -> None:
    folder = cluster(tmp_path, with_voters(), {3: lambda log: log.change(TOPIC, leader=2)})
    path = folder / "b3" / METADATA / f"{0:020d}.log"
    batches = [bytearray(batch.raw) for batch in parse(path.read_bytes())[0]]
    batches[-1][12:16] = (2).to_bytes(4, "big")
    path.write_bytes(b"".join(batches))
    (path.parent / "leader-epoch-checkpoint").write_text(lines(["1 0", f"2 {len(batches) - 1}"]))
    for node in knowing:
        state = quorum_state(3, 2, 3, directory_id(3))
        (folder / f"b{node}" / METADATA / "quorum-state").write_text(json.dumps(state))
    result = audit(folder)
    assert result.exit_code == code and bool(messages_of(result, "quorum-state")) == bool(code)


# ---- snapshots of their own ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", BROKERS)
@pytest.mark.parametrize(("change", "code"), [
    (lambda values: values, 0), (lambda values: values[1:], 1), (lambda values: [one for one in values if one[1] != 4], 1),
    (lambda values: [one.replace(directory_id(2), directory_id(2, 7)) for one in values], 1),
])  # fmt: skip
def test_a_snapshot_is_held_against_the_logs_of_other_nodes(
    tmp_path: Path, node: int, change: Callable[[list[bytes]], list[bytes]], code: int
) -> None:
    """Each node's log begins with its own snapshot, at another offset than those of the others."""
    log = with_voters().config("t", "retention.ms", "7").change(TOPIC, leader=2).change(TOPIC, leader=1).change(TOPIC, leader=2)
    cluster(tmp_path, log)
    for broker in BROKERS:
        path = tmp_path / f"b{broker}" / METADATA
        end, batches = len(log.values) - broker, log.batches()
        kept = [value for at, value in enumerate(log.values[:end]) if at not in log.controls]
        changes = [value for value in kept if value[1] == 5]
        now = MetadataLog().partition(TOPIC, BROKERS, BROKERS, 1 + len(changes) % 2, len(changes), partition_epoch=len(changes)).values
        values = [value for value in kept if value[1] not in {3, 5}] + now
        values = change(values) if broker == node else values
        (path / f"{end:020d}-{1:010d}.checkpoint").write_bytes(MetadataLog(log.values[:end], log.controls).snapshot(values))
        (path / f"{0:020d}.log").unlink()
        (path / f"{end:020d}.log").write_bytes(b"".join(batch.encode() for batch in batches[end:]))
        (path / "leader-epoch-checkpoint").write_text(lines([f"1 {end}"]))
    result = audit(tmp_path)
    assert result.exit_code == code and bool(messages_of(result, "metadata-snapshot")) == bool(code)


def test_snapshots_of_one_offset_are_of_one_epoch(tmp_path: Path) -> None:
    log = with_voters()
    cluster(tmp_path, log)
    for node, epoch in ((1, 1), (2, 1), (3, 0)):
        path = tmp_path / f"b{node}" / METADATA / f"{len(log.values):020d}-{epoch:010d}.checkpoint"
        path.write_bytes(log.snapshot())
    result = audit(tmp_path)
    assert result.exit_code == 1
    assert f"3: the snapshot at {len(log.values)} is of epoch 1 on node 1 2, 0 on node 3" in messages_of(result, "metadata-snapshot")


# ---- logs of which the controller's record knows nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "topic_id", "change", "outcome"), [
    ("t-0", TOPIC, lambda log: log.remove(TOPIC), "PASS"),
    ("u-0", bytes([8] * 16), lambda log: log.remove(TOPIC), "INCOMPLETE"),
    ("t-1", TOPIC, lambda log: log, "FAIL"),
])  # fmt: skip
def test_a_stray_log_has_a_history(tmp_path: Path, name: str, topic_id: bytes, change: Change, outcome: str) -> None:
    log = with_voters()
    change(log)
    result = audit(cluster(tmp_path, log, name=name, topic_id=topic_id))
    assert result.outcome == outcome and verdicts(result).get(name) == (None if outcome == "PASS" else "INCOMPLETE")


@pytest.mark.parametrize(("before", "outcome"), [(BROKERS, "PASS"), ((1, 2), "INCOMPLETE")])
def test_a_replica_that_was_moved_away_leaves_a_log(tmp_path: Path, before: tuple[int, ...], outcome: str) -> None:
    log = MetadataLog()
    for broker in BROKERS:
        log.broker(broker)
    log.voters(BROKERS).topic("t", TOPIC).partition(TOPIC, before, before, 1).change(TOPIC, replicas=(1, 2), isr=(1, 2))
    assert audit(cluster(tmp_path, log)).outcome == outcome


@pytest.mark.parametrize("name", [f"{10:020d}.snapshot", f"{0:020d}.timeindex", "pipe"])
def test_a_pipe_in_a_log_that_was_moved_away_keeps_its_broker_from_starting(tmp_path: Path, name: str) -> None:
    log = with_voters().change(TOPIC, replicas=(1, 2), isr=(1, 2))
    path = cluster(tmp_path, log) / "b3" / "t-0" / name
    assert audit(tmp_path).outcome == "PASS"
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    result = audit(tmp_path)
    assert result.exit_code == 3 and any(f"{name} is not a regular file" in one.message for one in result.findings.kept)


# ---- files ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [
    "meta.properties", "replication-offset-checkpoint", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata", f"t-0/{0:020d}.index",
    f"t-0/{0:020d}.timeindex", f"t-0/{10:020d}.snapshot", f"{METADATA}/quorum-state", f"{METADATA}/{0:020d}.log",
])  # fmt: skip
def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path, name: str) -> None:
    path = cluster(tmp_path, with_voters()) / "b2" / name
    path.unlink()
    os.mkfifo(path)
    result = audit(tmp_path)
    assert result.exit_code and any("not a regular file" in one.message for one in result.findings.kept)


@pytest.mark.parametrize(("text", "code"), [
    ("version=1\ncluster.id={}\nnode.id=2\n", 0), (" version : 1\n!node.id=3\ncluster.id {}\nnode\\.id=\\\n  \\u0032\n", 0),
    ("version=1\ncluster.id={}\nnode.id=two\n", 3), ("version=1\ncluster.id={}\nnode.id=2 \n", 3),
    ("version=1\ncluster.id={}\nnode.id=-2\n", 3), ("version=1\ncluster.id={}\nbroker.id=2\n", 3),
    ("version=1\ncluster.id={}\nnode.id=4294967298\n", 3), ("version=0\ncluster.id={}\nbroker.id=2\nnode.id=1\n", 0),
])  # fmt: skip
def test_whose_directory_it_is_by_the_rules_of_java(tmp_path: Path, text: str, code: int) -> None:
    (cluster(tmp_path, with_voters()) / "b2" / "meta.properties").write_text(text.format(CLUSTER_ID))
    for broker in BROKERS:
        shutil.rmtree(tmp_path / f"b{broker}" / METADATA)
    assert audit(tmp_path).exit_code == code


def test_java_properties() -> None:
    data = b"a=1\nb: 2\n c 3\n#x=1\n!y=2\nd=x\\\n   y\ne\\=f=g\\u0041\nh\n\ni = j \r\nk=\\\\\na=4\nl=5\\"
    assert parse_properties(data) == {"a": "4", "b": "2", "c": "3", "d": "xy", "e=f": "gA", "h": "", "i": "j ", "k": "\\", "l": "5"}
