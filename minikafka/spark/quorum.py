"""Checks the quorum that keeps the metadata log: each node's record of its votes (quorum-state), and missing voters.

A node writes and syncs quorum-state before it votes or joins an epoch, so the file is never behind the epochs in the node's log. With a
missing or older file a node may vote twice in one epoch, and two leaders may write the same offsets.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from minikafka.counted import counted
from minikafka.spark import logformat
from minikafka.spark.directories import read_small
from minikafka.spark.findings import ERROR, NOTE, WARNING, Finding
from minikafka.spark.logformat import CONTROL_BIT, Batches, FormatError, SegmentReader, walk
from minikafka.spark.metadata_controls import KRAFT_VOTERS, Voters, kind_of, voters_in
from minikafka.spark.metadata_epochs import EpochHistory
from minikafka.spark.metadata_log import METADATA_TOPIC, SNAPSHOT_BYTES_MAX, begins_of, snapshots_of
from minikafka.spark.metadata_partitions import NO_DIRECTORY
from minikafka.spark.records import decode_records
from minikafka.spark.regular_files import open_regular

QUORUM_STATE = "quorum-state"
UUID_BYTES = 16


class Directory(Protocol):
    """The part of a log directory that this module uses."""

    path: str
    broker: str
    cluster_id: str
    directory_id: str


@dataclass(slots=True)
class Node:
    """One node's copy: the newest epoch, its quorum-state (None: no such file), every voter set in its log ({offset: voters}), and those in
    its snapshots ({end: voters}, empty ones too)."""

    name: str
    path: str
    epoch: int = -1
    holds_records: bool = False
    state: dict[str, Any] | None = None
    log_voters: dict[int, Voters] = field(default_factory=dict)
    snapshot_voters: dict[int, Voters] = field(default_factory=dict)
    history: EpochHistory = field(default_factory=EpochHistory)
    unread: str = ""
    #: A problem with the start of its log.
    beginning: str = ""

    @property
    def voters(self) -> dict[int, Voters]:
        """Every voter set, by its offset. A snapshot's stands at the offset before its end."""
        return {end - 1: voters for end, voters in self.snapshot_voters.items() if voters} | self.log_voters

    @property
    def reach(self) -> tuple[int, int]:
        """How far its log goes. Of two logs, the one that a voter would vote for goes further."""
        return self.epoch, max([self.history.end, *self.history.snapshots])

    @property
    def newest_voters(self) -> Voters:
        """The last voter set in its log."""
        voters = self.voters
        return voters[max(voters)] if voters else {}

    def voters_below(self, end: int) -> Voters:
        """The last voter set that its log has before an offset."""
        return self.log_voters[max(before)] if (before := [offset for offset in self.log_voters if offset < end]) else {}


def check_quorum(nodes: Sequence[Node], directories: Sequence[Directory]) -> Iterator[Finding]:
    """Check every copy by itself, the copies against each other, and the voters against the given directories."""
    ever = {voter for node in nodes for voters in _voter_sets(node) for voter in voters}
    for node in nodes:
        for text in _state_findings(node, ever):
            yield _finding("quorum-state", text, (node.name,), os.path.join(node.path, QUORUM_STATE))
        if node.beginning:
            yield _finding("metadata-log", node.beginning, (node.name,), node.path)
    yield from _two_leaders(nodes)
    yield from _outvoted(nodes)
    yield from _unelected(nodes, directories)
    yield from _overruled(nodes)
    yield from _other_voters(nodes)
    yield from _missing_voters(nodes, directories)


def read_node(name: str, path: str) -> Node:
    """Read the copy in `path`, and note an unreadable quorum-state. Other checks report unreadable logs and snapshots."""
    node = Node(name, path, beginning="".join(_without_beginning(path)))
    try:
        data = read_small(os.path.join(path, QUORUM_STATE))
        node.state = None if data is None else _state_of(data)
    except (OSError, ValueError, RecursionError) as error:
        node.unread = f"it cannot be read: {error.strerror if isinstance(error, OSError) else error}"
    try:
        entries = logformat.parse_epoch_checkpoint(read_small(os.path.join(path, "leader-epoch-checkpoint")) or b"")
        _read_log(node)
        for epoch, begin in entries:
            node.history.begins.setdefault(epoch, begin)
        node.epoch = max(node.history.begins, default=-1)
    except (OSError, FormatError):
        pass  # the audit of the log itself reports this
    return node


