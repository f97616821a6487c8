"""Mutations that break rules of followers: what and when they fetch, where they truncate, what they append (core/partition/follower.py)."""

from __future__ import annotations

from typing import Any

from minikafka.core.partition.follower import Phase
from minikafka.core.partition.truncation import Truncation

FETCHER = "minikafka.broker.partitions.fetcher"
FOLLOWER = "minikafka.core.partition.follower:Follower"
TESTS = ("tests/core/partition/test_follower.py",)


def _truncate_to_high_watermark(original: Any) -> Any:
    return lambda leader_epoch, leader_end_offset, **state: Truncation(state["high_watermark"], True)


def _truncate_not(original: Any) -> Any:
    return lambda leader_epoch, leader_end_offset, **state: Truncation(state["log_end_offset"], True)


def _truncate_one_more(original: Any) -> Any:
    def truncation_for(leader_epoch: int, leader_end_offset: int, **state: Any) -> Truncation:
        found = original(leader_epoch, leader_end_offset, **state)
        return Truncation(max(found.offset - 1, 0), found.is_complete)

    return truncation_for


def _follow_leaders_high_watermark(original: Any) -> Any:
    """The follower takes the leader's end for its high watermark."""

    def append(self: Any, followed: Any, partition: Any, data: Any) -> None:
        original(self, followed, partition, data)
        partition.log.update_high_watermark(partition.log.log_end_offset)

    return append


def _always_park(original: Any) -> Any:
    def request(fetcher: Any, *arguments: Any) -> Any:
        made = original(fetcher, *arguments)
        made.max_wait_ms = fetcher._config.replica_fetch_wait_max_ms
        return made

    return request


def _stay_in_session(original: Any) -> Any:
    def leave(self: Any, key: Any, followed: Any) -> None:
        followed.position = None

    return leave


def _ask_while_waiting(original: Any) -> Any:
    def back_off(self: Any, followed: Any, now_ms: int, backoff_ms: int | None = None) -> None:
        original(self, followed, now_ms, backoff_ms)
        followed.resume_ms = now_ms

    return back_off


def _take_answers_of_any_membership(original: Any) -> Any:
    return lambda self, plan, key: self.partitions.get(key)


def _fix_the_rate(original: Any) -> Any:
    """The end of a throttled replica's wait is computed once, at the current rate."""

    def throttled_ms(self: Any, followed: Any, now_ms: int) -> int:
        wait_ms = int(original(self, followed, now_ms))
        if wait_ms:
            followed.resume_ms = now_ms + wait_ms
        return wait_ms

    return throttled_ms


def _fetch_what_is_located(original: Any) -> Any:
    def pause(self: Any, followed: Any, phase: Any) -> None:
        original(self, followed, Phase.FETCHING if phase is Phase.LOCATING else phase)

    return pause


def _look_at_joining_only(original: Any) -> Any:
    return lambda self, now_ms: list(self._outside)


FOLLOWER_MUTATIONS: list[dict[str, Any]] = [
    {"name": "truncate-to-hw", "breaks": "a follower truncates its log to the high watermark (KIP-101)",
     "patches": ((f"{FETCHER}:truncation_for", _truncate_to_high_watermark),), "profile": "storm"},
    {"name": "truncate-not", "breaks": "a follower does not truncate its log", "patches": ((f"{FETCHER}:truncation_for", _truncate_not),),
     "profile": "crashes"},
    {"name": "truncate-one-more", "breaks": "a follower truncates one offset too many",
     "patches": ((f"{FETCHER}:truncation_for", _truncate_one_more),), "profile": "crashes"},
    {"name": "follower-hw-own-end", "breaks": "a follower takes its own log end as the high watermark",
     "patches": ((f"{FETCHER}:Fetcher._append", _follow_leaders_high_watermark),)},
    {"name": "back-off-ignored", "breaks": "a follower repeats a refused fetch at once",
     "patches": ((f"{FOLLOWER}._back_off", _ask_while_waiting),), "tests": TESTS},
    {"name": "answers-of-any-epoch", "breaks": "a follower appends the response to a fetch of an earlier "
                                               "leader epoch", "profile": "crashes",
     "patches": ((f"{FOLLOWER}.followed", _take_answers_of_any_membership),), "tests": TESTS},
    {"name": "old-rate", "breaks": "a throttled replica keeps waiting at the old rate after the throttle is raised (KIP-73)",
     "patches": ((f"{FOLLOWER}._throttled_ms", _fix_the_rate),), "tests": TESTS},
    {"name": "fetch-while-locating", "breaks": "a partition out of range is fetched while its leader is asked where its log begins",
     "patches": ((f"{FOLLOWER}._pause", _fetch_what_is_located),), "tests": TESTS},
    {"name": "told-unlooked-at", "breaks": "a follower names the new position of a partition of which it got records",
     "patches": ((f"{FOLLOWER}._looked_at", _look_at_joining_only),), "tests": TESTS},
    {"name": "new-session-parked", "breaks": "the fetch that opens a session is parked, and partitions that join meanwhile wait for it",
     "patches": ((f"{FETCHER}:Fetcher._request", _always_park),), "tests": ("tests/sim/test_rules.py",)},
    {"name": "back-off-in-session", "breaks": "a partition in back-off stays in its leader's fetch session", "profile": "network",
     "patches": ((f"{FOLLOWER}._leave_session", _stay_in_session),), "tests": ("tests/sim/test_rules.py",)},
]
