"""Faults of brokers in an embedded cluster: error responses, late responses, no responses, closed connections.

A rule says which requests it applies to (an empty field matches everything) and what happens to them. `after_work` decides whether the
request is carried out first: a Produce is then appended and still answered with the error, so the client cannot tell whether it succeeded.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from minikafka.broker.front.dispatch import Dispatcher, Entry, Handler
from minikafka.broker.front.error_responses import failure_response
from minikafka.testing.mirror import mirrored_failure, partitions_of, patch_errors, without_partitions
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.message import Response

ACTIONS = ("error", "none", "drop", "disconnect")
ANY = -1


class FaultError(ValueError):
    """A rule is invalid; the message says why."""


@dataclass(slots=True)
class FaultRule:
    """The requests that a fault applies to, and what happens to them.

    `api`: name as in Kafka's protocol (Produce, Fetch, JoinGroup ...), "" = all except ApiVersions and the requests between nodes;
    `topic`, `partition`, `client_id`: "" or -1 = any; `action`: error (answer with the code `error`), none (the right answer, only later),
    drop (never answer), disconnect (close the connection instead of answering); `delay_ms`: how much later the response leaves;
    `after_work`: carry out the request first; `count`: how often each broker applies the rule, 0 = always.
    """

    api: str = ""
    topic: str = ""
    partition: int = ANY
    client_id: str = ""
    action: str = "error"
    error: str = ""
    delay_ms: int = 0
    after_work: bool = False
    count: int = 1

    def check(self) -> None:
        """Raises FaultError."""
        if self.action not in ACTIONS:
            raise FaultError(f"action={self.action}: must be one of {', '.join(ACTIONS)}")
        if self.action == "error" and self.error not in ErrorCode.__members__:
            raise FaultError(f"error={self.error or 'missing'}: give the name of a Kafka error, such as NOT_LEADER_OR_FOLLOWER")
        if self.action == "none" and self.delay_ms <= 0:
            raise FaultError("a rule with action none needs delay_ms")

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON values, to send the rule to another process."""
        return asdict(self)


@dataclass(slots=True)
class _Installed:
    number: int
    rule: FaultRule
    #: Remaining hits; negative: no limit.
    left: int
    hits: int = 0


#: A rule without `api` does not apply to these: clients could not even connect, or the cluster would fall apart.
_ONLY_BY_NAME = frozenset(
    {
        "ApiVersions", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "BrokerHeartbeat", "BrokerRegistration", "AlterPartition",
        "ControllerRegistration", "FetchSnapshot", "AllocateProducerIds", "Envelope",
    }
)  # fmt: skip