def _state_of(data: bytes) -> dict[str, Any]:
    """Parse quorum-state as Apache Kafka does, which reads its first line (FileQuorumStateStore, QuorumStateData). Raises ValueError."""
    state = json.loads(data.split(b"\n")[0])
    if not isinstance(state, dict) or not _is_of(state.get("data_version"), 0, 1):
        raise ValueError("it has an unknown version")
    fields = FIELDS_OF_VERSION[state["data_version"]]
    if lacking := [name for name in fields if name not in state]:
        raise ValueError(f"it lacks fields: {', '.join(lacking)}")
    if wrong := [name for name, is_sound in fields.items() if not is_sound(state[name])]:
        raise ValueError(f"its fields {', '.join(wrong)} are invalid")
    return state


def _is_of(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _is_node(value: Any) -> bool:
    return _is_of(value, -1, (1 << 31) - 1)


def _is_uuid(value: Any) -> bool:
    """Uuid.fromString."""
    try:
        return isinstance(value, str) and len(base64.b64decode(value.rstrip("=") + "==", b"-_", validate=True)) == UUID_BYTES
    except ValueError:
        return False


def _are_voters(value: Any) -> bool:
    voters = [] if value is None else value
    return isinstance(voters, list) and all(isinstance(one, dict) and _is_node(one.get("voterId")) for one in voters)


_FIELDS: dict[str, Callable[[Any], bool]] = {"leaderId": _is_node, "leaderEpoch": _is_node, "votedId": _is_node}
#: What quorum-state must have in each of its versions.
FIELDS_OF_VERSION: dict[int, dict[str, Callable[[Any], bool]]] = {
    0: _FIELDS | {
        "clusterId": lambda value: isinstance(value, str), "appliedOffset": lambda value: _is_of(value, -(1 << 63), (1 << 63) - 1),
        "currentVoters": _are_voters,
    },
    1: _FIELDS | {"votedDirectoryId": _is_uuid},
}  # fmt: skip


def _read_log(node: Node) -> None:
    for end, epoch, name in snapshots_of(node.path):
        with open_regular(os.path.join(node.path, name)) as file:
            batches, _, _ = walk(memoryview(file.read(SNAPSHOT_BYTES_MAX)))
        node.history.snapshots[end] = epoch
        node.snapshot_voters[end] = next((voters for _, voters in _voter_records(batches)), {})
    for base in begins_of(node.path):
        with open_regular(os.path.join(node.path, f"{base:020d}.log")) as file:
            for batches in SegmentReader(file.fileno(), os.fstat(file.fileno()).st_size):
                node.holds_records = True
                epochs = batches.header["epoch"]
                for row in np.flatnonzero(np.diff(epochs, prepend=epochs[0] - 1)).tolist():
                    node.history.note(int(epochs[row]), int(batches.base_offset[row]), int(batches.last_offset[-1]) + 1)
                node.log_voters.update(_voter_records(batches))


def _voter_records(batches: Batches) -> Iterator[tuple[int, Voters]]:
    """The voter sets in the control batches among these (KIP-853), with their offsets."""
    if len(batches) == 0:
        return
    records, _ = decode_records(batches, np.flatnonzero((batches.header["attributes"] & CONTROL_BIT) != 0))
    for index in range(len(records)):
        if kind_of(records.key(index) or b"") == KRAFT_VOTERS:
            yield int(records.offset[index]), voters_in(records.value(index) or b"")


def _voter_sets(node: Node) -> Iterator[Voters]:
    """The voter sets in a node's log, and the voters that a static quorum's quorum-state names."""
    yield from node.voters.values()
    for one in (node.state or {}).get("currentVoters") or []:
        yield {str(one.get("voterId")): ""}


def agreed_ends(nodes: Sequence[Node]) -> dict[str, int]:
    """How far each copy holds the same records as a majority of the voters, by its path; nothing if too few of them were given. Without
    knowledge of the voters it is a majority of the copies."""
    voters = voters_of(nodes) or {node.name for node in nodes}
    best: tuple[int, Node | None] = (-1, None)
    for one in (node for node in nodes if node.name in voters):
        shared: dict[str, int] = {}
        for other in (node for node in nodes if node.name in voters):
            shared[other.name] = max(one.history.shared_with(other.history), shared.get(other.name, -1))
        ordered = sorted(shared.values(), reverse=True)[len(voters) // 2 :]
        if ordered and ordered[0] > best[0]:
            best = ordered[0], one
    agreed, furthest = best
    return {} if furthest is None else {node.path: min(agreed, furthest.history.shared_with(node.history)) for node in nodes}


def voters_of(nodes: Sequence[Node]) -> set[str]:
    """The newest voter set in the logs, else that of a static quorum; empty if nothing tells."""
    newest = _furthest(nodes)
    return set(newest.newest_voters) if newest is not None else _static_voters(nodes)


def _furthest(nodes: Sequence[Node]) -> Node | None:
    """The copy with the newest voter set; None if no copy has one."""
    return max((node for node in nodes if node.voters), key=lambda node: node.reach, default=None)


def _static_voters(nodes: Sequence[Node]) -> set[str]:
    return {voter for node in nodes for voters in _voter_sets(node) for voter in voters}


def _unelected(nodes: Sequence[Node], directories: Sequence[Directory]) -> Iterator[Finding]:
    """Check that a majority of the voters has heard of each epoch in which a log has records: a leader writes after its election, and who
    votes writes the epoch down first.

    A voter whose directory was replaced may have voted. If its vote decides, nobody can tell whether there was an election."""
    id_of = {directory.path: directory.directory_id for directory in directories}
    heard: dict[tuple[str, str], int] = {}
    for node in nodes:
        if node.state is not None:
            own = node.name, id_of.get(os.path.dirname(node.path), "")
            heard[own] = max(node.epoch, node.state["leaderEpoch"], heard.get(own, -1))
    for node in nodes:
        voters = _electorate(node) or dict.fromkeys(voters_of(nodes), "")
        # Nobody knows what a voter heard that is not given, or whose directory was replaced.
        knowing = [voter for voter in voters.items() if _heard_by(heard, *voter, unknown=node.epoch) >= node.epoch]
        if voters and len(knowing) < len(voters) // 2 + 1:
            heard_by = f"{len(knowing)} of {counted(len(voters), 'voter')}"
            text = f"its log has epoch {node.epoch}, of which {heard_by} ever heard: nobody was elected leader"
            yield _finding("quorum-state", text, (node.name,), node.path)
            continue
        named = {other.name for other in nodes}
        replaced = [name for name, place in knowing if name in named and _heard_by(heard, name, place, unknown=-1) < 0]
        if replaced and len(knowing) - len(replaced) < len(voters) // 2 + 1:
            text = f"its log has epoch {node.epoch}. Whether its leader was elected depends on the vote of {', '.join(replaced)}, "
            yield _finding("not-compared", f"{text}which was given in another directory", (node.name,), node.path, WARNING)


def _overruled(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Check that no later leader wrote over a voter set that was followed by another: a leader changes the voters again only when the last
    change is committed, and committed records are in the log of every later leader."""
    for node in nodes:
        followed = [(offset, epoch) for offset in sorted(node.log_voters)[:-1] if (epoch := node.history.before(offset + 1)) is not None]
        for other in nodes:
            for offset, epoch in followed:
                later = other.history.before(offset + 1)
                if later is not None and later > epoch:
                    text = f"its log has epoch {later} at offset {offset}, where node {node.name} has voters of epoch {epoch} on which the "
                    text += "quorum agreed"
                    yield _finding("quorum-state", text, (other.name,), other.path)


def _other_voters(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Check that each snapshot has the voters that the logs of the same history have before its end, and that other nodes' snapshots of
    that state have: who starts from it knows no others."""
    for node in nodes:
        for end, voters in sorted(node.snapshot_voters.items()):
            epoch = node.history.snapshots[end]
            alike = [other for other in nodes if other.history.before(end) == epoch]
            said = {other.name: there for other in alike if (there := other.voters_below(end)) and there != voters}
            if said:
                text = f"the snapshot at {end} has the voters {_text(voters)}, but before its end the log of node "
                text += ", ".join(f"{name} has {_text(there)}" for name, there in said.items())
                yield _finding("metadata-snapshot", text, (node.name,), node.path)
                continue
            held = {other.name: other.snapshot_voters.get(end, voters) for other in nodes if other.history.snapshots.get(end) == epoch}
            others = {name: there for name, there in held.items() if there != voters}
            if len(others) >= len(held) - len(others):
                text = f"the snapshot at {end} has the voters {_text(voters)}, but that of node "
                text += ", ".join(f"{name} has {_text(there)}" for name, there in others.items())
                yield _finding("metadata-snapshot", text, (node.name,), node.path)


def _text(voters: Voters) -> str:
    return " ".join(f"{name} ({place})" if place else name for name, place in sorted(voters.items())) or "(none)"


def _heard_by(heard: dict[tuple[str, str], int], voter: str, place: str, unknown: int) -> int:
    """The newest epoch of which this voter heard."""
    found = [
        epoch for (name, own), epoch in heard.items()
        if name == voter and (own == place or not own or not place or place in NO_DIRECTORY)
    ]  # fmt: skip
    return max(found, default=unknown)


def _electorate(node: Node) -> Voters:
    """The voters that elected the leader of the log's newest epoch: by the last set before the epoch in that log, which is the leader's own
    up to there. Where the log no longer goes back so far, the first set that it has; empty if it has none."""
    begin, voters = node.history.begins.get(node.epoch, -1), node.voters
    older = [offset for offset in voters if offset < begin]
    return voters[max(older) if older else min(voters)] if voters else {}


def _state_findings(node: Node, ever: set[str]) -> Iterator[str]:
    """Problems with a node's quorum-state. `ever`: every voter in any copy, because a node may learn of a voter before its log has it."""
    state = node.state
    if node.unread:
        yield node.unread
    elif state is None:
        if node.holds_records:
            yield "it is missing although the log has records: the node might vote twice in an epoch"
    else:
        yield from _contradictions(node, state, ever)


def _contradictions(node: Node, state: dict[str, Any], ever: set[str]) -> Iterator[str]:
    if state["leaderEpoch"] < node.epoch:
        yield f"it knows epochs up to {state['leaderEpoch']}, but the log has epoch {node.epoch}"
    for name, words in (("leaderId", "the leader"), ("votedId", "it voted for")):
        if ever and state[name] >= 0 and str(state[name]) not in ever:
            yield f"{words} {state[name]} was never a voter (voters: {', '.join(sorted(ever))})"
    place = state.get("votedDirectoryId", "")
    places = {voters[str(state["votedId"])] for voters in node.voters.values() if str(state["votedId"]) in voters}
    if state["votedId"] >= 0 and place and place not in NO_DIRECTORY and places and place not in places:
        yield f"it voted for {state['votedId']} with directory {place}; the voter's is {', '.join(sorted(places))}"


def _without_beginning(path: str) -> Iterator[str]:
    begin = min(begins_of(path), default=0)
    if begin > 0 and all(end < begin for end, _, _ in snapshots_of(path)):
        yield f"the log begins at {begin}, and no snapshot has what came before"


def _two_leaders(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Check that an epoch has at most one leader."""
    leaders: dict[int, dict[int, list[str]]] = {}
    for node in nodes:
        if node.state is not None and node.state["leaderId"] >= 0:
            leaders.setdefault(node.state["leaderEpoch"], {}).setdefault(node.state["leaderId"], []).append(node.name)
    for epoch, nodes_by_leader in sorted(leaders.items()):
        if len(nodes_by_leader) > 1:
            text = "; ".join(f"{leader} by node {', '.join(names)}" for leader, names in sorted(nodes_by_leader.items()))
            fewest = min(nodes_by_leader.values(), key=len)
            yield _finding("quorum-state", f"epoch {epoch} has more than one leader: {text}", tuple(fewest))


def _outvoted(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Check that a majority can have voted for the leader of an epoch: a node votes once in an epoch, and a leader for itself."""
    states = [(node, node.state) for node in nodes if node.state is not None]
    leaders = {(state["leaderEpoch"], state["leaderId"]) for _, state in states if state["leaderId"] >= 0}
    for epoch, leader in sorted(leaders):
        others = {node.name for node, state in states if state["leaderEpoch"] == epoch and state["votedId"] not in {-1, leader}}
        own = next((node for node in nodes if node.name == str(leader)), None)
        voters = (_electorate(own) if own is not None and own.epoch == epoch else {}) or dict.fromkeys(voters_of(nodes), "")
        against = sorted(others & voters.keys())
        if str(leader) in against or (against and len(voters) - len(against) < len(voters) // 2 + 1):
            text = f"node {leader} leads epoch {epoch}, in which {', '.join(against)} of {counted(len(voters), 'voter')} voted otherwise"
            yield _finding("quorum-state", text, tuple(against))


def _missing_voters(nodes: Sequence[Node], directories: Sequence[Directory]) -> Iterator[Finding]:
    """Check that every voter whose directory was given has a copy there. A note names the voters whose directories were not given."""
    newest = _furthest(nodes)
    if newest is None:
        yield from _missing_static_voters(nodes, directories)
        return
    present = {node.name: os.path.dirname(node.path) for node in nodes}
    given = {directory.directory_id: directory for directory in directories if directory.directory_id}
    nameless = {directory.broker: directory.path for directory in directories if directory.cluster_id and not directory.directory_id}
    id_of = {directory.path: directory.directory_id for directory in directories}
    left = []
    for voter, place in sorted(newest.newest_voters.items()):
        if voter in present:
            yield from _as_another_voter(voter, place, id_of.get(present[voter], ""))
            continue
        if place in given:
            text = f"node {voter} is a voter of the quorum with {given[place].path}, but has no metadata log there"
            yield _finding("replica-missing", text, (voter,), given[place].path)
        elif voter in nameless:
            text = f"node {voter} is a voter and has no metadata log; {nameless[voter]} has no directory.id that says whether it "
            yield _finding("not-compared", text + "is the directory with which it joined", (voter,), nameless[voter], WARNING)
        else:
            left.append(voter)
    if left:
        text = f"the directories of the voter{'s' if len(left) > 1 else ''} {', '.join(left)} of the quorum were not given"
        yield _finding("not-compared", text, tuple(left), level=NOTE)


def _as_another_voter(voter: str, place: str, own: str) -> Iterator[Finding]:
    """A voter is a node with the directory id with which it joined (KIP-853). With another one it only observes."""
    if own and place not in NO_DIRECTORY and place != own:
        text = f"node {voter} is a voter of the quorum with directory {place}, but its metadata log is in {own}: it has no vote"
        yield _finding("quorum-state", text, (voter,), level=NOTE)


def _missing_static_voters(nodes: Sequence[Node], directories: Sequence[Directory]) -> Iterator[Finding]:
    """The same for controller.quorum.voters, which names nodes, not directories: a metadata log may be outside log.dirs."""
    present = {node.name for node in nodes}
    given = {directory.broker: directory.path for directory in directories if directory.cluster_id}
    for voter in sorted(_static_voters(nodes) - present):
        if voter in given:
            text = f"node {voter} is a voter of the quorum, but its directories that were given contain no metadata log"
            yield _finding("not-compared", text, (voter,), given[voter], WARNING)


def _finding(check: str, text: str, brokers: tuple[str, ...], file: str = "", level: str = ERROR) -> Finding:
    return Finding(check, text, METADATA_TOPIC, 0, brokers, file=file, level=level)
