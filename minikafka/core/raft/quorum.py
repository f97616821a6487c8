"""One replica of the metadata quorum (KRaft: KIP-595, 853, 996; Kafka's KafkaRaftClient and QuorumState), sans IO.

`step(event, now_ms)` and `on_deadline(now_ms)` return effects sorted by rank: persist, change the log, send, respond, notify. The host
carries them out in that order and, before any other event, feeds back the events that they cause (BatchAppended, FetchedAppended,
SnapshotInstalled). Flushed comes when the disk is done. The modules voting, leading, following and membership hold what a replica does;
replica holds its state and its transitions between roles.
"""

from __future__ import annotations

from minikafka.core.raft import following, leading, membership, voting
from minikafka.core.raft import messages as m
from minikafka.core.raft.events import (
    Answered,
    BatchAppended,
    Disconnected,
    Effect,
    Event,
    Failed,
    FetchedAppended,
    Flushed,
    Received,
    SnapshotInstalled,
    SnapshotWritten,
)
from minikafka.core.raft.replica import Replica
from minikafka.core.raft.requests import InFlight
from minikafka.core.raft.roles import Election, Follower, Leader, Resigned, Unattached
from minikafka.core.raft.types import (
    NO_NODE,
    ElectionState,
)
from minikafka.wire.errors import ErrorCode

#: The largest step of the epoch that a request may ask for. No election takes a larger one, and epochs are only 32 bits.
EPOCH_STEP_MAX = 1 << 24
_RAISES_EPOCH = (m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest)


