"""Decisions about produces that wait for a partition's next leader."""

from __future__ import annotations

import pytest

from minikafka.core.partition.handover import HINT_MS_MAX, Turn, Verdict, Waiting, gives_hint, next_turn, verdict_of
from minikafka.wire.errors import ErrorCode


def turn(
    *,
    appending: bool = False,
    held: bool = False,
    leader: int | None = None,
    proven: int | None = None,
    under_way: int = 0,
    left_ms: int = 9,
) -> Turn:
    return next_turn(Waiting(appending, held, leader, proven, under_way), 1000 + left_ms, 1000)


def test_waiting_requests_are_served_here_when_the_leadership_stays() -> None:
    assert turn(appending=True) is Turn.SERVE
    assert turn(appending=True, left_ms=0) is Turn.SERVE, "late is better than refused"
    assert turn(appending=True, under_way=1) is Turn.WAIT_FOR_ANSWER, "one that was handed on comes first"


def test_nothing_is_handed_on_while_this_broker_leads_or_there_is_no_leader() -> None:
    assert turn() is Turn.WAIT_FOR_LEADER
    assert turn(held=True, leader=5) is Turn.WAIT_FOR_LEADER
    assert turn(left_ms=0) is turn(held=True, left_ms=0) is turn(leader=5, left_ms=0) is Turn.REFUSE


def test_one_at_a_time_until_the_new_leader_has_answered_as_one() -> None:
    assert turn(leader=5) is Turn.HAND_ON
    assert turn(leader=5, under_way=1) is Turn.WAIT_FOR_ANSWER
    assert turn(leader=5, under_way=1, proven=4) is Turn.WAIT_FOR_ANSWER, "that was another leader"
    assert turn(leader=5, under_way=3, proven=5) is Turn.HAND_ON


@pytest.mark.parametrize(
    ("code", "is_proven", "has_time", "expected"),
    [
        (ErrorCode.NONE, False, True, Verdict.ACCEPTED),
        (ErrorCode.MESSAGE_TOO_LARGE, False, True, Verdict.ACCEPTED),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False, True, Verdict.ASK_AGAIN),
        (ErrorCode.UNKNOWN_TOPIC_ID, False, False, Verdict.REFUSED),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True, Verdict.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, True, True, Verdict.NOT_ALLOWED),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, True, Verdict.OUT_OF_ORDER),
        (None, False, True, Verdict.UNKNOWN),
    ],
)
def test_the_meaning_of_the_new_leaders_answer(code: int | None, is_proven: bool, has_time: bool, expected: Verdict) -> None:
    assert verdict_of(code, is_proven=is_proven, has_time=has_time) is expected


def test_the_hint_is_for_clients_with_nothing_else_under_way() -> None:
    assert gives_hint(0, is_last=True, was_alone=True)
    assert not gives_hint(0, is_last=True, was_alone=False)
    assert not gives_hint(HINT_MS_MAX, is_last=False, was_alone=False)
    assert gives_hint(HINT_MS_MAX, is_last=True, was_alone=False)
    assert gives_hint(2 * HINT_MS_MAX, is_last=False, was_alone=False)
    assert gives_hint(None, is_last=False, was_alone=False)
