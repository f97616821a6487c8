"""How a guard stands before a handler.

A guard is a plain function `(authority, context, request) -> None | Response | merge`. None lets the request through as it is. A response
is the answer, and the handler is not asked. Otherwise the guard has taken out of the request what the principal may not do, and `merge`,
called with the handler's response, adds what is to be said of it. A guard may raise ApiError: then everything in the request fails with it.
Without an authorizer there are no guards.

A guard of very much is a generator function, a bounded piece of work between two yields, and so may its `merge` be: then others have turns
of the loop meanwhile.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any

from minikafka.broker.front.error_responses import failure_response
from minikafka.wire.errors import ApiError
from minikafka.wire.message import Response

Merge = Callable[[Any], Any]
Verdict = Response | Merge | None
GuardAtOnce = Callable[[Any, Any, Any], Verdict]
Guard = GuardAtOnce | Callable[[Any, Any, Any], Generator[None, None, Verdict]]


def at_once(found: Any) -> Any:
    """What steps come to, taken in one go; anything else as it is."""
    if not isinstance(found, Generator):
        return found
    while True:
        try:
            next(found)
        except StopIteration as over:
            return over.value


async def in_turns(found: Any) -> Any:
    """What steps come to, each in a turn of its own; anything else as it is."""
    if not isinstance(found, Generator):
        return found
    while True:
        try:
            next(found)
        except StopIteration as over:
            return over.value
        await asyncio.sleep(0)


class MergedContext:
    """A request's context whose answer is completed on its way out."""

    __slots__ = ("_context", "_merge")

    def __init__(self, context: Any, merge: Merge) -> None:
        self._context = context
        self._merge = merge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def respond(self, response: Any) -> None:
        """Answer with what the guard adds."""
        self._context.respond(at_once(self._merge(response)))

    def no_response(self) -> None:
        """Something was refused, and there is no other way to tell."""
        self._context.close("closed after a produce with acks=0 that is not authorized")


def guarded(authority: Any, guard: Guard, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The handler behind its guard; a coroutine function if the handler is one, or the guard takes steps."""
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


def _guarded_in_steps(authority: Any, guard: Guard, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
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
