"""What the nodes of the quorum remember of their votes, and which of them must be there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.audited_clusters import BROKERS, audit, messages_of, registered_topic
from helpers.golden_logs import ROOT
from helpers.log_clusters import MetadataLog, Partition, directory_id, plain, quorum_state, uuid_text, write_broker

from minikafka.spark.coverage import Account
from minikafka.spark.metadata_log import ClusterImage, apply_record
from minikafka.spark.metadata_snapshots import check_snapshots
from minikafka.spark.quorum import read_node

METADATA = "__cluster_metadata-0"


def with_voters() -> MetadataLog:
    """The quorum's voters are the three brokers."""
    return registered_topic().voters(BROKERS)


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


@pytest.mark.parametrize(("votes", "blamed"), [
    ((1, 1, 1), ""), ((1, -1, -1), ""), ((-1, -1, -1), ""), ((1, 1, 3), ""), ((1, 2, 3), "2,3"), ((1, 3, 3), "2,3"), ((2, 1, 1), "1"),
])  # fmt: skip
@pytest.mark.parametrize("is_heard", [True, False])
def test_a_leader_for_whom_no_majority_can_have_voted(tmp_path: Path, votes: tuple[int, ...], blamed: str, is_heard: bool) -> None:
    """Node 1 leads epoch 1; a node votes once in an epoch. `is_heard`: the others know the leader, too."""
    folder = cluster(tmp_path, with_voters())
    for broker, voted in zip(BROKERS, votes, strict=True):
        place = directory_id(voted) if voted > 0 else bytes(16)
        remember(folder, broker, quorum_state(1 if is_heard or broker == 1 else -1, 1, voted, place))
    result = audit(folder)
    assert result.exit_code == (1 if blamed else 0)
    found = [one for one in result.findings.kept if one.check == "quorum-state"]
    assert [",".join(one.brokers) for one in found] == ([blamed] if blamed else [])


def static_state() -> dict[str, object]:
    """What a node of a static quorum keeps: version 0."""
    return quorum_state(1, 1) | {"data_version": 0, "clusterId": "", "appliedOffset": 0, "currentVoters": [{"voterId": 1}]}


@pytest.mark.parametrize(("state", "text"), [
    (quorum_state(1, 0), "it knows epochs up to 0, but the log has epoch 1"),
    (quorum_state(7, 2), "the leader 7 was never a voter (voters: 1, 2, 3)"),
    (quorum_state(-1, 2, 9), "it voted for 9 was never a voter (voters: 1, 2, 3)"),
    (quorum_state(-1, 2, 3, directory_id(2)), f"it voted for 3 with directory {uuid_text(directory_id(2))}; the voter's is"),
    (quorum_state(2, 1), "epoch 1 has more than one leader: 1 by node 1, 3; 2 by node 2"),
    ("{", "it cannot be read"),
    ("[]", "it has an unknown version"),
    ("[" * 100_000, "it cannot be read"),
    (json.dumps(quorum_state(1, 1), indent=1), "it cannot be read"),
    (quorum_state(1, 1) | {"data_version": True}, "it has an unknown version"),
    (quorum_state(1, 1) | {"data_version": 2}, "it has an unknown version"),
    ({"data_version": 1}, "it lacks fields: leaderId, leaderEpoch, votedId, votedDirectoryId"),
    (quorum_state(1, 1) | {"data_version": 0}, "it lacks fields: clusterId, appliedOffset, currentVoters"),
    (quorum_state(1, 1) | {"leaderEpoch": True}, "its fields leaderEpoch are invalid"),
    (quorum_state(1, 1) | {"leaderEpoch": 1 << 31}, "its fields leaderEpoch are invalid"),
    (quorum_state(1, 1) | {"leaderId": -2}, "its fields leaderId are invalid"),
    (quorum_state(1, 1) | {"votedId": 1.5}, "its fields votedId are invalid"),
    (quorum_state(1, 1) | {"votedDirectoryId": "short"}, "its fields votedDirectoryId are invalid"),
    (quorum_state(1, 1) | {"votedDirectoryId": None}, "its fields votedDirectoryId are invalid"),
    (static_state() | {"currentVoters": 5}, "its fields currentVoters are invalid"),
    (static_state() | {"currentVoters": [7]}, "its fields currentVoters are invalid"),
    (static_state() | {"currentVoters": [{"voterId": "1"}]}, "its fields currentVoters are invalid"),
    (static_state() | {"clusterId": None}, "its fields clusterId are invalid"),
    (static_state() | {"appliedOffset": "0"}, "its fields appliedOffset are invalid"),
])  # fmt: skip
def test_votes_that_contradict_the_log_or_another_node(tmp_path: Path, state: object, text: str) -> None:
    folder = cluster(tmp_path, with_voters())
    remember(folder, 2, state)
    result = audit(folder)
    found = messages_of(result, "quorum-state")
    assert result.exit_code == 1 and len(found) == 1 and text in found[0] and found[0].startswith("2: ")


