"""Produce requests that wait for a partition's next leader: whose turn it is, what its answer means, and when a client learns who leads.

Deterministic; times are in ms. `handover_lines.py` explains which requests are held and why.
"""

from __future__ import annotations

from enum import Enum

from minikafka.late_dataclass import dataclass
from minikafka.wire.errors import ErrorCode

#: This long after the leadership was lost, the hint is given with the last of several requests, too; after twice as long with any answer.
HINT_MS_MAX = 100
#: Errors of a new leader that has not learned of its leadership yet.
_NOT_LEADING_YET = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
_NOT_ALLOWED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class Turn(Enum):
    """What to do with the first request in a partition's line."""

    #: This broker leads after all.
    SERVE = "serve"
    #: It has waited long enough.
    REFUSE = "refuse"
    HAND_ON = "hand on"
    #: An earlier request is in flight and has to be answered first.
    WAIT_FOR_ANSWER = "wait for an answer"
    #: No broker serves the partition. New metadata or the deadline will decide.
    WAIT_FOR_LEADER = "wait for a leader"


@dataclass(frozen=True, slots=True)
class Waiting:
    """The state of a partition that decides about its waiting requests.

    `leader_epoch`: of another broker that leads and is not fenced; None without one. `proven_epoch`: the epoch in which a new leader has
    accepted a request; None if none has. `under_way`: number of requests in flight to the new leader."""

    is_appending: bool
    is_held: bool
    leader_epoch: int | None
    proven_epoch: int | None
    under_way: int


def next_turn(waiting: Waiting, deadline_ms: int, now_ms: int) -> Turn:
    """What to do with the first request. Requests leave in order of arrival, one at a time until the new leader has accepted one."""
    if waiting.is_appending:
        return Turn.WAIT_FOR_ANSWER if waiting.under_way else Turn.SERVE
    if now_ms >= deadline_ms:
        return Turn.REFUSE
    if waiting.is_held or waiting.leader_epoch is None:
        return Turn.WAIT_FOR_LEADER
    if waiting.under_way and waiting.proven_epoch != waiting.leader_epoch:
        return Turn.WAIT_FOR_ANSWER
    return Turn.HAND_ON


class Verdict(Enum):
    """What the new leader's answer to a request means."""

    #: Pass it on to the client; the new leader leads.
    ACCEPTED = "accepted"
    #: Pass it on to the client; it says that the new leader does not lead.
    REFUSED = "refused"
    #: The new leader may not have learned of its leadership yet.
    ASK_AGAIN = "ask again"
    #: The connection broke: the outcome is unknown, and the request must not be sent twice.
    UNKNOWN = "unknown"
    #: This broker may not write there. The client may, so it must not see this error.
    NOT_ALLOWED = "not allowed"
    #: The new leader lacks the producer's previous batch, which this broker may have refused. The producer will retry in order there.
    OUT_OF_ORDER = "out of order"


def verdict_of(code: int | None, *, is_proven: bool, has_time: bool) -> Verdict:
    """What the answer with this error code means. `code` is None if no answer came. `is_proven`: the new leader has accepted a request in
    this epoch. `has_time`: there is time to ask it again."""
    if code is None:
        return Verdict.UNKNOWN
    if code in _NOT_ALLOWED:
        return Verdict.NOT_ALLOWED
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Verdict.OUT_OF_ORDER
    if code not in _NOT_LEADING_YET:
        return Verdict.ACCEPTED
    return Verdict.ASK_AGAIN if has_time and not is_proven else Verdict.REFUSED


def gives_hint(since_lost_ms: int | None, *, is_last: bool, was_alone: bool) -> bool:
    """Whether an answer names the new leader (KIP-951). `is_last`: no other request of its connection waits here. `was_alone`: none has
    since the request came. `since_lost_ms` is None if the leadership was lost long ago.

    With the last of several requests the hint would come just after the client has sent what it held back meanwhile. An idempotent
    librdkafka that learns of a new leader with a request in flight checks only once a second whether to open a connection to it.
    """
    if since_lost_ms is None or since_lost_ms >= 2 * HINT_MS_MAX:
        return True
    return is_last and (was_alone or since_lost_ms >= HINT_MS_MAX)