class FaultTable:
    """The faults of one broker. It wraps the handlers of the broker's dispatchers as long as there are rules."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, dispatchers: Callable[[], list[Dispatcher]], topic_name: Callable[[bytes], str]
    ) -> None:
        """`topic_name` returns the name for a topic id, "" for an unknown one."""
        self._loop = loop
        self._dispatchers = dispatchers
        self._topic_name = topic_name
        self._rules: dict[int, _Installed] = {}
        self._numbers = itertools.count(1)

    def add(self, rule: FaultRule) -> int:
        """Install a rule. Returns its number. Raises FaultError."""
        rule.check()
        served = {entry.name for entry in self._entries()}
        if rule.api and rule.api not in served:
            raise FaultError(f"api={rule.api}: not served here; one of {', '.join(sorted(served))}")
        number = next(self._numbers)
        self._rules[number] = _Installed(number, rule, rule.count or -1)
        self._intercept(self._wrap)
        return number

    def remove(self, number: int) -> int:
        """Remove a rule. Returns how often it hit."""
        installed = self._rules.pop(number, None)
        if not self._rules:
            self._intercept(None)
        return 0 if installed is None else installed.hits

    def clear(self) -> None:
        """Remove every rule."""
        self._rules.clear()
        self._intercept(None)

    def hits(self, number: int) -> int:
        """How often a rule has hit."""
        installed = self._rules.get(number)
        return 0 if installed is None else installed.hits

    # -- wrapping --------------------------------------------------------------------------------------------------

    def _intercept(self, around: Callable[[Handler], Handler] | None) -> None:
        for dispatcher in self._dispatchers():
            dispatcher.intercept(around)

    def _entries(self) -> list[Entry]:
        return [entry for dispatcher in self._dispatchers() for entry in dispatcher.entries]

    def _wrap(self, original: Handler) -> Handler:
        return self._asynchronous(original) if inspect.iscoroutinefunction(original) else self._plain(original)

    def _plain(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def handler(context: Any, request: Any) -> Any:
            found = self._match(context, request)
            if found is None:
                return original(context, request)
            outcome = _Outcome(self, found, context, request)
            if not outcome.carries_out:
                outcome.settle(None)
                return None
            response = original(outcome, outcome.request)
            if response is not None:
                outcome.settle(response)
            return None

        return handler

    def _asynchronous(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        async def handler(context: Any, request: Any) -> Any:
            found = self._match(context, request)
            if found is None:
                return await original(context, request)
            outcome = _Outcome(self, found, context, request)
            if not outcome.carries_out:
                outcome.settle(None)
                return None
            try:
                response = await original(outcome, outcome.request)
            except ApiError as error:
                response = failure_response(request, context.api_version, error)
            if response is not None:
                outcome.settle(response)
            return None

        return handler

    # -- matching --------------------------------------------------------------------------------------------------

    def _match(self, context: Any, request: Any) -> _Installed | None:
        name = context.entry.name
        for installed in self._rules.values():
            rule = installed.rule
            if not installed.left or (rule.api != name if rule.api else name in _ONLY_BY_NAME):
                continue
            if rule.client_id and rule.client_id != context.client_id:
                continue
            if (rule.topic or rule.partition != ANY) and not any(self._covers(rule, key) for key in partitions_of(request)):
                continue
            installed.left -= 1
            installed.hits += 1
            return installed
        return None

    def _covers(self, rule: FaultRule, key: tuple[str | bytes, int]) -> bool:
        topic, index = key
        name = self._topic_name(topic) if isinstance(topic, bytes) else topic
        return (not rule.topic or rule.topic == name) and (rule.partition in (ANY, index) or index == ANY)

    def chosen(self, rule: FaultRule) -> Callable[[tuple[str | bytes, int]], bool]:
        """A predicate: whether the rule covers a (topic, partition)."""
        return lambda key: self._covers(rule, key)

    def later(self, delay_ms: int, work: Callable[[], None]) -> None:
        """Run `work` after `delay_ms`; at once for 0."""
        if delay_ms > 0:
            self._loop.call_later(delay_ms / 1000, work)
        else:
            work()


class _Outcome:
    """Replaces the request's context that a handler gets, so that it can change the handler's response."""

    def __init__(self, table: FaultTable, installed: _Installed, context: Any, request: Any) -> None:
        rule = installed.rule
        self._table = table
        self._rule = rule
        self._context = context
        self._full_request = request
        self.carries_out = rule.after_work or rule.action == "none"
        self.request = request
        if not self.carries_out and rule.action == "error" and (rule.topic or rule.partition != ANY):
            rest = without_partitions(request, table.chosen(rule))
            if rest is not None:
                self.request, self.carries_out = rest, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def respond(self, response: Response) -> None:
        """Take the handler's response."""
        self.settle(response)

    def respond_pieces(self, pieces: list[Any]) -> None:
        """Take the handler's response as an encoded frame: decode it, or only delay it if it contains file regions."""
        if not all(isinstance(piece, bytes | bytearray | memoryview) for piece in pieces):
            self._table.later(self._rule.delay_ms, lambda: self._context.respond_pieces(pieces))
            return
        from minikafka.wire.header import decode_response_header

        frame = memoryview(b"".join(pieces))[4:]
        entry = self._context.entry
        _, position = decode_response_header(frame, entry.api_key, self._context.api_version, 0)
        self.settle(entry.response_class.decode(self._context.api_version, frame, position))

    def no_response(self) -> None:
        """The handler sends no response (acks=0). An error is then shown by closing the connection, as a broker does."""
        if self._rule.action in ("error", "disconnect"):
            self._context.close("an injected fault")
        else:
            self._context.no_response()

    def settle(self, response: Any) -> None:
        """Apply the fault. `response` is the handler's, or None if the request was not carried out."""
        rule, context = self._rule, self._context
        if rule.action == "disconnect":
            self._table.later(rule.delay_ms, lambda: context.close("closed by an injected fault"))
            return
        if rule.action == "drop":
            return
        answer = response if rule.action == "none" else self._with_error(response)
        if getattr(self._full_request, "acks", None) == 0:
            self._table.later(rule.delay_ms, self.no_response)
            return
        self._table.later(rule.delay_ms, lambda: context.respond(answer))

    def _with_error(self, response: Any) -> Any:
        rule = self._rule
        code = ErrorCode[rule.error]
        chosen = self._table.chosen(rule) if rule.topic or rule.partition != ANY else None
        if response is None:
            return mirrored_failure(self._full_request, self._context.entry.response_class, self._context.api_version, code)
        if self.request is not self._full_request:
            failed = mirrored_failure(self._full_request, self._context.entry.response_class, self._context.api_version, code, chosen)
            return _joined(response, failed)
        patch_errors(response, code, chosen)
        return response


def _joined(response: Any, failed: Any) -> Any:
    """Merge the failed topics into the response with the good ones: the arrays of structs at the top level of both."""
    for declared in type(response).FIELDS:
        value = getattr(response, declared.name)
        if isinstance(value, list) and value and declared.name != "node_endpoints":
            setattr(response, declared.name, value + getattr(failed, declared.name))
            return response
    for declared in type(failed).FIELDS:
        value = getattr(failed, declared.name)
        if isinstance(value, list) and value:
            setattr(response, declared.name, value)
    return response
