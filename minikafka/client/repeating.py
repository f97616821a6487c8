"""Changes that are asked for again while it is not known what came of them: what an earlier try has done is no failure of the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from minikafka.client.cluster import BACKOFF_S_MAX, BACKOFF_S_MIN, TRANSPORT_ERRORS
from minikafka.client.errors import NoBrokers, refusal
from minikafka.wire.errors import ErrorCode

#: Of the time that is left: how long the broker may take for one try, and how long its answer is waited for.
BROKER_SHARE, ANSWER_SHARE = 0.5, 0.75
#: Asks once, given both in milliseconds; the error of the answer, and what the broker says of it.
Ask = Callable[[int, int], Awaitable[tuple[ErrorCode, str | None]]]
#: Whether a refusal comes from this change being there already, by an earlier try; None: that cannot be told yet.
IsDone = Callable[[ErrorCode], Awaitable[bool | None]]


async def until_known(ask: Ask, is_done: IsDone, timeout_ms: int, what: str) -> None:
    """Ask for a change until it is made or refused. A try whose answer is lost, late or REQUEST_TIMED_OUT may have been carried out: it is
    repeated, as Kafka's AdminClient does, and then `is_done` judges a refusal. Raises BrokerError, NoBrokers, and OSError or TimeoutError
    when the outcome is not known in time."""
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
