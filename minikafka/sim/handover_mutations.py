"""Broken rules of produces that a broker hands on to the next leader (broker/partitions/handover.py), for `mutants`."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from minikafka.core.partition.handover import Verdict
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.produce import ProduceResponse

HANDOVER = "minikafka.broker.partitions.handover:Handover"
TESTS = ("tests/broker/test_handover.py",)


def _hand_on_again(original: Any) -> Any:
    """What was under way when the connection broke may have been stored."""

    def refuse_all(self: Any, key: Any, line: Any, held: Any, code: ErrorCode) -> None:
        if code is ErrorCode.REQUEST_TIMED_OUT:
            line.waiting.appendleft(held)
        else:
            original(self, key, line, held, code)

    return refuse_all


def _answer_at_once(original: Any) -> Any:
    def hand_on(self: Any, key: Any, line: Any, held: Any, target: Any) -> None:
        partition = self._replicas.partition_by_id(*key)
        offset = 0 if partition is None else partition.log.log_end_offset
        told = SimpleNamespace(
            request=held.request, version=held.version, size=held.size, deadline_ms=held.deadline_ms, source=held.source,
            finish=lambda answer, hint: None, fail=lambda code: None,
        )  # fmt: skip
        original(self, key, line, told, target)
        held.finish(ProduceResponse.PartitionProduceResponse(index=key[1], base_offset=offset), True)

    return hand_on


def _prove_before_the_answer(original: Any) -> Any:
    def pump(self: Any, key: Any) -> None:
        target = self._target(key)
        if target is not None:
            self._proven[key] = target[2]
        original(self, key)

    return pump


def _last_first(original: Any) -> Any:
    def take(self: Any, key: Any, held: Any) -> None:
        before = self._lines.get(key)
        if before is not None:
            before.waiting.reverse()
        original(self, key, held)

    return take


def _to_a_crowd(original: Any) -> Any:
    def leave(self: Any, key: Any, line: Any, held: Any) -> bool:
        self._gone(line, held)
        return held.source not in line.sources

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
    {"name": "handed-on-twice", "breaks": "a produce is handed on again when the connection to the new leader broke",
     "patches": ((f"{HANDOVER}._refuse_all", _hand_on_again),), "tests": TESTS},
    {"name": "handed-on-and-acknowledged", "breaks": "a produce is acknowledged when it is handed on, before the new leader has stored it",
     "patches": ((f"{HANDOVER}._hand_on", _answer_at_once),), "profile": "crashes", "options": _LEAVING},
    {"name": "handed-on-before-proof", "breaks": "produces follow each other before the new leader has accepted the first",
     "patches": ((f"{HANDOVER}._pump", _prove_before_the_answer),), "tests": TESTS},
    {"name": "refusal-is-an-answer", "breaks": "a new leader that does not know of its office yet is not asked again",
     "patches": (("minikafka.broker.partitions.handover:verdict_of", _believe_refusals),), "tests": TESTS},
    {"name": "handed-on-while-leading", "breaks": "what waits is handed on though this broker leads after all",
     "patches": (("minikafka.broker.partitions.handover:next_turn", _hand_on_while_leading),), "tests": TESTS},
    {"name": "handed-on-out-of-order", "breaks": "what waits for the next leader leaves in another order",
     "patches": ((f"{HANDOVER}.take", _last_first),), "tests": TESTS},
    {"name": "hint-to-a-crowd", "breaks": "a client learns of the new leader while it sends what it had to keep back", "tests": TESTS,
     "patches": ((f"{HANDOVER}._leave_with_hint", _to_a_crowd),)},
]
