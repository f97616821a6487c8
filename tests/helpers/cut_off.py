"""A coordinator that is cut off from the other nodes but still reachable by clients."""

from __future__ import annotations

import asyncio

from helpers.coordinator_story import GROUP, Story

from minikafka.wire.errors import ErrorCode


class CutOff(Story):
    """`answers`: (seconds since the connections ended, error, committed offset) of OffsetFetch at the broker that was replaced.

    `committed_s`: seconds until another offset was committed at its successor.
    """

    answers: list[tuple[float, ErrorCode, int]]
    committed_s = 0.0
    watch_s = 2.5

    async def play(self) -> None:
        await self.begin()
        await self.ask_offset()
        self.began_s = self.now
        self.answers = []
        self.isolate()
        watching = asyncio.ensure_future(self.watch())
        while (await self.coordinator(GROUP, self.group)) in (self.sleeper, -1):
            await asyncio.sleep(0.01)
        await self.commit_offset(await self.coordinator(GROUP, self.group), 2)
        self.committed_s = self.now - self.began_s
        await watching
        self.fabric.heal()

    def isolate(self) -> None:
        """Cut the broker off and end its connections to controllers."""
        own = self.nodes[self.sleeper].host
        for other in self.nodes.values():
            if other.host != own:
                self.fabric.cut(own, other.host)
                self.fabric.cut(other.host, own)
        self.end_connections(own)

    def end_connections(self, own: str) -> None:
        """Reset the connections: both sides notice at once."""
        controllers = {node.host for node in self.controllers if node.host != own}
        for connection in self.fabric.connections(own):
            if connection.peer_host in controllers:
                connection.break_off()

    async def ask_offset(self) -> tuple[ErrorCode, int]:
        question, version = self.questions()["OffsetFetch"]
        question.require_stable = True
        response = await self.ask(self.sleeper, question, version)
        code = ErrorCode(response.error_code)
        return code, -1 if code else response.topics[0].partitions[0].committed_offset

    async def watch(self) -> None:
        while (at_s := self.now - self.began_s) < self.watch_s:
            self.answers.append((round(at_s, 4), *await self.ask_offset()))
            await asyncio.sleep(0.01)

    def stale(self) -> list[tuple[float, ErrorCode, int]]:
        """Old offsets that were answered after a newer one had been committed."""
        return [entry for entry in self.answers if entry[0] >= self.committed_s and entry[2] == 1]
