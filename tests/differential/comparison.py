"""Plays sequences on Apache Kafka and on minikafka, compares the answers field by field, and shortens what differs."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from differential.drawing import Step, sequence
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

    def __str__(self) -> str:
        return f"step {self.step}, {self.api}: {self.path or 'the answer'} is {self.kafka!r} at Apache Kafka, {self.ours!r} here"


class Comparison:
    """Both brokers. `seen_once`: sequences whose answers differed once and, played again, did not: a busy machine's timers."""

    def __init__(self, kafka: Side, ours: Side, lane: int = 0) -> None:
        self._sides = (kafka, ours)
        self._lane = lane
        self.seen_once = 0
        self._runs = itertools.count()
        self._known = [row for row in tomllib.loads(KNOWN.read_text())["difference"] if row.get("is_drawn", True)]

    def play(self, steps: list[Step]) -> list[Difference]:
        """What differs and is not in differences.toml, up to the first step with such a difference: what follows may follow from it."""
        prefix = f"l{self._lane}r{next(self._runs)}-"
        playing = [side.play(steps, prefix) for side in self._sides]
        with ThreadPoolExecutor(len(self._sides)) as pool:
            try:
                for number, step in enumerate(steps):
                    # Step by step, so that as much time passes on both: what a member of a group has not done in time counts.
                    kafka, ours = pool.map(next, playing)
                    name = type(step.request).__name__.removesuffix("Request")
                    found = [Difference(number, name, *one) for one in _differences(kafka, ours, "")]
                    unknown = [one for one in found if not self._is_known(one)]
                    if unknown:
                        return unknown
                return []
            finally:
                list(pool.map(lambda side: side.close(), playing))

    def play_seed(self, seed: int, length: int) -> str | None:
        """What differs in the sequence of a seed; None if nothing does."""
        return self.tell(sequence(seed, length), f"seed {seed}")

    def tell(self, steps: list[Step], title: str) -> str | None:
        """What differs, twice, with the fewest of the requests that show it; None if nothing does."""
        if not self.play(steps):
            return None
        found = self.play(steps)
        if not found:
            self.seen_once += 1
            return None
        steps = self._shortened(steps[: found[0].step + 1])
        found = self.play(steps) or found
        return "\n".join([title, *(f"  {number} {step}" for number, step in enumerate(steps)), *map(str, found)])

    def _shortened(self, steps: list[Step]) -> list[Step]:
        for number in reversed(range(len(steps) - 1)):
            fewer = steps[:number] + steps[number + 1 :]
            if self.play(fewer):
                steps = fewer
        return steps

    def _is_known(self, found: Difference) -> bool:
        return any(
            known["api"] == found.api
            and known.get("path", found.path) == found.path
            and known.get("kafka", found.kafka) == found.kafka
            and known.get("ours", found.ours) == found.ours
            and ("only_there" not in known or _has_more(found, known["only_there"]))
            for known in self._known
        )


def _has_more(found: Difference, values: dict[str, Any]) -> bool:
    """Whether Apache Kafka's list is ours and entries that all have these values."""
    more = [entry for entry in found.kafka if entry not in found.ours]
    return len(more) + len(found.ours) == len(found.kafka) and all(values.items() <= entry.items() for entry in more)


def _differences(kafka: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in kafka:
            yield from _differences(kafka[name], ours.get(name), f"{path}.{name}" if path else name)
    elif isinstance(kafka, list) and isinstance(ours, list) and len(kafka) == len(ours):
        for one, other in zip(kafka, ours, strict=True):
            yield from _differences(one, other, path)
    elif kafka != ours:
        yield path, kafka, ours