def test_a_node_without_its_votes(tmp_path: Path) -> None:
    folder = cluster(tmp_path, registered_topic())
    (folder / "b3" / METADATA / "quorum-state").unlink()
    result = audit(folder)
    assert result.exit_code == 1 and "it is missing" in messages_of(result, "quorum-state")[0]


def test_a_voter_without_its_metadata_log(tmp_path: Path) -> None:
    """Its directory was given, so it is missed; where it was not given, that is said."""
    folder = cluster(tmp_path, with_voters())
    shutil.rmtree(folder / "b2" / METADATA)
    result = audit(folder)
    assert result.exit_code == 1 and "node 2 is a voter" in messages_of(result, "replica-missing")[0]
    path = folder / "b2" / "meta.properties"
    path.write_text(path.read_text().replace(uuid_text(directory_id(2)), uuid_text(directory_id(9))))
    result = audit(folder)
    assert "the directories of the voter 2 of the quorum were not given" in messages_of(result, "not-compared")[0]
    path.write_text(path.read_text().replace(f"directory.id={uuid_text(directory_id(9))}\n", ""))
    result = audit(folder)
    assert result.outcome == "INCOMPLETE" and "has no directory.id that says" in messages_of(result, "not-compared")[0]


def test_a_voter_whose_directory_is_another_one(tmp_path: Path) -> None:
    """It has no vote, and the records are the same."""
    folder = cluster(tmp_path, with_voters())
    assert messages_of(audit(folder), "quorum-state") == []
    path = folder / "b2" / "meta.properties"
    path.write_text(path.read_text().replace(uuid_text(directory_id(2)), uuid_text(directory_id(9))))
    result = audit(folder)
    assert result.outcome == "PASS" and "it has no vote" in messages_of(result, "quorum-state")[0]


def test_a_metadata_log_without_what_was_before_its_beginning(tmp_path: Path) -> None:
    folder = cluster(tmp_path, with_voters())
    path = folder / "b1" / METADATA
    (path / f"{0:020d}.log").rename(path / f"{3:020d}.log")
    result = audit(folder)
    assert result.exit_code == 1 and any("no snapshot has what came before" in text for text in messages_of(result, "metadata-log"))


@pytest.mark.parametrize("voter", [1, 2, 3])
def test_the_quorums_of_apache_kafka(voter: int) -> None:
    node = read_node(str(voter), str(ROOT / "kraft-dynamic" / f"voter-{voter}" / METADATA))
    assert node.state is not None and node.state["leaderEpoch"] == 3 >= node.epoch
    assert any(set(voters) == {"1", "2", "3"} for voters in node.voters.values())


def test_a_replica_without_claims_owes_no_records() -> None:
    """Retention removed all of a replica's log."""
    assert list(Account("3", (600, 600)).shortfalls()) == []


def test_a_voter_of_a_static_quorum_without_its_metadata_log(tmp_path: Path) -> None:
    """Which directory it lies in no record says; that of a broker that is no voter may be anywhere."""
    folder = cluster(tmp_path, registered_topic())
    static = static_state() | {"currentVoters": [{"voterId": 1}, {"voterId": 2}]}
    for broker in BROKERS:
        remember(folder, broker, static)
    assert audit(folder).outcome == "PASS"
    shutil.rmtree(folder / "b3" / METADATA)
    assert audit(folder).outcome == "PASS"
    shutil.rmtree(folder / "b2" / METADATA)
    result = audit(folder)
    assert result.outcome == "INCOMPLETE" and "node 2 is a voter" in " ".join(messages_of(result, "not-compared"))


