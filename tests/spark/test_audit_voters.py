"""Quorums whose voters change, whose leaders leave records that nobody copied, and what their snapshots say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, TOPIC, audit, messages_of
from helpers.log_clusters import MetadataLog, directory_id, quorum_state, uuid_text
from helpers.log_fault_quorums import (
    METADATA,
    added_voters,
    copy_of,
    late_observers,
    registered,
    removed_voters,
    uncopied_tail,
    write_brokers,
    write_copy,
    write_snapshot,
)


def only_one_is_old(folder: Path) -> None:
    """Nodes 2 and 3 both began with the snapshot: what was before it only node 1 has."""
    late_observers(folder)
    for file in (folder / "b3" / METADATA).iterdir():
        file.write_bytes((folder / "b2" / METADATA / file.name).read_bytes() if (folder / "b2" / METADATA / file.name).exists() else b"")
    for file in (folder / "b2" / METADATA).glob("*.log"):
        (folder / "b3" / METADATA / file.name).write_bytes(file.read_bytes())
    (folder / "b3" / METADATA / f"{0:020d}.log").unlink()


@pytest.mark.parametrize("life", [added_voters, removed_voters, uncopied_tail, late_observers, only_one_is_old])
def test_legal_lives_of_a_quorum(tmp_path: Path, life: Callable[[Path], None]) -> None:
    life(tmp_path)
    result = audit(tmp_path)
    assert (result.outcome, [one.message for one in result.findings.kept if one.level != "note"]) == ("PASS", [])


def test_the_voters_that_elect_are_those_before_the_epoch(tmp_path: Path) -> None:
    """Node 1 alone has epoch 2, and when it began there were three voters, not one."""
    log = registered(MetadataLog().voters((1,))).voters((1, 2)).voters(BROKERS)
    write_brokers(tmp_path)
    for broker in BROKERS:
        alone = copy_of(log).config("t", "retention.ms", "1") if broker == 1 else log
        epochs = [(1, 0), (2, len(log.values))] if broker == 1 else [(1, 0)]
        write_copy(tmp_path / f"b{broker}", alone, epochs, quorum_state(1, len(epochs)))
    result = audit(tmp_path)
    assert "1 of 3 voters ever heard" in messages_of(result, "quorum-state")[0]


def test_a_log_that_no_longer_has_the_beginning_of_its_epoch(tmp_path: Path) -> None:
    """The snapshot has the voters that elected; the epoch began before it."""
    log = registered(MetadataLog().voters((1, 2))).config("t", "retention.ms", "1")
    end = len(log.values)
    log.config("t", "retention.ms", "2").voters((1,)).config("t", "retention.ms", "3")
    write_brokers(tmp_path)
    for broker in BROKERS:
        write_copy(tmp_path / f"b{broker}", log, [(1, 0)], quorum_state(1, 1), begin=end)
        write_snapshot(tmp_path / f"b{broker}", log, end, 1)
    assert audit(tmp_path).outcome == "PASS"


def test_a_voter_that_came_back_with_an_empty_directory_has_heard_of_nothing(tmp_path: Path) -> None:
    """It is no voter any more. Of the one that it was nobody knows what it heard, and its vote decided: that is no error, but no proof
    (generated case 104000277, where nobody had voted, passed)."""
    added_voters(tmp_path)
    path = tmp_path / "b3" / "meta.properties"
    path.write_text(path.read_text().replace(uuid_text(directory_id(3)), uuid_text(directory_id(9))))
    log = (tmp_path / "b1" / METADATA / f"{0:020d}.log").read_bytes()
    write_copy(tmp_path / "b3", MetadataLog(), [(1, 0)], quorum_state(1, 1))
    (tmp_path / "b3" / METADATA / f"{0:020d}.log").write_bytes(log)
    result = audit(tmp_path)
    assert not [one for one in messages_of(result, "quorum-state") if "it has no vote" not in one] and result.outcome == "INCOMPLETE"
    assert "depends on the vote of 3" in messages_of(result, "not-compared")[0]


def test_the_newest_of_two_copies_of_an_epoch_names_the_voters(tmp_path: Path) -> None:
    """Node 1 was added last, and its directory has no log."""
    log = registered(MetadataLog().voters((2, 3)))
    write_brokers(tmp_path)
    write_copy(tmp_path / "b2", log, [(1, 0)], quorum_state(2, 1))
    write_copy(tmp_path / "b3", copy_of(log).voters(BROKERS), [(1, 0)], quorum_state(2, 1))
    for file in (tmp_path / "b1" / METADATA).iterdir():
        file.unlink()
    (tmp_path / "b1" / METADATA).rmdir()
    assert "node 1 is a voter of the quorum" in messages_of(audit(tmp_path), "replica-missing")[0]


def test_no_later_leader_overrules_voters_on_which_the_quorum_agreed(tmp_path: Path) -> None:
    """Node 1 alone elects itself, as it could before 2 and 3 were added."""
    added_voters(tmp_path)
    log = MetadataLog()
    registered(log.voters((1,)))
    log.voters((1, 2)).voters(BROKERS)
    write_copy(tmp_path / "b1", log, [(1, 0), (3, len(log.values) - 3)], quorum_state(1, 3))
    assert "where node 2 has voters of epoch 1 on which the quorum agreed" in messages_of(audit(tmp_path), "quorum-state")[0]


@pytest.mark.parametrize(("node", "epoch", "text"), [
    (1, 3, "node 1 is of epoch 3, but before its end the log of node 1 has epoch 2, 2 has epoch 2"),
    (2, 1, "node 2 is of epoch 1, but before its end the log of node 1 has epoch 2, 2 has epoch 2"),
    (3, 2, "node 3 is of epoch 2, but before its end the log of node 1 has epoch 1, 2 has epoch 1, 3 has epoch 1"),
])  # fmt: skip
def test_a_snapshot_bears_the_epoch_of_the_record_before_its_end(tmp_path: Path, node: int, epoch: int, text: str) -> None:
    uncopied_tail(tmp_path)
    newest = max((tmp_path / f"b{node}" / METADATA).glob("*.checkpoint"))
    newest.rename(newest.with_name(f"{newest.name[:20]}-{epoch:010d}.checkpoint"))
    result = audit(tmp_path)
    assert any(text in one for one in messages_of(result, "metadata-snapshot")), messages_of(result, "metadata-snapshot")


def test_of_two_copies_the_one_with_the_newer_leader_is_the_cluster(tmp_path: Path) -> None:
    """Node 3's longer log, whose leader was replaced, says that node 3 alone is in sync. Node 2's directory was not given."""
    log = registered(MetadataLog().voters(BROKERS))
    common = len(log.values)
    write_brokers(tmp_path)
    write_copy(tmp_path / "b1", copy_of(log).voters(BROKERS), [(1, 0), (2, common)], quorum_state(1, 2))
    left = copy_of(log).remove(TOPIC)
    write_copy(tmp_path / "b3", left, [(1, 0)], quorum_state(3, 1))
    (tmp_path / "b2").rename(tmp_path.parent / f"{tmp_path.name}-b2")
    result = audit(tmp_path)
    assert [(one.topic, one.partition) for one in result.partitions if one.topic == "t"] == [("t", 0)]
    assert "in sync" in " ".join(messages_of(result, "not-compared"))
