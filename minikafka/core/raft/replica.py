"""One replica of the metadata quorum: its state, its transitions between roles, and its requests and answers.

The modules voting, leading, following and membership decide what it does and when; `Quorum` passes events to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.core.raft import messages as m
from minikafka.core.raft.events import (
    AppendLeaderChange,
    Effect,
    HighWatermarkMoved,
    LeaderChanged,
    Persist,
    PromisesRegained,
    Respond,
    Send,
    Truncate,
)
from minikafka.core.raft.lateness import Lateness
from minikafka.core.raft.log_state import LogState
from minikafka.core.raft.progress import PendingChange
from minikafka.core.raft.requests import Requests
from minikafka.core.raft.roles import Candidate, Election, Follower, Leader, Prospective, Resigned, Role, Unattached
from minikafka.core.raft.types import (
    NO_NODE,
    ZERO_ID,
    ElectionState,
    Endpoint,
    InvariantViolated,
    OffsetAndEpoch,
    QuorumConfig,
    Random,
    ReplicaKey,
)
from minikafka.core.raft.voters import BOOTSTRAP_OFFSET, Voter, VoterHistory, VoterSet
from minikafka.wire.errors import ErrorCode

#: Placeholder node ids of bootstrap servers, whose real ids are unknown: -2, -3, ...
FIRST_BOOTSTRAP_ID = -2


class Replica:
    """Callers may read epoch, leader_id, role, high_watermark (exclusive, -1 unknown), log and history.

    `has_lost_promises`: the log lacks records that this voter had acknowledged to a leader, because its disk lost synced data. All of them
    are below `promised_before` (None: unknown). The voter neither votes nor stands for election until it has fetched that far from a
    leader, or to the end of that leader's log. A leader elected without its vote has everything that was committed, and what the voter
    fetches from then on counts as usual. In the end its log is what it would be if nothing had been lost, because that leader would have
    had it truncate whatever differs. Kafka lets such a voter vote."""

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
        self.pending_change: PendingChange | None = None
        self._effects: list[Effect] = []
        self.lateness = Lateness()
        self.requests = Requests(config, self.lateness)
        self._discover_index = 0
        self._discover_failures = 0
        self.discover_at_ms = 0
        self._is_started = False

    # -- properties

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
        """Whether this replica may stand for election: it is a voter, or a removed one whose removal may not be committed yet. The latter's
        log can be the only one with that removal, so the others may need it as leader (Ongaro's thesis 4.2.2); its own vote does not
        count."""
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

    @property
    def election_timeout_ms(self) -> int:
        """As configured, and longer where turns and answers come late."""
        return self.lateness.allow(self.config.election_timeout_ms)

    @property
    def fetch_timeout_ms(self) -> int:
        """As configured, and longer where turns and answers come late."""
        return self.lateness.allow(self.config.fetch_timeout_ms)

    def random_ms(self, low: int, high: int) -> int:
        return self.random.randrange(low, max(high, low + 1))

    @property
    def other_voters(self) -> list[int]:
        """Node ids of all voters except this one."""
        return [node_id for node_id in self.voters.node_ids if node_id != self.local.node_id]

    def is_addressed(self, voter: ReplicaKey | None) -> bool:
        """Whether a request meant for `voter` reached the right replica: after a disk is wiped, the directory id differs."""
        if voter is None or voter.node_id < 0:
            return True
        return voter.node_id == self.local.node_id and voter.directory_id in (ZERO_ID, self.local.directory_id)

    # -- requests and answers

    def effect(self, effect: Effect) -> None:
        self._effects.append(effect)

    def respond(self, token: Any, reply: m.Reply) -> None:
        self._effects.append(Respond(token, reply))

    def reply_to(self, request: m.Request, error: ErrorCode, text: str | None = None) -> m.Reply:
        """An answer of the right type, with this node's leader and epoch."""
        kind: type[m.Reply] = m.Reply
        if isinstance(request, m.FetchRequest):
            kind = m.FetchReply
        elif isinstance(request, m.VoteRequest):
            kind = m.VoteReply
        elif isinstance(request, m.FetchSnapshotRequest):
            kind = m.FetchSnapshotReply
        endpoint = self.leader_endpoint() if self.leader_id != NO_NODE else None
        return kind(error, self.leader_id, self.epoch, endpoint, text)

    def fetch_request(self) -> m.FetchRequest:
        """A fetch at an offset tells the leader that everything before it is on disk (KAFKA-10533): `following.is_waiting_for_disk`."""
        log, config = self.log, self.config
        return m.FetchRequest(
            self.epoch, self.local, log.end_offset, log.last_epoch, self.high_watermark, config.fetch_max_wait_ms, config.fetch_bytes_max
        )

    def send(self, node_id: int, endpoint: Endpoint | None, request: m.Request, now_ms: int) -> bool:
        """Send, unless another request to the node is in flight or the node is backed off. Returns whether it was sent."""
        if endpoint is None:
            return False
        request_id = self.requests.begin(node_id, request, now_ms)
        if request_id is None:
            return False
        self._effects.append(Send(request_id, node_id, endpoint, request, self.lateness.allow(self.config.request_timeout_ms)))
        return True

    # -- discovery

    def discover_targets(self) -> list[tuple[int, Endpoint]]:
        """Nodes that may know the leader."""
        targets = list(self.bootstrap)
        for voter in self.voters.voters():
            if voter.key.node_id != self.local.node_id and voter.endpoints:
                targets.append((voter.key.node_id, voter.endpoints[0]))
        return targets

    def discover(self, now_ms: int) -> None:
        """Ask the next node. It answers with the leader, or with NOT_LEADER and no leader."""
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
        # The first round asks all targets quickly; then the interval grows to half a second.
        step = self.config.retry_backoff_ms << (self._discover_failures - 1)
        self.discover_at_ms = now_ms + min(step, self.config.retry_backoff_ms_max, self.config.fetch_max_wait_ms)
        self.requests.forgive(node_id)
        self.send(node_id, endpoint, self.fetch_request(), now_ms)

    # -- transitions

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
            self._end_leadership(before)
        if (before.leader_id, before.epoch, type(before) is Leader) != (role.leader_id, role.epoch, type(role) is Leader):
            is_self = isinstance(role, Leader)
            self.effect(LeaderChanged(role.leader_id, role.epoch, is_self, role.epoch_start if isinstance(role, Leader) else -1))
        if role.leader_id != NO_NODE:
            self._discover_failures = 0

    def _end_leadership(self, role: Leader) -> None:
        """Answer all waiting requests. Whether a pending change of the voters will be committed is unknown."""
        for parked in role.progress.parked:
            self.respond(parked.token, self.reply_to(parked.request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        role.progress.parked = []
        change, self.pending_change = self.pending_change, None
        if change is not None and not change.is_answered:
            text = "The leader changed before the new set of voters was committed."
            self.respond(change.token, self.reply_to(change.request, ErrorCode.NOT_LEADER_OR_FOLLOWER, text))

    def election_deadline(self, now_ms: int) -> int:
        """When to stand for election if there is no leader until then."""
        timeout = self.election_timeout_ms
        return now_ms + self.random_ms(timeout // 10, timeout // 2)

    def become_unattached(self, epoch: int, now_ms: int) -> None:
        """Enter `epoch`, or leave a role of this epoch, with no leader to follow."""
        voted = self.role.voted if epoch == self.role.epoch else None
        if epoch == self.role.epoch and self.role.leader_id == self.local.node_id:
            # This replica led the epoch, so it voted for itself: it has no other vote in this epoch.
            voted = self.local
        deadline = self.election_deadline(now_ms) if self.may_stand else None
        if isinstance(self.role, Unattached) and self.role.election_deadline_ms is not None and deadline is not None:
            # A newer epoch does not give a stalled replica more time (KAFKA-17642).
            deadline = min(deadline, self.role.election_deadline_ms)
        self._move(Unattached(epoch, NO_NODE, None, voted, deadline), now_ms)
        self.discover_at_ms = now_ms + self.config.retry_backoff_ms

    def become_voted(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Record the vote for `candidate` in this epoch."""
        self.role.voted = candidate
        self.persist()
        if isinstance(self.role, Unattached):
            # Give the candidate time to win.
            self.role.election_deadline_ms = self.election_deadline(now_ms)

    def become_prospective(self, now_ms: int, retries: int = 0) -> None:
        role = self.role
        if not self.may_stand:
            raise InvariantViolated(f"{self.local.node_id} is not a voter and cannot stand for election")
        if self.voters.is_only_voter(self.local):
            self.become_candidate(now_ms)
            return
        keys = tuple(voter.key for voter in self.voters.voters())
        deadline = now_ms + self.random_ms(self.election_timeout_ms // 2, self.election_timeout_ms)
        endpoint = role.leader_endpoint or self.voters.endpoint(role.leader_id)
        is_leader_worth_keeping = isinstance(role, Follower)
        leader_id = role.leader_id if is_leader_worth_keeping else NO_NODE
        self._move(Prospective(role.epoch, leader_id, endpoint, role.voted, keys, self._own_vote(), [], deadline, None, retries), now_ms)

    def _own_vote(self) -> list[int]:
        return [self.local.node_id] if self.is_voter else []

    def become_candidate(self, now_ms: int) -> None:
        """Start a new epoch with a vote for this replica."""
        role = self.role
        retries = role.retries if isinstance(role, Election) else 0
        keys = tuple(voter.key for voter in self.voters.voters())
        deadline = now_ms + self.random_ms(self.election_timeout_ms // 2, self.election_timeout_ms)
        candidate = Candidate(role.epoch + 1, NO_NODE, None, self.local, keys, self._own_vote(), [], deadline, None, retries)
        if self.voters.is_only_voter(self.local):
            # A single voter has won already: become_leader persists the vote and the leader in one write.
            self.role = candidate
            self.become_leader(now_ms)
        else:
            self._move(candidate, now_ms)

    def become_leader(self, now_ms: int) -> None:
        """A majority has voted for this replica in this epoch."""
        role = self.role
        if not isinstance(role, Candidate) or not role.is_granted:
            raise InvariantViolated(f"{self.local.node_id} cannot lead epoch {role.epoch} as {type(role).__name__}")
        endpoint = self.endpoints[0] if self.endpoints else self.voters.endpoint(self.local.node_id)
        leader = Leader(role.epoch, self.local.node_id, endpoint, None, self.log.end_offset, tuple(sorted(role.granted)))
        self._move(leader, now_ms)
        # Announce the epoch to every other voter, so that it fetches.
        leader.begin_deadlines_ms = dict.fromkeys(self.other_voters, now_ms)
        leader.check_deadline_ms = self.check_deadline(now_ms)
        leader.doubt_deadline_ms = None if self.is_alone else now_ms
        leader.is_in_doubt = not self.is_alone
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

    @property
    def is_alone(self) -> bool:
        """Whether there is no other voter."""
        return self.voters.is_only_voter(self.local) or not self.voters.node_ids

    def check_deadline(self, now_ms: int) -> int | None:
        """By when a majority has to fetch from this leader (KAFKA-15489); None for a single voter."""
        return None if self.is_alone else now_ms + self.fetch_timeout_ms * 3 // 2

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
        deadline = now_ms + self.fetch_timeout_ms
        self._move(Follower(epoch, leader_id, endpoint or self.voters.endpoint(leader_id), voted, deadline), now_ms)

    def become_resigned(self, now_ms: int) -> None:
        """Stop leading and recommend the voters with the most of the log as successors, best first."""
        role = self.role
        assert isinstance(role, Leader)
        others = [voter.key for voter in self.voters.voters() if voter.key.node_id != self.local.node_id]
        ends = {key.node_id: role.progress.of_voter(self.voters, key.node_id) for key in others}
        candidates = sorted(others, key=lambda key: (-(entry.end_offset if (entry := ends[key.node_id]) is not None else -1), key.node_id))
        deadline = now_ms + self.random_ms(self.election_timeout_ms, 2 * self.election_timeout_ms)
        unacknowledged = [key.node_id for key in others]
        resigned = Resigned(role.epoch, self.local.node_id, role.leader_endpoint, None, unacknowledged, tuple(candidates), deadline)
        self._move(resigned, now_ms)

    def maybe_transition(self, leader_id: int, epoch: int, endpoint: Endpoint | None, now_ms: int) -> bool:
        """A peer reported `leader_id` and `epoch`. Returns True if this replica changed its role because of it."""
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
        """Remove the records from `offset` on. Committed records are never removed (KAFKA-12460)."""
        if offset < self.high_watermark:
            raise InvariantViolated(f"asked to cut the metadata log to {offset}, below the high watermark {self.high_watermark}")
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.effect(Truncate(offset))

    def regain_promises(self, offset: int, *, is_end: bool) -> None:
        """The leader accepted a fetch at `offset`: up to there both logs are the same, and ours is synced. `is_end`: its log ends there."""
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
