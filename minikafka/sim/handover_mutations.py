"""Mutations that break the rules by which a broker forwards produce requests to the next leader (core/partition/handover_lines.py)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from minikafka.core.partition.handover import Verdict
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.produce import ProduceResponse

CORE = "minikafka.core.partition.handover_lines"
HOST = "minikafka.broker.partitions.handover:HandoverHost"
LINES = f"{CORE}:HandoverLines"
TESTS = ("tests/broker/test_handover.py", "tests/core/partition/test_handover_lines.py")


def _hand_on_again(original: Any) -> Any:
    """What was under way when the connection broke may have been stored."""

    def refuse_all(self: Any, line: Any, entry: Any, code: ErrorCode) -> Any:
        if code is not ErrorCode.REQUEST_TIMED_OUT:
            return original(self, line, entry, code)
        line.waiting.appendleft(entry)
        return []

    return refuse_all


def _answer_at_once(original: Any) -> Any:
    def hand_on(self: Any, effect: Any) -> None:
        key, held = effect.entry.key, effect.entry.held
        partition = self._replicas.partition_by_id(*key)
        offset = 0 if partition is None else partition.log.log_end_offset
        effect.entry.held = SimpleNamespace(
            request=held.request, version=held.version, size=held.size, source=held.source,
            finish=lambda answer, hint: None, fail=lambda code: None, serve=held.serve,
        )  # fmt: skip
        original(self, effect)
        held.finish(ProduceResponse.PartitionProduceResponse(index=key[1], base_offset=offset), True)

    return hand_on


def _prove_before_the_answer(original: Any) -> Any:
    def move(self: Any, key: Any, now_ms: int) -> Any:
        target = self._lines[key].status.target
        if target is not None:
            self._proven[key] = target.leader_epoch
        return original(self, key, now_ms)

    return move


def _last_first(original: Any) -> Any:
    def take(self: Any, key: Any, held: Any, status: Any, now_ms: int) -> Any:
        before = self._lines.get(key)
        if before is not None:
            before.waiting.reverse()
        return original(self, key, held, status, now_ms)

    return take


def _to_a_crowd(original: Any) -> Any:
    def leave(self: Any, line: Any, entry: Any, now_ms: int) -> bool:
        self._gone(line, entry)
        return entry.held.source not in line.sources

    return leave


def _believe_refusals(original: Any) -> Any:
    def verdict_of(code: int | None, *, is_proven: bool, has_time: bool) -> Verdict:
        verdict = original(code, is_proven=is_proven, has_time=has_time)
        return Verdict.ACCEPTED if verdict in (Verdict.REFUSED, Verdict.ASK_AGAIN) else verdict

    return verdict_of


def _hand_on_while_leading(original: Any) -> Any:
    return lambda waiting, deadline_ms, now_ms: original(replace(waiting, is_held=False, is_appending=False), deadline_ms, now_ms)


_LEAVING = (("properties", {"minikafka.handover.ms": "1000"}), ("producers", 3), ("pace_s", 0.05))

HANDOVER_MUTATIONS: list[dict[str, Any]] = [
    {"name": "handed-on-twice", "breaks": "a produce request is forwarded again when the connection to the new leader broke",
     "patches": ((f"{LINES}._refuse_all", _hand_on_again),), "tests": TESTS},
    {"name": "handed-on-and-acknowledged", "breaks": "a produce request is acknowledged when it is forwarded, before the new leader "
                                                     "has stored it",
     "patches": ((f"{HOST}._hand_on", _answer_at_once),), "profile": "crashes", "options": _LEAVING},
    {"name": "handed-on-before-proof", "breaks": "produce requests follow each other before the new leader has accepted the first",
     "patches": ((f"{LINES}._move", _prove_before_the_answer),), "tests": TESTS},
    {"name": "refusal-is-an-answer", "breaks": "a new leader that does not know yet that it leads is not asked again",
     "patches": ((f"{CORE}:verdict_of", _believe_refusals),), "tests": TESTS},
    {"name": "handed-on-while-leading", "breaks": "waiting requests are forwarded although this broker leads after all",
     "patches": ((f"{CORE}:next_turn", _hand_on_while_leading),), "tests": TESTS},
    {"name": "handed-on-out-of-order", "breaks": "requests that wait for the next leader leave in a different order",
     "patches": ((f"{LINES}.take", _last_first),), "tests": TESTS},
    {"name": "hint-to-a-crowd", "breaks": "a client learns of the new leader while it sends the requests that it had to "
                                          "hold back", "tests": TESTS,
     "patches": ((f"{LINES}._leave_with_hint", _to_a_crowd),)},
]