class Quorum(Replica):
    """Events in, effects out. See the module."""

    # -- entry points

    def start(self, now_ms: int) -> list[Effect]:
        """Take up the role that the durable state allows. A single voter leads at once."""
        self._is_started = True
        state = self.election
        epoch = max(state.epoch, self.log.last_epoch)
        if epoch > state.epoch:
            # The log has a later epoch than quorum-state, which was lost or restored: the votes of that epoch are unknown.
            state = ElectionState(epoch)
        if state.leader_id == self.local.node_id and self.can_be_voter and not self.voters.is_only_voter(self.local):
            # After the restart this leader no longer has what it promised in its epoch, so it must not lead that epoch again.
            self.role = Resigned(epoch, self.local.node_id, None, None)
            self.role.election_deadline_ms = now_ms + self.random_ms(0, self.election_timeout_ms // 4)
            self.persist()
        elif state.leader_id not in (NO_NODE, self.local.node_id) and self.voters.endpoint(state.leader_id) is not None:
            self.become_follower(epoch, state.leader_id, self.voters.endpoint(state.leader_id), now_ms, voted=state.voted)
        else:
            voted = state.voted if state.epoch == epoch else None
            self.role = Unattached(epoch, NO_NODE, None, voted)
            if self.may_stand:
                # Pre-votes do no harm, so a starting quorum need not wait for a whole election timeout.
                self.role.election_deadline_ms = now_ms + self.random_ms(0, self.election_timeout_ms // 10)
        return self._finish(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle one event. Never raises for what a peer sent; raises InvariantViolated for a bug of this code."""
        kind = type(event)
        if kind is Received:
            self._on_request(event, now_ms)  # type: ignore[arg-type]
        elif kind is Answered:
            self._on_answer(event, now_ms)  # type: ignore[arg-type]
        elif kind is Failed:
            self._on_failed(event, now_ms)  # type: ignore[arg-type]
        elif kind is BatchAppended:
            self._on_batch(event, now_ms)  # type: ignore[arg-type]
        elif kind is FetchedAppended:
            following.on_appended(self, event.is_refused, now_ms)  # type: ignore[union-attr]
        elif kind is Flushed:
            self._on_flushed(event, now_ms)  # type: ignore[arg-type]
        elif kind is SnapshotInstalled:
            following.on_snapshot_installed(self, event, now_ms)  # type: ignore[arg-type]
        elif kind is SnapshotWritten:
            self._on_snapshot_written(event)  # type: ignore[arg-type]
        elif kind is Disconnected:
            leading.on_disconnected(self, event.token, now_ms)  # type: ignore[union-attr]
        return self._finish(now_ms)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        due_ms = self.next_deadline()
        if due_ms is not None and due_ms <= now_ms:
            self.lateness.observe(now_ms - due_ms)
        return self._finish(now_ms)

    def is_in_doubt(self, now_ms: int) -> bool:
        """Whether another leader may have replaced this one without its knowledge; False on other nodes."""
        return isinstance(self.role, Leader) and leading.is_in_doubt(self.role, now_ms)

    def shutdown(self, now_ms: int) -> list[Effect]:
        """A leader hands over (EndQuorumEpoch); from now on every request is answered BROKER_NOT_AVAILABLE."""
        if isinstance(self.role, Leader):
            self.become_resigned(now_ms)
        effects = self._finish(now_ms)
        self.is_shut_down = True
        return effects

    @property
    def is_handover_done(self) -> bool:
        """After `shutdown`: whether every voter has acknowledged the end of the epoch, or there was none to announce."""
        return not isinstance(self.role, Resigned) or not self.role.unacknowledged

    def resign(self, epoch: int, now_ms: int) -> list[Effect]:
        """The active controller gives up the leadership of `epoch`."""
        if isinstance(self.role, Leader) and self.role.epoch == epoch:
            self.become_resigned(now_ms)
        return self._finish(now_ms)

    def upgrade_fault(self, level: int) -> str | None:
        """Why kraft.version cannot be raised to `level` now, None if it can."""
        return membership.upgrade_fault(self, level)

    def upgrade_kraft_version(self, level: int, now_ms: int) -> list[Effect]:
        """The active controller raises kraft.version: the static voters become the first voter set in the log."""
        membership.upgrade(self, level)
        return self._finish(now_ms)

    def next_deadline(self) -> int | None:
        """When `on_deadline` has something to do."""
        if not self._is_started:
            return None
        requests = self.requests
        due = requests.deadlines()
        role = self.role
        if isinstance(role, Unattached):
            if role.election_deadline_ms is not None:
                due.append(role.election_deadline_ms)
            if not len(requests) and self.discover_targets():
                due.append(self.discover_at_ms)
        elif isinstance(role, Election):
            due.append(role.deadline_ms if role.backoff_deadline_ms is None else role.backoff_deadline_ms)
            due.extend(requests.ready_at(key.node_id) for key in role.unrecorded() if not requests.is_busy(key.node_id))
        elif isinstance(role, Follower):
            due.append(role.fetch_deadline_ms)
            if not requests.is_busy(role.leader_id) and not following.is_waiting_for_disk(self):
                due.append(requests.ready_at(role.leader_id))
        elif isinstance(role, Resigned):
            due.append(role.election_deadline_ms)
            due.extend(requests.ready_at(node_id) for node_id in role.unacknowledged if not requests.is_busy(node_id))
        elif isinstance(role, Leader):
            due.extend(leading.deadlines(self, role))
        return min(due) if due else None

    def _finish(self, now_ms: int) -> list[Effect]:
        for entry in self.requests.take_expired(now_ms):
            self._request_failed(entry, False, now_ms)
        if self._is_started and not self.is_shut_down:
            for _ in range(8):
                role = self.role
                self._poll(now_ms)
                if self.role is role:
                    break
        elif isinstance(self.role, Resigned):
            voting.send_end_quorum_epoch(self, self.role, now_ms)
        effects, self._effects = self._effects, []
        if len(effects) > 1:
            effects.sort(key=lambda effect: effect.RANK)
        return effects

    def _poll(self, now_ms: int) -> None:
        role = self.role
        if isinstance(role, Leader):
            leading.poll(self, role, now_ms)
        elif isinstance(role, Follower):
            following.poll(self, role, now_ms)
        elif isinstance(role, Unattached):
            voting.poll_unattached(self, role, now_ms)
        elif isinstance(role, Election):
            voting.poll_election(self, role, now_ms)
        elif isinstance(role, Resigned):
            voting.poll_resigned(self, role, now_ms)

    # -- events

    def _on_request(self, event: Received, now_ms: int) -> None:
        request, token = event.request, event.token
        if self.is_shut_down:
            self.respond(token, self.reply_to(request, ErrorCode.BROKER_NOT_AVAILABLE))
        elif isinstance(request, _RAISES_EPOCH) and request.epoch > self.epoch + EPOCH_STEP_MAX:
            self.respond(token, self.reply_to(request, ErrorCode.INVALID_REQUEST))
        elif isinstance(request, m.FetchRequest):
            leading.on_fetch(self, token, request, now_ms)
        elif isinstance(request, m.VoteRequest):
            voting.on_vote(self, token, request, now_ms)
        elif isinstance(request, m.BeginQuorumEpochRequest):
            following.on_begin_quorum_epoch(self, token, request, now_ms)
        elif isinstance(request, m.EndQuorumEpochRequest):
            following.on_end_quorum_epoch(self, token, request, now_ms)
        elif isinstance(request, m.FetchSnapshotRequest):
            leading.on_fetch_snapshot(self, token, request, now_ms)
        elif isinstance(request, (m.AddVoterRequest, m.RemoveVoterRequest, m.UpdateVoterRequest)):
            membership.on_request(self, token, request, now_ms)

    def _on_answer(self, event: Answered, now_ms: int) -> None:
        entry = self.requests.take(event.request_id)
        if entry is None:
            return
        request, reply = entry.request, event.reply
        # The leader may hold a fetch for as long as the fetch allows.
        parked_ms = request.max_wait_ms if isinstance(request, m.FetchRequest) else 0
        self.lateness.observe(now_ms - entry.sent_ms - parked_ms)
        self.requests.forgive(entry.node_id)
        if isinstance(request, m.FetchRequest) and isinstance(reply, m.FetchReply):
            following.on_fetch_reply(self, entry.node_id, request, reply, now_ms)
        elif isinstance(request, m.FetchSnapshotRequest) and isinstance(reply, m.FetchSnapshotReply):
            following.on_snapshot_reply(self, entry.node_id, request, reply, now_ms)
        elif isinstance(request, m.VoteRequest) and isinstance(reply, m.VoteReply):
            voting.on_vote_reply(self, entry.node_id, request, reply, now_ms)
        elif isinstance(request, m.BeginQuorumEpochRequest):
            leading.on_begin_reply(self, entry.node_id, request, reply, now_ms)
        elif isinstance(request, m.EndQuorumEpochRequest):
            voting.on_end_reply(self, entry.node_id, request, reply, now_ms)
        elif isinstance(request, m.UpdateVoterRequest):
            membership.on_update_reply(self, entry.node_id, request, reply)
        elif isinstance(request, m.VersionsRequest):
            membership.on_versions(self, request, reply, now_ms)
        if reply.error is not ErrorCode.NONE:
            self.requests.back_off(entry.node_id, now_ms)

    def _on_failed(self, event: Failed, now_ms: int) -> None:
        entry = self.requests.take(event.request_id)
        if entry is not None:
            self._request_failed(entry, event.is_refused, now_ms)

    def _request_failed(self, entry: InFlight, is_refused: bool, now_ms: int) -> None:
        self.requests.back_off(entry.node_id, now_ms)
        if isinstance(entry.request, (m.FetchRequest, m.FetchSnapshotRequest)):
            following.on_fetch_failed(self, entry.node_id, is_refused, now_ms)
        elif is_refused and isinstance(entry.request, m.EndQuorumEpochRequest):
            voting.on_end_failed(self, entry.node_id)
        elif isinstance(entry.request, m.VersionsRequest):
            membership.on_versions(self, entry.request, None, now_ms)

    def _on_batch(self, event: BatchAppended, now_ms: int) -> None:
        self.log.appended(event.epoch, event.base_offset, event.end_offset)
        for offset, voters in event.voters:
            self.history.add_voters(offset, voters)
        for offset, version in event.kraft_versions:
            self.history.add_version(offset, version)
        if event.voters:
            self._on_voters_changed(now_ms)
        if isinstance(self.role, Leader):
            leading.on_appended(self, self.role, now_ms)

    def _on_flushed(self, event: Flushed, now_ms: int) -> None:
        self.log.flushed_offset = max(self.log.flushed_offset, min(event.offset, self.log.end_offset))
        if isinstance(self.role, Leader):
            leading.update_high_watermark(self, self.role, now_ms)

    def _on_snapshot_written(self, event: SnapshotWritten) -> None:
        self.log.add_snapshot(event.snapshot)
        self.log.forget_before(event.start_offset)
        self.history.forget_before(event.start_offset)

    def _on_voters_changed(self, now_ms: int) -> None:
        role = self.role
        if isinstance(role, Leader):
            leading.on_voters_changed(self, role, now_ms)
        elif isinstance(role, Election) and not self.may_stand:
            self.become_unattached(role.epoch, now_ms)
        elif isinstance(role, Unattached):
            role.election_deadline_ms = self.election_deadline(now_ms) if self.may_stand else None
