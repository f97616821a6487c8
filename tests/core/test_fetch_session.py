"""Incremental fetch sessions (KIP-227): the table of session ids and epochs, what is sent, and eviction."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.core.fetch_session import EVICTION_MS, FetchSessionCache
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.fetch import FetchRequest

T1, T2 = b"1" * 16, b"2" * 16
NAMES = {T1: "one", T2: "two"}


class Ids:
    def __init__(self) -> None:
        self.last = 0

    def __call__(self) -> int:
        self.last += 1
        return self.last


def cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, Ids())


def request(
    session: int = 0,
    epoch: int = 0,
    offsets: dict[bytes, dict[int, int]] | None = None,
    forget: dict[bytes, list[int]] | None = None,
) -> FetchRequest:
    topics = [
        FetchRequest.FetchTopic(
            topic=NAMES[topic],
            topic_id=topic,
            partitions=[FetchRequest.FetchPartition(partition=index, fetch_offset=offset) for index, offset in partitions.items()],
        )
        for topic, partitions in (offsets or {}).items()
    ]
    forgotten = [FetchRequest.ForgottenTopic(topic=NAMES[t], topic_id=t, partitions=indexes) for t, indexes in (forget or {}).items()]
    return FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=forgotten)


def context(sessions: FetchSessionCache, wanted: FetchRequest, version: int = 13, now_ms: int = 0, *, is_follower: bool = False) -> Any:
    return sessions.context(wanted, version, is_follower=is_follower, name_of=NAMES.get, now_ms=now_ms)


def keys(found: Any) -> list[tuple[str, int, int]]:
    return [(p.topic, p.index, p.fetch_offset) for p in found.partitions]


def test_sessionless_requests_leave_nothing_behind() -> None:
    sessions = cache()
    for version, wanted in ((4, request(offsets={T1: {0: 5}})), (13, request(epoch=-1, offsets={T1: {0: 5}}))):
        found = context(sessions, wanted, version)
        assert (found.session_id, keys(found), len(sessions)) == (0, [("one", 0, 5)], 0)


def test_a_session_remembers_and_takes_changes() -> None:
    sessions = cache()
    made = context(sessions, request(offsets={T1: {0: 5, 1: 6}}))
    assert (made.session_id, made.is_incremental) == (1, False)
    found = context(sessions, request(1, 1))
    assert (keys(found), found.is_incremental) == ([("one", 0, 5), ("one", 1, 6)], True)
    found = context(sessions, request(1, 2, {T1: {1: 9}, T2: {0: 0}}, {T1: [0]}))
    assert keys(found) == [("one", 1, 9), ("two", 0, 0)]


@pytest.mark.parametrize(
    ("session", "epoch", "version", "code"),
    [
        (99, 1, 13, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 13, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_wrong_sessions_are_refused(session: int, epoch: int, version: int, code: ErrorCode) -> None:
    sessions = cache()
    context(sessions, request(offsets={T1: {0: 5}}))
    with pytest.raises(ApiError) as refused:
        context(sessions, request(session, epoch), version)
    assert refused.value.code is code


def test_epochs_wrap_from_the_largest_number_to_one() -> None:
    sessions = cache()
    made = context(sessions, request(offsets={T1: {0: 5}}))
    made.session.epoch = 0x7FFFFFFF
    context(sessions, request(1, 0x7FFFFFFF))
    assert made.session.epoch == 1


def test_closing_and_emptying_a_session_frees_its_slot() -> None:
    sessions = cache()
    context(sessions, request(offsets={T1: {0: 5}}))
    assert context(sessions, request(1, -1, {T1: {0: 5}})).session_id == 0
    assert len(sessions) == 0
    context(sessions, request(offsets={T1: {0: 5}}))
    assert context(sessions, request(2, 1, forget={T1: [0]})).session_id == 0
    assert len(sessions) == 0


def test_only_news_is_sent() -> None:
    partition = context(cache(), request(offsets={T1: {0: 5}})).partitions[0]
    assert partition.is_news(10, 0, has_more=False, is_rest_ignored=False)
    assert not partition.is_news(10, 0, has_more=False, is_rest_ignored=False)
    assert partition.is_news(10, 0, has_more=True, is_rest_ignored=False)
    assert partition.is_news(11, 0, has_more=False, is_rest_ignored=False)
    assert partition.is_news(11, 3, has_more=False, is_rest_ignored=False)
    assert partition.is_news(11, 3, has_more=False, is_rest_ignored=True)
    assert partition.is_news(11, 3, has_more=False, is_rest_ignored=False), "what follows an error or a diverging epoch is sent"


def test_partitions_that_got_data_go_to_the_end() -> None:
    sessions = cache()
    context(sessions, request(offsets={T1: {0: 0, 1: 0, 2: 0}}))
    found = context(sessions, request(1, 1))
    found.served(found.partitions[0])
    assert [index for _, index, _ in keys(context(sessions, request(1, 2)))] == [1, 2, 0]


def test_a_full_cache_refuses_until_a_session_is_stale_but_followers_come_first() -> None:
    sessions = cache(1)
    assert context(sessions, request(offsets={T1: {0: 0}})).session_id == 1
    assert context(sessions, request(offsets={T2: {0: 0}}), now_ms=1).session_id == 0
    assert context(sessions, request(offsets={T2: {0: 0}}), now_ms=2, is_follower=True).session_id == 2
    assert context(sessions, request(offsets={T1: {0: 0}}), now_ms=3, is_follower=True).session_id == 0
    assert context(sessions, request(offsets={T1: {0: 0}}), now_ms=EVICTION_MS + 3).session_id == 3
    assert (len(sessions), sessions.evictions) == (1, 2)


def test_a_topic_id_that_is_not_known_yet_is_resolved_when_it_is() -> None:
    sessions = cache()
    unknown = b"9" * 16
    unresolved = FetchRequest.FetchTopic(topic_id=unknown, partitions=[FetchRequest.FetchPartition(partition=0)])
    wanted = FetchRequest(session_epoch=0, topics=[unresolved])
    assert keys(context(sessions, wanted)) == [("", 0, 0)]
    NAMES[unknown] = "late"
    try:
        assert keys(context(sessions, request(1, 1))) == [("late", 0, 0)]
    finally:
        del NAMES[unknown]
