"""Mutations that break rules of a controller that has been replaced without noticing it."""

from __future__ import annotations

from typing import Any

from minikafka.sim.replacements import nothing

CORE_TESTS = ("tests/core/raft/test_quorum.py", "tests/core/raft/test_doubt.py")
STORY_TESTS = ("tests/sim/test_deposed_controller.py",)
PROGRESS = "minikafka.core.raft.progress:Progress"


def _never(original: Any) -> Any:
    return lambda *arguments: False


def _by_one_fetch(original: Any) -> Any:
    def note_contact(self: Any, node_id: int, now_ms: int) -> None:
        original(self, node_id, now_ms)
        original(self, node_id, now_ms)

    return note_contact


def _anybody_will_do(original: Any) -> Any:
    def followed_ms(self: Any, voters: Any, local: Any, now_ms: int) -> int:
        return max([contact.followed_ms for contact in self._contacts.values()], default=-1)

    return followed_ms


def _as_late_as_resigning(original: Any) -> Any:
    def update_doubt(replica: Any, role: Any, now_ms: int) -> None:
        original(replica, role, now_ms)
        if role.doubt_deadline_ms is not None and role.doubt_deadline_ms > now_ms:
            role.doubt_deadline_ms += replica.config.fetch_timeout_ms * 3 // 4

    return update_doubt


def _park_as_requested(original: Any) -> Any:
    return lambda replica, role, peer: replica.config.park_ms_max


def _answer_unconfirmed(original: Any) -> Any:
    def answer_when_committed(self: Any, offset: int, respond: Any, response: Any) -> None:
        if offset < self._raft.high_watermark and not self._waiting:
            respond(response, None)
        else:
            self._waiting.append((offset, respond, response))

    return answer_when_committed


DOUBT_MUTATIONS: list[dict[str, Any]] = [
    {"name": "never-in-doubt", "breaks": "a quorum leader whose majority is silent still believes that it leads",
     "patches": (("minikafka.core.raft.leading:is_in_doubt", _never),), "tests": CORE_TESTS},
    {"name": "one-fetch-confirms", "breaks": "a fetch sent long ago proves that its voter still follows",
     "patches": ((f"{PROGRESS}.note_contact", _by_one_fetch),), "tests": CORE_TESTS},
    {"name": "anybody-confirms", "breaks": "a minority of followers keeps a leader confident",
     "patches": ((f"{PROGRESS}.followed_ms", _anybody_will_do),), "tests": CORE_TESTS},
    {"name": "doubt-too-late", "breaks": "a leader stays confident for longer than its voters wait before electing another",
     "patches": (("minikafka.core.raft.leading:update_doubt", _as_late_as_resigning),), "tests": CORE_TESTS},
    {"name": "voters-fetch-seldom", "breaks": "voters' fetches wait for so long that a healthy leader begins to doubt",
     "patches": (("minikafka.core.raft.leading:_wait_ms_max", _park_as_requested),), "tests": CORE_TESTS},
    {"name": "lost-voters-unnoticed", "breaks": "a leader whose voters' connections have ended stays confident",
     "patches": ((f"{PROGRESS}.forget_contact", nothing),), "tests": CORE_TESTS},
    {"name": "deposed-answers", "breaks": "a controller that may have been replaced answers that nothing has changed",
     "patches": (("minikafka.broker.quorum.controller_host:ControllerHost._answer_when_committed", _answer_unconfirmed),),
     "tests": STORY_TESTS},
    {"name": "doubt-untold", "breaks": "a doubting controller's broker learns of the doubt from a late response",
     "patches": (("minikafka.broker.front.controller_channel:ControllerChannel._doubt_changed", nothing),), "tests": STORY_TESTS},
]  # fmt: skip
