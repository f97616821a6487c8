"""What the nodes of the quorum remember of their votes, and which of them must be there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, audit, known_to_the_controller, told
from helpers.golden_logs import ROOT
from helpers.log_clusters import MetadataLog, Partition, directory_id, plain, quorum_state, uuid_text, write_broker

from minikafka.spark.coverage import Account
from minikafka.spark.quorum import read_node

METADATA = "__cluster_metadata-0"


def with_voters() -> MetadataLog:
    """The quorum's voters are the three brokers."""
    return known_to_the_controller().voters(BROKERS)


def cluster(folder: Path, log: MetadataLog) -> Path:
    for broker in BROKERS:
        write_broker(folder / f"b{broker}", broker, [Partition("t-0", [plain(offset) for offset in range(9)])], log.encode())
    return folder


def remember(folder: Path, broker: int, state: object) -> None:
    (folder / f"b{broker}" / METADATA / "quorum-state").write_text(state if isinstance(state, str) else json.dumps(state))


def test_votes_that_agree_with_the_log_are_no_finding(tmp_path: Path) -> None:
    folder = cluster(tmp_path, with_voters())
    remember(folder, 2, quorum_state(-1, 2, 3, directory_id(3)))
    result = audit(folder)
    assert (result.outcome, [one.message for one in result.findings.kept]) == ("PASS", [])


@pytest.mark.parametrize(("state", "text"), [
    (quorum_state(1, 0), "it knows epochs up to 0, the log has epoch 1"),
    (quorum_state(7, 2), "the leader 7 was never a voter (voters: 1, 2, 3)"),
    (quorum_state(-1, 2, 9), "it voted for 9 was never a voter (voters: 1, 2, 3)"),
    (quorum_state(-1, 2, 3, directory_id(2)), f"it voted for 3 with directory {uuid_text(directory_id(2))}; the voter's is"),
    (quorum_state(2, 1), "epoch 1 has more than one leader: 1 by node 1, 3; 2 by node 2"),
    ("{", "it cannot be read"),
    ("[]", "it is of no known version"),
    ({"data_version": 1}, "it lacks fields"),
])  # fmt: skip
def test_votes_that_contradict_the_log_or_another_node(tmp_path: Path, state: object, text: str) -> None:
    folder = cluster(tmp_path, with_voters())
    remember(folder, 2, state)
    result = audit(folder)
    found = told(result, "quorum-state")
    assert result.exit_code == 1 and len(found) == 1 and text in found[0] and found[0].startswith("2: ")


def test_a_node_without_its_votes(tmp_path: Path) -> None:
    folder = cluster(tmp_path, known_to_the_controller())
    (folder / "b3" / METADATA / "quorum-state").unlink()
    result = audit(folder)
    assert result.exit_code == 1 and "it is missing" in told(result, "quorum-state")[0]


def test_a_voter_without_its_metadata_log(tmp_path: Path) -> None:
    """Its directory was given, so it is missed; where it was not given, that is said."""
    folder = cluster(tmp_path, with_voters())
    shutil.rmtree(folder / "b2" / METADATA)
    result = audit(folder)
    assert result.exit_code == 1 and "node 2 is a voter" in told(result, "replica-missing")[0]
    path = folder / "b2" / "meta.properties"
    path.write_text(path.read_text().replace(uuid_text(directory_id(2)), uuid_text(directory_id(9))))
    result = audit(folder)
    assert "the directories of the voter 2 of the quorum were not given" in told(result, "not-compared")[0]


def test_a_metadata_log_without_what_was_before_its_beginning(tmp_path: Path) -> None:
    folder = cluster(tmp_path, with_voters())
    path = folder / "b1" / METADATA
    (path / f"{0:020d}.log").rename(path / f"{3:020d}.log")
    result = audit(folder)
    assert result.exit_code == 1 and any("no snapshot holds what was before" in text for text in told(result, "metadata-log"))


@pytest.mark.parametrize("voter", [1, 2, 3])
def test_the_quorums_of_apache_kafka(voter: int) -> None:
    node = read_node(str(voter), str(ROOT / "kraft-dynamic" / f"voter-{voter}" / METADATA))
    assert node.state is not None and node.state["leaderEpoch"] == 3 >= node.epoch
    assert any(set(voters) == {"1", "2", "3"} for voters in node.voters)


def test_who_answers_for_nothing_owes_nothing() -> None:
    """Retention removed all of a replica's log."""
    assert list(Account("3", (600, 600)).shortfalls()) == []
