"""Produces that wait for a partition's next leader: whose turn it is, what the new leader's answer means, who is told of it.

Deterministic; times are ms. What is held and why is told in `handover_lines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from minikafka.wire.errors import ErrorCode

#: From then on the hint is given with the last of several requests too, and after twice that though others are under way.
HINT_MS_MAX = 100
#: The new leader does not know of its office yet.
_NOT_YET = frozenset(
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
    """What to do with the first request that waits for a partition."""

    #: This broker leads after all.
    SERVE = "serve"
    #: It has waited long enough.
    REFUSE = "refuse"
    HAND_ON = "hand on"
    #: One before it is under way, and has to be answered first.
    WAIT_FOR_ANSWER = "wait for an answer"
    #: Nobody serves the partition; the metadata, or the deadline, will say more.
    WAIT_FOR_LEADER = "wait for a leader"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A partition as its waiting requests see it. `leader_epoch`: of another broker that serves, None without; `proven_epoch`: in which a
    new leader has answered as one."""

    is_appending: bool
    is_held: bool
    leader_epoch: int | None
    proven_epoch: int | None
    under_way: int


def next_turn(waiting: Waiting, deadline_ms: int, now_ms: int) -> Turn:
    """Requests leave in the order in which they came: until the new leader has answered as one, one is under way at a time."""
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

    #: It is the client's answer, and the new leader leads.
    ACCEPTED = "accepted"
    #: It is the client's answer, and says that the new leader does not lead.
    REFUSED = "refused"
    #: The new leader may not know of its office yet.
    ASK_AGAIN = "ask again"
    #: The connection broke: nobody knows what became of it, and it must not be sent twice.
    UNKNOWN = "unknown"
    #: This broker may not write there. The client may, so that the error is not for its eyes.
    NOT_ALLOWED = "not allowed"
    #: What its producer sent before is not there: perhaps it was refused here. The producer will ask the new leader in order.
    OUT_OF_ORDER = "out of order"


def verdict_of(code: int | None, *, is_proven: bool, has_time: bool) -> Verdict:
    """`code` None: no answer came. `is_proven`: the new leader has answered as one in this epoch; `has_time`: it may be asked again."""
    if code is None:
        return Verdict.UNKNOWN
    if code in _NOT_ALLOWED:
        return Verdict.NOT_ALLOWED
    if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return Verdict.OUT_OF_ORDER
    if code not in _NOT_YET:
        return Verdict.ACCEPTED
    return Verdict.ASK_AGAIN if has_time and not is_proven else Verdict.REFUSED


def gives_hint(since_lost_ms: int | None, *, is_last: bool, was_alone: bool) -> bool:
    """Whether an answer names the new leader (KIP-951). `is_last`: nothing else of its connection waits here; `was_alone`: nothing did
    since it came; `since_lost_ms` None: the leadership was lost long ago.

    With the last of several the hint would come when the client has just sent what it had to keep back meanwhile; and an idempotent
    librdkafka that learns of a new leader with a request under way looks only once a second whether to open a connection to it.
    """
    if since_lost_ms is None or since_lost_ms >= 2 * HINT_MS_MAX:
        return True
    return is_last and (was_alone or since_lost_ms >= HINT_MS_MAX)
