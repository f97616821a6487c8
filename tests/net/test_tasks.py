"""Waiting for work that others wait for, too, that has a limit of time, or that a request to stop ends."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.net.tasks import done_before, outcome_of, within


async def never() -> int:
    await asyncio.Event().wait()
    return 1


async def test_who_waits_is_not_cancelled_with_the_task() -> None:
    task = asyncio.ensure_future(never())
    waiting = [asyncio.ensure_future(outcome_of(task)) for _ in range(2)]
    await asyncio.sleep(0)
    task.cancel()
    assert await asyncio.gather(*waiting) == [None, None]


async def test_the_task_is_not_cancelled_with_who_waits() -> None:
    task = asyncio.ensure_future(never())
    waiting = asyncio.ensure_future(outcome_of(task))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not task.done()
    task.cancel()


async def test_the_result_and_the_error_are_those_of_the_task() -> None:
    async def fail() -> int:
        raise OSError("so")

    assert await outcome_of(asyncio.ensure_future(asyncio.sleep(0, 7))) == 7
    with pytest.raises(OSError, match="so"):
        await outcome_of(asyncio.ensure_future(fail()))


async def test_a_cancellation_that_arrives_as_the_work_ends_is_not_lost() -> None:
    """Seed 7010833: a consumer that was closed went on sending heartbeats, read nothing, and `close` never returned."""
    for turns in range(4):
        event = asyncio.Event()
        task = asyncio.ensure_future(within(60, event.wait()))
        for _ in range(3):
            await asyncio.sleep(0)
        event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    raise AssertionError("it never ended")


async def test_work_that_is_late_is_cancelled() -> None:
    work = asyncio.ensure_future(never())
    with pytest.raises(TimeoutError):
        await within(0.001, work)
    assert work.cancelled()
    assert await within(None, asyncio.sleep(0, 5)) == 5


async def test_work_is_done_or_cancelled_when_a_stop_is_requested_before() -> None:
    stop_requested: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await done_before(stop_requested, asyncio.sleep(0))
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    waiting = asyncio.ensure_future(done_before(stop_requested, endless()))
    await asyncio.sleep(0)
    stop_requested.set_result(None)
    assert not await waiting and ended == ["cancelled"]


async def test_work_ends_with_who_waits_for_it() -> None:
    work = asyncio.ensure_future(never())
    waiting = asyncio.ensure_future(done_before(asyncio.get_running_loop().create_future(), work))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting, work])
    assert waiting.cancelled() and work.cancelled()


async def test_errors_of_the_work_are_raised() -> None:
    async def failing() -> None:
        raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="the disk is full"):
        await done_before(asyncio.get_running_loop().create_future(), failing())
