"""APIs that a cluster or a broker can disable, as group protocols: everybody learns that they are, whatever he is permitted."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any, Any], Any]


def guarded_while_served(is_served: Callable[[], bool], guarded: Handler, handler: Handler) -> Handler:
    """`guarded`, or while the API is disabled, the handler itself, which has to say so at once: in Apache Kafka that comes before
    authorization. Coroutine functions stay what they are."""

    def serve(context: Any, request: Any) -> Any:
        return guarded(context, request) if is_served() else handler(context, request)

    async def serve_later(context: Any, request: Any) -> Any:
        answer = serve(context, request)
        return await answer if inspect.isawaitable(answer) else answer

    return serve_later if inspect.iscoroutinefunction(guarded) else serve
