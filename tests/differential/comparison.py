"""Plays sequences on Apache Kafka and on minikafka, compares the answers field by field, and shortens what differs."""

from __future__ import annotations

import asyncio
import itertools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from differential.drawing import Step
from differential.side import Side

KNOWN = Path(__file__).parent / "differences.toml"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that the two answer otherwise. `step`: its place in the sequence."""

    step: int
    api: str
    path: str
    kafka: Any
    ours: Any

    @property
    def kind(self) -> object:
        """What all differences of one cause have in common."""
        return self.api, self.path, repr(self.kafka), repr(self.ours)

    def __str__(self) -> str:
        return f"step {self.step}, {self.api}: {self.path or 'the answer'} is {self.kafka!r} at Apache Kafka, {self.ours!r} here"


class Comparison:
    """A sequence at a time on both brokers."""

    def __init__(self, kafka: Side, ours: Side, lane: int = 0) -> None:
        self._sides = (kafka, ours)
        self._lane = lane
        self._runs = itertools.count()
        self._known = [row for row in tomllib.loads(KNOWN.read_text())["difference"] if row.get("is_drawn", True)]

    async def play(self, steps: list[Step]) -> list[Difference]:
        """What differs and is not in differences.toml, up to the first step with such a difference: what follows may follow from it."""
        prefix = f"l{self._lane}r{next(self._runs)}-"
        playing = [side.play(steps, prefix) for side in self._sides]
        try:
            for number, step in enumerate(steps):
                # Step by step, so that as much time passes on both: what a member of a group has not done in time counts.
                kafka, ours = await asyncio.gather(*map(anext, playing))
                if kafka == ours:
                    continue
                name = type(step.request).__name__.removesuffix("Request")
                found = [Difference(number, name, *one) for one in _differences(kafka, ours, "")]
                if any(self._is_known(one, as_a_whole=True) for one in found):
                    return []  # one has changed what the other has not
                unknown = [one for one in found if not self._is_known(one)]
                if unknown:
                    return unknown
            return []
        finally:
            for side in playing:
                await side.aclose()

    async def tell(self, steps: list[Step], title: str) -> str | None:
        """What differs, again, with the fewest of the requests that show it; None if nothing does."""
        found = await self.play(steps)
        if not found:
            return None
        steps = await self._shortened(steps[: found[0].step + 1])
        found = await self.play(steps) or found
        return "\n".join([title, *(f"  {number} {step}" for number, step in enumerate(steps)), *map(str, found)])

    async def _shortened(self, steps: list[Step]) -> list[Step]:
        for number in reversed(range(len(steps) - 1)):
            fewer = steps[:number] + steps[number + 1 :]
            if await self.play(fewer):
                steps = fewer
        return steps

    def _is_known(self, found: Difference, *, as_a_whole: bool = False) -> bool:
        return any(
            known.get("as_a_whole", False) >= as_a_whole
            and known["api"] == found.api
            and known.get("path", found.path) == found.path
            and known.get("kafka", found.kafka) == found.kafka
            and known.get("ours", found.ours) == found.ours
            for known in self._known
        )


def _differences(kafka: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in kafka:
            yield from _differences(kafka[name], ours.get(name), f"{path}.{name}" if path else name)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for one, other in zip(kafka, ours, strict=True):
            yield from _differences(one, other, path)
    elif kafka != ours:
        yield path, kafka, ours
