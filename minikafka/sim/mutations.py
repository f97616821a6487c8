"""Mutations for minikafka.sim.mutants: which function is replaced, by what, and in which runs to look for the effect."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from minikafka.core.controller.brokers import FENCE
from minikafka.core.partition.isr import AlterOutcome
from minikafka.core.raft.types import OffsetAndEpoch
from minikafka.sim.replacements import constant
from minikafka.storage.types import EpochEnd
from minikafka.wire.batch import HEADER, LOG_OVERHEAD, OVERHEAD
from minikafka.wire.batch_header import LENGTH
from minikafka.wire.errors import ErrorCode
from minikafka.wire.records.metadata_records import BrokerRegistrationChangeRecord

LEADER = "minikafka.core.partition.leader:PartitionLeader"
ISR = "minikafka.core.partition.isr:IsrState"
PARTITION = "minikafka.broker.partitions.partition:Partition"
LOG = "minikafka.storage.log:Log"
EPOCHS = "minikafka.storage.epoch_cache:EpochCache"
PRODUCERS = "minikafka.storage.producer_state:ProducerStateManager"
REPLICA = "minikafka.core.raft.replica:Replica"
PARTITIONS = "minikafka.core.controller.partitions:PartitionControl"
BROKERS = "minikafka.core.controller.brokers:BrokerControl"
CHANGE = "minikafka.core.controller.change:PartitionChange"
RAFT_LOG = "minikafka.broker.quorum.raft_log"


def _advance_alone(original: Any) -> Any:
    def advance(self: Any, now_ms: int) -> bool:
        moved = self.high_watermark < self.log_end_offset
        self.high_watermark = self.log_end_offset
        return bool(moved)

    return advance


def _advance_any_isr(original: Any) -> Any:
    def advance(self: Any, now_ms: int) -> bool:
        kept, self.min_isr = self.min_isr, 1
        try:
            return bool(original(self, now_ms))
        finally:
            self.min_isr = kept

    return advance


def _take_late_answers(original: Any) -> Any:
    def altered(self: Any, proposal: Any, *answer: Any) -> Any:
        return original(self, self.isr.pending, *answer) if self.isr.pending is not None else (self.refused(proposal, answer[0]), False)

    return altered


def _advance_members_only(original: Any) -> Any:
    def advance(self: Any, now_ms: int) -> bool:
        kept, self._eligible = self._eligible, lambda *_: False
        try:
            return bool(original(self, now_ms))
        finally:
            self._eligible = kept

    return advance


def unchecked_batches(original: Any) -> Any:
    """Replaces LogAppender._whole_batches: only lengths are checked."""

    def whole_batches(self: Any, records: memoryview) -> list[Any]:
        found, position = [], 0
        while position + OVERHEAD <= len(records):
            header = HEADER.unpack_from(records, position)
            size = header[LENGTH] + LOG_OVERHEAD
            if position + size > len(records):
                break
            found.append((position, size, header))
            position += size
        return found

    return whole_batches


def _park_fetches_briefly(original: Any) -> Any:
    def park(self: Any, purgatory: Any, operation: Any, keys: Any, wait_ms: int) -> None:
        original(self, purgatory, operation, keys, 1 if purgatory is self.fetches else wait_ms)

    return park


def _late_metadata_revert(original: Any) -> Any:
    return lambda self, isr, partition_epoch, *, is_answer=False: original(self, isr, partition_epoch, is_answer=True)


def _advance_ignoring_pending(original: Any) -> Any:
    def propose(self: Any, proposal: Any) -> None:
        original(self, proposal)
        self.maximal = tuple(b for b in self.committed if b in proposal.isr)

    return propose


def _propose_counts_at_once(original: Any) -> Any:
    def propose(self: Any, proposal: Any) -> None:
        original(self, proposal)
        self.committed = self.maximal = proposal.isr

    return propose


def _expand_without(*, high_watermark: bool = False, eligibility: bool = False) -> Any:
    def make(original: Any) -> Any:
        def expansion(self: Any, broker_id: int) -> Any:
            follower = self.followers.get(broker_id)
            if follower is None or self.isr.pending is not None or broker_id in self.isr.maximal:
                return None
            end = follower.log_end_offset
            if not high_watermark and (end < self.high_watermark or end < self.epoch_start_offset):
                return None
            if end < 0 or (not eligibility and not self._eligible(broker_id, follower.broker_epoch)):
                return None
            return self._propose((*self.isr.committed, broker_id), is_expansion=True)

        return expansion

    return make


def _fetched_everything(original: Any) -> Any:
    def fetched(self: Any, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        original(self, offset, log_start_offset, leader_end_offset, broker_epoch, now_ms)
        self.log_end_offset = leader_end_offset

    return fetched


def _lead_from_own_end(original: Any) -> Any:
    def make_leader(self: Any, registration: Any, min_isr: int, now_ms: int) -> bool:
        self.log.update_high_watermark(self.log.log_end_offset)
        return bool(original(self, registration, min_isr, now_ms))

    return make_leader


def _follow_and_lead(original: Any) -> Any:
    def make_follower(self: Any, registration: Any) -> bool:
        kept = self.leader
        changed = bool(original(self, registration))
        self.leader = self.appending = kept
        return changed

    return make_follower


def _end_of_next_epoch(original: Any) -> Any:
    """Related to KAFKA-7128: the response has the end of the epoch after the requested one."""

    def end_offset_for(self: Any, epoch: int, log_end_offset: int) -> EpochEnd:
        found = original(self, epoch, log_end_offset)
        if found.epoch < 0 or found.epoch == self.latest:
            return EpochEnd(*found)
        return EpochEnd(found.epoch, log_end_offset)

    return end_offset_for


def _produce_from_any_epoch(original: Any) -> Any:
    def try_complete(self: Any, key: Any = None) -> bool:
        if self._replica.leader is not None:
            self._leader = self._replica.leader
        return bool(original(self))

    return try_complete


def _recover_nothing(original: Any) -> Any:
    def recover(self: Any, producers: Any, epochs: Any) -> int:
        size = self.size
        data = self.slice(0, self.file.size()).read()
        original(self, producers, epochs)
        self.file.pwrite(data, 0)
        self.size = size
        return 0

    return recover


def _update_without_clamp(original: Any) -> Any:
    def move_high_watermark(self: Any, offset: int) -> bool:
        moved = offset != self.high_watermark
        self.high_watermark = offset
        return bool(moved)

    return move_high_watermark


def _always_clean(original: Any) -> Any:
    def open_directory(self: Any) -> Any:
        meta = original(self)
        self.is_clean = True
        return meta

    return open_directory


def _checkpoint_ends(original: Any) -> Any:
    def checkpoint(self: Any) -> Any:
        for log in self.logs.values():
            log.durability.recovery_point = log.log_end_offset
        return original(self)

    return checkpoint


def _load_high_watermark_at_end(original: Any) -> Any:
    def load_log(*arguments: Any, **named: Any) -> Any:
        if "__cluster_metadata" not in arguments[1]:
            named["high_watermark"] = 1 << 60
        return original(*arguments, **named)

    return load_log


def _vote_for_everybody(original: Any) -> Any:
    return lambda self, candidate, is_up_to_date: is_up_to_date


def _vote_for_shorter_logs(original: Any) -> Any:
    def can_grant_once(self: Any, candidate: Any, is_up_to_date: bool) -> bool:
        return bool(original(self, candidate, True))

    return can_grant_once


def _prevote_for_shorter_logs(original: Any) -> Any:
    def can_grant(self: Any, candidate: Any, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return bool(original(self, candidate, True, is_pre_vote))

    return can_grant


def _forget_votes(original: Any) -> Any:
    def persist(self: Any, *, leader_id: int | None = None) -> None:
        kept, self.role.voted = self.role.voted, None
        try:
            original(self, leader_id=leader_id)
        finally:
            self.role.voted = kept

    return persist


def _commit_of_one(original: Any) -> Any:
    def high_watermark(self: Any, voters: Any, local: Any, flushed_offset: int) -> int:
        return int(max(flushed_offset, *(replica.end_offset for replica in self.replicas.values()), -1))

    return high_watermark


def _count_unsynced(original: Any) -> Any:
    def update(replica: Any, role: Any, now_ms: int) -> None:
        kept, replica.log.flushed_offset = replica.log.flushed_offset, replica.log.end_offset
        try:
            original(replica, role, now_ms)
        finally:
            replica.log.flushed_offset = kept

    return update


def _never_diverges(original: Any) -> Any:
    def validate(self: Any, offset: int, last_epoch: int) -> Any:
        validity, position = original(self, offset, last_epoch)
        kinds = type(validity)
        return (kinds.VALID, OffsetAndEpoch(offset, last_epoch)) if validity is kinds.DIVERGING else (validity, position)

    return validate


def _fence_but_keep_in_isr(original: Any) -> Any:
    def fence(self: Any, broker: Any) -> Any:
        yield from ()
        return [BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE)]

    return fence


def _nothing_in_steps(original: Any) -> Any:
    def decide(*_: Any) -> Any:
        yield from ()
        return []

    return decide


def _accept_alter(*codes: ErrorCode) -> Any:
    def make(original: Any) -> Any:
        def check(self: Any, broker_id: int, partition: Any, data: Any, isr: Any) -> ErrorCode:
            code = original(self, broker_id, partition, data, isr)
            return ErrorCode.NONE if code in codes else code

        return check

    return make


def _elect_anybody(original: Any) -> Any:
    def may_be_elected(self: Any, replica: int) -> bool:
        return bool(self.may_lead(replica))

    return may_be_elected


def _keep_leader_epoch(original: Any) -> Any:
    def merge(self: Any, change: Any) -> Any:
        merged = original(self, change)
        merged.leader_epoch = self.leader_epoch
        return merged

    return merge


def _keep_unclean_eligible(original: Any) -> Any:
    return lambda self, *broker_ids: self


def _answer_before_commit(original: Any) -> Any:
    return lambda self, offset, respond, response: respond(response, None)


def _act_before_registration(original: Any) -> Any:
    def apply(self: Any, delta: Any, image: Any) -> None:
        self._is_registered = True
        original(self, delta, image)

    return apply


def _answer_before_replication(original: Any) -> Any:
    def append(self: Any, led: Any, append: Any) -> None:
        original(self, led, append)
        if self.topic.name == "__consumer_offsets" and led.written and led.written[-1].append is append:
            led.written[-1].is_answered = True
            append.on_done(ErrorCode.NONE, self._clock.now_ms())

    return append


def _load_no_groups(original: Any) -> Any:
    """A shard of groups begins at the end of its log."""

    def begin(self: Any, index: int, leader_epoch: int, partition: Any, shard: Any, reader: Any, started_ms: int) -> None:
        original(self, index, leader_epoch, partition, shard, reader, started_ms)
        if partition.topic == "__consumer_offsets":
            reader.next_offset = self.end_offset

    return begin


def _sequence_of_every_try(original: Any) -> Any:
    def encode(self: Any, queue: Any, batch: Any) -> Any:
        batch.reset_sequence()
        return original(self, queue, batch)

    return encode


def _read_to_the_end(original: Any) -> Any:
    return lambda partition, limits: partition.log.log_end_offset


def _forget_producers(original: Any) -> Any:
    def rebuild(producers: Any, segments: Any, log_start_offset: int, end_offset: int, wall_ms: int) -> None:
        producers.reset()
        producers.advance(end_offset)

    return rebuild


def _epoch_of_before(original: Any) -> Any:
    def append(self: Any, records: Any, leader_epoch: int, wall_ms: int, **named: Any) -> Any:
        epoch = leader_epoch if named.get("origin") == "raft" else max(leader_epoch - 1, 0)
        return original(self, records, epoch, wall_ms, **named)

    return append


def _write_without_sync(original: Any) -> Any:
    def write_atomically(filesystem: Any, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        if filesystem.exists(temporary):
            filesystem.unlink(temporary)
        file = filesystem.open(temporary, create=True)
        file.pwrite(data, 0)
        file.close()
        filesystem.rename(temporary, path)

    return write_atomically


def _clean_what_is_needed(original: Any) -> Any:
    def clean(self: Any, high_watermark: int, delivered: int, snapshots: Any) -> int:
        return int(original(self, high_watermark, high_watermark, snapshots))

    return clean


def _no_fencing_of_fetches(original: Any) -> Any:
    def fetched(self: Any, broker_id: int, offset: int, log_start_offset: int, broker_epoch: int, now_ms: int) -> bool:
        return bool(original(self, broker_id, offset, log_start_offset, -1, now_ms))

    return fetched


def _raw_disk_errors(original: Any) -> Any:
    return lambda self, action: nullcontext()


def _ask_for_an_id_at_once(original: Any) -> Any:
    async def deliver(self: Any, queue: Any) -> None:
        await original(self, queue)
        if self._idempotent and not self._has_producer_id:
            await self._init_producer_id()
            self._has_producer_id = True

    return deliver


_DYING = (("shape", "combined"), ("min_isr", 2))
_SMALL = (("properties", {"log.flush.offset.checkpoint.interval.ms": "500"}),)

MUTATIONS: list[dict[str, Any]] = [
    # -- the leader
    {"name": "hw-own-end", "breaks": "the high watermark waits for no follower", "patches": ((f"{LEADER}.advance", _advance_alone),)},
    {"name": "hw-below-min-isr", "breaks": "the high watermark advances below min.insync.replicas (KIP-966)",
     "patches": ((f"{LEADER}.advance", _advance_any_isr),), "options": _DYING},
    {"name": "isr-shrink-at-once", "breaks": "a member proposed for removal is not waited for (no maximal ISR)",
     "patches": ((f"{ISR}.propose", _advance_ignoring_pending),), "profile": "network"},
    {"name": "isr-proposal-counts", "breaks": "a proposed in-sync set counts as committed",
     "patches": ((f"{ISR}.propose", _propose_counts_at_once),), "profile": "network"},
    {"name": "late-metadata-revert", "breaks": "metadata that is already known withdraws a pending proposal",
     "patches": ((f"{ISR}.commit", _late_metadata_revert),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "ack-at-once", "breaks": "acks=all is answered from the leader's log", "patches": ((f"{LEADER}.is_replicated",
     constant(ErrorCode.NONE)),)},
    {"name": "expand-behind", "breaks": "a follower behind the high watermark joins the in-sync set (KAFKA-7128)",
     "patches": ((f"{LEADER}.expansion", _expand_without(high_watermark=True)),), "profile": "crashes"},
    {"name": "expand-ineligible", "breaks": "a fenced or earlier incarnation is proposed, and accepted (KIP-841, KIP-903)",
     "patches": ((f"{LEADER}.expansion", _expand_without(eligibility=True)),
                 (f"{PARTITIONS}._check_alter", _accept_alter(ErrorCode.INELIGIBLE_REPLICA))), "profile": "storm"},
    {"name": "fetch-counts-as-end", "breaks": "a fetch counts as if the follower had everything",
     "patches": (("minikafka.core.partition.leader:FollowerProgress.fetched", _fetched_everything),)},
    {"name": "old-incarnation-fetches", "breaks": "fetches from a follower's earlier incarnation count (KIP-903)",
     "patches": ((f"{LEADER}.fetched", _no_fencing_of_fetches),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "lead-from-own-end", "breaks": "a new leader takes the end of its log as the high watermark",
     "patches": ((f"{PARTITION}.make_leader", _lead_from_own_end),), "profile": "crashes"},
    {"name": "timeout-is-refusal", "breaks": "an AlterPartition without a response is withdrawn (it may be committed)",
     "patches": (("minikafka.core.partition.leader:outcome_of", constant(AlterOutcome.REVERT)),),
     "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "late-answer-counts", "breaks": "the response to an earlier proposal counts for the pending one",
     "patches": ((f"{LEADER}.altered", _take_late_answers),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "caught-up-not-waited-for", "breaks": "the high watermark runs ahead of a follower that is about to join the in-sync set",
     "patches": ((f"{LEADER}.advance", _advance_members_only),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "hw-always-current", "breaks": "LATEST is answered before the high watermark has reached the epoch (KIP-207)",
     "patches": ((f"{LEADER}.is_high_watermark_current", constant(True)),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "no-check-writable", "breaks": "acks=all is accepted below min.insync.replicas",
     "patches": ((f"{LEADER}.check_writable", constant(None)),), "tests": ("tests/core/partition/test_leader.py",)},
    {"name": "follow-and-lead", "breaks": "a leader that became a follower "
                                          "keeps leading", "patches": ((f"{PARTITION}.make_follower", _follow_and_lead),)},
    {"name": "no-epoch-check", "breaks": "requests with another leader epoch are served (KIP-320)",
     "patches": ((f"{PARTITION}.check_epoch", constant(None)),), "tests": ("tests/sim/test_rules.py",)},
    {"name": "no-epoch-start", "breaks": "a new leader does not record the start of its epoch",
     "patches": ((f"{LOG}.assign_epoch_start", constant(None)),), "tests": ("tests/sim/test_rules.py",)},
    {"name": "produce-across-epochs", "breaks": "a produce request of one epoch is answered in the next (like KAFKA-9144)",
     "patches": (("minikafka.core.partition.replication_wait:ReplicationWait.try_complete", _produce_from_any_epoch),),
     "tests": ("tests/sim/test_rules.py",)},
    {"name": "epoch-of-before", "breaks": "records carry the epoch before the leader's",
     "patches": (("minikafka.storage.log_append:LogAppender.append_as_leader", _epoch_of_before),), "profile": "crashes"},
    {"name": "consumers-read-to-the-end", "breaks": "consumers are given uncommitted records",
     "patches": (("minikafka.broker.partitions.fetch_read:end_offset_of", _read_to_the_end),), "profile": "crashes",
     "options": (("readers", 2), ("pace_s", 0.05))},
    # -- followers
    {"name": "never-diverging", "breaks": "a leader never reports that logs diverge (KIP-595)",
     "patches": (("minikafka.broker.partitions.fetch_read:PartitionReader._diverges", constant(False)),), "profile": "crashes"},
    {"name": "end-of-next-epoch", "breaks": "a question for the end of an epoch is answered with a later epoch's end (KIP-279)",
     "patches": ((f"{EPOCHS}.end_offset_for", _end_of_next_epoch),), "profile": "crashes"},
    {"name": "epochs-kept", "breaks": "truncation keeps the epochs of the truncated records (like KAFKA-14663)",
     "patches": ((f"{EPOCHS}.truncate_from_end", constant(None)),), "profile": "crashes"},
    {"name": "hw-unclamped", "breaks": "a high watermark may lie beyond the end of the log",
     "patches": (("minikafka.storage.watermarks:Watermarks.move_high_watermark", _update_without_clamp),), "profile": "crashes"},
    # -- storage
    {"name": "recover-not", "breaks": "recovery keeps bytes that are not a valid batch", "profile": "crashes", "options": _DYING,
     "patches": (("minikafka.storage.segment:Segment.recover", _recover_nothing),)},
    {"name": "always-clean", "breaks": "a crash counts as a clean shutdown (KAFKA-10471)", "profile": "crashes", "options": _DYING,
     "patches": (("minikafka.storage.log_dir:LogDirectory.open", _always_clean),)},
    {"name": "mark-kept", "breaks": "the clean-shutdown marker survives the next start", "profile": "crashes", "options": _DYING,
     "patches": (("minikafka.storage.lost_files:loading", constant(None)),), "tests": ("tests/storage/test_log_dir.py",)},
    {"name": "hole-unseen", "breaks": "a log that lost segments before others counts as whole after a clean stop",
     "patches": (("minikafka.storage.lost_files:lost_before", constant(None)),), "tests": ("tests/storage/test_lost_segments.py",)},
    {"name": "loss-forgotten", "breaks": "a start after a crash does not know that a log lost segments before it",
     "patches": (("minikafka.storage.lost_marks:read_mark", constant(None)),), "tests": ("tests/storage/test_lost_segments.py",)},
    {"name": "recovery-point-at-end", "breaks": "recovery points are stored without a sync", "profile": "crashes",
     "options": (*_DYING, *_SMALL),
     "patches": (("minikafka.storage.log_dir:LogDirectory.recovery_points", _checkpoint_ends),)},
    {"name": "hw-checkpoint-at-end", "breaks": "the high watermark after a start is the log's end", "profile": "crashes",
     "patches": (("minikafka.storage.log_dir:load_log", _load_high_watermark_at_end),)},
    {"name": "atomic-without-sync", "breaks": "checkpoints and votes are renamed before they are synced", "profile": "crashes",
     "options": (("shape", "quorum"),), "duration_s": 12.0,
     "patches": (("minikafka.broker.quorum.quorum_state:write_atomically", _write_without_sync),)},
    {"name": "duplicates-stored", "breaks": "a batch that is already stored is stored again (KIP-98)", "profile": "network",
     "patches": (("minikafka.storage.producer_state:ProducerEntry.duplicate_of", constant(None)),
                 (f"{PRODUCERS}._check_sequence", constant(None))), "options": (("break_probability", 0.02),)},
    {"name": "producers-forgotten", "breaks": "producer state is not rebuilt after truncation and recovery", "profile": "storm",
     "patches": (("minikafka.storage.truncation:rebuild_producers", _forget_producers),
                 ("minikafka.storage.truncation:Truncation.prepare", constant(None)),
                 ("minikafka.storage.recovery:rebuild_producers", _forget_producers)), "options": (("break_probability", 0.02),)},
    # -- the metadata quorum
    {"name": "votes-for-everybody", "breaks": "two votes in one epoch", "profile": "crashes", "options": (("shape", "quorum"),),
     "patches": (("minikafka.core.raft.roles:Role._can_grant_once", _vote_for_everybody),)},
    {"name": "vote-for-shorter-log", "breaks": "a candidate with a shorter log is elected", "profile": "crashes",
     "options": (("shape", "quorum"), ("is_dynamic", False)), "duration_s": 8.0,
     "patches": (("minikafka.core.raft.roles:Role._can_grant_once", _vote_for_shorter_logs),
                 ("minikafka.core.raft.roles:Unattached.can_grant", _prevote_for_shorter_logs),
                 ("minikafka.core.raft.roles:Prospective.can_grant", _prevote_for_shorter_logs),
                 ("minikafka.core.raft.roles:Follower.can_grant", _prevote_for_shorter_logs))},
    {"name": "votes-not-durable", "breaks": "the vote is not written to disk", "profile": "storm", "options": (("shape", "quorum"),),
     "patches": ((f"{REPLICA}.persist", _forget_votes),), "tests": ("tests/core/raft/test_quorum.py",)},
    {"name": "commit-of-one", "breaks": "metadata is committed as soon as one voter has it",
     "patches": (("minikafka.core.raft.progress:Progress.high_watermark", _commit_of_one),), "options": (("shape", "quorum"),)},
    {"name": "leader-counts-unsynced", "breaks": "the quorum's leader counts records that are not on its disk", "profile": "disks",
     "patches": (("minikafka.core.raft.leading:update_high_watermark", _count_unsynced),), "options": (("shape", "quorum"),)},
    {"name": "sync-not", "breaks": "the metadata log is not synced",
     "patches": ((f"{RAFT_LOG}:SyncTask.run", constant(None)),), "options": (("shape", "quorum"),)},
    {"name": "quorum-never-diverging", "breaks": "the quorum's leader never reports that logs diverge", "profile": "crashes",
     "patches": (("minikafka.core.raft.log_state:LogState.validate", _never_diverges),), "options": (("shape", "quorum"),)},
    {"name": "clean-under-listeners", "breaks": "the metadata log is cleaned while listeners still need it",
     "patches": ((f"{RAFT_LOG}:MetadataLog.clean", _clean_what_is_needed),), "tests": ("tests/broker/test_raft_shortage.py",)},
    # -- the controller
    {"name": "fenced-in-isr", "breaks": "a fenced broker stays in sync", "profile": "crashes",
     "patches": ((f"{BROKERS}.fence", _fence_but_keep_in_isr),)},
    {"name": "alter-any-epoch", "breaks": "AlterPartition with an old leader or partition epoch is carried out "
                                          "(KIP-497)", "profile": "storm",
     "patches": ((f"{PARTITIONS}._check_alter", _accept_alter(
         ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REQUEST)),)},
    {"name": "elect-anybody", "breaks": "a live replica outside the in-sync set is elected", "profile": "crashes",
     "patches": ((f"{CHANGE}._may_be_elected", _elect_anybody),)},
    {"name": "keep-leader-epoch", "breaks": "a new leader gets the old epoch", "profile": "crashes",
     "patches": (("minikafka.core.metadata.image:PartitionRegistration.merge", _keep_leader_epoch),)},
    {"name": "predecessor-stays", "breaks": "a new incarnation keeps its predecessor's place in the in-sync set", "profile": "crashes",
     "patches": ((f"{BROKERS}._remove_predecessor", _nothing_in_steps),), "options": _DYING, "duration_s": 12.0},
    {"name": "unclean-stays-eligible", "breaks": "a replica that stopped uncleanly stays eligible (KIP-966)", "profile": "crashes",
     "patches": ((f"{CHANGE}.unclean_shutdown", _keep_unclean_eligible),), "tests": ("tests/core/controller/test_elections.py",)},
    {"name": "answer-before-commit", "breaks": "the controller responds before its records are committed",
     "patches": (("minikafka.broker.quorum.controller_host:ControllerHost._answer_when_committed", _answer_before_commit),),
     "profile": "network"},
    # -- brokers, groups, clients
    {"name": "act-before-registration", "breaks": "a broker acts on its earlier incarnation's leaderships", "profile": "crashes",
     "patches": (("minikafka.broker.partitions.replica_manager:ReplicaManager.apply", _act_before_registration),), "options": _DYING},
    {"name": "commits-with-one-ack", "breaks": "offset commits are acknowledged before they are replicated", "profile": "storm",
     "patches": (("minikafka.broker.coordinators.runtime:CoordinatorRuntime._append", _answer_before_replication),),
     "options": (("group_members", 2),)},
    {"name": "groups-not-loaded", "breaks": "a new coordinator forgets the groups", "profile": "crashes",
     "patches": (("minikafka.broker.coordinators.runtime:_Led.__init__", _load_no_groups),),
     "options": (("group_members", 2),)},
    {"name": "raw-disk-errors", "breaks": "a failing disk under the metadata log stops only the operation that "
                                          "meets it", "profile": "disks",
     "patches": ((f"{RAFT_LOG}:MetadataLog._disk", _raw_disk_errors),)},
    {"name": "producer-without-id", "breaks": "a producer that gets no new id at once never sends there again", "profile": "storm",
     "patches": (("minikafka.client.producer:Producer._deliver", _ask_for_an_id_at_once),), "options": (("delivery_timeout_ms", 1500),)},
    {"name": "sequence-of-every-try", "breaks": "a producer gives a retried batch new sequence numbers", "profile": "network",
     "patches": (("minikafka.client.producer:Producer._encode", _sequence_of_every_try),), "options": (("break_probability", 0.02),)},
    {"name": "follower-takes-anything", "breaks": "a follower stores batches with a wrong checksum", "profile": "rot",
     "patches": (("minikafka.storage.log_append:LogAppender._whole_batches", unchecked_batches),), "options": (("partitions", 1),)},
    {"name": "consumer-takes-anything", "breaks": "a consumer returns batches with a wrong checksum", "profile": "rot",
     "patches": (("minikafka.wire.batch:RecordBatch.check", constant(None)),), "options": (("readers", 1), ("partitions", 1))},
    {"name": "no-rest", "breaks": "fetches without records are answered at once",
     "patches": (("minikafka.broker.partitions.waiting:Waiting.park", _park_fetches_briefly),)},
    {"name": "gap-after-refusal", "breaks": "a producer continues its sequence numbers after a batch that was "
                                            "finally refused", "profile": "disks",
     "patches": (("minikafka.client.producer:Producer._leave_gap", constant(None)),), "tests": ("tests/client/test_refused_batch.py",)},
]
