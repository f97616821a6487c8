"""One replica of the metadata quorum (KRaft: KIP-595, 853, 996; Kafka's KafkaRaftClient and QuorumState), sans IO.

`step(event, now_ms)` and `on_deadline(now_ms)` return effects sorted by rank: persist, change the log, send, respond, tell. The host
carries them out in that order and, before any other event, feeds back the events that they cause (BatchAppended, FetchedAppended,
SnapshotInstalled); Flushed comes when the disk is done. What a replica does lives in voting, leading, following and membership; here
are the moves between roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.core.raft import following, leading, membership, voting
from minikafka.core.raft import messages as m
from minikafka.core.raft.events import (
    Answered,
    AppendLeaderChange,
    BatchAppended,
    Disconnected,
    Effect,
    Event,
    Failed,
    FetchedAppended,
    Flushed,
    HighWatermarkMoved,
    LeaderChanged,
    Persist,
    PromisesRegained,
    Received,
    Respond,
    Send,
    SnapshotInstalled,
    SnapshotWritten,
    Truncate,
)
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.requests import InFlight, Requests
from minikafka.core.raft.roles import Candidate, Election, Follower, Leader, Prospective, Resigned, Role, Unattached
from minikafka.core.raft.types import (
    NO_NODE,
    ElectionState,
    Endpoint,
    InvariantViolated,
    OffsetAndEpoch,
    QuorumConfig,
    Random,
    ReplicaKey,
)
from minikafka.core.raft.voters import BOOTSTRAP_OFFSET, Voter, VoterHistory, VoterSet
from wire.errors import ErrorCode

#: Node ids of bootstrap servers, whose real ids are not known: -2, -3, ...
FIRST_BOOTSTRAP_ID = -2
#: No election makes the epoch jump further: a request that does is not a replica's, and must not use up the numbers there are.
EPOCH_STEP_MAX = 1 << 24
_RAISES_EPOCH = (m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest)


class Quorum:
    """Reads: epoch, leader_id, role, high_watermark (exclusive, -1 unknown), log, history. See the module.

    `has_lost_promises`: the log lacks some of what this voter has told a leader that it has (its disk lost what was synced), none of it
    at or after `promised_before` (None: unknown). Until a leader has given it that much, or has no more, it votes for nobody and stands
    for nothing: a leader elected without it has everything that was committed, and what this voter fetches from now on counts as ever.
    Then it is where it would be had nothing been lost, for that leader would have had it cut what differs. Kafka lets it vote."""

    def __init__(
        self,
        local: ReplicaKey,
        config: QuorumConfig,
        random: Random,
        log: LogState,
        history: VoterHistory,
        election: ElectionState,
        *,
        endpoints: Sequence[Endpoint] = (),
        bootstrap_servers: Sequence[tuple[str, int]] = (),
        can_be_voter: bool = True,
        high_watermark: int = -1,
        has_lost_promises: bool = False,
        promised_before: int | None = None,
    ) -> None:
        self.local = local
        self.config = config
        self.random = random
        self.log = log
        self.history = history
        self.election = election
        self.endpoints = tuple(endpoints)
        self.bootstrap = tuple(
            (FIRST_BOOTSTRAP_ID - index, Endpoint("", host, port)) for index, (host, port) in enumerate(bootstrap_servers)
        )
        self.can_be_voter = can_be_voter
        self.high_watermark = high_watermark
        self.has_lost_promises = has_lost_promises
        self._promised_before = promised_before
        self.is_shut_down = False
        self.append_pending = False
        self.role: Role = Unattached(election.epoch, election.leader_id, None, election.voted)
        self.pending_change: membership.PendingChange | None = None
        self._effects: list[Effect] = []
        self.requests = Requests(config)
        self._discover_index = 0
        self._discover_failures = 0
        self.discover_at_ms = 0
        self._is_started = False

    # -- small facts

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def voters(self) -> VoterSet:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.can_be_voter and self.voters.is_voter(self.local)

    @property
    def may_stand(self) -> bool:
        """Whether to stand for election: a voter, or one whose removal may not be committed yet. The latter's log can be the only
        one with that removal, so the others may need it as leader (Ongaro's thesis 4.2.2); its own vote does not count."""
        if not self.can_be_voter or self.has_lost_promises:
            return False
        history = self.history
        if history.latest.is_voter(self.local):
            return True
        return len(history.latest) > 0 and history.latest_offset >= self.high_watermark and history.was_voter(self.local)

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends, for comparing logs."""
        return OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)

    def leader_endpoint(self) -> Endpoint | None:
        if self.is_leader and self.endpoints:
            return self.endpoints[0]
        return self.role.leader_endpoint or self.voters.endpoint(self.role.leader_id)

    def random_ms(self, low: int, high: int) -> int:
        return self.random.randrange(low, max(high, low + 1))

    # -- entry points

    def start(self, now_ms: int) -> list[Effect]:
        """Take up the role that the durable state allows. A voter that alone decides leads at once."""
        self._is_started = True
        state = self.election
        epoch = max(state.epoch, self.log.last_epoch)
        if epoch > state.epoch:
            # The log knows of a later epoch than the file (it was lost or restored): its votes are not known.
            state = ElectionState(epoch)
        if state.leader_id == self.local.node_id and self.can_be_voter and not self.voters.is_only_voter(self.local):
            # What this leader had promised of its epoch is not known any more: it must not take it up again.
            self.role = Resigned(epoch, self.local.node_id, None, None)
            self.role.election_deadline_ms = now_ms + self.random_ms(0, self.config.election_timeout_ms // 4)
            self.persist()
        elif state.leader_id not in (NO_NODE, self.local.node_id) and self.voters.endpoint(state.leader_id) is not None:
            self.become_follower(epoch, state.leader_id, self.voters.endpoint(state.leader_id), now_ms, voted=state.voted)
        else:
            voted = state.voted if state.epoch == epoch else None
            self.role = Unattached(epoch, NO_NODE, None, voted)
            if self.may_stand:
                # Pre-votes disturb nobody, so a starting quorum need not wait for a whole timeout.
                self.role.election_deadline_ms = now_ms + self.random_ms(0, self.config.election_timeout_ms // 10)
        return self._finish(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event; never raises for what a peer sent, InvariantViolated for our own bugs."""
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
            leading.forget_parked(self, event.token)  # type: ignore[union-attr]
        return self._finish(now_ms)

    def on_deadline(self, now_ms: int) -> list[Effect]:
        return self._finish(now_ms)

    def shutdown(self, now_ms: int) -> list[Effect]:
        """A leader hands over (EndQuorumEpoch); from now on every request is answered BROKER_NOT_AVAILABLE."""
        if isinstance(self.role, Leader):
            self.become_resigned(now_ms)
        effects = self._finish(now_ms)
        self.is_shut_down = True
        return effects

    @property
    def is_handover_done(self) -> bool:
        """After `shutdown`: whether every voter knows, or nothing is left to tell."""
        return not isinstance(self.role, Resigned) or not self.role.unacknowledged

    def resign(self, epoch: int, now_ms: int) -> list[Effect]:
        """The active controller asks to give up `epoch`."""
        if isinstance(self.role, Leader) and self.role.epoch == epoch:
            self.become_resigned(now_ms)
        return self._finish(now_ms)

    def upgrade_fault(self, level: int) -> str | None:
        """Why kraft.version cannot be raised to `level` now, None if it can."""
        return membership.upgrade_fault(self, level)

    def upgrade_kraft_version(self, level: int, now_ms: int) -> list[Effect]:
        """The active controller raises kraft.version: the static voters become the first set in the log."""
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
            role.election_deadline_ms = self._election_deadline(now_ms) if self.may_stand else None

    # -- talking

    def effect(self, effect: Effect) -> None:
        self._effects.append(effect)

    def respond(self, token: Any, reply: m.Reply) -> None:
        self._effects.append(Respond(token, reply))

    def reply_to(self, request: m.Request, error: ErrorCode, text: str | None = None) -> m.Reply:
        """An answer of the right kind with the leader that this node knows."""
        kind: type[m.Reply] = m.Reply
        if isinstance(request, m.FetchRequest):
            kind = m.FetchReply
        elif isinstance(request, m.VoteRequest):
            kind = m.VoteReply
        elif isinstance(request, m.FetchSnapshotRequest):
            kind = m.FetchSnapshotReply
        endpoint = self.leader_endpoint() if self.leader_id != NO_NODE else None
        return kind(error, self.leader_id, self.epoch, endpoint, text)

    def send(self, node_id: int, endpoint: Endpoint | None, request: m.Request, now_ms: int) -> bool:
        """Send unless the node still has a request of ours or is backed off."""
        if endpoint is None:
            return False
        request_id = self.requests.begin(node_id, request, now_ms)
        if request_id is None:
            return False
        self._effects.append(Send(request_id, node_id, endpoint, request))
        return True

    # -- discovery

    def discover_targets(self) -> list[tuple[int, Endpoint]]:
        """Whom to ask who leads."""
        targets = list(self.bootstrap)
        for voter in self.voters.voters():
            if voter.key.node_id != self.local.node_id and voter.endpoints:
                targets.append((voter.key.node_id, voter.endpoints[0]))
        return targets

    def discover(self, now_ms: int) -> None:
        """Ask the next node; it answers with the leader, or with NOT_LEADER and no leader."""
        if len(self.requests) or now_ms < self.discover_at_ms:
            return
        targets = self.discover_targets()
        if not targets:
            return
        if self._discover_index == 0:
            self._discover_index = self.random_ms(1, len(targets) + 1)
        node_id, endpoint = targets[self._discover_index % len(targets)]
        self._discover_index += 1
        self._discover_failures = min(self._discover_failures + 1, 5)
        # All targets are asked quickly once, then the pace slows down to half a second.
        step = self.config.retry_backoff_ms << (self._discover_failures - 1)
        self.discover_at_ms = now_ms + min(step, self.config.fetch_max_wait_ms)
        self.requests.forgive(node_id)
        self.send(node_id, endpoint, following.fetch_request(self), now_ms)

    # -- moves

    def persist(self, *, leader_id: int | None = None) -> None:
        """Make the role's epoch, leader and vote durable if they changed."""
        role = self.role
        state = ElectionState(role.epoch, role.leader_id if leader_id is None else leader_id, role.voted)
        if state.epoch < self.election.epoch:
            raise InvariantViolated(f"epoch went from {self.election.epoch} to {state.epoch}")
        if state != self.election:
            self.election = state
            self.effect(Persist(state))

    def _move(self, role: Role, now_ms: int) -> None:
        before = self.role
        if role.epoch < before.epoch:
            raise InvariantViolated(f"moved from epoch {before.epoch} to {role.epoch}")
        self.role = role
        self.requests.forget()
        self.persist()
        if isinstance(before, Leader):
            leading.fail_parked(self, before)
            membership.abort(self)
        if (before.leader_id, before.epoch, type(before) is Leader) != (role.leader_id, role.epoch, type(role) is Leader):
            is_self = isinstance(role, Leader)
            self.effect(LeaderChanged(role.leader_id, role.epoch, is_self, role.epoch_start if isinstance(role, Leader) else -1))
        if role.leader_id != NO_NODE:
            self._discover_failures = 0

    def _election_deadline(self, now_ms: int) -> int:
        timeout = self.config.election_timeout_ms
        return now_ms + self.random_ms(timeout // 10, timeout // 2)

    def become_unattached(self, epoch: int, now_ms: int) -> None:
        """Into `epoch`, or out of a role of this epoch, with no leader to follow."""
        voted = self.role.voted if epoch == self.role.epoch else None
        if epoch == self.role.epoch and self.role.leader_id == self.local.node_id:
            # Led this epoch by its own vote among others: no other vote in it.
            voted = self.local
        deadline = self._election_deadline(now_ms) if self.may_stand else None
        if isinstance(self.role, Unattached) and self.role.election_deadline_ms is not None and deadline is not None:
            # A newer epoch does not give a stalled replica more time (KAFKA-17642).
            deadline = min(deadline, self.role.election_deadline_ms)
        self._move(Unattached(epoch, NO_NODE, None, voted, deadline), now_ms)
        self.discover_at_ms = now_ms + self.config.retry_backoff_ms

    def become_voted(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Note the vote given in this epoch."""
        self.role.voted = candidate
        self.persist()
        if isinstance(self.role, Unattached):
            # The candidate deserves the time to win.
            self.role.election_deadline_ms = self._election_deadline(now_ms)

    def become_prospective(self, now_ms: int, retries: int = 0) -> None:
        role = self.role
        if not self.may_stand:
            raise InvariantViolated(f"{self.local.node_id} is not a voter and cannot stand for election")
        if self.voters.is_only_voter(self.local):
            self.become_candidate(now_ms)
            return
        keys = tuple(voter.key for voter in self.voters.voters())
        deadline = now_ms + self.random_ms(self.config.election_timeout_ms // 2, self.config.election_timeout_ms)
        endpoint = role.leader_endpoint or self.voters.endpoint(role.leader_id)
        is_leader_worth_keeping = isinstance(role, Follower)
        leader_id = role.leader_id if is_leader_worth_keeping else NO_NODE
        self._move(
            Prospective(role.epoch, leader_id, endpoint, role.voted, keys, self._own_vote(), [], deadline, None, retries), now_ms
        )

    def _own_vote(self) -> list[int]:
        return [self.local.node_id] if self.is_voter else []

    def become_candidate(self, now_ms: int) -> None:
        """A new epoch, with our own vote in it."""
        role = self.role
        retries = role.retries if isinstance(role, Election) else 0
        keys = tuple(voter.key for voter in self.voters.voters())
        deadline = now_ms + self.random_ms(self.config.election_timeout_ms // 2, self.config.election_timeout_ms)
        candidate = Candidate(role.epoch + 1, NO_NODE, None, self.local, keys, self._own_vote(), [], deadline, None, retries)
        if self.voters.is_only_voter(self.local):
            # One write for the vote and the victory.
            self.role = candidate
            self.become_leader(now_ms)
        else:
            self._move(candidate, now_ms)

    def become_leader(self, now_ms: int) -> None:
        """A majority has voted for us in this epoch."""
        role = self.role
        if not isinstance(role, Candidate) or not role.is_granted:
            raise InvariantViolated(f"{self.local.node_id} cannot lead epoch {role.epoch} as {type(role).__name__}")
        endpoint = self.endpoints[0] if self.endpoints else self.voters.endpoint(self.local.node_id)
        leader = Leader(role.epoch, self.local.node_id, endpoint, None, self.log.end_offset, tuple(sorted(role.granted)))
        self._move(leader, now_ms)
        leading.begin(self, leader, now_ms)
        version, voters = self.history.kraft_version, self.voters
        is_first = version > 0 and self.history.latest_offset == BOOTSTRAP_OFFSET and len(voters) > 0
        own = voters.get(self.local.node_id)
        is_moved = version > 0 and own is not None and self.is_voter and bool(self.endpoints) and own.endpoints != self.endpoints
        if is_moved and own is not None:
            voters = voters.with_voter(Voter(own.key, self.endpoints, own.version_min, own.version_max))
        self.effect(
            AppendLeaderChange(
                role.epoch,
                self.local.node_id,
                voters.node_ids,
                leader.granting,
                version if is_first else None,
                voters if is_first or is_moved else None,
            )
        )

    def become_follower(
        self, epoch: int, leader_id: int, endpoint: Endpoint | None, now_ms: int, *, voted: ReplicaKey | None = None
    ) -> None:
        role = self.role
        if isinstance(role, Leader) and role.epoch == epoch:
            raise InvariantViolated(f"the leader {role.leader_id} of epoch {epoch} was told to follow {leader_id}")
        if epoch == role.epoch:
            voted = role.voted if voted is None else voted
            if role.leader_id not in (NO_NODE, leader_id) and not isinstance(role, Resigned):
                raise InvariantViolated(f"epoch {epoch} has two leaders: {role.leader_id} and {leader_id}")
        deadline = now_ms + self.config.fetch_timeout_ms
        self._move(Follower(epoch, leader_id, endpoint or self.voters.endpoint(leader_id), voted, deadline), now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Stop leading: hand over to the voter that has most of the log."""
        role = self.role
        assert isinstance(role, Leader)
        others = [voter.key for voter in self.voters.voters() if voter.key.node_id != self.local.node_id]
        ends = {key.node_id: role.progress.of_voter(self.voters, key.node_id) for key in others}
        candidates = sorted(
            others, key=lambda key: (-(entry.end_offset if (entry := ends[key.node_id]) is not None else -1), key.node_id)
        )
        deadline = now_ms + self.random_ms(self.config.election_timeout_ms, 2 * self.config.election_timeout_ms)
        unacknowledged = [key.node_id for key in others]
        resigned = Resigned(role.epoch, self.local.node_id, role.leader_endpoint, None, unacknowledged, tuple(candidates), deadline)
        self._move(resigned, now_ms)

    def follow_news(self, leader_id: int, epoch: int, endpoint: Endpoint | None, now_ms: int) -> bool:
        """A peer knows of `leader_id` in `epoch`; True if that moved us."""
        role = self.role
        if epoch < role.epoch or epoch < 0:
            return False
        if epoch == role.epoch:
            if leader_id in (NO_NODE, self.local.node_id) or isinstance(role, (Leader, Resigned, Follower)):
                return False
            if isinstance(role, Prospective) and role.leader_id == leader_id:
                return False
            endpoint = endpoint or self.voters.endpoint(leader_id)
            if endpoint is None:
                return False
            self.become_follower(epoch, leader_id, endpoint, now_ms)
            return True
        endpoint = endpoint or self.voters.endpoint(leader_id)
        if leader_id in (NO_NODE, self.local.node_id) or endpoint is None:
            self.become_unattached(epoch, now_ms)
        else:
            self.become_follower(epoch, leader_id, endpoint, now_ms)
        return True

    # -- the log

    def truncate_to(self, offset: int) -> None:
        """Cut what the leader does not have. What was committed is never cut (KAFKA-12460)."""
        if offset < self.high_watermark:
            raise InvariantViolated(f"asked to cut the metadata log to {offset}, below the high watermark {self.high_watermark}")
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.effect(Truncate(offset))

    def regain_promises(self, offset: int, *, is_end: bool) -> None:
        """The leader has taken a fetch at `offset`: up to there its log is the same, and synced here. It ends there, or goes on."""
        if self.has_lost_promises and (is_end or (self._promised_before is not None and offset >= self._promised_before)):
            self.has_lost_promises = False
            self.effect(PromisesRegained())

    def raise_high_watermark(self, offset: int) -> bool:
        offset = min(offset, self.log.end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.effect(HighWatermarkMoved(offset))
        return True
