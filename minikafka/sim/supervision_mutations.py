"""Mutations that break rules of supervised work: failures that go unnoticed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from minikafka.net.channel import ConnectionLost, RequestTimeout
from minikafka.sim.replacements import nothing
from minikafka.steps import at_once

SUPERVISOR = "minikafka.broker.supervise:Supervisor"
CHANNEL = "minikafka.net.channel:Channel"
DELIVERY = "minikafka.broker.quorum.raft_delivery:Delivery"
CONTROLLER = "minikafka.broker.quorum.controller_host:ControllerHost"
LIFE = "minikafka.core.broker_lifecycle:BrokerLifecycle"
CORE_LIFE_TESTS = ("tests/core/test_broker_lifecycle.py",)
LIFECYCLE_TESTS = ("tests/broker/test_lifecycle.py",)
INVARIANT_TESTS = ("tests/broker/test_broken_invariants.py",)


def _offset_first(original: Any) -> Any:
    def deliver_to(self: Any, entry: Any) -> Any:
        before = entry.next_offset
        try:
            yield from original(self, entry)
        except Exception:
            pieces = at_once(self._pieces(before, self._high_watermark))
            entry.next_offset = next(piece.next_offset for piece in pieces if piece.next_offset > entry.next_offset)
            raise

    return deliver_to


def _go_on_delivering(original: Any) -> Any:
    def deliver(self: Any) -> None:
        original(self)
        self._is_stopped = False

    return deliver


def _keep_the_office(original: Any) -> Any:
    def renounce(self: Any, what: str, error: Exception) -> None:
        """Ignore the error, as if the request had been refused."""

    return renounce


def _keep_the_lead(original: Any) -> Any:
    def renounce(self: Any, what: str, error: Exception) -> None:
        self._deactivate()

    return renounce


def _keep_the_connection(original: Any) -> Any:
    def time_out(self: Any, late: list[Any]) -> None:
        for entry in late:
            self._call_back(entry, None, RequestTimeout("late"))
        if self._waiting:
            self._set_timer(min(entry.deadline_s for entry in self._waiting.values()))

    return time_out


def _patience_is_a_timeout(original: Any) -> Any:
    async def ask(self: Any, channel: Any, request: Any, version: Any, left_ms: int) -> Any:
        return await channel.request(request, version, left_ms)

    return ask


def _first_failure_ends_the_turn(original: Any) -> Any:
    def failed(self: Any, operation: Any, error: Exception) -> None:
        raise error

    return failed


def _heartbeats_end(original: Any) -> Any:
    async def heartbeat(self: Any, effect: Any) -> None:
        if not self.unanswered:
            await original(self, effect)

    return heartbeat


def _one_answer_for_all(original: Any) -> Any:
    def call_back(self: Any, waiting: Any, response: Any, error: Any) -> None:
        if not isinstance(error, ConnectionLost):
            waiting.on_response(response, error)

    return call_back


def _looks_away(original: Any) -> Any:
    @contextmanager
    def watching(self: Any, name: str, *, ends: Any = None) -> Any:
        try:
            yield
        except Exception:
            return

    return watching


def _never_late(original: Any) -> Any:
    return lambda self, why, is_timeout, now_ms: original(self, why, False, now_ms)


def _carry_on(original: Any) -> Any:
    return lambda self, code, now_ms: self._rest(now_ms)


def _whole_timeout(original: Any) -> Any:
    return lambda self: self._shutdown_deadline_ms


def _no_trouble(original: Any) -> Any:
    return lambda self, now_ms: None


SUPERVISION_MUTATIONS: list[dict[str, Any]] = [
    {"name": "exceptions-swallowed", "breaks": "an exception in a background task ends it unnoticed",
     "patches": ((f"{SUPERVISOR}.caught", nothing),), "tests": LIFECYCLE_TESTS},
    {"name": "watched-calls-swallowed", "breaks": "an exception in a watched call is dropped",
     "patches": ((f"{SUPERVISOR}.watching", _looks_away),), "tests": INVARIANT_TESTS},
    {"name": "heartbeats-end-in-silence", "breaks": "a heartbeat without a response is the last one",
     "patches": (("minikafka.broker.quorum.broker_lifecycle:BrokerLifecycleHost._heartbeat", _heartbeats_end),), "tests": LIFECYCLE_TESTS},
    {"name": "late-heartbeat-waits", "breaks": "after a heartbeat that timed out, the next one waits for its interval, and the "
                                               "session expires",
     "patches": ((f"{LIFE}.heartbeat_unanswered", _never_late),), "tests": CORE_LIFE_TESTS},
    {"name": "stale-epoch-endures", "breaks": "a broker that the controller no longer knows does not register again",
     "patches": ((f"{LIFE}._heartbeat_refused", _carry_on),), "tests": CORE_LIFE_TESTS},
    {"name": "waits-for-silence", "breaks": "a broker that stops waits for a controller that is gone",
     "patches": ((f"{LIFE}._go_deadline_ms", _whole_timeout),), "tests": CORE_LIFE_TESTS},
    {"name": "fenced-is-ready", "breaks": "a fenced broker reports that clients can rely on it",
     "patches": ((f"{LIFE}.trouble", _no_trouble),), "tests": CORE_LIFE_TESTS},
    {"name": "next-offset-before-commit", "breaks": "a listener that raises counts as having handled the committed batch",
     "patches": ((f"{DELIVERY}._deliver_to", _offset_first),), "tests": INVARIANT_TESTS},
    {"name": "delivery-goes-on", "breaks": "a listener that has not handled a committed batch is given the next ones",
     "patches": ((f"{DELIVERY}.deliver", _go_on_delivering), (f"{DELIVERY}._deliver_to", _offset_first)), "tests": INVARIANT_TESTS},
    {"name": "no-resignation", "breaks": "a controller that has not applied its log keeps deciding",
     "patches": ((f"{CONTROLLER}._renounce", _keep_the_office),), "tests": INVARIANT_TESTS},
    {"name": "office-without-lead", "breaks": "a controller resigns but keeps leading the quorum, so none is active",
     "patches": ((f"{CONTROLLER}._renounce", _keep_the_lead),), "tests": INVARIANT_TESTS},
    {"name": "timed-out-keeps-connection", "breaks": "a request that times out leaves its connection open",
     "patches": ((f"{CHANNEL}._time_out", _keep_the_connection),), "tests": ("tests/sim/test_silence.py",)},
    {"name": "patience-ends-connection", "breaks": "a short wait for the controller ends the connection that all share",
     "patches": (("minikafka.broker.front.controller_channel:ControllerChannel._ask", _patience_is_a_timeout),), "tests": LIFECYCLE_TESTS},
    {"name": "purgatory-drops-waiters", "breaks": "a waiting request that fails internally drops those behind it",
     "patches": (("minikafka.core.purgatory:Purgatory._failed", _first_failure_ends_the_turn),),
     "tests": ("tests/core/test_purgatory.py",)},
    {"name": "lost-requests-untold", "breaks": "requests in flight on a connection that ends are never told",
     "patches": ((f"{CHANNEL}._call_back", _one_answer_for_all),), "tests": ("tests/net/test_channel.py",)},
]  # fmt: skip
