"""Repeats a change whose outcome is unknown. A retry does not fail because an earlier attempt has already made the change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from minikafka.client.cluster import BACKOFF_S_MAX, BACKOFF_S_MIN
from minikafka.client.errors import TRANSPORT_ERRORS, NoBrokers, refusal
from minikafka.wire.errors import ErrorCode

#: Shares of the remaining time: how long the broker may take for one attempt, and how long to wait for its response.
BROKER_SHARE, ANSWER_SHARE = 0.5, 0.75
#: Sends the request once, given the two times in milliseconds. Returns the response's error code and message.
Ask = Callable[[int, int], Awaitable[tuple[ErrorCode, str | None]]]
#: Whether a refusal means that an earlier attempt has already made the change; None: that is not clear yet.
IsDone = Callable[[ErrorCode], Awaitable[bool | None]]


async def repeat_until_settled(ask: Ask, is_done: IsDone, timeout_ms: int, what: str) -> None:
    """Request a change until it is made or refused. An attempt whose response is lost, late or REQUEST_TIMED_OUT may have succeeded: it is
    repeated, as Kafka's AdminClient does, and from then on `is_done` judges each refusal. Raises BrokerError, NoBrokers, and OSError or
    TimeoutError if the outcome is still unknown when the time is up."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    backoff_s = BACKOFF_S_MIN
    is_open = False
    while True:
        left_ms = (deadline_s - loop.time()) * 1000
        try:
            code, message = await ask(max(1, int(left_ms * BROKER_SHARE)), max(2, int(left_ms * ANSWER_SHARE)))
            if code is ErrorCode.NONE:
                return
            failure: Exception = refusal(code, what, message)
            if code is ErrorCode.REQUEST_TIMED_OUT:
                is_open = True
            else:
                outcome = await is_done(code) if is_open else False
                if outcome:
                    return
                if outcome is False:
                    raise failure
        except NoBrokers as error:
            if not is_open:
                raise  # nothing was sent
            failure = error
        except TRANSPORT_ERRORS as error:
            failure, is_open = error, True
        if loop.time() + backoff_s >= deadline_s:
            raise failure
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
