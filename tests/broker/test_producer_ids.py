"""Producer ids come in blocks, and those that wait for one do not all go on in one turn of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.broker.coordinators.producer_ids import ProducerIdBlocks
from minikafka.broker.supervise import Supervisor
from minikafka.wire.errors import ErrorCode

MANY, BLOCK = 500, 200


class Controller:
    """Allocates blocks when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Any]] = []

    async def request(self, request: Any) -> Any:
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        start = BLOCK * (len(self.asked) - 1)
        self.asked[-1].set_result(SimpleNamespace(error_code=code, producer_id_start=start, producer_id_len=BLOCK))


async def most_in_a_turn(tasks: list[asyncio.Task[Any]]) -> int:
    """How many tasks ended in one turn, until none does any more."""
    most, before, idle = 0, sum(task.done() for task in tasks), 0
    while idle < 20:
        await asyncio.sleep(0)
        done = sum(task.done() for task in tasks)
        most, idle, before = max(most, done - before), 0 if done > before else idle + 1, done
    return most


def begun() -> tuple[ProducerIdBlocks, Controller, list[asyncio.Task[Any]]]:
    controller = Controller()
    blocks = ProducerIdBlocks(1, SimpleNamespace(broker_epoch=1), controller, Supervisor(asyncio.get_running_loop()))  # type: ignore[arg-type]
    return blocks, controller, [asyncio.ensure_future(blocks.next_id()) for _ in range(MANY)]


async def test_those_that_wait_for_a_block_go_on_a_few_at_a_time() -> None:
    """Four hundred in a turn took 20 ms, and nothing limits how many wait."""
    _, controller, tasks = begun()
    for _ in range(4):
        assert await most_in_a_turn(tasks) <= 8
        if not controller.asked[-1].done():
            controller.answer()
    assert await most_in_a_turn(tasks) <= 8 and all(task.done() for task in tasks)
    found = [task.result() for task in tasks]
    assert {code for code, _ in found} == {ErrorCode.NONE} and sorted(number for _, number in found) == list(range(MANY))
    assert len(controller.asked) <= MANY // BLOCK + 2


@pytest.mark.parametrize("end", ["refused", "closed"])
async def test_all_that_wait_hear_that_there_is_no_block(end: str) -> None:
    blocks, controller, tasks = begun()
    await most_in_a_turn(tasks)
    tasks[3].cancel()
    if end == "refused":
        controller.answer(ErrorCode.NOT_CONTROLLER)
    else:
        await blocks.close()
    assert await most_in_a_turn(tasks) <= 8 and len(controller.asked) == 1
    wanted = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if end == "refused" else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert {task.result() for task in tasks if not task.cancelled()} == {(wanted, -1)}
