"""The exit status of `minikafka start` says whether the node has failed, even if that is while it stops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.cli import start
from minikafka.net.garbage import GarbagePauses


class EndingNode:
    """A node that is told to stop as soon as it runs, or fails at a certain point."""

    def __init__(self, fails: str) -> None:
        self._fails = fails
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """It may fail at once."""
        self._may_fail("while it runs")

    async def stop(self) -> None:
        """It may fail only now."""
        self._may_fail("while it stops")

    def _may_fail(self, when: str) -> None:
        if self._fails == when and not self.failed.done():
            self.failed.set_result(KeyError("an error of ours"))


@pytest.mark.parametrize(("fails", "status"), [("never", 0), ("while it runs", 1), ("while it stops", 1)])
async def test_a_node_that_has_failed_says_so(monkeypatch: pytest.MonkeyPatch, fails: str, status: int) -> None:
    async def no_http(node: Any) -> None:
        return None

    def announce(node: Any) -> Any:
        if fails != "while it runs":
            asyncio.get_running_loop().call_soon(lambda: [start._request(stop) for stop in requested])
        return SimpleNamespace(cancel=lambda: None)

    requested: list[asyncio.Future[None]] = []
    monkeypatch.setattr("minikafka.broker.node.Node", lambda config, environment: EndingNode(fails))
    monkeypatch.setattr(start, "_environment", lambda config, executor: None)
    monkeypatch.setattr(start, "_http", no_http)
    monkeypatch.setattr(start, "_announce", announce)
    monkeypatch.setattr(asyncio.get_running_loop(), "add_signal_handler", lambda number, handler, stop: requested.append(stop))
    collector = SimpleNamespace(collect=int, freeze=int, set_threshold=lambda *_: None, callbacks=[])
    assert await start._run(SimpleNamespace(), GarbagePauses(collector=collector), []) == status  # type: ignore[arg-type]
