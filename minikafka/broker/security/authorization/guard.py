"""How a guard stands before a handler.

A guard is a plain function `(authority, context, request) -> None | Response | merge`. None lets the request through as it is. A response
is the answer, and the handler is not asked. Otherwise the guard has taken out of the request what the principal may not do, and `merge`,
called with the handler's response, adds what is to be said of it. A guard may raise ApiError: then everything in the request fails with it.
Without an authorizer there are no guards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from minikafka.broker.front.error_responses import failure_response
from minikafka.wire.errors import ApiError
from minikafka.wire.message import Response

Merge = Callable[[Any], Any]
Verdict = Response | Merge | None
Guard = Callable[[Any, Any, Any], Verdict]


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
        self._context.respond(self._merge(response))

    def no_response(self) -> None:
        """Something was refused, and there is no other way to tell."""
        self._context.close("closed after a produce with acks=0 that is not authorized")


def guarded(authority: Any, guard: Guard, handler: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The handler behind its guard; a coroutine function if the handler is one."""

    def judge(context: Any, request: Any) -> Verdict:
        try:
            return guard(authority, context, request)
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
