"""Records lost by unclean elections, found from the controller's record of the elections and the remaining logs.

A leader that was neither in sync nor eligible continues from the end of its own log. Records that other replicas hold beyond that offset,
in older epochs, are lost, even if they were acknowledged. Those replicas keep them until they follow the new leader and truncate.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from minikafka.spark.findings import ERROR, NOTE, Finding
from minikafka.spark.metadata_log import UncleanElection
from minikafka.spark.sources import began_at
from minikafka.spark.views import ReplicaView


def losses(views: list[ReplicaView]) -> Iterator[tuple[ReplicaView, UncleanElection, int]]:
    """(replica, election, offset) for each replica that still holds older records beyond the offset at which the elected leader began."""
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    copies = [one.replica for one in views]
    for one in views:
        for election in claim.elections if claim is not None else ():
            begin = began_at(election.leader_epoch, copies)
            if begin is not None and any(epoch < election.leader_epoch and last >= begin for epoch, _, last in one.runs):
                yield one, election, begin
                break


def history(views: list[ReplicaView]) -> list[tuple[int, str]]:
    """(first offset of the elected leader, the election in words) of every known unclean election of the partition."""
    claim = next((one.replica.claim for one in views if one.replica.claim is not None), None)
    copies = [one.replica for one in views]
    found = [(began_at(one.leader_epoch, copies), election_text(one)) for one in (claim.elections if claim is not None else ())]
    return [(begin, words) for begin, words in found if begin is not None]


def loss_finding(one: ReplicaView, election: UncleanElection, begin: int) -> Finding:
    """The finding about lost records and the election. It is an error if the replica was in sync, or its high watermark covers them."""
    end = max(last for epoch, _, last in one.runs if epoch < election.leader_epoch)
    certain = one.replica.node in election.isr + election.elr or one.replica.high_watermark > begin or election.offset < 0
    said = "may have been acknowledged" if certain else "were never committed: it was not in sync"
    text = f"offsets {begin}..{end} that broker {one.broker} still has {said}; they were lost in {election_text(election)}"
    cause = "unclean.leader.election.enable, or an operator's unclean election, while no in-sync replica was available"
    replica = one.replica
    return Finding(
        "unclean-loss", text, replica.topic, replica.partition, (one.broker,), begin, replica.path, level=ERROR if certain else NOTE,
        cause=cause, details={"lost": [begin, end], "leader": election.leader, "leader_epoch": election.leader_epoch},
    )  # fmt: skip


def election_text(election: UncleanElection) -> str:
    """A description of the election, for messages."""
    head = f"the unclean election of broker {election.leader} in leader epoch {election.leader_epoch}"
    if election.offset < 0:
        return f"{head} (before the metadata log begins)"
    instant = datetime.datetime.fromtimestamp(max(0, election.timestamp_ms) / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    sync = f"in sync were {', '.join(election.isr) or 'none'}, eligible {', '.join(election.elr) or 'none'}"
    return f"{head} (metadata offset {election.offset}, {instant}; {sync})"
