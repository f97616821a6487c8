"""Builds the record of one partition's change: in-sync replicas, eligible replicas, leader (Kafka's PartitionChangeBuilder)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from minikafka.core.metadata.image import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    PartitionRegistration,
)
from minikafka.wire.records.metadata_records import PartitionChangeRecord


class Election(Enum):
    """Which replicas an election may choose."""

    PREFERRED = 0  # the first replica if it may lead, otherwise the current leader, otherwise any replica in sync or eligible
    ONLINE = 1  # the current leader if it may lead, otherwise the first replica that is in sync or eligible
    UNCLEAN = 2  # as ONLINE, otherwise any live replica: acknowledged records may be lost


class PartitionChange:
    """Target values for one partition. `build()` elects a leader and returns the record, or None if nothing changes.

    may_lead: whether a broker may become or stay leader now (registered, active, directory online).
    min_isr: the effective min.insync.replicas, already capped by the replication factor by `build`.

    Rules (KIP-966 with eligible.leader.replicas.version 1; facts from Kafka 4.3's behaviour):
    - an ISR of at least min ISR clears the eligible leader replicas (ELR); below it, members that leave the ISR join the ELR;
    - a leader comes from the ISR or the ELR; one from the ELR makes the ISR {leader};
    - when both are empty, the last known leader is elected, uncleanly, if it is alive;
    - an unclean leader makes ISR {leader}, clears the ELR and sets RECOVERING;
    - the leader epoch increases if the record names a leader: for a new leader, and when a reassignment drops a replica, but not for ISR
      changes (KAFKA-15021).
    """

    __slots__ = (
        "_adding",
        "_directories",
        "_elr",
        "_isr",
        "_last_known_elr",
        "_partition",
        "_recovery_state",
        "_removing",
        "_replicas",
        "_unclean_shutdown",
        "election",
        "elr_enabled",
        "index",
        "may_lead",
        "min_isr",
        "topic_id",
    )

    def __init__(
        self,
        partition: PartitionRegistration,
        topic_id: bytes,
        index: int,
        may_lead: Callable[[int], bool],
        *,
        min_isr: int,
        elr_enabled: bool,
        election: Election = Election.ONLINE,
    ) -> None:
        self._partition = partition
        self.topic_id = topic_id
        self.index = index
        self.may_lead = may_lead
        self.min_isr = min_isr
        self.elr_enabled = elr_enabled
        self.election = election
        self._isr = partition.isr
        self._replicas = partition.replicas
        self._adding = partition.adding_replicas
        self._removing = partition.removing_replicas
        self._elr = partition.elr
        self._last_known_elr = partition.last_known_elr
        self._recovery_state = partition.leader_recovery_state
        self._unclean_shutdown: tuple[int, ...] = ()
        self._directories = dict(zip(partition.replicas, partition.directories, strict=True))

    # -- targets ---------------------------------------------------------------------------------------------------

    def target_isr(self, isr: Iterable[int]) -> PartitionChange:
        """Set the target in-sync replicas."""
        self._isr = tuple(isr)
        return self

    def target_replicas(self, replicas: Iterable[int], adding: Iterable[int], removing: Iterable[int]) -> PartitionChange:
        """Set the target assignment, with the replicas that are being added and removed (KIP-455)."""
        self._replicas = tuple(replicas)
        self._adding = tuple(adding)
        self._removing = tuple(removing)
        return self

    def target_recovery_state(self, state: int) -> PartitionChange:
        """Set the leader recovery state that the leader reported: RECOVERED or RECOVERING."""
        self._recovery_state = state
        return self

    def target_directory(self, broker_id: int, directory: bytes) -> PartitionChange:
        """Set the log directory of one replica (KIP-858)."""
        self._directories[broker_id] = directory
        return self

    def unclean_shutdown(self, *broker_ids: int) -> PartitionChange:
        """Name brokers that restarted without a clean shutdown. They may have lost records, so they leave the ELR."""
        self._unclean_shutdown = broker_ids
        return self

    # -- building --------------------------------------------------------------------------------------------------

    def build(self) -> PartitionChangeRecord | None:
        """The record, or None if it would change nothing."""
        partition = self._partition
        record = PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id)
        self._complete_reassignment()
        self._populate_elr()
        self._elect(record)
        unclean = record.isr is not None
        if unclean or not self.elr_enabled:
            self._elr = self._last_known_elr = ()
        if self._elr != partition.elr:
            record.eligible_leader_replicas = list(self._elr)
        if record.isr is None and (self._isr or self.elr_enabled) and self._isr != partition.isr:
            record.isr = list(self._isr)
        self._bump_for_dropped_replicas(record)
        self._update_last_known_leader(record)
        self._set_assignment(record)
        if record.leader_recovery_state == -1 and self._recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self._recovery_state
        return None if _says_nothing(record) else record

    def _complete_reassignment(self) -> None:
        """Complete the reassignment if all added replicas are in sync and at least one replica that stays is in sync."""
        if not self._adding and not self._removing:
            return
        target = [replica for replica in self._replicas if replica not in self._removing]
        isr = [replica for replica in self._isr if replica not in self._removing]
        if not target or not isr:
            return
        done = all(replica in isr for replica in self._adding) if self._adding else True
        if not done:
            return
        self._replicas, self._isr = tuple(target), tuple(isr)
        self._adding = self._removing = ()

    def _populate_elr(self) -> None:
        if not self.elr_enabled:
            return
        if self._is_enough():
            self._elr = self._last_known_elr = ()
            return
        candidates = list(dict.fromkeys((*self._elr, *self._partition.isr)))
        self._elr = tuple(
            replica
            for replica in candidates
            if replica not in self._isr and replica not in self._unclean_shutdown and replica in self._replicas
        )

    def _is_enough(self) -> bool:
        return len(self._isr) >= min(self.min_isr, len(self._replicas))

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._choose()
        if leader == self._partition.leader:
            return
        record.leader = leader
        if leader == NO_LEADER:
            return
        if unclean:
            record.isr = [leader]
            if self._partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
        elif leader in self._elr:
            self._isr = (leader,)
            self._elr = tuple(replica for replica in self._elr if replica != leader)
            if self._is_enough():
                # While there was no leader, min.insync.replicas was lowered: this leader may commit without the others
                # (`ConfigControl._clear_eligible`).
                self._elr = self._last_known_elr = ()

    def _choose(self) -> tuple[int, bool]:
        """(leader or NO_LEADER, whether the election is unclean)."""
        current = self._partition.leader
        if self.election is Election.PREFERRED and self._replicas and self._may_be_elected(self._replicas[0]):
            return self._replicas[0], False
        if self._may_be_elected(current):
            return current, False
        for replica in self._replicas:
            if self._may_be_elected(replica):
                return replica, False
        if self.election is Election.PREFERRED:
            return NO_LEADER, False
        last_known = self._partition.last_known_elr
        if self.elr_enabled and not self._elr and len(last_known) == 1 and self.may_lead(last_known[0]):
            return last_known[0], True
        if self.election is Election.UNCLEAN:
            for replica in self._replicas:
                if self.may_lead(replica):
                    return replica, True
        return NO_LEADER, False

    def _may_be_elected(self, replica: int) -> bool:
        return (replica in self._isr or (self.elr_enabled and replica in self._elr)) and self.may_lead(replica)

    def _bump_for_dropped_replicas(self, record: PartitionChangeRecord) -> None:
        if record.leader == NO_LEADER_CHANGE and any(replica not in self._replicas for replica in self._partition.replicas):
            record.leader = self._partition.leader

    def _update_last_known_leader(self, record: PartitionChangeRecord) -> None:
        partition = self._partition
        if not self.elr_enabled:
            if partition.last_known_elr:
                record.last_known_elr = []
            return
        if record.isr is not None and not record.isr and partition.last_known_elr != (partition.leader,):
            if partition.leader != NO_LEADER:
                record.last_known_elr = [partition.leader]
        elif partition.last_known_elr and (record.leader >= 0 or NO_LEADER not in {partition.leader, record.leader}):
            record.last_known_elr = []

    def _set_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self._partition
        if self._replicas and self._replicas != partition.replicas:
            record.replicas = list(self._replicas)
        if self._removing != partition.removing_replicas:
            record.removing_replicas = list(self._removing)
        if self._adding != partition.adding_replicas:
            record.adding_replicas = list(self._adding)
        directories = tuple(self._directories.get(replica, DIRECTORY_UNASSIGNED) for replica in self._replicas)
        if directories != partition.directories:
            record.directories = list(directories)


def _says_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == -1
        and record.directories is None
    )