# ---- snapshots against the log -----------------------------------------------------------------------------------------------------


def text(value: str) -> bytes:
    """A compact string."""
    return bytes([len(value) + 1]) + value.encode()


RULE, QUOTA = bytes(range(16)), b"\x02" + text("user") + text("u") + b"\0" + text("producer_byte_rate")
#: (kind, what it is about, what it says), of each kind that metadata_state knows.
OTHERS = [
    (4, b"\x02" + text("t") + text("retention.ms"), text("1000") + b"\0"),
    (4, b"\x04" + text("") + text("log.retention.ms"), text("777") + b"\0"),
    (12, text("group.version"), b"\0\1\0"),
    (11, text("alice") + b"\x01", text("salt") + text("k" * 32) + text("l" * 32) + b"\0\0\x10\0\0"),
    (18, RULE, b"\x02" + text("t") + b"\x03" + text("User:a") + text("*") + b"\x03\x03\0"),
    (14, QUOTA, b"\x40\0\0\0\0\0\0\0\0\0"),
    (15, b"\0\0\0\x01" + b"\xff" * 8, b"\0\0\0\0\0\0\x03\xe8\0"),
    (10, text("User:a") + text("User:a") + b"\x01", bytes(24) + text("token") + b"\0"),
]


def with_others() -> MetadataLog:
    log = with_voters()
    for kind, about, says in OTHERS:
        log.other(kind, about + says)
    return log.other(4, b"\x02" + text("t") + text("gone") + text("1") + b"\0").other(4, b"\x02" + text("t") + text("gone") + b"\0\0")


def snapshot_beside(folder: Path, log: MetadataLog, values: list[bytes]) -> None:
    """Each node takes its snapshots when it likes: broker 2 has one that no other has."""
    (folder / "b2" / METADATA / f"{len(log.values):020d}-{1:010d}.checkpoint").write_bytes(log.snapshot(values))


def test_a_snapshot_says_what_the_log_says(tmp_path: Path) -> None:
    log = with_others()
    folder = cluster(tmp_path, log)
    held = [value for at, value in enumerate(log.values) if at not in log.controls][:-2]
    snapshot_beside(folder, log, held)
    result = audit(folder)
    assert (result.outcome, [one.message for one in result.findings.kept]) == ("PASS", [])
    others = [b"\x01" + bytes([kind]) + b"\0" + about + says for kind, about, says in OTHERS]
    for other in others:
        at = len(other) - 2 - (other[1] in {4, 12})
        changed = other[:at] + bytes([other[at] ^ 1]) + other[at + 1 :]
        for reported_otherwise in ([changed if value == other else value for value in held], [value for value in held if value != other]):
            snapshot_beside(folder, log, reported_otherwise)
            assert list(check_snapshots(str(folder / "b2" / METADATA))), other
    renamed = [value.replace(bytes(range(16)), bytes(range(1, 17))) for value in held]
    for otherwise in (held[1:], renamed):  # a broker less; another topic id
        snapshot_beside(folder, log, otherwise)
        assert list(check_snapshots(str(folder / "b2" / METADATA)))
    assert audit(folder).exit_code == 1


def test_each_removal_leaves_nothing_of_what_it_removes() -> None:
    image = ClusterImage()
    apply_record(image, MetadataLog().topic("t", bytes(range(1, 17))).values[0])
    for kind, about, says in OTHERS:
        apply_record(image, b"\x01" + bytes([kind]) + b"\0" + about + says)
    assert len(image.state) == len(OTHERS)
    for kind, about in (
        (4, OTHERS[0][1] + b"\0\0"), (4, OTHERS[1][1] + b"\0\0"), (12, OTHERS[2][1] + b"\0\0\0"), (22, OTHERS[3][1] + b"\0"),
        (19, RULE + b"\0"), (14, QUOTA + bytes(8) + b"\x01\0"), (26, text("token") + b"\0"),
    ):  # fmt: skip
        apply_record(image, b"\x01" + bytes([kind]) + b"\0" + about)
    assert list(image.state) == [("next producer id",)]
