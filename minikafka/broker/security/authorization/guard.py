"""Puts guards before handlers.

A guard is a function `(authority, context, request) -> None | Response | merge`. None passes the request on unchanged. A response is the
answer, and the handler is not called. Otherwise the guard has removed the denied parts from the request, and `merge(response)` adds their
errors to the handler's response. If a guard raises ApiError, the whole request fails with it. Without an authorizer there are no guards.

A guard with much work is a generator function that does a bounded amount between two yields, so that other work gets turns of the loop. Its
`merge` may be one too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from minikafka import steps
from minikafka.broker.front.error_responses import failure_response
from minikafka.wire.errors import ApiError
from minikafka.wire.message import Response

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority

Merge = Callable[[Any], Any]
Verdict = Response | Merge | None
GuardAtOnce = Callable[[Any, Any, Any], Verdict]
Guard = GuardAtOnce | Callable[[Any, Any, Any], Generator[None, None, Verdict]]


def at_once(found: Any) -> Any:
    """The result of a generator, run in one go. Other values are returned unchanged."""
    return steps.at_once(found) if isinstance(found, Generator) else found


async def in_turns(found: Any) -> Any:
    """The result of a generator, run with one step per turn of the loop. Other values are returned unchanged."""
    if not isinstance(found, Generator):
        return found
    while True:
        try:
            next(found)
        except StopIteration as over:
            return over.value
        await asyncio.sleep(0)


class MergedContext:
    """A request's context that adds the guard's part to the handler's answer."""

    __slots__ = ("_context", "_merge")

    def __init__(self, context: Any, merge: Merge) -> None:
        self._context = context
        self._merge = merge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def respond(self, response: Any) -> None:
        """Answer with the merged response."""
        self._context.respond(at_once(self._merge(response)))

    def no_response(self) -> None:
        """Close the connection: part of the request was denied, and without a response there is no other way to tell the client."""
        self._context.close("a Produce request with acks=0 was not authorized")


def guarded(authority: Authority, guard: Guard, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The handler with its guard. It is a coroutine function if the handler is one, or if the guard works in steps."""
    if inspect.isgeneratorfunction(guard):
        return _guarded_in_steps(authority, guard, handler)

    def judge(context: Any, request: Any) -> Verdict:
        try:
            verdict: Verdict = at_once(guard(authority, context, request))
            return verdict
        except ApiError as error:
            refused: Response = failure_response(request, context.api_version, error)
            return refused

    if inspect.iscoroutinefunction(handler):

        async def serve_later(context: Any, request: Any) -> Any:
            verdict = judge(context, request)
            if verdict is None:
                return await handler(context, request)
            if isinstance(verdict, Response):
                return verdict
            response = await handler(MergedContext(context, verdict), request)
            return None if response is None else verdict(response)

        return serve_later

    def serve(context: Any, request: Any) -> Any:
        verdict = judge(context, request)
        if verdict is None:
            return handler(context, request)
        if isinstance(verdict, Response):
            return verdict
        response = handler(MergedContext(context, verdict), request)
        return None if response is None else verdict(response)

    return serve


def _guarded_in_steps(authority: Authority, guard: Guard, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    async def serve(context: Any, request: Any) -> Any:
        try:
            verdict = await in_turns(guard(authority, context, request))
        except ApiError as error:
            return failure_response(request, context.api_version, error)
        if isinstance(verdict, Response):
            return verdict
        response = handler(context if verdict is None else MergedContext(context, verdict), request)
        if inspect.isawaitable(response):
            response = await response
        return response if response is None or verdict is None else await in_turns(verdict(response))

    return serve
