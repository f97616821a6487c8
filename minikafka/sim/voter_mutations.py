"""Mutations that break rules of voter changes (KIP-853), which are rare in a seed's load, so that tests of the core catch these;
and the rule of what leaders name."""

from __future__ import annotations

from typing import Any

from minikafka.wire.errors import ErrorCode

TESTS = ("tests/core/raft/test_voter_changes.py",)


def _voters_when_committed(original: Any) -> Any:
    def voters(self: Any) -> Any:
        return self.history.at(max(self.high_watermark, 0))[0]

    return voters


def _count_everybody(original: Any) -> Any:
    def high_watermark(self: Any, voters: Any, local: Any, flushed_offset: int) -> int:
        offsets = sorted([flushed_offset, *(replica.end_offset for replica in self.replicas.values())], reverse=True)
        return int(offsets[voters.majority - 1]) if len(offsets) >= voters.majority else -1

    return high_watermark


def _names_what_it_learned(original: Any) -> Any:
    def named_high_watermark(replica: Any) -> int:
        return int(replica.high_watermark)

    return named_high_watermark


def _change_at_once(original: Any) -> Any:
    def refusal(replica: Any, role: Any, request: Any) -> Any:
        found = original(replica, role, request)
        return None if found is not None and found[0] is ErrorCode.REQUEST_TIMED_OUT else found

    return refusal


VOTER_MUTATIONS: list[dict[str, Any]] = [
    {"name": "voters-when-committed", "breaks": "a change of voters takes effect only when it is committed (KIP-853)",
     "patches": (("minikafka.core.raft.replica:Replica.voters", _voters_when_committed),), "tests": TESTS},
    {"name": "removed-voter-counts", "breaks": "a removed voter or an observer counts towards the majority",
     "patches": (("minikafka.core.raft.progress:Progress.high_watermark", _count_everybody),), "tests": TESTS},
    {"name": "voter-changes-overlap", "breaks": "the voters change again before the last change is committed",
     "patches": (("minikafka.core.raft.membership:_refusal", _change_at_once),), "tests": TESTS},
    {"name": "names-what-it-learned", "breaks": "a new leader reports the high watermark that it learned as a follower",
     "patches": (("minikafka.core.raft.leading:named_high_watermark", _names_what_it_learned),)},
]  # fmt: skip
